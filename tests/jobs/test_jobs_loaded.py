"""The routes that a worker keeps compiled between batches."""

from __future__ import annotations

from collections.abc import Callable

from hand_job import HandJob, into_sink, received, route

from kafka_topics import Topics
from trunkline.pipeline.jobs.loaded import kept_in_worker
from trunkline.pipeline.jobs.stored import stands

FORGET = "TRUNCATE pipeline.job, pipeline.job_plan, pipeline.job_route"


def loaded_by_a_worker(job: HandJob) -> tuple[int, list[str]]:
    """As a task does; a worker is this process."""
    revision, _ = stands(job.conn, job.group)
    with kept_in_worker(job.settings) as loaded:
        loaded.move(job.conn, revision)
        job.conn.rollback()
        return revision, list(loaded.routes)


def test_a_worker_loads_routes_anew_when_the_same_revision_is_of_other_routes(
    by_hand: Callable[..., HandJob], topics: Topics
) -> None:
    """As after a restore: the next holder begins at an earlier revision, and its changes bring it to the same number."""
    topics.create("in")
    before = by_hand(route("a", received(topics), into_sink()))
    revision, routes = loaded_by_a_worker(before)
    assert routes == ["a"]
    before.conn.execute(FORGET)
    before.conn.commit()
    after = by_hand(route("b", received(topics), into_sink()))
    assert loaded_by_a_worker(after) == (revision, ["b"])
