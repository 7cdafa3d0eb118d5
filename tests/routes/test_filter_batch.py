"""batch: several events become one, and none of them is done before it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from running_filters import applied
from trunkline.routes.acks import Acks, Entered
from trunkline.routes.chain import Chain, Ran, Step
from trunkline.routes.event import Event, Source
from trunkline.routes.filters.batch import BATCH, Batch, BatchConfig, compile_batch
from trunkline.routes.keys import Tenant
from trunkline.routes.outcome import Outcome
from trunkline.routes.plugin import Around


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def batch(clock: Clock | None = None, **config: Any) -> Batch:
    return compile_batch(BatchConfig.model_validate(config), Around(now=clock or Clock()))


def events(count: int) -> list[Event]:
    return [Event(payload={"n": n}, metadata={"m": n}, source=Source(id=f"e{n}")) for n in range(count)]


def test_s29_batch_five_of_ten_gives_two_arrays_of_five() -> None:
    ten = events(10)
    out = applied(batch(batchSize=5), ten)
    assert [event.payload for event in out] == [[{"n": n} for n in range(5)], [{"n": n} for n in range(5, 10)]]
    assert [event.entered for event in out] == [tuple(ten[:5]), tuple(ten[5:])]


def test_s29_batch_five_of_seven_flushes_the_last_two_after_its_wait() -> None:
    clock, seven = Clock(), events(7)
    filter = batch(clock, batchSize=5, timeoutMs=250)
    (full,) = applied(filter, seven)
    assert full.entered == tuple(seven[:5])
    assert filter.held() == seven[5:]
    assert filter.due() == 1000.25
    assert filter.flush(1000.2) == []

    (rest,) = filter.flush(1000.25)
    assert rest.payload == [{"n": 5}, {"n": 6}]
    assert rest.entered == tuple(seven[5:])
    assert (filter.held(), filter.due(), filter.flush(2000.0)) == ([], None, [])


def test_s29_members_are_acked_when_their_batch_is() -> None:
    acks, filter, seven = Acks(), batch(batchSize=5, timeoutMs=250), events(7)
    entered = Entered(acks)
    entered.enter(seven, acks.roots([event.source.id for event in seven], now=1000.0, seconds=5.0))
    (full,) = entered.settle(Chain([Step("batch", filter)]).run(seven), filter.held())
    assert acks.take() == []
    acks.ack(full)
    assert {done.of for done in acks.take()} == {"e0", "e1", "e2", "e3", "e4"}

    (rest,) = entered.settle(Ran(filter.flush(1000.25), []), filter.held())
    assert acks.take() == []
    acks.nack(rest, "nobody there")
    assert {(done.of, done.outcome) for done in acks.take()} == {("e5", Outcome.NACKED), ("e6", Outcome.NACKED)}
    assert acks.open == 0


def test_the_wait_is_that_of_the_first_member() -> None:
    clock, seven = Clock(), events(7)
    filter = batch(clock, batchSize=4, timeoutMs=1000)
    assert applied(filter, seven[:2]) == []
    clock.now = 1000.5
    assert applied(filter, seven[2:3]) == []
    assert filter.due() == 1001.0
    clock.now = 1000.75
    (full,) = applied(filter, seven[3:])
    assert len(full.payload) == 4
    assert filter.due() == 1001.75


def test_metadata_and_source_are_those_of_the_first_member() -> None:
    three = events(3)
    (made,) = applied(batch(batchSize=3), three)
    assert (made.metadata, made.source) == (three[0].metadata, three[0].source)


def test_a_batch_of_parts_is_made_of_the_events_that_entered() -> None:
    one, other = events(2)
    parts = [one.with_content("a", {}), one.with_content("b", {}), other.with_content("c", {})]
    (made,) = applied(batch(batchSize=3), parts)
    assert made.payload == ["a", "b", "c"]
    assert len(made.entered) == 2
    assert made.entered[0] is one
    assert made.entered[1] is other


@pytest.mark.parametrize("size", [0, 1])
def test_each_event_alone_is_an_array_of_one(size: int) -> None:
    assert [event.payload for event in applied(batch(batchSize=size), events(2))] == [[{"n": 0}], [{"n": 1}]]
    assert [event.payload for event in applied(batch(), events(1))] == [[{"n": 0}]]


def test_the_state_goes_on_elsewhere() -> None:
    assert BATCH.stateful
    clock = Clock()
    source = Source(id="e1", tenant=Tenant("o", "a"), trace_id="t", at=5.5)
    whole = Event(payload=[{"x": 1.5}], metadata={"m": None}, source=source)
    part = whole.with_content({"x": 1.5}, {"m": None})
    before = batch(clock, batchSize=3, timeoutMs=2000)
    assert applied(before, [whole, part]) == []

    after = batch(clock, batchSize=3, timeoutMs=2000)
    after.restore(json.loads(json.dumps(before.state())))
    clock.now = 1001.0
    assert (after.held(), after.due()) == ([whole, part], 1002.0)
    (made,) = applied(after, events(1))
    assert made.payload == [[{"x": 1.5}], {"x": 1.5}, {"n": 0}]
    assert made.source == source
    assert {event.source.id for event in made.entered} == {"e1", "e0"}


def test_a_batch_that_is_tried_again_meets_the_state_from_before_it() -> None:
    three = events(3)
    filter = batch(batchSize=2)
    applied(filter, three[:1])
    before = filter.state()
    first = applied(filter, three[1:])
    filter.restore(before)
    again = applied(filter, three[1:])
    assert [event.payload for event in again] == [event.payload for event in first] == [[{"n": 0}, {"n": 1}]]
    assert filter.held() == three[2:]


@given(sizes=st.lists(st.integers(0, 7)), size=st.integers(1, 5))
def test_nothing_is_lost_doubled_or_moved(sizes: list[int], size: int) -> None:
    filter, came, left = batch(batchSize=size), events(sum(sizes)), list[Event]()
    at = 0
    for count in sizes:
        left += applied(filter, came[at : at + count])
        at += count
        assert len(filter.held()) < size
        assert [one for event in left for one in event.entered] + filter.held() == came[:at]
    assert all(len(event.payload) == size for event in left)
    left += filter.flush(float("inf"))
    assert [member for event in left for member in event.payload] == [event.payload for event in came]


@pytest.mark.parametrize("wrong", [{"batchSize": -1}, {"batchSize": 1001}, {"timeoutMs": 0}, {"batchSize": "many"}])
def test_a_wrong_configuration_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        BatchConfig.model_validate(wrong)
