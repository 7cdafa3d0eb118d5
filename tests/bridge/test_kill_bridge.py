"""kill -9 of a whole bridge at random points: the end is that of one message after the other, whatever it was doing."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from agent_story import Fleet
from bridge_process import BridgeProcess
from kafka_topics import Topics
from waiting import eventually

pytestmark = pytest.mark.spark
_APPLIED = "SELECT coalesce(sum(applied), 0) FROM bridge.counter"


@pytest.fixture
def dsn(make_database: Callable[..., str]) -> str:
    return make_database("queues", "bridge", "pipeline")


@pytest.fixture
def pair(dsn: str, topics: Topics, tmp_path: Path) -> Iterator[list[BridgeProcess]]:
    made = [BridgeProcess(tmp_path / name, dsn, topics) for name in "ab"]
    yield made
    for one in made:
        one.close()


def run_up_to_a_point(fleet: Fleet, bridge: BridgeProcess, rng: random.Random) -> None:
    """Until the bridge has taken in, or applied, as much more as is drawn."""
    count, most = rng.choice([(fleet.taken_in, 120), (lambda: fleet.count(_APPLIED), 15)])
    target = count() + rng.randint(1, most)
    fleet.send(40)

    def is_there() -> bool:
        bridge.require_running()
        return count() >= target

    eventually(is_there, 120, bridge.log)


def require_end(fleet: Fleet, bridge: BridgeProcess) -> None:
    fleet.send_all()
    eventually(fleet.is_done, 120, lambda: (fleet.standing(), bridge.log()))
    fleet.require_end()


def killed_again_and_again(dsn: str, topics: Topics, pair: list[BridgeProcess], kills: int) -> None:
    """The next one starts as a standby beside the one that is killed. At every second kill its lease is free at once, so that
    what the killed driver left running meets its successor; at the others it lapses."""
    rng = random.Random()
    fleet = Fleet(dsn, topics, 3, rng)
    holder, standby = pair
    holder.start()
    for number in range(kills):
        fleet.send(20)
        eventually(holder.is_ready, 120, holder.log)
        standby.start()
        run_up_to_a_point(fleet, holder, rng)
        holder.kill()
        if number % 2:
            free_the_lease(dsn)
        holder, standby = standby, holder
    require_end(fleet, holder)


@pytest.mark.timeout(900)  # eleven starts of a driver
def test_g1_a_bridge_killed_at_10_points_ends_where_one_message_after_the_other_would(
    dsn: str, topics: Topics, pair: list[BridgeProcess]
) -> None:
    killed_again_and_again(dsn, topics, pair, 10)


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_g1_a_bridge_killed_at_many_points_ends_where_one_message_after_the_other_would(
    dsn: str, topics: Topics, pair: list[BridgeProcess]
) -> None:
    """200, or SOAK_KILLS."""
    killed_again_and_again(dsn, topics, pair, int(os.environ.get("SOAK_KILLS", "200")))


def free_the_lease(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE site.lease SET expires_at = '-infinity' WHERE name = 'bridge'")
