"""Telling the site's other instances that something changed, and hearing what became of it there.

    D1  A delta only says *look again*: who hears it reads the storage. So a lost, doubled or reordered one does no harm.
    D2  Publishing never waits for anybody. Instances never hear their own deltas.
    D3  An ack says what an instance made of one delta. Only who published its session hears it, and collects those it
        waits for (`trunkline.routes.awaited`).
    D4  On every connect, the first one too, `on_gap` is called once this instance listens: deltas may have been missed, and
        who now reads all that is newer than its own has missed nothing (H41).
    D5  Whatever waits is bounded. Deltas beyond a bound become one word, *look at everything*, which the others hear as
        `on_gap`. When they have looked they say so (`Answer`), with the reason if they refused something: that is the ack.
        If `on_gap` raises it is called again.
    D6  What is on the channel and cannot be read is ignored and counted. A callback that raises is logged and counted, and
        the next one is called.

Every delta syncer passes tests/route_sync_suite.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from trunkline.routes.keys import HOUSE, Tenant


class Operation(StrEnum):
    """`ALL`: look at everything; `on_delta` never sees it."""

    ADD = "add"
    REMOVE = "rem"
    ALL = "all"


class Item(StrEnum):
    ROUTE = "route"
    TENANT = "tenant"


class Delta(msgspec.Struct, frozen=True, gc=False):
    """`id` of the route; of a tenant it is empty. `session`: unique for each publishing."""

    operation: Operation
    tenant: Tenant
    id: str
    instance: str
    session: str
    item: Item = Item.ROUTE


class Ack(msgspec.Struct, frozen=True):
    """`reason`: why the instance refused it; empty if it did as told. `revision`: that it has now, of what the delta named."""

    session: str
    instance: str
    revision: int
    reason: str = ""
    operation: Operation = Operation.ADD
    tenant: Tenant = HOUSE
    id: str = ""
    item: Item = Item.ROUTE

    @classmethod
    def of(cls, delta: Delta, instance: str, revision: int, reason: str = "") -> Ack:
        return cls(delta.session, instance, revision, reason, delta.operation, delta.tenant, delta.id, delta.item)


OnDelta = Callable[[Delta], Awaitable[None]]
OnAck = Callable[[Ack], None]
Answer = Callable[[str], None]
OnGap = Callable[[Answer], Awaitable[None]]


class DeltaSyncer(Protocol):
    @property
    def instance(self) -> str: ...

    async def start(self, on_delta: OnDelta, on_ack: OnAck, on_gap: OnGap) -> None:
        """Listens when it returns, and has called `on_gap`. `on_delta` and `on_gap` are called one after the other, `on_ack`
        as soon as an ack comes. Raises `Retryable`, and leaves nothing behind, while it cannot connect."""

    async def stop(self) -> None:
        """What was published is sent first, if that can be done at once."""

    def publish(self, deltas: Sequence[Delta]) -> None:
        """To all other instances, in this order, as soon as may be. All of them are of one session."""

    def ack(self, ack: Ack) -> None:
        """To whoever published its session."""
