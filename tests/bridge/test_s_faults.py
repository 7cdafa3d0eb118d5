"""Scenarios of the status bridge whose database is away, slow, or has much to write: on real Kafka, Spark and Postgres."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from agent_story import Fleet
from bridge_process import BridgeProcess
from hub_agent import Message, cluster, compliance, event
from kafka_bridge import KafkaBridge
from kafka_topics import Topics
from trunkline.db.embedded import EmbeddedPostgres, free_port
from trunkline.db.migrate import migrate
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
MIB = 2**20


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """One that may be stopped: nobody else is on it."""
    with EmbeddedPostgres(tmp_path / "postgres", {"fsync": "off"}, port=free_port()) as server:
        migrate(server.dsn, "queues", "bridge", "pipeline")
        yield server


@pytest.fixture
def process(own_postgres: EmbeddedPostgres, topics: Topics, tmp_path: Path) -> Iterator[BridgeProcess]:
    process = BridgeProcess(tmp_path / "bridge", own_postgres.dsn, topics, client="status")
    yield process
    process.close()


def test_s21_while_the_database_is_down_nothing_is_lost_and_it_goes_on_by_itself(
    own_postgres: EmbeddedPostgres, process: BridgeProcess, topics: Topics
) -> None:
    fleet = Fleet(own_postgres.dsn, topics, 10, random.Random())
    process.start()
    fleet.send(20)
    eventually(lambda: process.require_running() or fleet.taken_in() == fleet.sent, 120, process.log)
    before, memory = fleet.sent, process.resident()
    own_postgres.stop()
    fleet.send(500)
    eventually(lambda: process.require_running() or "bridge stopped" in process.said(), 60, process.log)
    assert fleet.sent - before >= 5_000
    assert process.resident() - memory < 200 * MIB  # nothing is fetched that nobody can keep
    own_postgres.start()
    eventually(lambda: process.require_running() or fleet.taken_in() > before, 30, process.log)
    fleet.send_all()
    waiting = []

    def is_done() -> bool:
        waiting.append(fleet.count("SELECT count(*) FROM bridge.inbox WHERE mode = 'complete'"))
        return fleet.is_done()

    eventually(is_done, 120, lambda: (fleet.standing(), process.log()))
    assert max(waiting) <= len(fleet.hubs) * 3  # one of each type, however many came
    fleet.require_end()
    process.require_running()
    assert process.resident() - memory < 400 * MIB


@pytest.mark.parametrize("applies", [6, pytest.param(1_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_s22_a_slow_database_conflates_more_and_starves_nobody(bridge: KafkaBridge, topics: Topics, applies: int) -> None:
    hubs, apply_seconds = [f"h{n}" for n in range(100)], 0.5
    topics.create(*hubs)
    bridge.conn.execute(SLOW.format(apply_seconds).encode())
    bridge.conn.commit()
    senders = Senders(topics, hubs, every=0.1)
    senders.send()
    bridge.start()
    bridge.until(lambda: _applied(bridge) == senders.last())
    with senders:
        bridge.until(lambda: min(_applied(bridge).values()) > 0)
        seen = _watch(bridge, senders, applies)
    bridge.until(lambda: all(_applied(bridge).get(hub) == n for hub, n in senders.last().items()))
    assert max(seen.waiting) <= len(hubs)  # one of each, however many came
    assert seen.cycle() <= len(hubs) * apply_seconds / 10  # by waves: one hub after the other would take two workers 25 s
    assert quantiles(seen.ages, n=100)[-1] <= 2 * seen.cycle()
    counts = [seen.applies[hub] for hub in hubs]
    assert min(counts) >= max(counts) // 2
    sums = bridge.rows("SELECT sum(received), sum(applied) + sum(conflated), sum(conflated) > sum(applied) FROM bridge.counter")
    assert sums == [(senders.sent, senders.sent, True)]
    assert bridge.waiting() == 0


SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep({}); RETURN NULL; END';
CREATE TRIGGER slow BEFORE INSERT ON bridge.ledger FOR EACH STATEMENT EXECUTE FUNCTION slow()
"""


def _applied(bridge: KafkaBridge) -> dict[str, int]:
    """The generations."""
    return dict(bridge.rows("SELECT site, generation FROM bridge.ledger"))


