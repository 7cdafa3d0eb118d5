"""Hazards of route jobs: where a group stands, what a batch is, what filters hold, and senders that are away."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hand_job import HandJob, in_sink, into_sink, make_sink, numbered, received, route
from psycopg import sql
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kafka_topics import Topics
from route_jobs import RouteJobs
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.core.errors import Fenced, Terminal
from trunkline.core.jsoncodec import loads
from trunkline.pipeline.jobs import keeping, stored
from waiting import eventually

ByHand = Callable[..., HandJob]
MakeJobs = Callable[..., RouteJobs]

LATER = 3_600_000


def sent(topics: Topics, topic: str = "out") -> dict[str, Any]:
    return {"plugin": "kafka", "config": {"brokers": topics.bootstrap, "topic": topics.name(topic)}}


def batch(size: int, milliseconds: int = LATER) -> dict[str, Any]:
    return {"plugin": "batch", "config": {"batchSize": size, "timeoutMs": milliseconds}}


def dedup() -> dict[str, Any]:
    return {"plugin": "dedup", "config": {"path": "payload.n"}}


def tagged(word: str) -> dict[str, Any]:
    return {"plugin": "transform", "config": {"transformation": {"n": "{payload.n}", "via": word}}}


def ids_and_numbers(topics: Topics, topic: str = "out") -> list[tuple[str, int]]:
    records = topics.records(topic, [0])
    return [(dict(r.headers() or ())["trunkline-id"].decode(), loads(r.value() or b"")["n"]) for r in records]  # type: ignore[union-attr]


def gathered(dsn: str) -> list[list[int]]:
    """The numbers of each batch that came."""
    return [[one["n"] for one in batch] for batch in in_sink(dsn)]


# -- H28


def test_h28_a_start_that_is_not_where_the_group_stands_is_refused(by_hand: ByHand, topics: Topics) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 5))
    job = by_hand(route("a", received(topics), into_sink()))
    job.batch()
    job.batch()
    topics.put("in", *numbered(5, 6))
    for elsewhere in (0, 2, 7):
        with pytest.raises(Terminal, match="the group stands at 1"):
            job.reader.latestOffset({"moves": elsewhere}, ReadAllAvailable())
    assert job.reader.latestOffset({"moves": 1}, ReadAllAvailable()) == {"moves": 2}


def test_h28_a_batch_that_does_not_begin_where_the_group_stands_changes_nothing(by_hand: ByHand, topics: Topics) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 5))
    job = by_hand(route("a", received(topics), into_sink()))
    job.batch()
    topics.put("in", *numbered(5, 10))
    plan = job.plan()
    assert plan is not None
    told = job.routed(plan)
    with psycopg.connect(job.dsn) as conn:
        conn.execute("UPDATE pipeline.kafka_offset SET next_offset = 3")
    with pytest.raises(Terminal, match="does not begin where the offsets stand"):
        job.batches.finish(plan, told)
    assert job.rows("SELECT next_offset FROM pipeline.kafka_offset") == [(3,)]
    assert job.rows("SELECT moves FROM pipeline.job") == [(1,)]
    assert job.rows("SELECT 1 FROM pipeline.job_plan") == [(1,)]


@pytest.mark.spark
def test_h28_a_lost_checkpoint_loses_and_doubles_nothing(make_jobs: MakeJobs, topics: Topics) -> None:
    topics.create("in")
    jobs = make_jobs()
    make_sink(jobs.dsn)
    topics.put("in", *numbered(0, 10))
    jobs.put("r", received(topics), into_sink())
    eventually(lambda: len(in_sink(jobs.dsn)) >= 10, 60, jobs.failing)
    jobs.stop()
    shutil.rmtree(jobs.folder)
    topics.put("in", *numbered(10, 20))
    jobs.start()
    eventually(lambda: len(in_sink(jobs.dsn)) >= 20, 60, jobs.failing)
    assert in_sink(jobs.dsn) == list(range(20))


@pytest.mark.spark
def test_h28_what_a_restored_database_forgot_comes_again_with_the_same_ids(make_jobs: MakeJobs, topics: Topics) -> None:
    """It is set back under the running query, whose checkpoint is then ahead of it."""
    topics.create("in", "out")
    jobs = make_jobs()
    topics.put("in", *numbered(0, 10))
    jobs.put("r", received(topics), sent(topics))
    eventually(lambda: jobs.rows("SELECT next_offset FROM pipeline.kafka_offset") == [(10,)], 60, jobs.failing)
    [(moves,)] = jobs.rows("SELECT moves FROM pipeline.job")
    topics.put("in", *numbered(10, 20))
    eventually(lambda: jobs.rows("SELECT next_offset FROM pipeline.kafka_offset") == [(20,)], 60, jobs.failing)
    first = ids_and_numbers(topics)
    with psycopg.connect(jobs.dsn) as conn:
        conn.execute("UPDATE pipeline.job SET moves = %s", (moves,))
        conn.execute("DELETE FROM pipeline.job_batch WHERE moves > %s", (moves,))
        conn.execute("UPDATE pipeline.kafka_offset SET next_offset = 10")
    topics.put("in", *numbered(20, 25))
    eventually(lambda: jobs.rows("SELECT next_offset FROM pipeline.kafka_offset") == [(25,)], 60, jobs.failing)
    since = ids_and_numbers(topics)[len(first) :]
    early, again = since[:-15], since[-15:]
    assert [n for _, n in first] == list(range(20))
    assert again[:10] == first[10:]
    assert [n for _, n in again[10:]] == list(range(20, 25))
    assert early == again[10 : 10 + len(early)]  # a batch planned in that very moment is sent, refused, and done again


# -- H29


def test_h29_an_open_plan_is_repeated_by_a_new_holder_with_its_bounds_and_its_routes(by_hand: ByHand, topics: Topics) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 5))
    old, new = (route(word, received(topics), into_sink(via="{payload.via}"), tagged(word)) for word in ("old", "new"))
    dead = by_hand(old)
    plan = dead.plan()
    assert plan is not None
    topics.put("in", *numbered(5, 8))
    dead.change([new], ["old"])
    heir = by_hand(new)
    with pytest.raises(Fenced):
        dead.batches.finish(plan, [])
    repeated = heir.batch()
    assert repeated is not None
    assert (repeated.revision, repeated.moves, repeated.body) == (plan.revision, plan.moves, plan.body)
    assert repeated.epoch == heir.settings.grant.epoch > plan.epoch
    assert in_sink(heir.dsn, "old") == list(range(5))
    heir.batch()
    assert in_sink(heir.dsn, "new") == list(range(5, 8))


def test_h29_routes_are_kept_while_a_plan_names_them(by_hand: ByHand, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "KEEP_CHANGES", 0)
    topics.create("in")
    topics.put("in", *numbered(0, 5))
    job = by_hand(route("v0", received(topics), into_sink(via="v0")))
    plan = job.plan()
    assert plan is not None
    for n in range(1, 5):
        job.change([route(f"v{n}", received(topics), into_sink(via=f"v{n}"))], [f"v{n - 1}"])
    kept = "SELECT hash FROM pipeline.job_route WHERE until IS NOT NULL ORDER BY hash"
    assert ("v0",) in job.rows(kept)
    job.batches.finish(plan, job.routed(plan))
    assert in_sink(job.dsn, "v0") == list(range(5))
    job.change([route("v5", received(topics), into_sink(via="v5"))], ["v4"])
    assert job.rows(kept) == []


def test_h29_who_stands_far_behind_forgets_routes_whose_end_nobody_knows_any_more(
    by_hand: ByHand, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "KEEP_CHANGES", 2)
    topics.create("in")
    topics.put("in", *numbered(0, 3))
    stays, goes = (route(w, received(topics), into_sink(via=w), id=w) for w in ("stays", "goes"))
    job = by_hand(stays, goes)
    job.batch()
    job.change([], ["goes"])
    for n in range(8):
        job.change([route(f"v{n}", received(topics), {"plugin": "nop"}, id="other")], [f"v{n - 1}"])
    assert job.rows("SELECT 1 FROM pipeline.job_route WHERE hash = 'goes'") == []
    topics.put("in", *numbered(3, 5))
    job.batch()
    assert in_sink(job.dsn, "stays") == list(range(5))
    assert in_sink(job.dsn, "goes") == list(range(3))


def test_h29_a_route_that_was_removed_gets_nothing_of_the_next_batch(by_hand: ByHand, topics: Topics) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 3))
    stays, goes = (route(w, received(topics), into_sink(via=w), id=w) for w in ("stays", "goes"))
    job = by_hand(stays, goes)
    job.batch()
    job.change([], ["goes"])
    topics.put("in", *numbered(3, 5))
    job.batch()
    assert in_sink(job.dsn, "stays") == list(range(5))
    assert in_sink(job.dsn, "goes") == list(range(3))


# -- H32


@pytest.mark.spark
def test_h32_a_part_batch_is_flushed_by_the_clock_though_nothing_comes(make_jobs: MakeJobs, topics: Topics) -> None:
    topics.create("in")
    jobs = make_jobs()
    make_sink(jobs.dsn)
    jobs.put("r", received(topics), into_sink(n="{payload}"), batch(3, 300))
    topics.put("in", *numbered(0, 4))
    eventually(lambda: sum(map(len, gathered(jobs.dsn))) >= 4, 60, jobs.failing)
    assert [n for one in gathered(jobs.dsn) for n in one] == [0, 1, 2, 3]
    assert jobs.rows("SELECT due FROM pipeline.job_state") == [(None,)]


def test_h32_a_flush_and_a_batch_never_both_send(by_hand: ByHand, topics: Topics) -> None:
    topics.create("in")
    job = by_hand(route("a", received(topics), into_sink(n="{payload}"), batch(7, 1)))
    done = threading.Event()

    def flush() -> None:
        while not done.is_set():
            job.batches.flush()

    other = threading.Thread(target=flush)
    other.start()
    for n in range(30):
        topics.put("in", *numbered(5 * n, 5 * n + 5))
        plan = job.plan()
        assert plan is not None
        with job.batches._in_turn():
            job.batches.finish(plan, job.routed(plan))
    eventually(lambda: sum(map(len, gathered(job.dsn))) >= 150)
    done.set()
    other.join()
    assert [n for one in gathered(job.dsn) for n in one] == list(range(150))


def test_h32_what_filters_hold_survives_the_holder(by_hand: ByHand, topics: Topics) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 2))
    member = route("a", received(topics), into_sink(n="{payload}"), batch(3))
    by_hand(member).batch()
    topics.put("in", *numbered(2, 4))
    heir = by_hand(member)
    heir.batch()
    assert gathered(heir.dsn) == [[0, 1, 2]]


def test_h32_a_filter_remembers_across_holders_what_it_has_seen(by_hand: ByHand, topics: Topics) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 5))
    member = route("a", received(topics), into_sink(), dedup())
    by_hand(member).batch()
    topics.put("in", *numbered(3, 8))
    heir = by_hand(member)
    heir.batch()
    assert in_sink(heir.dsn) == list(range(8))


def test_h32_a_batch_that_is_tried_again_is_no_duplicate_of_itself(
    by_hand: ByHand, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 5))
    job = by_hand(route("a", received(topics), into_sink(), dedup()))
    plan = job.plan()
    assert plan is not None
    told = job.routed(plan)
    with monkeypatch.context() as broken:
        broken.setattr(job._feed, "move", _raise)
        with pytest.raises(ZeroDivisionError):
            job.batches.finish(plan, told)
    job.batches.finish(plan, told)
    assert in_sink(job.dsn) == [*range(5), *range(5)]
    topics.put("in", *numbered(0, 5))
    job.batch()
    assert len(in_sink(job.dsn)) == 10


def _raise(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("comes_first", ["events", "the clock"])
def test_h32_an_updated_route_goes_on_with_what_the_same_filters_remember(
    by_hand: ByHand, topics: Topics, comes_first: str
) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 5))
    sink = into_sink(n="{payload}")
    old = route("old", received(topics), sink, dedup(), tagged("old"), batch(3))
    new = route("new", received(topics), sink, dedup(), tagged("new"), batch(3))
    job = by_hand(old)
    job.batch()
    job.change([new], ["old"])
    if comes_first == "the clock":
        assert job.plan() is None
        job.batches.flush()
    topics.put("in", *numbered(3, 7))
    job.batch()
    assert gathered(job.dsn) == [[0, 1, 2], [3, 4, 5]]
    job.batches.flush()
    assert job.rows("SELECT hash FROM pipeline.job_state") == [("new",)]


def test_h32_what_other_filters_of_an_updated_route_held_is_flushed(by_hand: ByHand, topics: Topics) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 2))
    sink = into_sink(n="{payload}")
    job = by_hand(route("old", received(topics), sink, batch(3)))
    job.batch()
    job.change([route("new", received(topics), sink, batch(2))], ["old"])
    assert job.plan() is None
    job.batches.flush()
    assert gathered(job.dsn) == [[0, 1]]


def test_h32_a_route_that_a_plan_still_names_is_not_flushed_for_having_gone(by_hand: ByHand, topics: Topics) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 2))
    job = by_hand(route("a", received(topics), into_sink(n="{payload}"), batch(3)))
    job.batch()
    topics.put("in", *numbered(2, 4))
    plan = job.plan()
    assert plan is not None
    job.change([], ["a"])
    job.batches.flush()
    assert in_sink(job.dsn) == []
    job.batches.finish(plan, job.routed(plan))
    assert gathered(job.dsn) == [[0, 1, 2]]
    job.batches.flush()
    assert len(in_sink(job.dsn)) == 1, "whoever plans has not seen yet that the route has gone"
    assert job.plan() is None
    job.batches.flush()
    assert gathered(job.dsn) == [[0, 1, 2], [3]]
    assert job.rows("SELECT 1 FROM pipeline.job_state") == []


@pytest.mark.spark
def test_h32_what_the_last_route_of_a_group_held_is_flushed_before_the_group_ends(make_jobs: MakeJobs, topics: Topics) -> None:
    topics.create("in")
    jobs = make_jobs()
    make_sink(jobs.dsn)
    jobs.put("r", received(topics), into_sink(n="{payload}"), batch(100))
    topics.put("in", *numbered(0, 4))
    eventually(lambda: jobs.rows("SELECT 1 FROM pipeline.job_state"), 60, jobs.failing)
    jobs.remove("r")
    eventually(lambda: gathered(jobs.dsn) == [[0, 1, 2, 3]], 60, jobs.failing)
    eventually(lambda: not jobs.running("kafka"))


def test_h32_what_is_flushed_goes_behind_what_waits_in_the_outbox(
    by_hand: ByHand, topics: Topics, make_database: Callable[..., str]
) -> None:
    away = make_database()
    make_sink(away)
    topics.create("in")
    job = by_hand(route("a", received(topics), into_sink(away, n="{payload}"), batch(2)))
    topics.put("in", *numbered(0, 3))
    close_to_all(away)
    job.batch()
    open_again(away)
    job.change([], ["a"])
    assert job.plan() is None
    job.batches.flush()
    assert in_sink(away) == []
    waiting = [loads(row)["n"] for (row,) in job.rows("SELECT message ->> 'row' FROM routes.outbox ORDER BY seq")]
    assert [[one["n"] for one in batch] for batch in waiting] == [[0, 1], [2]]


# -- H33


def close_to_all(dsn: str) -> None:
    _allow(dsn, False)


def open_again(dsn: str) -> None:
    _allow(dsn, True)


def _allow(dsn: str, allowed: bool) -> None:
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    with psycopg.connect(dsn, dbname="postgres", autocommit=True) as conn:
        words = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        conn.execute(words.format(sql.Identifier(str(name)), sql.Literal(allowed)))
        conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))


@pytest.mark.spark
def test_h33_a_dead_sender_stops_neither_its_group_nor_other_routes_and_gets_all_in_order_later(
    make_jobs: MakeJobs, topics: Topics, make_database: Callable[..., str]
) -> None:
    away = make_database()
    make_sink(away)
    topics.create("in")
    jobs = make_jobs()
    make_sink(jobs.dsn)
    jobs.put("well", received(topics), into_sink(via="well"))
    jobs.put("ill", received(topics), into_sink(away))
    topics.put("in", *numbered(0, 10))
    eventually(lambda: len(in_sink(away)) >= 10, 60, jobs.failing)
    close_to_all(away)
    for n in range(1, 4):
        topics.put("in", *numbered(10 * n, 10 * n + 10))
        eventually(lambda: len(in_sink(jobs.dsn, "well")) >= 10 * n + 10, 60, jobs.failing)  # noqa: B023
    eventually(lambda: jobs.rows("SELECT messages FROM routes.lane") == [(30,)], 60, jobs.failing)
    open_again(away)
    topics.put("in", *numbered(40, 50))
    eventually(lambda: len(in_sink(away)) >= 50, 60, lambda: jobs.rows("SELECT * FROM routes.lane"))
    eventually(lambda: jobs.rows("SELECT 1 FROM routes.lane") == [])
    kept = jobs.count("ill").kept
    topics.put("in", *numbered(50, 60))
    eventually(lambda: len(in_sink(away)) >= 60, 60, jobs.failing)
    assert in_sink(away) == list(range(60))
    assert in_sink(jobs.dsn, "well") == list(range(60))
    assert jobs.count("ill").kept == kept >= 30


def test_h33_a_broker_that_is_away_gets_all_in_order_later(by_hand: ByHand, topics: Topics, tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path / "away")
    broker.start()
    away = Topics(broker.bootstrap, "away")
    away.create("out")
    topics.create("in")
    job = by_hand(route("a", received(topics), sent(away)))
    broker.stop()
    for n in range(2):
        topics.put("in", *numbered(10 * n, 10 * n + 10))
        job.batch()
    waiting = job.rows("SELECT message ->> 'value' FROM routes.outbox ORDER BY seq")
    assert [loads(value)["n"] for (value,) in waiting] == list(range(20))
    away.close()


def test_h33_above_the_cap_are_dead_letters(
    by_hand: ByHand, topics: Topics, make_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "MAX_MESSAGES", 7)
    away = make_database()
    close_to_all(away)
    topics.create("in")
    job = by_hand(route("a", received(topics), into_sink(away)))
    for n in range(2):
        topics.put("in", *numbered(5 * n, 5 * n + 5))
        job.batch()
    waiting = job.rows("SELECT message ->> 'row' FROM routes.outbox ORDER BY seq")
    dead = job.rows("SELECT content ->> 'row', reason FROM routes.dead_letter ORDER BY id")
    assert [loads(row)["n"] for (row,) in waiting] == list(range(7))
    assert [loads(row)["n"] for row, _ in dead] == [7, 8, 9]
    assert all("outbox is full" in reason for _, reason in dead)
    assert (job.counts["a"].kept, job.counts["a"].dead, job.counts["a"].sent) == (7, 3, 0)


def test_h33_the_outbox_of_an_updated_route_comes_before_what_the_new_one_sends(
    by_hand: ByHand, topics: Topics, make_database: Callable[..., str]
) -> None:
    away = make_database()
    make_sink(away)
    topics.create("in")
    topics.put("in", *numbered(0, 3))
    job = by_hand(route("old", received(topics), into_sink(away, via="old")))
    close_to_all(away)
    job.batch()
    open_again(away)
    job.change([route("new", received(topics), into_sink(away, via="new"))], ["old"])
    topics.put("in", *numbered(3, 6))
    job.batch()
    assert in_sink(away) == []
    rows = job.rows("SELECT hash, message ->> 'row' FROM routes.outbox ORDER BY seq")
    assert [hash for hash, _ in rows] == ["new"] * 6
    assert [loads(row)["n"] for _, row in rows] == list(range(6))


def test_h33_nothing_is_sent_past_a_message_that_failed_in_the_same_batch(
    by_hand: ByHand, topics: Topics, make_database: Callable[..., str]
) -> None:
    """Several calls of one sender in one batch: what follows the one that failed waits behind it."""
    away = make_database()
    make_sink(away)
    topics.create("in")
    topics.put("in", *numbered(0, 2_500))
    job = by_hand(route("a", received(topics), into_sink(away)))
    close_to_all(away)
    job.batch()
    waiting = job.rows("SELECT message ->> 'row' FROM routes.outbox ORDER BY seq")
    assert [loads(row)["n"] for (row,) in waiting] == list(range(2_500))
