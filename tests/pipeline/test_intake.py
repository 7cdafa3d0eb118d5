"""From rows in receive queues through a real streaming query to status tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fleet_feed import (
    CLIENT,
    Feed,
    Model,
    changes,
    clusters,
    compliance,
    events,
    forged,
    history,
    queue_of,
    status_of,
    waiting_in,
)
from trunkline.bridge.plan import Plan, commit_plan, open_plan, read_offsets
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.workers import Workers
from trunkline.core.clock import SystemClock
from trunkline.core.config import BridgeConfig
from trunkline.core.errors import Terminal
from trunkline.db.lease import acquire, connect_fenced
from trunkline.pipeline.conflate import Conflated, Survivor
from trunkline.pipeline.intake import Intake, require_all_read
from trunkline.pipeline.queue_source import Settings
from trunkline.pipeline.session import Spark
from trunkline.queues.consumers import detach_idle
from trunkline.queues.kinds import Kind
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

GROUP = "bridge"


class Running:
    """A holder of the lease with both halves, and what the test wants to know of it."""

    def __init__(self, spark: Spark, dsn: str, folder: Path, stack: ExitStack) -> None:
        self.dsn, self.folder = dsn, folder
        self.conn = stack.enter_context(connect_fenced(dsn))
        grant = acquire(self.conn, "bridge", 600.0)
        assert grant is not None
        self.grant = grant
        bridge = BridgeConfig(workers=2)
        self.workers = Workers(dsn, grant, SHIPPED, bridge, SystemClock(), lambda: None)
        settings = Settings(dsn, CLIENT, GROUP, grant, spark.cores, max_entries=200)
        self.intake = Intake(spark, settings, 0.1, folder / "checkpoints", self.workers, SHIPPED, bridge.waiting_rows)
        self.workers.start()
        stack.callback(self.workers.stop)
        stack.callback(self.intake.stop)

    def offsets(self) -> dict[str, int]:
        found = read_offsets(self.conn, GROUP)
        self.conn.rollback()
        return found

    def until(self, holds: Callable[[], bool]) -> None:
        def holds_or_fails() -> bool:
            assert self.intake.failure() is None
            return holds()

        eventually(holds_or_fails, 90, self.offsets)

    def until_taken_in(self, **positions: int) -> None:
        wanted = {queue_of(site): position for site, position in positions.items()}
        self.until(lambda: self.offsets() == wanted and waiting_in(self.dsn) == 0)


@pytest.fixture
def run(spark: Spark, dsn: str, tmp_path: Path) -> Iterator[Callable[[], Running]]:
    with ExitStack() as stack:
        yield lambda: Running(spark, dsn, tmp_path, stack)


def test_status_is_what_one_message_after_the_other_would_leave(run: Callable[[], Running], feed: Feed, dsn: str) -> None:
    rng = random.Random(3)
    model = Model()
    running = run()
    running.intake.start()
    heads = {}
    for site in ("a", "b", "c"):
        messages = list(history(site, rng, 25))
        model.take(site, messages)
        heads[site] = len(messages) + 1
        feed.put(site, *messages[:40])
        feed.put(site, *messages[40:])
    running.until_taken_in(**heads)
    assert status_of(dsn) == model.status()
    with psycopg.connect(dsn) as conn:
        sums = conn.execute(
            "SELECT sum(received), sum(conflated + rejected + stale + applied + quarantined + discarded) FROM bridge.counter"
        ).fetchone()
        [(junk, reasons)] = conn.execute(
            "SELECT count(*), count(*) FILTER (WHERE reason LIKE '%not its sender%') FROM bridge.quarantine"
        )
    assert sums is not None
    assert sums[0] == sums[1] == sum(heads.values()) - 3
    assert junk == reasons > 0


def test_h28_a_restart_uses_a_new_folder_and_resumes_at_the_offsets_of_postgres(
    run: Callable[[], Running], feed: Feed, dsn: str
) -> None:
    running = run()
    feed.put("a", clusters("a", 1, "one"))
    running.intake.start()
    running.until_taken_in(a=2)
    [first] = (running.folder / "checkpoints").iterdir()
    running.intake.stop()
    feed.put("a", events("a", 1, "e1"))
    with psycopg.connect(dsn) as conn:  # as after a restore of Postgres alone: the old checkpoint would be ahead
        conn.execute("UPDATE status.transport SET payload = %s", (Jsonb({"next": 1}),))
        conn.execute("DELETE FROM status.cluster")
        conn.execute("DELETE FROM bridge.ledger")
    running.intake.start()
    running.until_taken_in(a=3)
    [second] = (running.folder / "checkpoints").iterdir()
    assert second != first
    assert status_of(dsn)["cluster"] == {("a", "one", 1)}
    assert status_of(dsn)["event"] == {("a", "e1")}


@pytest.mark.parametrize("position", [1, 3], ids=["behind", "ahead"])
def test_h28_offsets_that_moved_under_a_running_query_end_it_and_a_restart_goes_on_from_them(
    run: Callable[[], Running], feed: Feed, dsn: str, position: int
) -> None:
    running = run()
    feed.put("a", clusters("a", 1, "one"))
    running.intake.start()
    running.until_taken_in(a=2)
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE status.transport SET payload = %s", (Jsonb({"next": position}),))
    feed.put("a", clusters("a", 2, "two"), clusters("a", 3, "three"))
    eventually(lambda: running.intake.failure() is not None)
    assert "offsets stand at" in str(running.intake.failure())
    assert running.offsets() == {queue_of("a"): position}
    running.intake.stop()
    running.intake.start()
    running.until_taken_in(a=4)
    assert status_of(dsn)["cluster"] == {("a", "three", 3)}


def test_h29_the_first_batch_is_the_open_plan(run: Callable[[], Running], feed: Feed, dsn: str) -> None:
    running = run()
    feed.put("a", *[events("a", n, f"e{n}") for n in range(1, 6)])
    commit_plan(running.conn, running.grant, GROUP, {}, {queue_of("a"): 3})
    running.intake.start()
    running.until_taken_in(a=6)
    assert len(status_of(dsn)["event"]) == 5
    with psycopg.connect(dsn) as conn:
        # Two batches: the plan of two messages, then the other three. One batch would leave equal times.
        [(row,)] = conn.execute("SELECT updated_at > created_at FROM status.transport").fetchall()
    assert row is True
    assert open_plan(running.conn, GROUP) is None


def test_g6_a_dependent_that_comes_first_is_not_seen_before_its_base(run: Callable[[], Running], feed: Feed, dsn: str) -> None:
    running = run()
    running.intake.start()
    feed.put("a", compliance("a", 1, 4, "c"), forged("a", "b", 4))
    running.until(lambda: running.offsets() == {queue_of("a"): 3})
    assert waiting_in(dsn) == 1
    assert status_of(dsn)["compliance"] == set()
    feed.put("a", clusters("a", 4, "c"))
    running.until_taken_in(a=4)
    assert status_of(dsn)["compliance"] == {("a", "c", "s1")}
    assert status_of(dsn)["cluster"] == {("a", "c", 4)}


def test_g7_a_batch_with_a_message_missing_is_not_taken_in(run: Callable[[], Running], feed: Feed, dsn: str) -> None:
    running = run()
    feed.put("a", *[events("a", n, f"e{n}") for n in range(1, 4)])
    with psycopg.connect(dsn) as conn:
        conn.execute("DELETE FROM queues.receive WHERE position = 2")
    running.intake.start()
    eventually(lambda: running.intake.failure() is not None)
    assert "planned were" in str(running.intake.failure())
    assert running.offsets() == {}
    assert waiting_in(dsn) == 0


def test_g7_counts_are_proved_per_queue() -> None:
    plan = Plan({}, {"p": 3, "q": 2})
    whole = [Survivor("p", 2, "a", {}, b"", 2), Survivor("q", 1, "b", {}, b"", 1)]
    require_all_read(plan, Conflated(whole))
    with pytest.raises(Terminal):
        require_all_read(plan, Conflated([Survivor("p", 2, "a", {}, b"", 3)]))


def test_a_new_queue_is_found_by_a_running_query(run: Callable[[], Running], feed: Feed, dsn: str) -> None:
    running = run()
    running.intake.start()
    feed.put("a", clusters("a", 1, "x"))
    running.until_taken_in(a=2)
    feed.put("new", clusters("new", 1, "y"))
    running.until_taken_in(a=2, new=2)
    assert status_of(dsn)["cluster"] == {("a", "x", 1), ("new", "y", 1)}


def test_marks_of_a_queue_are_no_bundles_and_lost_entries_are_asked_for(
    run: Callable[[], Running], feed: Feed, dsn: str
) -> None:
    running = run()
    feed.put("a", changes("a", 1, create=[]), *[clusters("a", n, f"c{n}") for n in range(1, 5)])
    with psycopg.connect(dsn) as conn:
        for position, kind in ((2, Kind.START), (3, Kind.LAST), (4, Kind.LOST)):
            headers = {"trunkline-lost": "7-9"} if kind is Kind.LOST else {}
            mark = "UPDATE queues.receive SET type = %s, headers = %s, payload = '' WHERE position = %s"
            conn.execute(mark, (int(kind), Jsonb(headers), position))
    running.intake.start()
    running.until(lambda: running.offsets() == {queue_of("a"): 6} and status_of(dsn)["cluster"] == {("a", "c4", 4)})
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT received, rejected FROM bridge.counter").fetchall() == [(2, 0)]
        [wish] = conn.execute("SELECT site, reason FROM bridge.resync WHERE holds = 'managed-clusters'").fetchall()
    assert wish == ("a", f"entries 7-9 of {queue_of('a')} never came")


def test_a_bridge_that_was_away_too_long_goes_on_behind_what_is_gone_and_asks_for_it(
    run: Callable[[], Running], feed: Feed, dsn: str
) -> None:
    running = run()
    feed.put("a", clusters("a", 1, "one"))
    running.intake.start()
    running.until_taken_in(a=2)
    running.intake.stop()
    feed.put("a", *[events("a", n, f"e{n}") for n in range(1, 6)])
    with psycopg.connect(dsn) as conn:
        detach_idle(conn, 0.0)
        conn.execute("UPDATE queues.queue SET tail = 4")
        conn.execute("DELETE FROM queues.receive WHERE position <= 4")
    running.intake.start()
    running.until_taken_in(a=7)
    assert status_of(dsn)["event"] == {("a", "e4"), ("a", "e5")}
    with psycopg.connect(dsn) as conn:
        [(site, type_, reason)] = conn.execute("SELECT site, type, reason FROM bridge.resync").fetchall()
    assert (site, type_) == ("a", "clusters")
    assert "entries up to 4" in reason
