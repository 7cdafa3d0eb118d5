"""What a round decides, without a database: R1 to R4 of `rounds.py`."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from trunkline.queues.rounds import Brought, Cursor, Hole, NewClient, Part, Ticket, number, plan_round


def part(xid: int, entries: int = 1, client: str = "app", to: int = 1, first_id: int = 0, slot: int = 0) -> Part:
    return Part(xid, client, to, entries, 10 * entries, first_id or 10 * xid, frozenset((slot,)))


def ticket(number: int, *parts: Part) -> Ticket:
    xid = 100 + number
    return Ticket(number, xid, parts or (part(xid),))


def test_nothing_seen_changes_nothing() -> None:
    before = Cursor(5, (Hole(3, 50),))
    plan = plan_round(before, [], all_read=True, xmin=49)
    assert (plan.stamped, plan.empty, plan.cursor_with(99)) == ((), (), before)


def test_r1_a_missing_number_below_a_seen_one_becomes_a_hole() -> None:
    plan = plan_round(Cursor(1), [ticket(3), ticket(6)], all_read=True, xmin=1000)
    assert (plan.cursor, plan.new_holes) == (6, (2, 4, 5))


def test_r2_a_filled_hole_is_stamped_before_what_is_above_the_cursor() -> None:
    plan = plan_round(Cursor(5, (Hole(3, 50),)), [ticket(3), ticket(6)], all_read=True, xmin=1)
    assert [t.number for t in plan.stamped] == [3, 6]
    assert plan.kept == ()


@pytest.mark.parametrize(("xmin", "kept"), [(49, (Hole(3, 50),)), (50, ()), (51, ())])
def test_r3_a_hole_is_dropped_only_when_xmin_has_reached_its_bound(xmin: int, kept: tuple[Hole, ...]) -> None:
    plan = plan_round(Cursor(5, (Hole(3, 50),)), [], all_read=True, xmin=xmin)
    assert plan.kept == kept
    assert plan.stamped == (), "R5: not worth a row"


def test_r4_a_round_cut_short_does_not_judge_holes_it_did_not_reach() -> None:
    before = Cursor(9, (Hole(2, 50), Hole(4, 50), Hole(7, 50)))
    plan = plan_round(before, [ticket(4)], all_read=False, xmin=1000)
    assert plan.kept == (Hole(7, 50),)
    assert (plan.cursor, plan.new_holes) == (9, ())


def test_r5_a_ticket_without_entries_is_passed_and_not_stamped() -> None:
    plan = plan_round(Cursor(0), [Ticket(1, 101), Ticket(3, 103)], all_read=True, xmin=1)
    assert (plan.cursor, plan.stamped, plan.empty) == (3, (), (1, 3))
    assert plan.cursor_with(77) == Cursor(3, (Hole(2, 77),))


def test_numbers_add_up_per_set_and_end_with_the_last_transaction_that_brought_any() -> None:
    one = ticket(1, part(101, 2, to=1, first_id=20), part(101, 1, client="audit", to=2, first_id=19, slot=3))
    two = ticket(2, part(102, 4, to=1))
    three = ticket(3, part(103, 1, to=2, client="audit"))
    numbered = number([one, two, three], head=10, known={"app"})
    assert numbered.ends == (13, 17, 18)
    assert set(numbered.brought) == {Brought(1, "app", 6, 60, 17), Brought(2, "audit", 2, 20, 18)}
    assert numbered.new_clients == (NewClient("audit", 101, 19, 10),)
    assert numbered.slots == (0, 3)


@dataclass
class Universe:
    """Transactions that draw, commit and fail in any order, and a stamper that looks at any moment."""

    rng: random.Random
    next_xid: int = 10
    next_ticket: int = 1
    running: dict[int, int | None] = field(default_factory=dict)  # xid → ticket, None before it drew
    visible: dict[int, int] = field(default_factory=dict)  # ticket → xid
    committed: set[int] = field(default_factory=set)
    cursor: Cursor = field(default_factory=lambda: Cursor(0))
    log: list[int] = field(default_factory=list)

    def begin(self) -> None:
        self.running[self.next_xid] = None
        self.next_xid += 1

    def draw(self) -> None:
        waiting = [xid for xid, drawn in self.running.items() if drawn is None]
        if waiting:
            self.running[self.rng.choice(waiting)] = self.next_ticket
            self.next_ticket += 1

    def end(self) -> None:
        drawn = [xid for xid, number in self.running.items() if number is not None]
        if drawn:
            xid = self.rng.choice(drawn)
            number = self.running.pop(xid)
            if number is not None and self.rng.random() < 0.7:
                self.visible[number] = xid
                self.committed.add(xid)

    def stamp(self) -> None:
        limit = self.rng.choice([1, 2, 100])
        xmin = min(self.running, default=self.next_xid)
        holes = {h.ticket for h in self.cursor.holes}
        due = sorted(n for n in self.visible if n > self.cursor.ticket or n in holes)[:limit]
        tickets = [Ticket(n, self.visible[n], (part(self.visible[n]),)) for n in due]
        plan = plan_round(self.cursor, tickets, len(due) < limit, xmin)
        own, self.next_xid = self.next_xid, self.next_xid + 1
        self.cursor = plan.cursor_with(own)
        self.log += [t.xid for t in plan.stamped]


@pytest.mark.parametrize("seed", range(200))
def test_h05_any_interleaving_loses_nothing_and_doubles_nothing(seed: int) -> None:
    universe = Universe(random.Random(seed))
    steps = [universe.begin, universe.draw, universe.end, universe.stamp]
    for step in universe.rng.choices(steps, k=400):
        step()
    while universe.running:
        universe.draw()
        universe.end()
    for _ in range(len(universe.visible) + 2):
        universe.stamp()
    assert sorted(universe.log) == sorted(universe.committed)
    assert universe.cursor.holes == ()
