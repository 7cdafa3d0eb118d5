"""How long the log is kept, and for whom: decided here, done by `slots.py`.

Entries go by whole slots, oldest first. Three things let them go: every destination they are for has acknowledged them;
they are older than `hours`; or the send queue takes more room than `bytes`. The last two do not ask whether anybody still
needs them: whoever does is marked, and a snapshot makes up for it.

  K1  an unstamped entry never goes, however old its row is; age counts from the stamp (H07)
  K2  entries after the base of a snapshot that is under way stay, whatever else says (H18)
  K3  a destination is waited for while an entry for it, by name or as one of all, is above what it acknowledged (H17)
  K4  one that is more than `unacknowledged` entries behind is no longer waited for (H22)
  K5  a mark goes when nothing was trimmed that the destination lacks, and it is well within the cap again
  K6  writers get a fresh slot before the present one is large or old, as long as one is free
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from trunkline.core.ids import ALL_SITES, Position
from trunkline.db.lease import Grant, commit_fenced
from trunkline.queues.acks import acknowledged
from trunkline.queues.backlog import Backlog
from trunkline.queues.slots import SLOTS, Ring, empty, read_ring, rotate

SMALL_BYTES = 64 << 20
"""A slot of this size is left early while half the ring is free: what is acknowledged soon goes soon."""

_MARKS = "SELECT destination, client, over_cap FROM queues.needs_snapshot"
_BASE = "SELECT min(base) FROM queues.request WHERE state IN ('ready', 'providing', 'complete')"
_MARK = """
INSERT INTO queues.needs_snapshot AS n (destination, client, over_cap)
SELECT * FROM unnest(%s::text[], %s::text[], %s::boolean[])
ON CONFLICT (destination, client) DO UPDATE SET over_cap = true WHERE excluded.over_cap AND NOT n.over_cap
"""
_CLEAR = """
DELETE FROM queues.needs_snapshot n USING unnest(%s::text[], %s::text[]) AS c(destination, client)
 WHERE n.destination = c.destination AND n.client = c.client
"""

Pair = tuple[str, str]
"""destination, client"""


@dataclass(frozen=True)
class Keep:
    hours: float
    bytes: int
    unacknowledged: int


@dataclass(frozen=True)
class Facts:
    acknowledged: Mapping[Pair, Position]
    marked: Mapping[Pair, bool]
    """Whether it is over the cap."""
    sites: frozenset[str]
    """Every other site ever seen; `*` means all of them."""
    base: int | None
    """The lowest of the snapshots that are under way."""
    ring: Ring


@dataclass(frozen=True)
class Plan:
    over_cap: tuple[Pair, ...]
    cleared: tuple[Pair, ...]
    next_slot: int | None
    empty: tuple[int, ...]
    """In this order."""

    @property
    def changes(self) -> bool:
        return bool(self.over_cap or self.cleared) or self.next_slot is not None


@dataclass(frozen=True)
class Trimmed:
    lowest: int
    slot: int
    emptied: tuple[int, ...]
    marked: tuple[Pair, ...]
    cleared: tuple[Pair, ...]


class Retention:
    """`own` is this site's name: nothing is kept for itself."""

    def __init__(self, keep: Keep, own: str = "") -> None:
        self._keep, self._own = keep, own

    def step(self, conn: psycopg.Connection[Any], grant: Grant, backlog: Backlog) -> Trimmed:
        """To be called about once a second, with a backlog that is up to date; commits on `conn`, fenced."""
        facts = read_facts(conn, self._own)
        plan = decide(self._keep, facts, backlog)
        _write_marks(conn, dict.fromkeys(plan.over_cap, True))
        if plan.cleared:
            conn.execute(_CLEAR, _columns(plan.cleared))
        if plan.next_slot is not None:
            rotate(conn, plan.next_slot)
        commit_fenced(conn, grant) if plan.changes else conn.rollback()
        lowest, emptied, marked = facts.ring.lowest, list[int](), list(plan.over_cap)
        for slot in plan.empty:
            lowest, passed = self._empty(conn, grant, backlog, facts, slot, lowest) or (lowest, None)
            if passed is not None:
                emptied.append(slot)
                marked += passed
        present = facts.ring.present if plan.next_slot is None else plan.next_slot
        return Trimmed(lowest, present, tuple(emptied), tuple(dict.fromkeys(marked)), plan.cleared)

    def _empty(
        self, conn: psycopg.Connection[Any], grant: Grant, backlog: Backlog, facts: Facts, slot: int, lowest: int
    ) -> tuple[int, list[Pair]] | None:
        end = backlog.slots.get(slot)
        upto = max(lowest, end.position.seq) if end else lowest
        folded = empty(conn, slot, upto, backlog.head)
        if folded is None:
            return None
        passed = [pair for pair in _lacking(folded, facts, backlog) if pair not in facts.marked]
        _write_marks(conn, dict.fromkeys(passed, False))
        commit_fenced(conn, grant)
        backlog.emptied(slot)
        return upto, passed


