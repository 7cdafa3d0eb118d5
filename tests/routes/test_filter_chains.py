"""A chain: filters one after the other, and what becomes of events that one of them cannot process."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.core.errors import Invalid, Retryable
from trunkline.routes.chain import MAX_REASON, Chain, ErrorPolicy, Fault, Step
from trunkline.routes.event import Event
from trunkline.routes.plugin import Faults, Filter, StatefulFilter


def events(*payloads: Any) -> list[Event]:
    return [Event(payload) for payload in payloads]


def payloads(batch: list[Event]) -> list[Any]:
    return [event.payload for event in batch]


def refuse_odd(batch: list[Event], faults: Faults) -> list[Event]:
    for event in batch:
        if event.payload % 2:
            faults.add(event, f"{event.payload} is odd")
    return [event for event in batch if event.payload % 2 == 0]


def halve(batch: list[Event], faults: Faults) -> list[Event]:
    return [event.with_content(event.payload // 2, event.metadata) for event in batch]


def invert(batch: list[Event], faults: Faults) -> list[Event]:
    """It raises for 0, as no filter should."""
    return [event.with_content(12 // event.payload, event.metadata) for event in batch]


class Sum(StatefulFilter):
    """Adds up what it sees, and holds the last two events back; it raises for None, when half of its work is done."""

    def __init__(self) -> None:
        self.total = 0
        self.kept: list[Event] = []

    def __call__(self, batch: list[Event], faults: Faults) -> list[Event]:
        out = []
        for event in batch:
            self.total += event.payload
            out.append(event.with_content(self.total, event.metadata))
        self.kept = (self.kept + out)[-2:]
        return out[:-2]

    def state(self) -> Any:
        return self.total

    def restore(self, state: Any) -> None:
        self.total = state

    def held(self) -> list[Event]:
        return self.kept

    def due(self) -> float | None:
        return 50.0 if self.kept else None

    def flush(self, now: float) -> list[Event]:
        out, self.kept = self.kept, []
        if now < 0:
            raise ValueError("time runs forward")
        return out


@pytest.mark.parametrize("policy", list(ErrorPolicy))
def test_a_fault_carries_the_policy_of_its_step_and_leaves_the_others_alone(policy: ErrorPolicy) -> None:
    batch = events(2, 3, 4, 5)
    ran = Chain([Step("refuse[0]", refuse_odd, policy), Step("halve[1]", halve)]).run(batch)
    assert payloads(ran.out) == [1, 2]
    assert ran.faults == [Fault(batch[n], "refuse[0]", f"{batch[n].payload} is odd", policy) for n in (1, 3)]
    assert ran.faults_by(policy) == ran.faults
    assert [ran.faults_by(other) for other in ErrorPolicy if other is not policy] == [[], []]
    assert ran.upset == ""


def test_each_step_has_a_policy_of_its_own() -> None:
    steps = [Step("first", refuse_odd, ErrorPolicy.DROP), Step("halve", halve), Step("second", refuse_odd, ErrorPolicy.FAIL)]
    ran = Chain(steps).run(events(1, 2, 4))
    assert payloads(ran.out) == [2]
    assert [(fault.step, fault.event.payload, fault.policy) for fault in ran.faults] == [
        ("first", 1, ErrorPolicy.DROP),
        ("second", 1, ErrorPolicy.FAIL),
    ]


def test_a_fault_knows_the_event_as_it_came_to_the_step_and_as_it_entered() -> None:
    entered = Event(6)
    (fault,) = Chain([Step("halve", halve), Step("refuse", refuse_odd)]).run([entered]).faults
    assert fault.event.payload == 3
    assert fault.event.origin is entered


def test_dead_letters_are_the_policy_of_a_step_that_says_nothing() -> None:
    (fault,) = Chain([Step("refuse", refuse_odd)]).run(events(1)).faults
    assert fault.policy is ErrorPolicy.DEAD_LETTER


@pytest.mark.parametrize("policy", list(ErrorPolicy))
def test_what_a_filter_raises_fails_only_who_it_raises_for_whatever_the_policy(policy: ErrorPolicy) -> None:
    batch = events(1, 0, 2, 0, 3)
    ran = Chain([Step("invert[0]", invert, policy)]).run(batch)
    assert payloads(ran.out) == [12, 6, 4]
    reason = "it raised ZeroDivisionError: integer division or modulo by zero"
    assert ran.faults == [Fault(batch[n], "invert[0]", reason, ErrorPolicy.FAIL) for n in (1, 3)]
    assert ran.upset == ""


def test_faults_told_before_a_filter_raises_are_told_once() -> None:
    def refuse_then_invert(batch: list[Event], faults: Faults) -> list[Event]:
        return invert(refuse_odd(batch, faults), faults)

    ran = Chain([Step("both", refuse_then_invert)]).run(events(1, 0, 2))
    assert payloads(ran.out) == [6]
    assert [(fault.event.payload, fault.policy) for fault in ran.faults] == [
        (1, ErrorPolicy.DEAD_LETTER),
        (0, ErrorPolicy.FAIL),
    ]


def test_what_is_no_events_fault_is_not_looked_for_one_by_one() -> None:
    calls: list[int] = []

    def unable(batch: list[Event], faults: Faults) -> list[Event]:
        calls.append(len(batch))
        raise Retryable("engine", "it does not start", "wait")

    batch = events(1, 2, 3)
    ran = Chain([Step("unable", unable, ErrorPolicy.DROP)]).run(batch)
    assert calls == [3]
    assert ran.faults == [Fault(event, "unable", "engine: it does not start", ErrorPolicy.FAIL) for event in batch]


def test_an_error_of_this_program_is_told_in_its_own_words() -> None:
    def refuses(batch: list[Event], faults: Faults) -> list[Event]:
        raise Invalid("the event", "it has no id", "give it one")

    (fault,) = Chain([Step("step", refuses)]).run(events(1)).faults
    assert fault.reason == "the event: it has no id"


@pytest.mark.parametrize("raises", [True, False])
def test_a_reason_is_never_longer_than_people_read(raises: bool) -> None:
    def long(batch: list[Event], faults: Faults) -> list[Event]:
        if raises:
            raise ValueError("x" * 5_000)
        faults.add(batch[0], "x" * 5_000)
        return []

    (fault,) = Chain([Step("long", long)]).run(events(1)).faults
    assert len(fault.reason) == MAX_REASON
    assert fault.reason.endswith("x…")


def test_a_stateful_filter_that_raises_fails_its_whole_batch_and_says_that_it_must_be_restored() -> None:
    chain = Chain([Step("sum[0]", Sum(), ErrorPolicy.DROP), Step("halve[1]", halve)])
    chain.run(events(1, 2, 3))
    kept, batch = chain.state(), events(4, None, 5)
    ran = chain.run(batch)
    assert ran.out == []
    assert [(fault.event, fault.policy) for fault in ran.faults] == [(event, ErrorPolicy.FAIL) for event in batch]
    assert ran.upset.startswith("sum[0]: it raised TypeError: ")
    assert kept == {"0": 6}
    assert chain.state() == {"0": 10}
    chain.restore(kept)
    assert payloads(chain.run(events(1, 1, 1)).out) == [7 // 2]


def test_the_filters_that_remember_are_asked_through_their_chain() -> None:
    chain = Chain([Step("halve", halve), Step("sum", Sum()), Step("refuse", refuse_odd), Step("again", Sum())])
    assert (chain.stateful, chain.due(), chain.held()) == (1, None, [])
    assert payloads(chain.run(events(2, 2, 4)).out) == []
    assert chain.state() == {"1": 4, "3": 0}
    assert chain.due() == 50.0
    assert payloads(chain.held()) == [2, 4]
    flushed = chain.flush(50.0)
    assert payloads(flushed.out) == [2, 6]
    assert flushed.faults == []
    assert (chain.due(), chain.held()) == (None, [])


def test_what_is_flushed_meets_the_faults_of_the_filters_behind() -> None:
    chain = Chain([Step("sum", Sum()), Step("refuse", refuse_odd)])
    chain.run(events(1, 1))
    flushed = chain.flush(50.0)
    assert payloads(flushed.out) == [2]
    assert [fault.reason for fault in flushed.faults] == ["1 is odd"]


def test_a_flush_that_raises_upsets_the_chain_and_nobody_else() -> None:
    chain = Chain([Step("sum", Sum())])
    chain.run(events(1))
    flushed = chain.flush(-1.0)
    assert (flushed.out, flushed.faults) == ([], [])
    assert flushed.upset == "sum: it raised ValueError: time runs forward"


def test_a_part_of_a_chain_can_be_run() -> None:
    chain = Chain([Step("halve", halve)] * 4)
    assert payloads(chain.run(events(16)).out) == [1]
    assert payloads(chain.run(events(16), last=1).out) == [8]
    assert payloads(chain.run(events(16), first=1).out) == [2]


def test_a_filter_is_not_called_without_events() -> None:
    calls: list[int] = []

    def counts(batch: list[Event], faults: Faults) -> list[Event]:
        calls.append(len(batch))
        return batch

    nothing: Filter = lambda batch, faults: []  # noqa: E731
    assert Chain([Step("nothing", nothing), Step("counts", counts)]).run(events(1)).out == []
    assert calls == []
