"""A job whose query cannot run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hand_job import HandJob, into_sink, received, route

from kafka_topics import Topics
from trunkline.core.clock import SystemClock
from trunkline.pipeline.jobs.deliver import Loop
from trunkline.pipeline.jobs.job import Job
from trunkline.pipeline.session import Spark
from waiting import eventually

pytestmark = pytest.mark.spark


@pytest.fixture
def loop() -> Iterator[Loop]:
    with closing(Loop("failing")) as loop:
        yield loop


def test_a_failure_is_told_once_so_that_the_rest_after_it_is_that_of_one(
    spark: Spark, by_hand: Callable[..., HandJob], topics: Topics, loop: Loop, tmp_path: Path
) -> None:
    topics.create("in")
    settings = by_hand(route("a", received(topics), into_sink())).settings
    (tmp_path / "checkpoints").touch()  # no folder can be made there
    told: list[str] = []
    job = Job(
        spark,
        settings,
        tmp_path / "checkpoints" / "job",
        loop,
        SystemClock(),
        lambda counts, routes: None,
        told.append,
        let_go=2,
    )
    job.start(dict)
    try:
        eventually(lambda: job._supervisor.failures >= 4, 60, lambda: job.failing)
        assert 2 <= len(told) <= job._supervisor.failures - 1
        assert all("Not a directory" in why for why in told)
    finally:
        job.stop()
