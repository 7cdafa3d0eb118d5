"""A route job without Spark in between: the parts of a batch, called one after the other, so that a test can stop anywhere.

Planning, routing, the driver's half, Postgres and Kafka are the real ones. What Spark adds is which process does what.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import psycopg
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kafka_topics import Topics
from trunkline.core.jsoncodec import dumps
from trunkline.db.lease import Grant, acquire, commit_fenced
from trunkline.pipeline.jobs.batches import Batches
from trunkline.pipeline.jobs.deliver import Delivery, Loop, Senders
from trunkline.pipeline.jobs.feed import feed_of
from trunkline.pipeline.jobs.loaded import Loaded, LoadedRoute
from trunkline.pipeline.jobs.outcomes import Outcome, RouteCount, TaskCounts
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.pipeline.jobs.source import JobReader
from trunkline.pipeline.jobs.stage import Stage
from trunkline.pipeline.jobs.stored import JobPlan, Member, begin, change, open_plan
from trunkline.routes.groups import Group
from trunkline.routes.keys import HOUSE, RouteKey

SINK = "CREATE TABLE IF NOT EXISTS public.sink (place bigserial, n jsonb, via text)"


def received(topics: Topics, topic: str = "in") -> dict[str, Any]:
    return {"plugin": "kafka", "config": {"brokers": topics.bootstrap, "topic": topics.name(topic), "startAt": "earliest"}}


def into_sink(dsn: str | None = None, via: str = "", n: str = "{payload.n}") -> dict[str, Any]:
    """Rows of `public.sink`, in the order in which they come."""
    where = {} if dsn is None else {"database": dsn}
    return {"plugin": "postgres", "config": {**where, "table": "public.sink", "columns": {"n": n, "via": via}}}


def numbered(first: int, end: int, **more: Any) -> list[bytes]:
    return [dumps({"n": n, **more}) for n in range(first, end)]


def make_sink(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(SINK)


def in_sink(dsn: str, via: str | None = None) -> list[Any]:
    """Numbers, in the order in which they came."""
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("SELECT n, via FROM public.sink ORDER BY place").fetchall()
    return [n for n, of in rows if via is None or of == via]


class HandJob:
    """Takes the group's lease, whoever held it before: each one is a new holder."""

    def __init__(self, dsn: str, topics: Topics, *members: Member) -> None:
        group = Group("kafka", topics.bootstrap)
        self.dsn, self.counts = dsn, dict[str, RouteCount]()
        self.conn = psycopg.connect(dsn)
        self.settings = JobSettings(dsn, "hub", "by-hand", group, self._lease(group.lease), 2)
        self.group = self.settings.group
        begin(self.conn, self.group, {one.hash: one for one in members})
        commit_fenced(self.conn, self.settings.grant)
        self.reader, self._loop = JobReader(self.settings), Loop("by-hand")
        self._senders, self._feed = Senders(self.settings, self._loop), feed_of(self.settings)
        self._loaded = Loaded(self.settings)
        self.batches = Batches(self.settings, self._feed, self._senders, self._hear)

    def _lease(self, name: str) -> Grant:
        self.conn.execute("UPDATE site.lease SET expires_at = '-infinity' WHERE name = %s", (name,))
        grant = acquire(self.conn, name, 600)
        assert grant is not None
        return grant

    def change(self, came: Sequence[Member] = (), went: Sequence[str] = ()) -> int:
        revision = change(self.conn, self.group, came, went)
        commit_fenced(self.conn, self.settings.grant)
        return revision

    def plan(self) -> JobPlan | None:
        """Of the next batch; None: there is nothing new."""
        start = self.reader.initialOffset()
        if self.reader.latestOffset(start, ReadAllAvailable()) == start:
            return None
        plan = open_plan(self.conn, self.group)
        self.conn.rollback()
        return plan

    def routed(self, plan: JobPlan) -> list[Outcome]:
        """What tasks do, and tell."""
        self._loaded.move(self.conn, plan.revision)
        told: list[Outcome] = []
        for piece in self._feed.pieces(plan.body, self.settings.tasks):
            stage = Stage(self._loaded, Delivery(self._senders), plan.waiting)
            with closing(feed_of(self.settings)) as feed:
                for receiver, events in feed.read(piece, self._loaded.receivers):
                    stage.take(receiver, events)
            told += stage.finish()
        return told

    def batch(self) -> JobPlan | None:
        """All of one batch."""
        plan = self.plan()
        if plan is not None:
            self.batches.finish(plan, self.routed(plan))
        return plan

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        found = self.conn.execute(query.encode(), values).fetchall()
        self.conn.rollback()
        return found

    def close(self) -> None:
        self.reader.stop()
        self.batches.close()
        self._feed.close()
        self._loop.run(self._senders.close())
        self._loop.close()
        self.conn.close()

    def _hear(self, told: TaskCounts, routes: dict[str, LoadedRoute]) -> None:
        for hash, count in told.routes.items():
            self.counts.setdefault(hash, RouteCount()).add(count)


def route(
    hash: str, receiver: dict[str, Any], sender: dict[str, Any], *chain: dict[str, Any], id: str = "r", **more: Any
) -> Member:
    """`hash`: any text that is this route's alone."""
    return Member(hash, RouteKey(HOUSE, id), {"receiver": receiver, "sender": sender, "filterChain": list(chain), **more})
