"""Why an origin comes from where it comes: the candidates, the choice and the reason, for people."""

from __future__ import annotations

from dataclasses import dataclass

from trunkline.topology.chain import leads_back, validates
from trunkline.topology.effects import Manner
from trunkline.topology.neighbours import Link
from trunkline.topology.rows import Flag, Row
from trunkline.topology.table import Table, Taking


@dataclass(frozen=True)
class Candidate:
    via: str
    connected: bool
    """It accepted, so paths may run over it."""
    cost: int | None
    """None: it cannot reach the origin."""
    depth: int | None
    path: tuple[str, ...]
    chain_valid: bool
    cursor: int
    chosen: bool
    note: str


@dataclass(frozen=True)
class Why:
    row: Row | None
    since: float | None
    manner: Manner | None
    candidates: tuple[Candidate, ...]
    reason: str


def explain(table: Table, origin: str, held_since: float | None, hold_seconds: float) -> Why:
    taking = table.takings.get(origin)
    candidates = tuple(_candidate(table, origin, link, taking) for link in table.links.values() if link.neighbour.hears)
    reason = _reason(table, origin, taking)
    if held_since is not None:
        reason += f"; something shorter is there and is taken when it was stable for {hold_seconds:g} s"
    if taking is None:
        return Why(table.rows.get(origin), None, None, candidates, reason)
    return Why(table.rows.get(origin), taking.since, taking.manner, candidates, reason)


def _candidate(table: Table, origin: str, link: Link, taking: Taking | None) -> Candidate:
    row = table.row(origin, link.site) if _may_carry(table, link, origin) else None
    return Candidate(
        via=link.site,
        connected=link.joined,
        cost=row.cost if row is not None else None,
        depth=row.depth if row is not None else None,
        path=row.path if row is not None else (),
        chain_valid=validates(link, origin, table.site),
        cursor=link.has(origin),
        chosen=taking is not None and taking.via == link.site,
        note=_note(table, origin, link, row),
    )


def _may_carry(table: Table, link: Link, origin: str) -> bool:
    return link.neighbour.capable or origin == link.site or origin in link.cursors


def _note(table: Table, origin: str, link: Link, row: Row | None) -> str:
    notes = {
        "damped: the link was lost lately": not link.asked and not link.joined,
        "asked for its records, not yet accepted": link.asked and not link.joined,
        "cannot reach it": row is None,
        "takes it through this site": leads_back(link, origin, table.site),
        "stood still": table.is_barred(origin, link.site),
        "sends everything": not link.neighbour.capable,
        "told no path yet": row is not None and not validates(link, origin, table.site),
    }
    return next((note for note, holds in notes.items() if holds), "")


def _reason(table: Table, origin: str, taking: Taking | None) -> str:
    if origin == table.site:
        return "these are this site's own records"
    cost, nearest = table.nearest(origin)
    if taking is None:
        return "every neighbour that is near it takes it through this site" if nearest else "no neighbour can reach it"
    if table.is_unknown(origin) and origin not in table.rows:
        return f"no link row names it yet: the default carrier {taking.via} is asked"
    row = table.rows.get(origin)
    if not taking.accepted or row is None:
        return f"{taking.via} was asked and has not accepted yet"
    if Flag.ALL in row.flags:
        return f"{taking.via} cannot choose what it sends, so it is taken there and nowhere else"
    if Flag.STALE in row.flags:
        return "link rows on its path expired; it works, so it stays"
    if taking.via not in nearest:
        return f"{taking.via} works, though cost {cost} is to be had"
    others = len(nearest) - 1
    return f"cost {cost} is the least" + (f"; {others} more at the same cost: what was chosen stays" if others else "")
