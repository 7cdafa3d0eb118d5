"""What a round decides, without a database: R1 to R4 of `rounds.py`."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from trunkline.queues.rounds import Cursor, Hole, Ticket, plan_round


def ticket(number: int, entries: int = 1) -> Ticket:
    return Ticket(number, 100 + number, entries)


def test_nothing_seen_changes_nothing() -> None:
    plan = plan_round(Cursor(5, (Hole(3, 50),)), [], all_read=True, xmin=49)
    assert not plan.changed
    assert (plan.cursor, plan.kept) == (5, (Hole(3, 50),))


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
    assert plan.changed is (kept == ())


def test_r4_a_round_cut_short_does_not_judge_holes_it_did_not_reach() -> None:
    before = Cursor(9, (Hole(2, 50), Hole(4, 50), Hole(7, 50)))
    plan = plan_round(before, [ticket(4)], all_read=False, xmin=1000)
    assert plan.kept == (Hole(7, 50),)
    assert (plan.cursor, plan.new_holes) == (9, ())


def test_a_ticket_without_entries_is_passed_and_not_stamped() -> None:
    plan = plan_round(Cursor(0), [ticket(1, entries=0)], all_read=True, xmin=1)
    assert (plan.cursor, plan.stamped, plan.new_holes, plan.changed) == (1, (), (), True)


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
        plan = plan_round(self.cursor, [Ticket(n, self.visible[n], 1) for n in due], len(due) < limit, xmin)
        if plan.changed:
            own, self.next_xid = self.next_xid, self.next_xid + 1
            self.cursor = Cursor(plan.cursor, plan.kept + tuple(Hole(n, own) for n in plan.new_holes))
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
