"""What carries texts between the instances of a site: all that differs from one delta syncer to the next.

C1  `listening` is entered when nothing that is sent from then on can be missed, and raises `Retryable` when the connection
    is lost: never does it connect again unseen, for that would be a gap that nobody hears of (H41).
C2  `send` raises `Retryable` when it may not have been sent; it is called again with the same, so something may be sent
    twice (D1).
C3  A text that is heard may be several lines, one delta or ack each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Protocol

import msgspec

from trunkline.routes.sync.waiting import Load


class Channel(StrEnum):
    SYNC = "sync"
    ACK = "ack"


class Heard(msgspec.Struct, frozen=True):
    channel: Channel
    text: str


class Carrier(Protocol):
    @property
    def title(self) -> str:
        """For people: what is away when it is."""

    def listening(self, sessions: Sequence[str]) -> AbstractAsyncContextManager[AsyncIterator[Heard]]:
        """`sessions`: those this instance published of late. Where acks are kept, theirs come first."""

    async def send(self, load: Load) -> None: ...

    async def close(self) -> None:
        """Of what `send` uses."""
