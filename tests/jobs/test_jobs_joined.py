"""Events that become one: whatever is done again, and in whatever order it comes then, none is lost; and where they are sent
once, none comes twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hand_job import HandJob, in_sink, into_sink, numbered, received, route

from kafka_topics import Topics
from trunkline.core.errors import Retryable
from trunkline.pipeline.jobs import batches
from trunkline.pipeline.jobs.outcomes import Outcome, Told
from trunkline.pipeline.jobs.stored import JobPlan, Member
from trunkline.routes.event import Event, Source
from trunkline.routes.filters.batch import joined
from trunkline.routes.naming import numbered as numbered_id
from trunkline.routes.tracing import record_id

ByHand = Callable[..., HandJob]
LATER = 3_600_000
ONCE = {"deliveryMode": "effectively_once"}


def batch(size: int, milliseconds: int = LATER) -> dict[str, Any]:
    return {"plugin": "batch", "config": {"batchSize": size, "timeoutMs": milliseconds}}


def joining(topics: Topics, size: int, *chain: dict[str, Any], **more: Any) -> Member:
    return route("a", received(topics), into_sink(n="{payload}"), *chain, batch(size), **more)


def gathered(dsn: str) -> list[list[int]]:
    return [[one["n"] for one in members] for members in in_sink(dsn)]


@contextmanager
def cut_off(monkeypatch: pytest.MonkeyPatch, done: str) -> Iterator[None]:
    """What `done` does of a batch or a flush is the last that happens: all is sent, nothing is committed."""

    def failing(*_: Any) -> None:
        raise Retryable("batch", "the connection is cut", "try again")

    with monkeypatch.context() as broken:
        broken.setattr(batches, done, failing)
        with pytest.raises(Retryable, match="the connection is cut"):
            yield


def ordered(told: list[Outcome], *order: tuple[int, int]) -> list[Outcome]:
    """Events as they came, by (partition, offset)."""
    names = [f"/{partition}/{offset}" for partition, offset in order]
    events = [one for one in told if one.told is Told.EVENT]
    assert len(events) == len(names)
    found = [next(one for one in events if one.source.endswith(name)) for name in names]
    return [*found, *(one for one in told if one.told is not Told.EVENT)]


def two_partitions(topics: Topics) -> None:
    """The numbers 1 and 2 are in the first one, 7 in the second."""
    topics.create("in", partitions=2)
    topics.put("in", *numbered(1, 3), partition=0)
    topics.put("in", *numbered(7, 8), partition=1)


def planned(job: HandJob) -> JobPlan:
    plan = job.plan()
    assert plan is not None
    return plan


@pytest.mark.parametrize("mode", ["at_least_once", "effectively_once"])
def test_a_batch_whose_partitions_come_in_another_order_the_next_time_loses_nothing(
    by_hand: ByHand, topics: Topics, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    two_partitions(topics)
    job = by_hand(joining(topics, 2, deliveryMode=mode))
    plan = planned(job)
    told = job.routed(plan)
    with cut_off(monkeypatch, "close_plan"):
        job.batches.finish(plan, ordered(told, (0, 0), (1, 0), (0, 1)))
    job.batches.finish(plan, ordered(told, (0, 0), (0, 1), (1, 0)))
    job.change([], ["a"])
    assert job.plan() is None
    job.batches.flush()
    came = [n for one in gathered(job.dsn) for n in one]
    assert set(came) == {1, 2, 7}
    if mode == "effectively_once":
        assert sorted(came) == [1, 2, 7]
    assert len(job.rows("SELECT 1 FROM routes.sent")) == (2 if mode == "effectively_once" else 0)


def test_events_of_several_partitions_are_joined_in_the_same_way_again(by_hand: ByHand, topics: Topics) -> None:
    two_partitions(topics)
    job = by_hand(joining(topics, 2))
    plan = planned(job)
    job.batches.finish(plan, ordered(job.routed(plan), (0, 0), (1, 0), (0, 1)))
    assert gathered(job.dsn) == [[1, 2]]


def test_a_flush_that_was_not_committed_is_done_again_as_it_was_before_anything_joins_it(
    by_hand: ByHand, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("in")
    topics.put("in", *numbered(1, 3))
    job = by_hand(route("a", received(topics), into_sink(n="{payload}"), batch(3, 1), **ONCE))
    job.batch()
    with cut_off(monkeypatch, "keep"):
        while True:  # until it is due
            job.batches.flush()
    assert gathered(job.dsn) == [[1, 2]]
    topics.put("in", *numbered(3, 6))
    job.batch()
    assert gathered(job.dsn) == [[1, 2], [3, 4, 5]]


def test_what_a_flush_has_sent_is_not_sent_again_by_who_holds_the_group_then(
    by_hand: ByHand, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("in")
    topics.put("in", *numbered(1, 3))
    member = route("a", received(topics), into_sink(n="{payload}"), batch(3, 1), **ONCE)
    dead = by_hand(member)
    dead.batch()
    with cut_off(monkeypatch, "keep"):
        while True:
            dead.batches.flush()
    heir = by_hand(member)
    heir.batches.flush()
    assert gathered(heir.dsn) == [[1, 2]]
    assert heir.rows("SELECT state ->> 'ahead', due FROM pipeline.job_state") == [("[]", None)]


def test_the_clock_leaves_a_route_alone_whose_batch_is_half_done(
    by_hand: ByHand, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("in")
    job = by_hand(route("a", received(topics), into_sink(n="{payload}"), batch(2, 1), **ONCE))
    topics.put("in", *numbered(1, 4))
    plan = planned(job)
    told = job.routed(plan)
    with cut_off(monkeypatch, "close_plan"):
        job.batches.finish(plan, told)
    job.batches.flush()
    assert gathered(job.dsn) == [[1, 2]]
    job.batches.finish(plan, told)
    job.change([], ["a"])
    assert job.plan() is None
    job.batches.flush()
    assert gathered(job.dsn) == [[1, 2], [3]]
    assert (job.counts["a"].matched, job.counts["a"].sent) == (2, 2)


def test_an_id_names_all_that_a_message_was_made_of() -> None:
    one, two, three = (Event(n, source=Source(f"s{n}")) for n in (1, 2, 3))
    alone, pieces = joined([one]), joined([one.with_content(n, {}) for n in range(3)])
    assert numbered_id(4, one) == numbered_id(4, alone) == numbered_id(4, pieces) == "4"
    both, others, turned = joined([one, two]), joined([one, three]), joined([two, one])
    ids = {numbered_id(0, event) for event in (both, others, turned, joined([one, two, three]))}
    assert len(ids) == 4
    assert numbered_id(0, joined([joined([one, two])])) == numbered_id(0, both)
    assert all(record_id(f"s1:acme/shop/r:{id}").source == "s1" for id in ids)
