"""Routes from receive queues, on Spark and Postgres; and a group that goes from a pipeline to a node and back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
import structlog

from route_jobs import PARTS, RouteJobs
from route_node import RouteNode
from trunkline.core.errors import Terminal
from trunkline.core.ids import START, Position
from trunkline.core.jsoncodec import dumps
from trunkline.db.lease import acquire
from trunkline.db.pool import open_pool
from trunkline.pipeline.jobs.feeds.queue import QueueFeed
from trunkline.pipeline.jobs.feeds.spans import Span, by_bytes, by_rows, packed, still_there
from trunkline.pipeline.jobs.receivers import Receiver
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.queues import consumers
from trunkline.queues.receive import PostgresSink
from trunkline.routes.groups import Group
from trunkline.routes.keys import HOUSE
from trunkline.routes.receivers.queue import QueueReceiverConfig
from trunkline.routes.receivers.queue_consumer import consumer_name
from trunkline.trunk.log import Entry
from waiting import eventually

MakeJobs = Callable[..., RouteJobs]
CLIENT = "app"
GROUP = Group("queue", CLIENT)
LOG = "5f0c1f0e-0000-4000-8000-000000000001"
TABLE = {"plugin": "postgres", "config": {"table": "public.came", "columns": {"n": "{payload.n}", "via": "{payload.via}"}}}


class Arrivals:
    """What other sites send to client `app` of this one."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        with psycopg.connect(dsn) as conn:
            grant = acquire(conn, "sink", 600)
            conn.execute("CREATE TABLE public.came (id bigserial, n int, via text)")
        assert grant is not None
        self._pool = open_pool(dsn, 2, "test")
        self._sink = PostgresSink(self._pool, grant)
        self._seqs: dict[str, int] = {}

    def put(self, origin: str, *payloads: Any) -> None:
        if origin not in self._seqs:
            self._seqs[origin] = 0
            assert self._sink.use_log(origin, CLIENT, LOG, START)
            self._sink.applied(origin)
        first = self._seqs[origin] + 1
        entries = [Entry(seq, CLIENT, ("hub",), {}, dumps(payload)) for seq, payload in enumerate(payloads, first)]
        self._seqs[origin] += len(entries)
        self._sink.append(origin, LOG, entries, Position(self._seqs[origin], 1), [CLIENT])

    def came(self) -> list[tuple[int, str]]:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            return conn.execute("SELECT n, via FROM public.came ORDER BY id").fetchall()

    def numbers(self, via: str) -> list[int]:
        return [n for n, by in self.came() if by == via]

    def close(self) -> None:
        self._pool.close()


@pytest.fixture
def arrivals(make_database: Callable[..., str]) -> Iterator[Arrivals]:
    with closing(Arrivals(make_database(*PARTS))) as arrivals:
        yield arrivals


def received(start: str = "oldest") -> dict[str, Any]:
    return {"plugin": "queue", "config": {"client": CLIENT, "startAt": start}}


def via(name: str) -> dict[str, Any]:
    return {"plugin": "transform", "config": {"transformation": {"n": "{payload.n}", "via": name}}}


def numbered(first: int, end: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(first, end)]


def test_entries_of_all_sites_go_through_their_routes_each_sites_in_its_order(arrivals: Arrivals, make_jobs: MakeJobs) -> None:
    arrivals.put("leaf", *numbered(0, 50))
    arrivals.put("shop", *numbered(100, 130))
    jobs = make_jobs(arrivals.dsn)
    jobs.put("old", received(), TABLE, via("old"))
    jobs.until_running("queue")
    jobs.put("new", received("newest"), TABLE, via("new"))
    eventually(lambda: len(arrivals.numbers("old")) >= 80, 60, jobs.failing)
    eventually(lambda: len(jobs.rows("SELECT FROM queues.consumer")) == 2, 60, jobs.failing)
    arrivals.put("leaf", *numbered(50, 60))
    arrivals.put("mill", *numbered(200, 210))
    eventually(lambda: len(arrivals.numbers("old")) >= 100, 60, jobs.failing)
    eventually(lambda: len(arrivals.numbers("new")) >= 20, 60, jobs.failing)
    old, new = arrivals.numbers("old"), arrivals.numbers("new")
    assert [n for n in old if n < 100] == list(range(60))
    assert [n for n in old if 100 <= n < 200] == list(range(100, 130))
    assert sorted(new) == [*range(50, 60), *range(200, 210)], "it began behind what was there, a later queue at its beginning"


def test_a_group_goes_from_a_pipeline_to_a_node_and_back_and_nothing_is_lost_or_doubled(
    arrivals: Arrivals, make_jobs: MakeJobs
) -> None:
    jobs = make_jobs(arrivals.dsn)
    jobs.put("r", received(), TABLE, via("r"))
    arrivals.put("leaf", *numbered(0, 40))
    eventually(lambda: len(arrivals.numbers("r")) >= 40, 60, jobs.failing)
    jobs.stop()
    arrivals.put("leaf", *numbered(40, 80))
    with RouteNode(arrivals.dsn) as node:
        eventually(lambda: GROUP in node.routing.runner.held)
        arrivals.put("leaf", *numbered(80, 120))
        eventually(lambda: len(arrivals.numbers("r")) >= 120)
    arrivals.put("leaf", *numbered(120, 160))
    jobs.start()
    eventually(lambda: len(arrivals.numbers("r")) >= 160, 60, jobs.failing)
    eventually(
        lambda: jobs.rows("SELECT sum(head) = (SELECT sum(position) FROM queues.consumed) FROM queues.queue") == [(True,)]
    )
    assert arrivals.numbers("r") == list(range(160))


# -- the feed by itself


