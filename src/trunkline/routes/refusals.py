"""Which refusals of this instance no publisher has heard of: each is told once, to whoever it may concern. Pure."""

from __future__ import annotations

from trunkline.routes.keys import RouteKey
from trunkline.routes.table import Table

_NAMED = 3


class Refusals:
    def __init__(self, table: Table) -> None:
        self._table = table
        self._told: dict[RouteKey, int] = {}

    def told(self, key: RouteKey) -> None:
        if refused := self._table.refused.get(key):
            self._told[key] = refused.revision

    def untold(self) -> str:
        """The reason to give for them; empty if there are none. Now they are told."""
        refused = self._table.refused
        new = [(key, one.reason) for key, one in sorted(refused.items()) if self._told.get(key) != one.revision]
        self._told = {key: one.revision for key, one in refused.items()}
        named = "; ".join(f"{key}: {reason}" for key, reason in new[:_NAMED])
        return f"{named}; and {len(new) - _NAMED} more" if len(new) > _NAMED else named
