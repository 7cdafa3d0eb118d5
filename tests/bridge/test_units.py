"""The dispatcher's rules by example, each under its number; `test_units_model` holds them against a model."""

from __future__ import annotations

import pytest
from bridge_units import ASIDE, BASE, DELTA, EVENTS, EXACT, HYBRID, LOOSE, finish, order, take_one, v, waiting
from msgspec.structs import replace

from trunkline.bridge.units import Job, Units, Wave
from trunkline.core.bundle import Mode


def test_u1_one_job_in_flight_per_unit() -> None:
    units = Units()
    units.arrived(waiting(BASE))
    units.arrived(waiting(EVENTS, arrival=1))
    units.arrived(waiting(BASE, site="b", since=1))
    first = take_one(units)
    assert (first.site, first.type) == ("a", BASE)
    assert take_one(units).site == "b"
    assert units.take(0) is None
    finish(units, first)
    assert take_one(units) == Job("a", "", EVENTS, "", Mode.APPEND, v(1), 0)


def test_u1_groups_of_one_site_are_applied_side_by_side() -> None:
    units = Units()
    units.known("a", BASE, v(1))
    units.arrived(waiting(LOOSE))
    units.arrived(waiting(ASIDE, needs=1))
    assert {take_one(units).group, take_one(units).group} == {"", "other"}
    assert units.sizes() == {"ready": 0, "parked": 0, "delayed": 0, "flying": 2, "units": 2}


def test_u1_a_wave_is_one_type_of_many_sites_and_each_site_once() -> None:
    units = Units()
    for n, site in enumerate("abcd"):
        units.arrived(waiting(BASE, site=site, since=10 - n))
        units.arrived(waiting(EVENTS, site=site, arrival=n))
    units.arrived(waiting(EVENTS, site="only-events", since=-1, arrival=9))
    assert units.take(0, most=10) == Wave(EVENTS, Mode.APPEND, (Job("only-events", "", EVENTS, "", Mode.APPEND, v(1), 0),))
    wave = units.take(0, most=3)
    assert wave == Wave(BASE, Mode.COMPLETE, tuple(Job(s, "", BASE, "", Mode.COMPLETE, v(1), 0) for s in "abc"))
    rest = units.take(0, most=3)
    assert rest is not None
    assert [job.site for job in rest.jobs] == ["d"]
    assert units.take(0) is None


@pytest.mark.parametrize("type_", [LOOSE, EXACT])
@pytest.mark.parametrize("applied", [2, 3])
def test_u2_a_dependent_waits_until_its_base_is_applied(type_: str, applied: int) -> None:
    """An exact one is handed out, too, when its base can never come again: the worker discards it (H38)."""
    units = Units()
    units.arrived(waiting(type_, needs=2))
    units.known("a", BASE, v(1))
    units.known("b", BASE, v(3))
    assert units.take(0) is None
    assert units.sizes()["parked"] == 1
    units.known("a", BASE, v(applied))
    assert take_one(units).type == type_


def test_u2_a_base_of_another_group_sets_its_dependents_free() -> None:
    units = Units()
    units.arrived(waiting(ASIDE, needs=1))
    units.arrived(waiting(BASE))
    base = take_one(units)
    assert units.take(0) is None
    finish(units, base)
    assert take_one(units).type == ASIDE


def test_u2_what_was_known_does_not_go_back() -> None:
    units = Units()
    units.known("a", BASE, v(3))
    units.known("a", BASE, v(1))
    units.arrived(waiting(LOOSE, needs=2))
    assert take_one(units).type == LOOSE


def test_u2_a_dependency_on_any_run_of_its_base_looks_at_the_value_only() -> None:
    units = Units()
    units.known("a", BASE, v(5, incarnation=7))
    units.known("b", BASE, v(5, incarnation=7))
    units.arrived(replace(waiting(EXACT), dependency=v(5, incarnation=0)))
    units.arrived(replace(waiting(EXACT, site="b"), dependency=v(6, incarnation=0)))
    assert take_one(units).site == "a"
    assert units.take(0) is None


def test_u2_the_wedge_a_replaced_entry_whose_new_dependency_is_not_met_is_queued_again_later() -> None:
    """The unit stands in the ready queue; then what made it ready is replaced by what is not."""
    units = Units()
    units.known("a", BASE, v(5))
    units.arrived(waiting(EXACT, 1, needs=5))
    assert units.sizes()["ready"] == 1
    units.arrived(waiting(EXACT, 2, needs=6))
    assert units.take(0) is None
    assert units.sizes() == {"ready": 0, "parked": 1, "delayed": 0, "flying": 0, "units": 1}
    units.arrived(waiting(BASE, 6, since=9))
    assert order(units) == [("a", BASE), ("a", EXACT)]
    assert units.sizes()["units"] == 0


