"""A batch that waits for the database, because of a lock that nobody gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from hand_job import HandJob, in_sink, into_sink, make_sink, numbered, received, route

from kafka_topics import Topics
from route_jobs import RouteJobs
from trunkline.pipeline.jobs import batches
from waiting import eventually

WAITS = """
SELECT 1 FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = 'trunkline-job' AND wait_event_type = 'Lock'
"""


@contextmanager
def held(dsn: str) -> Iterator[None]:
    """Where the groups stand: a batch can do all but end."""
    with psycopg.connect(dsn) as conn:
        conn.execute("SELECT FROM pipeline.job FOR NO KEY UPDATE")
        yield


def test_a_batch_gives_up_after_a_while_and_is_tried_again(
    by_hand: Callable[..., HandJob], topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "PATIENCE", {"lock_timeout": "200ms"})
    topics.create("in")
    topics.put("in", *numbered(0, 3))
    job = by_hand(route("a", received(topics), into_sink(), deliveryMode="effectively_once"))
    plan = job.plan()
    assert plan is not None
    with held(job.dsn), pytest.raises(psycopg.errors.LockNotAvailable):
        job.batches.finish(plan, job.routed(plan))
    job.batches.finish(plan, job.routed(plan))
    assert in_sink(job.dsn) == [0, 1, 2]
    assert job.plan() is None


@pytest.mark.spark
def test_a_job_stops_soon_though_its_batch_waits(make_jobs: Callable[..., RouteJobs], topics: Topics) -> None:
    topics.create("in")
    jobs = make_jobs()
    make_sink(jobs.dsn)
    jobs.put("r", received(topics), into_sink())
    jobs.until_running("kafka")
    with held(jobs.dsn):
        topics.put("in", *numbered(0, 3))
        eventually(lambda: jobs.rows(WAITS), 60, jobs.failing)
        jobs.stop()
        eventually(lambda: not jobs.rows(WAITS), 10)
