"""kill -9 of a pipeline at random points: its routes lose nothing, and double only what may be doubled."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pipeline_process import Flow, PipelineProcess

from kafka_topics import Topics
from waiting import eventually

pytestmark = pytest.mark.spark


@pytest.fixture
def pair(site: str, tmp_path: Path) -> Iterator[list[PipelineProcess]]:
    """Every second holder routes in tasks only."""
    made = [PipelineProcess(tmp_path / "one", site), PipelineProcess(tmp_path / "two", site, few_events=0)]
    yield made
    for one in made:
        one.close()


def killed_again_and_again(flow: Flow, pair: list[PipelineProcess], kills: int, seed: int) -> None:
    """The next one starts as a standby beside the one that is killed. At every second kill its lease is free at once, so that
    what the killed driver left running meets its successor; at the others it lapses. `seed`: of what is sent and of the points;
    a failure shows it."""
    rng = random.Random(seed)
    holder, standby = pair
    holder.start()
    for number in range(kills):
        flow.send(rng.randint(50, 400))
        eventually(holder.is_ready, 120, holder.log)
        standby.start()
        run_up_to_a_point(flow, holder, rng)
        holder.kill()
        if number % 2 == 0:
            free_the_leases(flow.dsn)
        holder, standby = standby, holder
    flow.send(50)
    eventually(flow.is_done, 120, holder.log)
    flow.require_end()


def run_up_to_a_point(flow: Flow, holder: PipelineProcess, rng: random.Random) -> None:
    """Until it has planned, sent or passed as much more as is drawn."""
    count, most = rng.choice([(flow.planned, 3), (flow.in_table, 200), (flow.passed, 200)])
    target = count() + rng.randint(1, most)

    def is_there() -> bool:
        assert holder.process.poll() is None, holder.log()
        if flow.is_done():
            flow.send(rng.randint(20, 200))
        return count() >= target

    eventually(is_there, 120, holder.log)


def free_the_leases(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE site.lease SET expires_at = '-infinity' WHERE name LIKE 'routes:%'")


@pytest.mark.timeout(900)  # eleven starts of a driver
def test_g7_routes_of_a_pipeline_that_is_killed_at_10_points_lose_nothing(
    site: str, topics: Topics, pair: list[PipelineProcess]
) -> None:
    killed_again_and_again(Flow(site, topics), pair, 10, seed=random.randrange(10_000))


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_g7_routes_of_a_pipeline_that_is_killed_at_many_points_lose_nothing(
    site: str, topics: Topics, pair: list[PipelineProcess]
) -> None:
    """50, or SOAK_KILLS."""
    killed_again_and_again(Flow(site, topics), pair, int(os.environ.get("SOAK_KILLS", "50")), seed=random.randrange(10_000))