def test_u2_the_wedge_in_flight() -> None:
    """The base is applied while its dependent is replaced by one for the base after it."""
    units = Units()
    units.arrived(waiting(BASE, 5))
    units.arrived(waiting(EXACT, 1, needs=5))
    base = take_one(units)
    units.arrived(waiting(EXACT, 2, needs=6))
    finish(units, base)
    assert units.take(0) is None
    units.arrived(waiting(BASE, 6))
    assert order(units) == [("a", BASE), ("a", EXACT)]


@pytest.mark.parametrize("most", [1, 7, 1_000])
def test_u8_a_burst_of_1000_sites_and_3_types_in_one_moment_is_all_handed_out(most: int) -> None:
    units = Units()
    for n in range(1_000):
        for type_ in (EVENTS, LOOSE, BASE):
            units.arrived(waiting(type_, site=f"s{n}", needs=1 if type_ == LOOSE else None, arrival=n))
    jobs: list[Job] = []
    flying: list[Job] = []
    while (wave := units.take(0, most)) is not None or flying:
        flying += wave.jobs if wave else ()
        jobs += wave.jobs if wave else ()
        if wave is None or len(flying) > 10 * most:
            for job in flying:
                finish(units, job)
            flying = []
    assert {(job.site, job.type) for job in jobs} == {(f"s{n}", t) for n in range(1_000) for t in (BASE, LOOSE, EVENTS)}
    assert len(jobs) == 3_000
    assert units.backlog() == 0
    assert not any(units.sizes().values())


def test_u3_oldest_first_between_sites_and_a_replaced_entry_keeps_its_place() -> None:
    units = Units()
    units.arrived(waiting(BASE, site="young", since=5))
    units.arrived(waiting(BASE, site="old", since=1))
    units.arrived(waiting(BASE, 2, site="old", since=9))
    job = take_one(units)
    assert (job.site, job.version) == ("old", v(2))
    assert take_one(units).site == "young"


def test_u3_what_arrives_during_its_own_apply_queues_anew() -> None:
    units = Units()
    units.arrived(waiting(BASE, site="busy", since=1))
    job = take_one(units)
    units.arrived(waiting(BASE, site="other", since=5))
    units.arrived(waiting(BASE, 2, site="busy", since=6))
    units.arrived(waiting(BASE, 3, site="busy", since=7))
    finish(units, job)
    assert order(units) == [("other", BASE), ("busy", BASE)]


def test_u4_priority_inside_a_site_then_age() -> None:
    units = Units()
    units.arrived(waiting(HYBRID, since=3, arrival=1))
    units.arrived(waiting(EVENTS, since=1, arrival=2))
    units.arrived(waiting(BASE, since=9))
    assert order(units) == [("a", BASE), ("a", HYBRID), ("a", EVENTS)]


def test_u4_a_type_that_never_rests_lets_the_others_have_their_turn() -> None:
    units = Units()
    units.arrived(waiting(EVENTS, arrival=1))
    units.arrived(waiting(HYBRID, arrival=2))
    went = []
    for n in range(1, 6):
        units.arrived(waiting(BASE, n, since=n))
        job = take_one(units)
        units.arrived(waiting(BASE, n + 1, since=n))
        went.append(job.type)
        finish(units, job)
    assert went == [BASE, HYBRID, EVENTS, BASE, BASE]


def test_h38_a_dependent_of_the_applied_base_goes_before_the_newer_base() -> None:
    units = Units()
    units.known("a", BASE, v(1))
    units.arrived(waiting(BASE, 2))
    units.arrived(waiting(EXACT, needs=1, since=1))
    assert order(units) == [("a", EXACT), ("a", BASE)]


def test_h38_a_newer_base_that_is_not_ready_itself_hurries_nobody() -> None:
    units = Units()
    units.known("a", EXACT, v(1))
    units.arrived(waiting(EXACT, 2, needs=9))
    units.arrived(waiting(DELTA, needs=1, arrival=1))
    units.arrived(waiting(LOOSE))
    assert take_one(units).type == LOOSE, "it has priority"
    units.known("b", EXACT, v(1))
    units.known("b", BASE, v(9))
    units.arrived(waiting(EXACT, 2, needs=9, site="b"))
    units.arrived(waiting(DELTA, needs=1, arrival=2, site="b"))
    units.arrived(waiting(LOOSE, site="b"))
    assert order(units) == [("b", DELTA), ("b", EXACT), ("b", LOOSE)]