class Senders:
    """Every hub sends all it has, again and again, until the block ends."""

    def __init__(self, topics: Topics, hubs: list[str], every: float) -> None:
        self._topics, self._hubs, self._every = topics, hubs, every
        self.times: list[float] = []  # by generation
        self._producer = topics.producer()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send_all)

    @property
    def sent(self) -> int:
        return len(self.times) * len(self._hubs)

    def last(self) -> dict[str, int]:
        return dict.fromkeys(self._hubs, len(self.times) - 1)

    def send(self) -> None:
        generation = len(self.times)
        self.times.append(time.monotonic())
        for hub in self._hubs:
            headers, payload = compliance(hub, f"{generation}.{generation + 1}", compliant=[f"c{generation}"])
            self._producer.produce(self._topics.name(hub), payload, partition=0, headers=headers)
        assert self._producer.flush(30) == 0

    def _send_all(self) -> None:
        while not self._ended.wait(self._every):
            self.send()

    def __enter__(self) -> Senders:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class Seen:
    """`ages`: how long the oldest news of a hub that is not applied has been on its way, hub by hub at every look."""

    def __init__(self) -> None:
        self.ages: list[float] = []
        self.waiting: list[int] = []
        self.applies: Counter[str] = Counter()
        self._last: dict[str, float] = {}
        self._longest = 0.0

    def applied(self, hub: str, now: float) -> None:
        if hub in self._last:
            self._longest = max(self._longest, now - self._last[hub])
        self._last[hub] = now
        self.applies[hub] += 1

    def cycle(self) -> float:
        """The longest time from one apply of a hub to its next."""
        return self._longest


def _watch(bridge: KafkaBridge, senders: Senders, applies: int) -> Seen:
    """Until a typical hub was applied that often."""
    seen, known = Seen(), _applied(bridge)

    def enough() -> bool:
        waiting, found, now = bridge.waiting(), _applied(bridge), time.monotonic()
        for hub, generation in found.items():
            if generation != known.get(hub):
                seen.applied(hub, now)
            news = senders.times[generation + 1 :]
            seen.ages.append(now - news[0] if news else 0.0)
        known.update(found)
        seen.waiting.append(waiting)
        return seen.applies.total() >= applies * len(found)

    bridge.until(enough, seconds=60 + 3 * applies)
    return seen


HUBS, CLUSTERS, POLICIES = 10, 300, 50


def _states(hub: str, generation: int, failing: int) -> Message:
    """Of every policy the first so many clusters do not comply."""
    names = [f"cluster-{n}" for n in range(CLUSTERS)]
    data = [
        {"policyId": f"policy-{n}", "nonCompliantClusters": names[:failing], "compliantClusters": names[failing:]}
        for n in range(POLICIES)
    ]
    return event(hub, "policy.localcompliance", f"{generation}.{generation + 1}", data)


def test_s35_150_000_rows_come_and_flip_within_a_minute_and_the_same_again_writes_none(
    bridge: KafkaBridge, topics: Topics
) -> None:
    hubs = [f"h{n}" for n in range(HUBS)]
    topics.create(*hubs)
    bridge.start()
    sent = 0

    def send(each: Callable[[str], Message]) -> tuple[Any, ...]:
        """The rows that it wrote in all."""
        nonlocal sent
        for hub in hubs:
            bridge.put(hub, each(hub))
        sent += 1
        bridge.until(lambda: bridge.offsets() == dict.fromkeys(hubs, sent) and bridge.waiting() == 0, seconds=60)
        [row] = bridge.rows("SELECT sum(rows_received), sum(rows_written), sum(applied) FROM bridge.counter")
        return tuple(map(int, row))

    there = [cluster(f"cluster-{n}", 0) for n in range(CLUSTERS)]
    assert send(lambda hub: event(hub, "managedcluster", "0.1", {"create": there})) == (3_000, 3_000, HUBS)
    assert send(lambda hub: _states(hub, 0, failing=30)) == (153_000, 153_000, 2 * HUBS)
    assert send(lambda hub: _states(hub, 1, failing=CLUSTERS)) == (303_000, 153_000 + 135_000, 3 * HUBS)
    marks = bridge.rows(_MARKS)
    assert send(lambda hub: _states(hub, 2, failing=CLUSTERS)) == (453_000, 288_000, 4 * HUBS)
    assert bridge.rows(_MARKS) == marks
    found = bridge.rows("SELECT state::text, count(*), count(cluster_id) FROM fleet.compliance GROUP BY state")
    assert found == [("non_compliant", 150_000, 150_000)]
    assert bridge.rows("SELECT site, generation FROM bridge.ledger WHERE type = 'clusters-per-policy' ORDER BY 1") == [
        (hub, 2) for hub in hubs
    ]


_MARKS = "SELECT max(xmin::text::bigint), max(updated_at) FROM fleet.compliance"
