"""The same routes and events on a node and on Spark: the same messages in the same order with the same ids, the same dead
letters and drops. All cases run together, once on each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from files_feeding import Feeding, write

from route_jobs import PARTS, RouteJobs
from route_runner_suite import CASES, SITES, Came, LocalSide, RunnerCase, counted, letters_at, messages_at, small, step
from trunkline.pipeline.session import Spark
from trunkline.routes.event import Event
from trunkline.routes.filters import FILTERS
from waiting import eventually

pytestmark = pytest.mark.timeout(240)

FAILS = "fails"
OBJECTS = step("validate", on_error="fail", schema={"type": "object"})
FAILING = small("an event is given back", OBJECTS, payloads=[{"n": 1}, 2, {"n": 3}])


@dataclass
class Sides:
    local: LocalSide
    jobs: RouteJobs
    folder: Path

    def spark(self, id: str) -> Came:
        return Came(messages_at(self.jobs.dsn, id), letters_at(self.jobs.dsn, id), counted(self.jobs.count(id)))

    def run(self, cases: dict[str, RunnerCase]) -> None:
        """On both, to the end."""
        events = self._written(cases)
        asyncio.run(self.local.run(cases, events))
        before = self.jobs.events
        for id, case in cases.items():
            receiver = {"plugin": "files", "config": {"path": str(self.folder / id)}}
            body = case.body(id, receiver)
            more = {key: value for key, value in body.items() if key not in ("id", "receiver", "sender", "filterChain")}
            self.jobs.put(id, receiver, body["sender"], *body["filterChain"], **more)
        eventually(lambda: self.jobs.events - before == sum(map(len, events.values())), 90, self.jobs.failing)

    def _written(self, cases: dict[str, RunnerCase]) -> dict[str, list[Event]]:
        """The events of each case, as everybody reads them."""
        with closing(Feeding(self.local.dsn)) as feeding:
            for id, case in cases.items():
                write(self.folder / id, "events.jsonl", *case.payloads)
                feeding.receive(self.folder / id, id)
            body = feeding.next()
            return {id: feeding.read(body, id) for id in cases}


@pytest.fixture(scope="module")
def sides(spark: Spark, make_databases: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    folder = tmp_path_factory.mktemp("both")
    here, there = make_databases(*PARTS), make_databases(*PARTS)
    for dsn in (here, there):
        with psycopg.connect(dsn) as conn:
            conn.execute(SITES)
    with RouteJobs(spark, there, folder / "jobs") as jobs:
        sides = Sides(LocalSide(here), jobs, folder)
        sides.run(CASES)
        yield sides


@pytest.mark.parametrize("id", CASES, ids=lambda id: str(CASES[id]))
def test_both_runners_make_the_same_of_a_route_and_its_events(sides: Sides, id: str) -> None:
    local = sides.local.came(id)
    assert {one.outcome for one in sides.local.done[id]} == {"acked"}
    eventually(lambda: len(sides.spark(id).messages) >= len(local.messages), 60, sides.jobs.failing)
    eventually(lambda: sides.spark(id).counts[2] >= local.counts[2], 60, sides.jobs.failing)
    assert sides.spark(id) == local
    assert sides.jobs.count(id).dropped == sides.local.counts[id].dropped


def test_an_event_that_is_given_back_too_often_is_a_dead_letter_on_spark_and_back_at_its_source_at_a_node(sides: Sides) -> None:
    sides.run({FAILS: FAILING})
    local, spark = sides.local.came(FAILS), sides.spark(FAILS)
    assert [one.outcome for one in sides.local.done[FAILS]] == ["acked", "nacked", "acked"]
    assert list(dict.fromkeys(of for of, *_ in spark.messages)) == [of for of, *_ in local.messages]
    ((_, place, source, reason, _),) = spark.letters
    assert (place, source[-2:]) == ("filterChain[0] validate", "#2")
    assert "it was given back 5 times" in reason


@pytest.mark.parametrize("name", ["validate, and drop", "dedup", "dedup behind a batch"])
def test_each_event_of_which_nothing_came_is_counted_as_dropped(sides: Sides, name: str) -> None:
    [counts] = [sides.local.counts[id] for id, case in CASES.items() if str(case) == name]
    assert counts.dropped > 0
    if name != "dedup behind a batch":
        assert counts.received == counts.matched + counts.dropped + counts.dead


def test_every_filter_is_among_the_cases() -> None:
    used = {step["plugin"] for case in CASES.values() for step in case.chain}
    assert {plugin.name for plugin in FILTERS} - used == set()


def test_the_cases_tell_something_apart(sides: Sides) -> None:
    came = [sides.local.came(id) for id in CASES]
    assert sum(len(one.messages) for one in came) > 100
    assert sum(len(one.letters) for one in came) > 20
    assert sum(counts.dropped for counts in sides.local.counts.values()) > 20
