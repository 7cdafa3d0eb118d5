"""A failing seed becomes the few events that make it fail."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from forgetful import FORGETFUL
from sim_runs import CHAIN

from trunkline.core.errors import Invalid
from trunkline.node.sim.catalogue import CATALOGUE, draw, run_seed
from trunkline.node.sim.history import Event, Fault, History, Write, parse_event, parse_history
from trunkline.node.sim.shrink import Shrunk, shrink, simpler_events
from trunkline.node.sim.universe import run_history


@dataclass(frozen=True)
class Case:
    drawn: History
    checks: tuple[str, ...]
    small: Shrunk
    progress: list[tuple[int, int]]


@pytest.fixture(scope="module")
def case() -> Case:
    """Of a seed that fails whatever the weather; where a lost frame has a part in it, more events are needed."""
    failing = (v for v in (run_seed(FORGETFUL, seed) for seed in range(200)) if not v.converged)
    verdict = next(v for v in failing if not run_seed(FORGETFUL, v.seed, loss=0.0).converged)
    drawn = draw(FORGETFUL, verdict.seed)
    progress: list[tuple[int, int]] = []
    small = shrink(FORGETFUL, drawn, lambda runs, left: progress.append((runs, left)))
    return Case(drawn, verdict.failed_checks, small, progress)


def test_the_defect_is_found_and_only_sometimes() -> None:
    came_right = [run_seed(FORGETFUL, seed).converged for seed in range(20)]
    assert 0 < came_right.count(False) < 10
    assert "forgetful" not in CATALOGUE


def test_shrinking_leaves_the_two_faults_that_must_coincide_and_one_write(case: Case) -> None:
    events = case.small.history.events
    faults = [e for e in events if isinstance(e, Fault)]
    (write,) = [e for e in events if isinstance(e, Write)]
    assert len(case.drawn.events) > 40
    assert sorted(fault.kind for fault in faults) == ["leap", "slowdisk"]
    (site,) = {fault.subject for fault in faults}
    assert {destinations for _, destinations in write.messages} <= {(site,), ("*",)}
    assert len(events) == 3
    assert case.small.history.loss == 0.0


def test_what_is_left_fails_for_the_same_reason_and_is_what_is_printed(case: Case) -> None:
    assert set(case.small.verdict.failed_checks) & set(case.checks)
    assert run_history(FORGETFUL, parse_history(case.small.history.text())) == case.small.verdict


def test_none_of_what_is_left_can_go(case: Case) -> None:
    small = case.small.history
    for event in small.events:
        fewer = replace(small, events=tuple(e for e in small.events if e != event))
        assert run_history(FORGETFUL, fewer).converged


def test_progress_counts_runs_up_and_events_down(case: Case) -> None:
    runs, left = zip(*case.progress, strict=True)
    assert list(runs) == list(range(1, case.small.runs + 1))
    assert list(left) == sorted(left, reverse=True)
    assert left[-1] == 3


def test_a_seed_that_does_not_fail_is_refused() -> None:
    with pytest.raises(Invalid, match="it does not fail"):
        shrink(CHAIN, draw(CHAIN, 1))


@pytest.mark.parametrize(
    ("line", "simpler"),
    [
        ("3.257 crash a for 4.000", ["0.000 crash a for 4.000", "3.000 crash a for 4.000", "3.300 crash a for 4.000"]),
        ("3.000 cut a<>b for 1.000", ["3.000 cut a>b for 1.000"]),
        ("3.000 put a k of 7 for ever", ["3.000 put a k of 7"]),
        ("3.000 put a k of 7 for 2.250", ["3.000 put a k of 7", "3.000 put a k of 7 for 2.000"]),
        ("3.000 read a 100", ["3.000 read a 1"]),
        ("5.000 write a s>b,c p>d", ["5.000 write a p>d", "5.000 write a s>b,c", "5.000 write a s>c p>d"]),
    ],
)  # fmt: skip
def test_simpler_events(line: str, simpler: list[str]) -> None:
    found = [str(event) for event in simpler_events(parse_event(line))]
    assert [text for text in simpler if text in found] == simpler


@pytest.mark.parametrize("name", ["chain", "store"])
def test_making_an_event_simpler_ends(name: str) -> None:
    for start in draw(CATALOGUE[name], 2).events:
        event: Event | None = start
        steps = 0
        while event is not None:
            event = next(simpler_events(event), None)
            steps += 1
        assert steps < 20
