"""What one round of the stamper does with the tickets it sees: no I/O here.

Theory. A transaction draws its ticket at the very end, so of two transactions of which one waited for the other, the
later has the higher ticket. But it becomes visible only when its commit is done: a ticket may be missing in a
snapshot although higher ones are there. Such a number is a *hole*. Its transaction is slow, or it failed and the
number will never come.

A hole is not waited for. The cursor passes it, and every later round looks into the holes first; a ticket found in a
hole is stamped then. No order is broken by that: whoever depended on it drew a higher ticket after it was visible.

When may a hole be forgotten? Its transaction had an xid before it drew the ticket, and it drew before a ticket that
the round already saw. So its xid is below W, the round's own xid, taken after the read. Once a snapshot has
xmin >= W, every transaction below W is over; a ticket that this same snapshot does not show belongs to a
transaction that failed.

Invariants (the tests carry these numbers):
  R1  every number up to the cursor is stamped, a hole, or proven to be of a failed transaction or of an empty one
  R2  stamped transactions are in ticket order within a round, and whole
  R3  a hole is dropped only by a snapshot that shows it absent and has xmin >= its bound
  R4  a round cut short by its limit says nothing about numbers above the last ticket it read
  R5  only entries are worth a row: what else a round found out is remembered, and goes with the next row
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

from trunkline.core.ids import START, Position


@dataclass(frozen=True)
class Hole:
    ticket: int
    bound: int


@dataclass(frozen=True)
class Cursor:
    """Where the stamper stands: the highest ticket it has passed, and what it left behind."""

    ticket: int
    holes: tuple[Hole, ...] = ()


class Part(NamedTuple):
    """What one transaction sends of one client to one set of destinations. `first_id` is the lowest of their ids."""

    xid: int
    client: str
    set: int
    entries: int
    bytes: int
    first_id: int
    slots: frozenset[int]


class Ticket(NamedTuple):
    """A committed ticket with the entries of its transaction; none when the application took them back itself."""

    number: int
    xid: int
    parts: tuple[Part, ...] = ()

    @property
    def entries(self) -> int:
        return sum([p.entries for p in self.parts])

    @property
    def bytes(self) -> int:
        return sum([p.bytes for p in self.parts])


@dataclass(frozen=True)
class Round:
    cursor: int
    kept: tuple[Hole, ...]
    new_holes: tuple[int, ...]
    stamped: tuple[Ticket, ...]
    empty: tuple[int, ...]
    """Tickets without entries."""

    def cursor_with(self, bound: int) -> Cursor:
        return Cursor(self.cursor, self.kept + tuple(Hole(n, bound) for n in self.new_holes))


@dataclass(frozen=True)
class Standing:
    """What the stamper knows between two rounds. `empty` are tickets it passed and has not deleted yet."""

    cursor: Cursor = Cursor(0)
    head: Position = START
    empty: tuple[int, ...] = ()
    clients: frozenset[str] = frozenset()

    def passed(self, plan: Round, bound: int) -> Standing:
        return replace(self, cursor=plan.cursor_with(bound), empty=self.empty + plan.empty)


def plan_round(before: Cursor, tickets: Sequence[Ticket], all_read: bool, xmin: int) -> Round:
    """`tickets` are those above the cursor and in its holes, ascending; `xmin` is of the snapshot they were read in."""
    found = {t.number for t in tickets}
    highest = max(found, default=0)
    cursor = max(before.ticket, highest)

    def absent(hole: Hole) -> bool:
        return hole.ticket not in found and (all_read or hole.ticket < highest)

    return Round(
        cursor=cursor,
        kept=tuple(h for h in before.holes if h.ticket not in found and not (absent(h) and xmin >= h.bound)),
        new_holes=tuple(n for n in range(before.ticket + 1, cursor + 1) if n not in found),
        stamped=tuple(t for t in tickets if t.parts),
        empty=tuple(t.number for t in tickets if not t.parts),
    )


@dataclass(frozen=True)
class Brought:
    """What a round brought to one set of destinations; `last` is the end of the last transaction that did."""

    set: int
    client: str
    entries: int
    bytes: int
    last: int


@dataclass(frozen=True)
class NewClient:
    name: str
    xid: int
    first_id: int
    after: int
    """The seq before its transaction."""


@dataclass(frozen=True)
class Numbered:
    """A round's transactions with their place in the log."""

    ends: tuple[int, ...]
    brought: tuple[Brought, ...]
    new_clients: tuple[NewClient, ...]
    slots: tuple[int, ...]


@dataclass
class _Sum:
    entries: int = 0
    bytes: int = 0
    last: int = 0


@dataclass
class _Sums:
    by_set: dict[tuple[int, str], _Sum] = field(default_factory=dict)

    def add(self, part: Part, end: int) -> None:
        total = self.by_set.setdefault((part.set, part.client), _Sum())
        total.entries += part.entries
        total.bytes += part.bytes
        total.last = end


def number(stamped: Sequence[Ticket], head: int, known: Iterable[str]) -> Numbered:
    begins = list(accumulate([t.entries for t in stamped], initial=head))
    seen, sums, new = set(known), _Sums(), list[NewClient]()
    for ticket, after, end in zip(stamped, begins, begins[1:], strict=False):
        for part in sorted(ticket.parts, key=lambda p: p.first_id):
            sums.add(part, end)
            if part.client not in seen:
                seen.add(part.client)
                new.append(NewClient(part.client, part.xid, part.first_id, after))
    brought = tuple(Brought(s, client, t.entries, t.bytes, t.last) for (s, client), t in sums.by_set.items())
    return Numbered(tuple(begins[1:]), brought, tuple(new), _slots(stamped))


def _slots(stamped: Sequence[Ticket]) -> tuple[int, ...]:
    return tuple(sorted(frozenset[int]().union(*(p.slots for t in stamped for p in t.parts))))


def tickets_of(drawn: Sequence[tuple[int, int]], parts: Mapping[int, Sequence[Part]]) -> list[Ticket]:
    """`drawn`: (ticket, xid), ascending."""
    return [Ticket(n, xid, tuple(parts.get(xid, ()))) for n, xid in drawn]