def test_h38_a_stream_of_deltas_on_the_applied_base_holds_nothing_else_back() -> None:
    units = Units()
    units.known("a", EXACT, v(1))
    units.arrived(waiting(EVENTS, arrival=1))
    units.arrived(waiting(DELTA, needs=1, arrival=2))
    went = []
    for n in range(3, 6):
        job = take_one(units)
        units.arrived(waiting(DELTA, needs=1, arrival=n))
        went.append(job.type)
        finish(units, job, upto=n - 1)
    assert went == [DELTA, EVENTS, DELTA]


def test_u5_a_newer_version_in_flight_stays_and_starts_without_failed_tries() -> None:
    units = Units()
    units.arrived(waiting(BASE))
    units.failed(take_one(units), retry_at=1)
    again = take_one(units, now=1)
    assert again.tries == 1
    units.arrived(waiting(BASE, 2))
    units.failed(again, retry_at=2)
    newer = take_one(units, now=1)
    assert (newer.version, newer.tries) == (v(2), 0)


def test_u5_applying_a_newer_version_than_was_taken_finishes_both() -> None:
    units = Units()
    units.arrived(waiting(BASE))
    job = take_one(units)
    units.arrived(waiting(BASE, 2))
    units.finished(job, v(2), v(2))
    assert units.take(0) is None
    assert units.sizes()["units"] == 0


def test_u5_a_queue_is_one_job_and_what_arrives_behind_it_stays() -> None:
    units = Units()
    for n in (3, 1, 2):
        units.arrived(waiting(EVENTS, n, arrival=n))
        units.arrived(waiting(EVENTS, n, arrival=n))
    assert units.backlog() == 3
    job = take_one(units)
    assert job.version == v(1)
    units.arrived(waiting(EVENTS, 4, arrival=4))
    finish(units, job, upto=2)
    assert units.backlog() == 2
    job = take_one(units)
    assert job.version == v(3)
    finish(units, job, upto=4)
    assert (units.backlog(), units.take(0)) == (0, None)


def test_u5_a_job_that_found_nothing_takes_what_was_known_with_it() -> None:
    units = Units()
    units.arrived(waiting(EVENTS, arrival=1))
    units.arrived(waiting(EVENTS, arrival=2))
    job = take_one(units)
    units.arrived(waiting(EVENTS, arrival=3))
    units.finished(job, None, None)
    assert units.backlog() == 1
    assert take_one(units).type == EVENTS


def test_u5_tries_count_for_the_head_that_failed() -> None:
    units = Units()
    units.arrived(waiting(HYBRID, 1, arrival=1))
    units.arrived(waiting(HYBRID, 2, arrival=2))
    for tries in range(3):
        job = take_one(units, now=tries)
        assert job.tries == tries
        units.failed(job, retry_at=tries + 1)
    last = take_one(units, now=3)
    units.finished(last, None, None, upto=1)
    assert take_one(units, now=3) == Job("a", "", HYBRID, "", Mode.HYBRID, v(2), 0)


def test_u5_the_head_of_a_queue_decides_for_all_behind_it() -> None:
    units = Units()
    units.known("a", EXACT, v(1))
    units.arrived(waiting(DELTA, needs=2, arrival=1))
    units.arrived(waiting(DELTA, needs=1, arrival=2))
    assert units.take(0) is None
    units.known("a", EXACT, v(2))
    assert take_one(units).type == DELTA


def test_u7_a_failed_job_is_not_offered_before_its_time() -> None:
    units = Units()
    units.arrived(waiting(BASE))
    job = take_one(units)
    units.failed(job, retry_at=4.0, counts=False)
    units.arrived(waiting(BASE))
    assert units.take(3.9) is None
    assert units.next_due(3.9) == 4.0
    assert take_one(units, now=4.0) == job


def test_u7_what_lingers_is_taken_with_what_came_meanwhile() -> None:
    units = Units(linger=5.0)
    units.arrived(waiting(BASE, site="a", since=100))
    units.arrived(waiting(BASE, site="b", since=103))
    units.arrived(waiting(BASE, 2, site="a", since=104))
    assert units.take(104.9, most=9) is None
    assert units.next_due(104.9) == 105
    assert units.sizes()["delayed"] == 2
    wave = units.take(105, most=9)
    assert wave is not None
    assert [(job.site, job.version) for job in wave.jobs] == [("a", v(2))]
    assert units.next_due(105) == 108
    wave = units.take(108, most=9)
    assert wave is not None
    assert [job.site for job in wave.jobs] == ["b"]
    assert units.next_due(108) is None


def test_u7_an_urgent_type_that_lingers_does_not_hold_back_what_is_due() -> None:
    units = Units(linger=5.0)
    units.arrived(waiting(BASE, since=4))
    units.arrived(waiting(EVENTS, since=0, arrival=1))
    assert take_one(units, now=5).type == EVENTS


