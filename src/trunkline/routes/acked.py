"""The last word of each other instance on each route, as far as it was heard here. Pure: time is an argument.

Acks come to whoever published the change. So this knows what this instance changed; where acks are kept for all (Postgres), a
look there knows the rest.
"""

from __future__ import annotations

from typing import Any

import msgspec

from trunkline.routes.keys import RouteKey
from trunkline.routes.sync.base import Ack, Item, Operation

MOST = 100_000
"""Words of instances on routes: some ten megabytes. The oldest are forgotten."""


class Word(msgspec.Struct, frozen=True):
    """`revision`: that the instance has; 0: none. `reason`: why it refused; empty if it did as told. `at`: unix seconds."""

    instance: str
    revision: int
    reason: str
    at: float

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Acked:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._words: dict[tuple[RouteKey, str], Word] = {}

    def __len__(self) -> int:
        return len(self._words)

    def hear(self, ack: Ack, at: float) -> None:
        if ack.item is not Item.ROUTE or ack.operation is Operation.ALL:
            return
        place = (RouteKey(ack.tenant, ack.id), ack.instance)
        self._words.pop(place, None)
        self._words[place] = Word(ack.instance, ack.revision, ack.reason, at)
        if len(self._words) > self._most:
            del self._words[next(iter(self._words))]

    def words(self, key: RouteKey, instances: list[str]) -> dict[str, Word]:
        """Of these instances on this route."""
        return {id: word for id in instances if (word := self._words.get((key, id))) is not None}
