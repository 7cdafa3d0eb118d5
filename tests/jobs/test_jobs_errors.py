"""What goes wrong in a route job: events that cannot be processed, messages that are refused, batches that are done twice, and
routes that change while events flow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hand_job import HandJob, in_sink, into_sink, make_sink, numbered, received, route

from kafka_topics import Topics
from route_jobs import RouteJobs
from trunkline.core.errors import Retryable
from trunkline.core.jsoncodec import dumps, loads
from trunkline.pipeline.jobs import batches, stored
from trunkline.routes.event import Event
from trunkline.routes.filters import validate
from trunkline.routes.local.outbox import Row
from waiting import eventually

ByHand = Callable[..., HandJob]
MakeJobs = Callable[..., RouteJobs]

LETTERS = "SELECT step, message_id, content -> 'payload' -> 'n', reason FROM routes.dead_letter ORDER BY id"


def below(most: int, policy: str = "dead_letter") -> dict[str, Any]:
    """Lets numbers pass up to that one; others cannot be processed."""
    schema = {"properties": {"n": {"maximum": most}}}
    return {"plugin": "validate", "config": {"schema": schema}, "onError": policy}


def batch(size: int, milliseconds: int = 3_600_000) -> dict[str, Any]:
    return {"plugin": "batch", "config": {"batchSize": size, "timeoutMs": milliseconds}}


# -- filters


def test_what_a_filter_cannot_process_is_dropped_or_a_dead_letter_as_its_policy_says(by_hand: ByHand, topics: Topics) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 5))
    routes = [route(word, received(topics), into_sink(via=word), below(2, word), id=word) for word in ("drop", "dead_letter")]
    job = by_hand(*routes)
    job.batch()
    assert in_sink(job.dsn, "drop") == in_sink(job.dsn, "dead_letter") == [0, 1, 2]
    letters = job.rows(LETTERS)
    assert [n for _, _, n, _ in letters] == [3, 4]
    assert all("validate" in step for step, *_ in letters)
    assert all("maximum" in reason for *_, reason in letters)
    assert (job.counts["drop"].dropped, job.counts["drop"].dead) == (2, 0)
    assert (job.counts["dead_letter"].dead, job.counts["dead_letter"].sent) == (2, 3)


def test_what_a_filter_gives_back_fails_its_batch_and_is_a_dead_letter_in_the_end(by_hand: ByHand, topics: Topics) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 3))
    job = by_hand(route("a", received(topics), into_sink(), below(1, "fail"), deliveryMode="effectively_once"))
    for _ in range(batches.MOST_TRIES - 1):
        with pytest.raises(Retryable, match="1 events were given back"):
            job.batch()
        assert job.rows("SELECT moves FROM pipeline.job") == [(0,)]
    job.batch()
    assert job.rows("SELECT moves FROM pipeline.job") == [(1,)]
    [(_, _, n, reason)] = job.rows(LETTERS)
    assert n == 2
    assert f"given back {batches.MOST_TRIES} times" in reason
    assert in_sink(job.dsn) == [0, 1]


@pytest.mark.spark
def test_an_event_that_is_always_given_back_does_not_stop_its_group(make_jobs: MakeJobs, topics: Topics) -> None:
    topics.create("in")
    jobs = make_jobs()
    make_sink(jobs.dsn)
    jobs.put("r", received(topics), into_sink(), below(1, "fail"), deliveryMode="effectively_once")
    topics.put("in", *numbered(0, 3))
    eventually(lambda: jobs.rows(LETTERS), 90, jobs.failing)
    topics.put("in", *numbered(0, 2))
    eventually(lambda: len(in_sink(jobs.dsn)) >= 4, 60, jobs.failing)
    assert in_sink(jobs.dsn) == [0, 1, 0, 1]


def test_a_filter_that_raises_costs_only_the_event_it_raises_for(
    by_hand: ByHand, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(check: Any, value: Any, *_: Any) -> str:
        return "" if value["n"] != 1 else str(1 / 0)

    monkeypatch.setattr(validate, "_first_mistake", broken)
    monkeypatch.setattr(batches, "MOST_TRIES", 2)
    topics.create("in")
    topics.put("in", *numbered(0, 3))
    job = by_hand(route("a", received(topics), into_sink(), below(9), deliveryMode="effectively_once"))
    with pytest.raises(Retryable, match="ZeroDivisionError"):
        job.batch()
    job.batch()
    assert [n for _, _, n, _ in job.rows(LETTERS)] == [1]
    assert in_sink(job.dsn) == [0, 2]


# -- senders


def test_what_a_sender_refuses_is_a_dead_letter_and_the_rest_is_sent(by_hand: ByHand, topics: Topics) -> None:
    topics.create("in")
    topics.put("in", *numbered(0, 2), dumps({"n": None}), *numbered(3, 5))
    job = by_hand(route("a", received(topics), into_sink()))
    with psycopg.connect(job.dsn) as conn:
        conn.execute("ALTER TABLE public.sink ALTER n SET NOT NULL")
    job.batch()
    [(step, reason)] = job.rows("SELECT step, reason FROM routes.dead_letter")
    assert step in ("sender", "message")
    assert reason
    assert in_sink(job.dsn) == [0, 1, 3, 4]
    assert job.rows("SELECT 1 FROM routes.lane") == []


def test_what_fire_and_forget_cannot_send_is_gone_and_counted(
    by_hand: ByHand, topics: Topics, make_database: Callable[..., str]
) -> None:
    away = make_database()
    topics.create("in")
    topics.put("in", *numbered(0, 3))
    nowhere = into_sink(away.replace("host=127.0.0.1", "host=127.0.0.2"))
    job = by_hand(route("a", received(topics), nowhere, deliveryMode="fire_and_forget"))
    job.batch()
    assert job.rows("SELECT moves FROM pipeline.job") == [(1,)]
    assert job.rows("SELECT 1 FROM routes.lane") == job.rows("SELECT 1 FROM routes.dead_letter") == []
    assert (job.counts["a"].matched, job.counts["a"].sent, job.counts["a"].failed) == (3, 0, 3)


# -- dead letters that are tried again


def replay(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT routes.replay(array(SELECT id FROM routes.dead_letter))").fetchone()
    return int(row[0]) if row else 0


@pytest.mark.spark
def test_a_dead_letter_of_a_filter_reaches_the_sender_when_the_route_is_mended(make_jobs: MakeJobs, topics: Topics) -> None:
    topics.create("in")
    jobs = make_jobs()
    make_sink(jobs.dsn)
    jobs.put("r", received(topics), into_sink(), below(2))
    topics.put("in", *numbered(0, 5))
    eventually(lambda: len(jobs.rows(LETTERS)) == 2, 60, jobs.failing)
    assert replay(jobs.dsn) == 2
    eventually(lambda: len(jobs.rows(LETTERS)) == 2 and not jobs.rows("SELECT 1 FROM routes.lane"), 60, jobs.failing)
    jobs.put("r", received(topics), into_sink(), below(9))
    assert replay(jobs.dsn) == 2
    eventually(lambda: len(in_sink(jobs.dsn)) >= 5, 60, lambda: jobs.rows("SELECT * FROM routes.lane"))
    eventually(lambda: not jobs.rows("SELECT 1 FROM routes.lane"))
    assert in_sink(jobs.dsn) == [0, 1, 2, 3, 4]
    assert jobs.rows(LETTERS) == []


@pytest.mark.spark
def test_a_dead_letter_of_a_sender_is_sent_when_its_place_is_mended(make_jobs: MakeJobs, topics: Topics) -> None:
    topics.create("in")
    jobs = make_jobs()
    make_sink(jobs.dsn)
    with psycopg.connect(jobs.dsn) as conn:
        conn.execute("ALTER TABLE public.sink ADD CONSTRAINT small CHECK (n::int < 3)")
    jobs.put("r", received(topics), into_sink())
    topics.put("in", *numbered(0, 5))
    eventually(lambda: len(jobs.rows("SELECT 1 FROM routes.dead_letter")) == 2, 60, jobs.failing)
    with psycopg.connect(jobs.dsn) as conn:
        conn.execute("ALTER TABLE public.sink DROP CONSTRAINT small")
    assert replay(jobs.dsn) == 2
    eventually(lambda: len(in_sink(jobs.dsn)) >= 5, 60, lambda: jobs.rows("SELECT * FROM routes.lane"))
    assert in_sink(jobs.dsn) == [0, 1, 2, 3, 4]


def test_a_dead_letter_in_front_of_a_filter_that_remembers_is_remembered_once(by_hand: ByHand, topics: Topics) -> None:
    """Its row is gone in the transaction that remembers it: whoever comes too late changes nothing."""
    topics.create("in")
    topics.put("in", *numbered(0, 4))
    sink = into_sink(n="{payload}")
    job = by_hand(route("a", received(topics), sink, below(2), batch(10)))
    job.batch()
    job.change([route("b", received(topics), sink, below(9), batch(10))], ["a"])
    assert job.plan() is None
    job.batches.flush()
    with psycopg.connect(job.dsn) as conn:
        conn.execute("UPDATE routes.dead_letter SET hash = 'b'")
    replay(job.dsn)
    with psycopg.connect(job.dsn) as conn:
        conn.execute("UPDATE routes.lane SET holder = 'me', held_until = clock_timestamp() + interval '1 hour'")
    [found] = job.rows("SELECT seq, step, message_id, source, message::text, came FROM routes.outbox")
    row = Row(*found)
    event = Event(**{name: loads(row.message)[name] for name in ("payload", "metadata")})
    with pytest.raises(Retryable, match="another instance drains it"):
        job.batches.again("b", row, event, "somebody else")
    job.batches.again("b", row, event, "me")
    with pytest.raises(Retryable, match="another instance drains it"):
        job.batches.again("b", row, event, "me")
    assert job.rows("SELECT 1 FROM routes.lane") == []
    assert job.rows("SELECT json_array_length(state -> 'chain' -> '1' -> 'held') FROM pipeline.job_state") == [(4,)]


# -- done twice


def fail_once(monkeypatch: pytest.MonkeyPatch, times: int = 1) -> list[int]:
    """The driver's half of a batch fails after everything was sent, before it is committed; gives how often it did."""
    failed: list[int] = []
    close = stored.close_plan

    def failing(*args: Any) -> None:
        if len(failed) < times:
            failed.append(1)
            raise Retryable("batch", "the test says so", "try again")
        close(*args)

    monkeypatch.setattr(batches, "close_plan", failing)
    return failed


