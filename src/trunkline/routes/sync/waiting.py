"""What waits to be sent and what waits to be looked at. Both are bounded (D5)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from trunkline.routes.keys import HOUSE
from trunkline.routes.sync.base import Ack, Delta, Operation

MANY = 1_000
"""Deltas of one publishing: to read the whole table costs less than to look at more of them one by one."""
MOST_DELTAS = 10_000
MOST_ACKS = 10_000


def everything(instance: str, session: str) -> Delta:
    return Delta(Operation.ALL, HOUSE, "", instance, session)


GAP = everything("", "")
"""Of nobody's session: nobody waits for its ack."""


class Load(msgspec.Struct, frozen=True):
    deltas: list[Delta]
    acks: list[Ack]


class Outbox:
    """Of one instance, while the others cannot be told. Deltas beyond the bound become one; of acks the oldest are dropped."""

    def __init__(self, instance: str, most_deltas: int = MOST_DELTAS, most_acks: int = MOST_ACKS) -> None:
        self._instance, self._most_deltas, self._most_acks = instance, most_deltas, most_acks
        self._deltas: list[Delta] = []
        self._acks: list[Ack] = []
        self.dropped_acks = 0

    def publish(self, deltas: Sequence[Delta]) -> None:
        self._deltas += [everything(self._instance, deltas[0].session)] if len(deltas) > MANY else deltas
        self._bound()

    def ack(self, ack: Ack) -> None:
        self._acks.append(ack)
        self._bound()

    def take(self) -> Load | None:
        if not self._deltas and not self._acks:
            return None
        load, self._deltas, self._acks = Load(self._deltas, self._acks), [], []
        return load

    def give_back(self, load: Load) -> None:
        """It could not be sent: it comes first again."""
        self._deltas, self._acks = load.deltas + self._deltas, load.acks + self._acks
        self._bound()

    def _bound(self) -> None:
        if len(self._deltas) > self._most_deltas:
            self._deltas = [everything(self._instance, "")]
        too_many = max(0, len(self._acks) - self._most_acks)
        self.dropped_acks += too_many
        del self._acks[:too_many]


class Inbox:
    """Heard and not looked at yet. Who hears faster than it looks looks at everything instead."""

    def __init__(self, most: int = MOST_DELTAS) -> None:
        self._most = most
        self._deltas: deque[Delta] = deque()
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._deltas)

    def put(self, delta: Delta) -> None:
        if len(self._deltas) >= self._most:
            self._deltas.clear()
            delta = GAP
        self._deltas.append(delta)
        self._some.set()

    async def next(self) -> Delta:
        await self._some.wait()
        delta = self._deltas.popleft()
        if not self._deltas:
            self._some.clear()
        return delta
