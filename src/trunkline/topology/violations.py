"""R1–R5 of the topology as assertions."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from trunkline.topology.chain import validates
from trunkline.topology.neighbours import Link
from trunkline.topology.rows import Row
from trunkline.topology.table import Table


def violations(table: Table, unseen: Collection[str]) -> list[str]:
    """`unseen`: origins about which something was told that is not looked at yet."""
    return [found for origin, row in table.rows.items() for found in _of(table, origin, row, origin in unseen)]


def _of(table: Table, origin: str, row: Row, unseen: bool) -> Iterator[str]:
    name = f"({table.site}, {origin}, {row.via}, {row.depth})"
    if (row.depth == 1) != (row.via == row.source):
        yield f"R1 {name}: depth 1 and via the source go together"
    link = table.links.get(row.via)
    if link is None or not link.joined:
        yield f"R2 {name}: {row.via} is no neighbour that accepted"
    elif not unseen and (told := _told(table, link, row)) not in (None, row.path[1:]):
        yield f"R3 {name}: the path is {row.path}, {row.via} told {told}"
    if table.site in row.path or row.path[:1] != (row.via,) or row.path[-1:] != (row.source,):
        yield f"R3 {name}: {row.path} is no path from {row.via} to {row.source} without {table.site}"
    if origin != row.source or origin not in table.takings:
        yield f"R4 {name}: the row is not that of the one subscription for {origin}"
    if table.site in (origin, row.source):
        yield f"R5 {name}: a row for itself"


def _told(table: Table, link: Link, row: Row) -> tuple[str, ...] | None:
    """What the parent told, unless it cannot be, or the origin is on its way to another parent."""
    told, taking = link.told.get(row.source), table.takings.get(row.source)
    staying = taking is not None and taking.via == row.via != row.source
    return told.path if staying and told is not None and validates(link, row.source, table.site) else None
