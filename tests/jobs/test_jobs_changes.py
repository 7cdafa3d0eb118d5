"""Changes of routes that could not be written down: the job then writes down what its group shall be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hand_job import in_sink, into_sink, make_sink, numbered, received

from kafka_topics import Topics
from route_jobs import RouteJobs
from trunkline.routes.keys import HOUSE, RouteKey
from waiting import eventually

pytestmark = pytest.mark.spark

KEY = RouteKey(HOUSE, "r")
_CUT = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'trunkline-job-routes'"


@pytest.fixture
def jobs(make_jobs: Callable[..., RouteJobs], topics: Topics) -> RouteJobs:
    topics.create("in")
    jobs = make_jobs(routing={"repair_seconds": 1})
    make_sink(jobs.dsn)
    jobs.put("r", received(topics), into_sink(via="old"))
    jobs.put("other", received(topics), into_sink(via="other"))
    jobs.until_running("kafka")
    topics.put("in", *numbered(0, 1))
    eventually(lambda: len(in_sink(jobs.dsn)) == 2, 60, jobs.failing)
    return jobs


def cut(jobs: RouteJobs) -> None:
    """The idle connection that changes are written by; the lease stays."""
    with psycopg.connect(jobs.dsn, autocommit=True) as conn:
        assert conn.execute(_CUT).fetchall() == [(True,)]


def live(jobs: RouteJobs) -> list[Any]:
    found = jobs.rows("SELECT body #>> '{sender,config,columns,via}' FROM pipeline.job_route WHERE until IS NULL ORDER BY 1")
    return [via for (via,) in found]


def test_a_route_is_removed_though_that_could_not_be_written_at_once(jobs: RouteJobs, topics: Topics) -> None:
    cut(jobs)
    jobs.remove("r")
    eventually(lambda: live(jobs) == ["other"], 30, lambda: live(jobs))
    topics.put("in", *numbered(1, 2))
    eventually(lambda: in_sink(jobs.dsn, "other") == [0, 1], 60, jobs.failing)
    assert in_sink(jobs.dsn, "old") == [0]


def test_of_an_updated_route_only_one_version_runs_though_that_could_not_be_written_at_once(
    jobs: RouteJobs, topics: Topics
) -> None:
    cut(jobs)
    body = {"receiver": received(topics), "sender": into_sink(via="new")}
    jobs._do(jobs.manager.add(HOUSE, body, "r"))
    eventually(lambda: not jobs.manager.status(KEY).reason, 30, lambda: jobs.manager.status(KEY))
    eventually(lambda: live(jobs) == ["new", "other"], 30, lambda: live(jobs))
    topics.put("in", *numbered(1, 2))
    eventually(lambda: in_sink(jobs.dsn, "other") == [0, 1], 60, jobs.failing)
    eventually(lambda: in_sink(jobs.dsn, "new") == [1])
    assert in_sink(jobs.dsn, "old") == [0]
