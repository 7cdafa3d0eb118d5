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
  R1  every number up to the cursor is stamped, a hole, or proven to be of a failed transaction
  R2  stamped transactions are in ticket order within a round, and whole
  R3  a hole is dropped only by a snapshot that shows it absent and has xmin >= its bound
  R4  a round cut short by its limit says nothing about numbers above the last ticket it read
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Hole:
    ticket: int
    bound: int


@dataclass(frozen=True)
class Cursor:
    """Where the stamper stands: the highest ticket it has passed, and what it left behind."""

    ticket: int
    holes: tuple[Hole, ...] = ()


@dataclass(frozen=True)
class Ticket:
    """A committed ticket with the entries of its transaction; none when the application took them back itself."""

    number: int
    xid: int
    entries: int


@dataclass(frozen=True)
class Round:
    cursor: int
    kept: tuple[Hole, ...]
    new_holes: tuple[int, ...]
    stamped: tuple[Ticket, ...]
    changed: bool


def plan_round(before: Cursor, tickets: Sequence[Ticket], all_read: bool, xmin: int) -> Round:
    """`tickets` are those above the cursor and in its holes, ascending; `xmin` is of the snapshot they were read in."""
    found = {t.number for t in tickets}
    highest = max(found, default=0)
    cursor = max(before.ticket, highest)

    def absent(hole: Hole) -> bool:
        return hole.ticket not in found and (all_read or hole.ticket < highest)

    kept = tuple(h for h in before.holes if h.ticket not in found and not (absent(h) and xmin >= h.bound))
    return Round(
        cursor=cursor,
        kept=kept,
        new_holes=tuple(n for n in range(before.ticket + 1, cursor + 1) if n not in found),
        stamped=tuple(t for t in tickets if t.entries > 0),
        changed=bool(tickets) or len(kept) < len(before.holes),
    )
