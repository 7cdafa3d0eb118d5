"""kill -9 of a whole bridge at random points: the end is that of one message after the other, whatever it was doing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

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
def bridge(dsn: str, topics: Topics, tmp_path: Path) -> Iterator[BridgeProcess]:
    bridge = BridgeProcess(tmp_path / "bridge", dsn, topics)
    yield bridge
    bridge.close()


def kill_again_and_again(fleet: Fleet, bridge: BridgeProcess, rng: random.Random, times: int) -> None:
    """A kill comes when the bridge has taken in, or applied, as much more as is drawn."""
    for _ in range(times):
        bridge.start()
        fleet.send(20)
        eventually(bridge.is_ready, 120, bridge.log)
        count, most = rng.choice([(fleet.taken_in, 120), (lambda: fleet.count(_APPLIED), 15)])
        target = count() + rng.randint(1, most)
        fleet.send(40)

        def is_there(count: Callable[[], int] = count, target: int = target) -> bool:
            bridge.require_running()
            return count() >= target

        eventually(is_there, 120, bridge.log)
        bridge.kill()
    bridge.start()
    fleet.send_all()
    eventually(fleet.is_done, 120, lambda: (fleet.standing(), bridge.log()))
    fleet.require_end()


@pytest.mark.timeout(480)  # four starts of a driver
def test_g1_a_bridge_killed_at_3_points_ends_where_one_message_after_the_other_would(
    bridge: BridgeProcess, dsn: str, topics: Topics
) -> None:
    rng = random.Random()
    kill_again_and_again(Fleet(dsn, topics, 3, rng), bridge, rng, 3)


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_g1_a_bridge_killed_at_200_points_ends_where_one_message_after_the_other_would(
    bridge: BridgeProcess, dsn: str, topics: Topics
) -> None:
    rng = random.Random()
    kill_again_and_again(Fleet(dsn, topics, 3, rng), bridge, rng, 200)
