"""Receivers and senders that live routes share: the layer of counts below that of the ids.

P1  One plugin runs for all live routes that name the same tenant, type, name and configuration. A name of its own makes it
    private; a receiver is never a sender, whatever their configurations.
P2  It starts with the first of them and stops with the last. Who takes over from another keeps what both use.
P3  Filters are not counted: each live route has its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from trunkline.routes.keys import Tenant
from trunkline.routes.storage.base import Body


class End(StrEnum):
    SENDER = "sender"
    RECEIVER = "receiver"


class PluginKey(msgspec.Struct, frozen=True):
    end: End
    tenant: Tenant
    plugin: str
    name: str
    hash: str


class Effects(msgspec.Struct, frozen=True):
    """Plugins to start, in this order, and then those to stop, in this order."""

    start: list[PluginKey]
    stop: list[PluginKey]


def plugins_of(tenant: Tenant, body: Body, hash: Callable[[Any], str]) -> list[PluginKey]:
    """The sender first: it must be there when the first event comes. `hash`: of a plugin's configuration."""
    return [
        PluginKey(end, tenant, body[end]["plugin"], body[end].get("name") or "", hash(body[end].get("config") or {}))
        for end in (End.SENDER, End.RECEIVER)
    ]


class SharedPlugins:
    def __init__(self) -> None:
        self.users: Counter[PluginKey] = Counter()

    def join(self, used: Sequence[PluginKey]) -> list[PluginKey]:
        """What has to start."""
        return self.swap((), used).start

    def leave(self, used: Sequence[PluginKey]) -> list[PluginKey]:
        """What has to stop, receivers first: what they still gave must have somewhere to go."""
        return self.swap(used, ()).stop

    def swap(self, old: Sequence[PluginKey], new: Sequence[PluginKey]) -> Effects:
        start = [key for key in new if not self.users[key]]
        self.users.update(new)
        self.users.subtract(old)
        stop = [key for key in reversed(old) if not self.users[key]]
        for key in stop:
            del self.users[key]
        return Effects(start, stop)