@pytest.mark.spark
def test_a_batch_that_is_done_twice_is_there_once_where_that_is_asked_for(
    make_jobs: MakeJobs, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = fail_once(monkeypatch, 2)
    topics.create("in")
    jobs = make_jobs()
    make_sink(jobs.dsn)
    with psycopg.connect(jobs.dsn) as conn:
        conn.execute("INSERT INTO queues.site (name) VALUES ('shop') ON CONFLICT DO NOTHING")
    topics.put("in", *numbered(0, 10))
    queue = {"plugin": "queue", "config": {"client": "app", "destinations": ["shop"]}}
    jobs.put("queue", received(topics), queue, deliveryMode="effectively_once")
    jobs.put("once", received(topics), into_sink(via="once"), deliveryMode="effectively_once")
    jobs.put("often", received(topics), into_sink(via="often"))
    eventually(lambda: jobs.rows("SELECT sum(events) FROM pipeline.job_batch") == [(10,)], 90, jobs.failing)
    assert len(failed) == 2
    assert in_sink(jobs.dsn, "once") == list(range(10))
    assert len(in_sink(jobs.dsn, "often")) > 10, "or nothing was done twice"
    assert queued(jobs.dsn) == list(range(10))


def queued(dsn: str) -> list[int]:
    found: list[int] = []
    with psycopg.connect(dsn) as conn:
        for payload, ends in conn.execute("SELECT payload, ends FROM queues.send_log ORDER BY id"):
            ends = ends or [len(payload)]
            found += [loads(payload[begin:end])["n"] for begin, end in zip([0, *ends], ends, strict=False)]
    return found


# -- changes while events flow


@pytest.mark.spark
def test_two_hundred_changes_while_events_flow_take_effect_and_lose_nothing(make_jobs: MakeJobs, topics: Topics) -> None:
    """One route stays and is updated, one comes and goes: both say which version of them an event met."""
    topics.create("in")
    jobs = make_jobs()
    make_sink(jobs.dsn)
    put, done = [0], threading.Event()

    def flow() -> None:
        while not done.wait(0.01):
            if jobs.rows("SELECT count(*) FROM public.sink WHERE starts_with(via, 'stays')")[0][0] > put[0] - 200:
                topics.put("in", *numbered(put[0], put[0] + 20))
                put[0] += 20

    jobs.put("stays", received(topics), into_sink(via="stays 0"))
    jobs.until_running("kafka")
    feeding = threading.Thread(target=flow)
    feeding.start()
    try:
        for n in range(1, 101):
            jobs.put("stays", received(topics), into_sink(via=f"stays {n}"))
            if n % 2:
                jobs.put("comes", received(topics), into_sink(via=f"comes {n}"))
            else:
                jobs.remove("comes")
            if n % 20 == 0:
                eventually(lambda: (f"stays {n}",) in jobs.rows("SELECT DISTINCT via FROM public.sink"), 60)  # noqa: B023
    finally:
        done.set()
        feeding.join()
    topics.put("in", *numbered(put[0], put[0] + 5))
    total = put[0] + 5
    eventually(lambda: len(_of(jobs, "stays")) >= total, 90, jobs.failing)
    stays, comes = _of(jobs, "stays"), _of(jobs, "comes")
    assert [n for n, _ in stays] == list(range(total))
    versions = [version for _, version in stays]
    assert versions == sorted(versions)
    assert versions[-1] == 100
    assert set(versions) >= {20, 40, 60, 80, 100}
    assert [n for n, _ in comes] == sorted({n for n, _ in comes})
    assert all(version % 2 for _, version in comes)
    assert total - 1 not in {n for n, _ in comes}


def _of(jobs: RouteJobs, name: str) -> list[tuple[int, int]]:
    """(number, version of the route) in the order in which they came."""
    rows = jobs.rows("SELECT n, via FROM public.sink WHERE via LIKE %s ORDER BY place", f"{name} %")
    return [(n, int(via.split()[1])) for n, via in rows]