def settings_of(dsn: str, **more: Any) -> JobSettings:
    with psycopg.connect(dsn) as conn:
        grant = acquire(conn, GROUP.lease, 600)
    assert grant is not None
    return JobSettings(dsn, "hub", "p1", GROUP, grant, 2, **more)


def receivers_of(*names: str, start: Any = "oldest") -> dict[str, Receiver]:
    return {name: Receiver(name, HOUSE, QueueReceiverConfig(client=CLIENT, start_at=start)) for name in names}


def events_of(feed: QueueFeed, body: Any, receivers: dict[str, Receiver]) -> list[tuple[str, int]]:
    read = itertools.chain.from_iterable(feed.read(piece, receivers) for piece in feed.pieces(body, 4))
    return [(receiver.name, event.payload["n"]) for receiver, events in read for event in events]


def test_h29_an_open_plan_is_repeated_to_the_letter_though_more_has_come(arrivals: Arrivals) -> None:
    feed, receivers = QueueFeed(settings_of(arrivals.dsn, max_rows=30)), receivers_of("queue-a", "queue-b")
    arrivals.put("leaf", *numbered(0, 100))
    with psycopg.connect(arrivals.dsn) as conn:
        body, behind = feed.next(conn, receivers, None)
        assert behind == 170
        conn.commit()
        arrivals.put("leaf", *numbered(100, 110))
        assert feed.next(conn, receivers, body) == (body, 190)
        read = events_of(feed, body, receivers)
        assert sorted(read) == sorted((name, n) for name in receivers for n in range(15)), "both got the same share"


def test_h28_a_batch_moves_consumers_only_from_where_it_began(arrivals: Arrivals) -> None:
    feed, receivers = QueueFeed(settings_of(arrivals.dsn)), receivers_of("queue-a")
    arrivals.put("leaf", *numbered(0, 10))
    with psycopg.connect(arrivals.dsn) as conn:
        body, _ = feed.next(conn, receivers, None)
        feed.move(conn, body)
        [place] = consumers.positions(conn, CLIENT, consumer_name("queue-a"))
        assert place.position == 10
        assert feed.next(conn, receivers, body) == (None, 0), "what was passed is no longer the plan"
        with pytest.raises(consumers.Overtaken):
            feed.move(conn, body)


def test_a_position_that_is_missing_fails_the_task(arrivals: Arrivals) -> None:
    feed, receivers = QueueFeed(settings_of(arrivals.dsn)), receivers_of("queue-a")
    arrivals.put("leaf", *numbered(0, 10))
    with psycopg.connect(arrivals.dsn, autocommit=True) as conn:
        body, _ = feed.next(conn, receivers, None)
        conn.execute("DELETE FROM queues.receive WHERE position = 7")
    with pytest.raises(Terminal, match="position 7 is missing"):
        events_of(feed, body, receivers)


def test_marks_in_a_queue_are_passed_and_are_no_events(arrivals: Arrivals) -> None:
    feed, receivers = QueueFeed(settings_of(arrivals.dsn)), receivers_of("queue-a")
    arrivals.put("leaf", *numbered(0, 6))
    with psycopg.connect(arrivals.dsn) as conn:
        body, _ = feed.next(conn, receivers, None)
        conn.execute("UPDATE queues.receive SET type = position WHERE position BETWEEN 2 AND 5")
        conn.commit()
        with structlog.testing.capture_logs() as logs:
            assert [n for _, n in events_of(feed, body, receivers)] == [0, 1, 5], "log entries and a snapshot's record"
        assert [line["event"] for line in logs] == ["entries are lost: their source had trimmed them"]
        feed.move(conn, body)
        assert feed.next(conn, receivers, None) == (None, 0)


def test_a_consumer_that_was_away_for_too_long_goes_on_with_what_is_kept(arrivals: Arrivals) -> None:
    feed, receivers = QueueFeed(settings_of(arrivals.dsn)), receivers_of("queue-a")
    with psycopg.connect(arrivals.dsn) as conn:
        assert feed.next(conn, receivers, None) == (None, 0)
        conn.execute("UPDATE queues.consumer SET detached_at = now()")
        conn.commit()
        arrivals.put("leaf", *numbered(0, 3))
        body, _ = feed.next(conn, receivers, None)
        feed.move(conn, body)
    assert [n for _, n in events_of(feed, body, receivers)] == [0, 1, 2]


def test_a_batch_has_about_as_many_bytes_as_it_may(arrivals: Arrivals) -> None:
    feed, receivers = QueueFeed(settings_of(arrivals.dsn, max_bytes=20_000)), receivers_of("queue-a")
    arrivals.put("leaf", *({"n": n, "text": "x" * 1_000} for n in range(100)))
    with psycopg.connect(arrivals.dsn) as conn:
        body, behind = feed.next(conn, receivers, None)
    assert 15 <= len(events_of(feed, body, receivers)) <= 20
    assert behind >= 80


# -- spans


def test_spans_are_shared_out_and_packed_whole() -> None:
    waiting = [Span("a", 1, 11), Span("b", 5, 6), Span("a", 1, 10_001, queue=2)]
    assert by_rows(waiting, 7) == [Span("a", 1, 4), Span("b", 5, 6), Span("a", 1, 4, queue=2)]
    assert by_bytes(waiting, [10, 1_000, 10_000], 3_000) == [Span("a", 1, 11), Span("b", 5, 6), Span("a", 1, 1_991, queue=2)]
    assert packed(waiting, 2) == [(waiting[2],), (waiting[0], waiting[1])]
    assert packed([], 2) == []
    assert still_there([Span("a", 1, 4)], waiting)
    assert not still_there([Span("a", 2, 4)], waiting)
    assert not still_there([Span("b", 5, 7)], waiting)