def read_facts(conn: psycopg.Connection[Any], own: str) -> Facts:
    base = conn.execute(_BASE).fetchone()
    return Facts(
        acknowledged=acknowledged(conn),
        marked={(destination, client): over for destination, client, over in conn.execute(_MARKS)},
        sites=frozenset(name for (name,) in conn.execute("SELECT name FROM queues.site")) - {own},
        base=base[0] if base else None,
        ring=read_ring(conn),
    )


def decide(keep: Keep, facts: Facts, backlog: Backlog) -> Plan:
    over, lacking = _over_cap(keep, facts, backlog), _cleared(keep, facts, backlog)
    marked = (facts.marked.keys() | over) - lacking
    waited_for = [seq for pair, seq in _waiting(facts, backlog) if pair not in marked]
    point = max(min(waited_for, default=backlog.head), _forced(keep, facts.ring, backlog))
    if facts.base is not None:
        point = min(point, facts.base)
    return Plan(
        tuple(sorted(over - {pair for pair, is_over in facts.marked.items() if is_over})),
        tuple(sorted(lacking)),
        _next_slot(keep, facts.ring),
        tuple(_emptiable(facts.ring, backlog, point)),
    )


def _waiting(facts: Facts, backlog: Backlog) -> Iterator[tuple[Pair, int]]:
    """Those that have not acknowledged the last entry for them, with how far they have (K3)."""
    for destination in facts.sites:
        for client, last in backlog.last_for(destination).items():
            has = facts.acknowledged.get((destination, client))
            seq = has.seq if has else 0
            if seq < last:
                yield (destination, client), seq


def _over_cap(keep: Keep, facts: Facts, backlog: Backlog) -> set[Pair]:
    # There are no more entries behind it than numbers: most are done with after this look.
    far = [(pair, seq) for pair, seq in _waiting(facts, backlog) if backlog.head - seq > keep.unacknowledged]
    return {pair for pair, seq in far if backlog.behind(*pair, seq).entries > keep.unacknowledged}


def _cleared(keep: Keep, facts: Facts, backlog: Backlog) -> set[Pair]:
    return {pair for pair in facts.marked if _is_back(keep, facts, backlog, *pair)}


def _is_back(keep: Keep, facts: Facts, backlog: Backlog, destination: str, client: str) -> bool:
    has = facts.acknowledged.get((destination, client))
    seq = has.seq if has else 0
    lacks = backlog.trimmed_for(destination).get(client, 0) > seq
    return not lacks and backlog.behind(destination, client, seq).entries <= keep.unacknowledged // 2


def _forced(keep: Keep, ring: Ring, backlog: Backlog) -> int:
    """Up to here entries go, needed or not: they are too old, too many, or in the way of new ones."""
    left = sorted((end, slot) for slot, end in backlog.slots.items() if slot != ring.present)
    crowded = not ring.free and _is_large_or_old(keep, ring)
    point, size = 0, ring.bytes
    for nth, (end, slot) in enumerate(left):
        too_old = ring.now - end.at > keep.hours * 3600
        if not too_old and size <= keep.bytes and not (crowded and nth == 0):
            break
        point, size = end.position.seq, size - ring.sizes[slot]
    return point


def _is_large_or_old(keep: Keep, ring: Ring) -> bool:
    return ring.sizes[ring.present] >= keep.bytes / SLOTS or ring.now - ring.since >= keep.hours * 3600 / SLOTS


def _next_slot(keep: Keep, ring: Ring) -> int | None:
    if not ring.free or ring.present in ring.blank:
        return None
    early = ring.sizes[ring.present] >= SMALL_BYTES and len(ring.free) >= SLOTS // 2
    if not early and not _is_large_or_old(keep, ring):
        return None
    return min(ring.free, key=lambda slot: (slot - ring.present) % SLOTS)


def _emptiable(ring: Ring, backlog: Backlog, point: int) -> list[int]:
    """Left by writers, and nothing in it is above the point; also one that holds only what failed."""
    ends = {slot: backlog.slots[slot].position.seq if slot in backlog.slots else 0 for slot in range(SLOTS)}
    done = [s for s in range(SLOTS) if s != ring.present and ends[s] <= point and (s in backlog.slots or s not in ring.blank)]
    return sorted(done, key=lambda slot: ends[slot])


def _lacking(folded: Collection[tuple[int, str, int]], facts: Facts, backlog: Backlog) -> list[Pair]:
    """Destinations for which any of these (set, client, last seq) were, and who have not acknowledged it."""
    pairs: set[Pair] = set()
    for number, client, last in folded:
        sites = backlog.sites(number)
        for destination in facts.sites if ALL_SITES in sites else facts.sites.intersection(sites):
            has = facts.acknowledged.get((destination, client))
            if (has.seq if has else 0) < last:
                pairs.add((destination, client))
    return sorted(pairs)


def _write_marks(conn: psycopg.Connection[Any], marks: Mapping[Pair, bool]) -> None:
    if marks:
        conn.execute(_MARK, (*_columns(marks), list(marks.values())))


def _columns(pairs: Collection[Pair]) -> tuple[list[str], list[str]]:
    return [destination for destination, _ in pairs], [client for _, client in pairs]