def test_next_due_is_now_while_something_may_be_taken() -> None:
    units = Units()
    assert units.next_due(3.0) is None
    units.arrived(waiting(BASE))
    assert units.next_due(3.0) == 3.0


def test_h37_a_held_delta_waits_for_release_and_the_rest_of_its_site_goes_on() -> None:
    units = Units()
    units.known("a", EXACT, v(1))
    units.arrived(waiting(DELTA, needs=1, arrival=1))
    units.arrived(waiting(DELTA, needs=1, arrival=2))
    job = take_one(units)
    units.hold("a", DELTA)
    units.finished(job, None, None, upto=1)
    units.arrived(waiting(DELTA, needs=1, arrival=3))
    units.arrived(waiting(BASE))
    assert order(units) == [("a", BASE)]
    assert (units.backlog(), units.sizes()["parked"]) == (0, 1), "it is no reason to take in less: what releases it is to come"
    units.release("a", DELTA)
    assert units.backlog() == 2
    assert take_one(units).type == DELTA


def test_h37_a_held_hybrid_is_ready_again_with_a_bundle_that_restores() -> None:
    units = Units()
    units.hold("a", HYBRID)
    units.arrived(waiting(HYBRID, 1, arrival=1))
    units.arrived(waiting(HYBRID, 2, arrival=2))
    assert units.take(0) is None
    units.arrived(waiting(HYBRID, 3, arrival=3, restores=True))
    units.arrived(waiting(HYBRID, 4, arrival=4))
    job = take_one(units)
    assert job.version == v(3)
    units.release("a", HYBRID)
    finish(units, job, upto=3)
    assert take_one(units).version == v(4)


def test_h37_holding_a_type_that_has_no_order_holds_nothing() -> None:
    units = Units()
    for type_ in (BASE, EVENTS):
        units.hold("a", type_)
        units.arrived(waiting(type_, arrival=1))
    assert order(units) == [("a", BASE), ("a", EVENTS)]


def test_a_forgotten_site_leaves_nothing_and_its_flying_job_lands_without_effect() -> None:
    units = Units(linger=1.0)
    units.arrived(waiting(BASE))
    units.known("a", EXACT, v(1))
    units.hold("a", HYBRID)
    units.arrived(waiting(HYBRID, arrival=1))
    units.arrived(waiting(EVENTS, arrival=1, since=50))
    job = take_one(units, now=1)
    units.forget("a")
    assert (units.backlog(), units.sizes()) == (0, {"ready": 0, "parked": 0, "delayed": 0, "flying": 1, "units": 0})
    units.arrived(waiting(LOOSE, needs=1))
    units.arrived(waiting(HYBRID, arrival=2))
    assert units.take(9) is None, "one job of the unit is in flight still"
    finish(units, job)
    assert take_one(units, now=9).type == HYBRID, "it is held no more"
    assert units.sizes()["parked"] == 1, "what the old site had applied is not known of the new one"


def test_a_scan_finds_what_left_the_inbox_without_a_job() -> None:
    """A cap or an operator took it; what is noticed while the scan runs stays."""
    units = Units()
    units.hold("a", HYBRID)
    for n in range(1, 5):
        units.arrived(waiting(HYBRID, arrival=n))
    units.arrived(waiting(EXACT, needs=3))
    units.arrived(waiting(LOOSE, needs=3))
    units.scan_begins()
    units.arrived(waiting(HYBRID, arrival=5))
    units.arrived(waiting(HYBRID, arrival=3))
    units.arrived(waiting(LOOSE, needs=3))
    units.scan_ends()
    assert (units.backlog(), units.sizes()["parked"]) == (0, 2)
    units.known("a", BASE, v(3))
    units.release("a", HYBRID)
    assert units.backlog() == 2
    assert order(units) == [("a", LOOSE), ("a", HYBRID)]


def test_u6_the_cost_of_a_job_does_not_grow_with_the_number_of_sites() -> None:
    """Counted in comparisons of ranks, not in seconds."""

    class Since(float):
        compared = 0

        def __lt__(self, other: float) -> bool:
            Since.compared += 1
            return float(self) < float(other)

    def comparisons(sites: int, most: int) -> int:
        units = Units()
        for n in range(sites):
            units.arrived(waiting(BASE, site=f"s{n:05}", since=Since(n)))
        Since.compared = 0
        for _ in range(100 // most):
            wave = units.take(0.0, most)
            assert wave is not None
            for job in wave.jobs:
                finish(units, job)
        return Since.compared

    for most in (1, 20):
        assert comparisons(5_000, most) < 4 * comparisons(200, most)
