"""Looks at a site after everything that happens to it: what changed in its rows, and whether they keep their rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from trunkline.node.sim.site import SimSite
from trunkline.node.sim.witness import Witness
from trunkline.topology.rows import Row

GONE = "the row is gone"


@dataclass(frozen=True)
class RowChange:
    at: float
    subscriber: str
    source: str
    row: Row | None
    why: str

    @property
    def is_direct(self) -> bool:
        return self.row is not None and self.row.via == self.source

    def __str__(self) -> str:
        via = f"{self.row.via} {self.row.depth}" if self.row is not None else "- -"
        return f"{self.at:.3f} {self.subscriber} {self.source} {via} {self.why}"


@dataclass
class RowWatch:
    now: Callable[[], float]
    witness: Witness
    on_change: Callable[[RowChange], None]
    _seen: dict[str, Mapping[str, Row]] = field(default_factory=dict)

    def begin(self, sites: Iterable[SimSite]) -> None:
        """Only what changes from now on is news."""
        self._seen.update({site.database.site: dict(site.core.topology.rows) for site in sites})

    def look(self, site: SimSite) -> None:
        name, topology = site.database.site, site.core.topology
        before, rows = self._seen.get(name, {}), topology.rows
        if before == rows:
            return
        self._seen[name] = dict(rows)
        for source in sorted({*before, *rows}):
            row = rows.get(source)
            if before.get(source) != row:
                why = topology.why(source).reason
                self.on_change(RowChange(self.now(), name, source, row, why or GONE))
        for what in topology.check():
            self.witness.saw("rows", f"{name}: {what}")
