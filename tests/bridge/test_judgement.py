"""What becomes of what waits, case by case: no database."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bridge_apply import LEVEL_DELTAS, LEVELS, MEMBERS
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from trunkline.bridge.demotypes import DEMO_TYPES
from trunkline.bridge.judgement import Entry, Facts, Verdict, judge
from trunkline.bridge.types import BundleType, Match
from trunkline.core.bundle import Mode, Version

EVENTS = DEMO_TYPES[2]
AT_LEAST = replace(LEVEL_DELTAS, match=Match.AT_LEAST)


def waiting(generation: int, needs: int | None = None, arrival: int | None = None, restores: bool = False) -> Entry:
    version = Version(1, generation)
    dependency = Version(1, needs) if needs is not None else None
    return Entry(f"k{arrival or generation}", version, version, dependency, arrival or generation, restores)


def judged(declared: BundleType, entries: list[Entry], facts: Facts = Facts(), most: int = 1000) -> tuple[object, ...]:  # noqa: B008
    decision = judge(declared, entries, facts, most)
    parts = (decision.applied, decision.stale, decision.outdated)
    return decision.verdict, *([entry.arrival for entry in part] for part in parts)


@pytest.mark.parametrize(
    ("declared", "own", "verdict"),
    [
        (LEVELS, None, Verdict.APPLIED),
        (LEVELS, Version(1, 4), Verdict.APPLIED),
        (LEVELS, Version(1, 5), Verdict.STALE),
        (LEVELS, Version(2, 0), Verdict.STALE),
        (LEVELS, Version(0, 99), Verdict.APPLIED),
        (LEVEL_DELTAS, Version(1, 5), Verdict.STALE),
        (MEMBERS, Version(1, 5), Verdict.APPLIED),
        (MEMBERS, Version(1, 6), Verdict.STALE),
        (EVENTS, Version(1, 6), Verdict.APPLIED),
    ],
)
def test_j1_what_is_stale(declared: BundleType, own: Version | None, verdict: Verdict) -> None:
    assert judged(declared, [waiting(5)], Facts(own))[0] is verdict


@pytest.mark.parametrize(
    ("declared", "base", "verdict"),
    [
        (LEVEL_DELTAS, None, Verdict.PARKED),
        (LEVEL_DELTAS, Version(1, 2), Verdict.PARKED),
        (LEVEL_DELTAS, Version(1, 3), Verdict.APPLIED),
        (LEVEL_DELTAS, Version(1, 4), Verdict.OUTDATED),
        (LEVEL_DELTAS, Version(2, 0), Verdict.OUTDATED),
        (AT_LEAST, None, Verdict.PARKED),
        (AT_LEAST, Version(1, 2), Verdict.PARKED),
        (AT_LEAST, Version(1, 4), Verdict.APPLIED),
    ],
)
def test_j2_and_j3_what_is_parked_and_what_is_outdated(declared: BundleType, base: Version | None, verdict: Verdict) -> None:
    assert judged(declared, [waiting(5, needs=3)], Facts(None, base))[0] is verdict


def test_nothing_waits() -> None:
    assert judge(LEVELS, [], Facts(), 1000).verdict is Verdict.NOTHING


def test_j2_what_comes_after_a_parked_one_waits_with_it() -> None:
    entries = [waiting(1, 1), waiting(2, 2), waiting(3, 3), waiting(4, 2)]
    assert judged(LEVEL_DELTAS, entries, Facts(None, Version(1, 2))) == (Verdict.APPLIED, [2], [], [1])


def test_one_order_holds_inside_a_run_too() -> None:
    entries = [waiting(2, 1, arrival=1), waiting(1, 1, arrival=2), waiting(3, 1, arrival=3)]
    assert judged(LEVEL_DELTAS, entries, Facts(None, Version(1, 1))) == (Verdict.APPLIED, [1, 3], [2], [])


def test_no_more_are_written_than_asked_for() -> None:
    entries = [waiting(n) for n in range(1, 10)]
    assert judged(MEMBERS, entries, most=3) == (Verdict.APPLIED, [1, 2, 3], [], [])
    assert judge(MEMBERS, entries, Facts(), 3).upto == 3


def test_j4_a_held_type_begins_again_with_what_restores() -> None:
    held = Facts(held=True)
    assert judged(MEMBERS, [waiting(4), waiting(5)], held)[0] is Verdict.PARKED
    assert judged(MEMBERS, [], held)[0] is Verdict.PARKED
    decision = judge(MEMBERS, [waiting(4, restores=True), waiting(5)], held, 1000)
    assert [entry.arrival for entry in decision.applied] == [4, 5]
    assert decision.drop_before == 4
    stale = judge(MEMBERS, [waiting(4, restores=True)], Facts(own=Version(1, 9), held=True), 1000)
    assert (stale.verdict, stale.drop_before) == (Verdict.STALE, None)


ENTRIES = st.lists(st.tuples(st.integers(1, 6), st.none() | st.integers(1, 4)).map(lambda pair: waiting(*pair)), max_size=12)
VERSIONS = st.none() | st.integers(1, 5).map(lambda n: Version(1, n))


@given(ENTRIES, VERSIONS, VERSIONS, st.sampled_from([LEVELS, LEVEL_DELTAS, AT_LEAST, MEMBERS, EVENTS]), st.integers(1, 12))
def test_a_prefix_leaves_and_versions_never_go_back(
    entries: list[Entry], own: Version | None, base: Version | None, declared: BundleType, most: int
) -> None:
    entries = [structs.replace(entry, arrival=n, key=f"k{n}") for n, entry in enumerate(entries, 1)]
    decision = judge(declared, entries, Facts(own, base), most)
    leaving = sorted(entry.arrival for entry in decision.leaving)
    assert leaving == list(range(1, len(leaving) + 1))
    assert len(decision.applied) <= most
    assert all(entry.dependency is None or declared.match.is_met(base, entry.dependency) for entry in decision.applied)
    versions = [v for v in [own, *(entry.version for entry in decision.applied)] if v is not None]
    if declared.mode is not Mode.APPEND:
        assert versions == sorted(versions)
    if len(leaving) < len(entries) and len(decision.applied) < most:
        stopped = entries[len(leaving)]
        assert stopped.dependency is not None
        assert not declared.match.is_met(base, stopped.dependency)
