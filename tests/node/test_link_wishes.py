"""What a configuration means for links, topology and trunk: whom a node takes records from, and what it tells of that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trunkline.core.config import ProcessConfig, TopologyConfig
from trunkline.net.hello import OLDEST_WIRE, WIRE_VERSION, Hello
from trunkline.node.peers import CARRIES, carries
from trunkline.node.settings import topology_settings
from trunkline.topology.settings import PublishRowsWhen, Settings, Tie


def config(**sections: Any) -> ProcessConfig:
    return ProcessConfig.model_validate({"site": "a", "database": "dbname=x", **sections})


def test_the_defaults_are_the_topology_s_own() -> None:
    assert topology_settings(config()) == Settings()


def test_every_setting_reaches_the_topology() -> None:
    wishes = {
        "tie": "hash", "rebalance": True, "hold_seconds": 0, "publish_rows": "never", "no_relay": True, "costs": {"hub": 5},
    }  # fmt: skip
    assert set(wishes) == set(TopologyConfig.model_fields)
    assert topology_settings(config(topology=wishes, link={"links": ["hub"], "heartbeat_seconds": 2})) == Settings(
        heartbeat_seconds=2.0, tie=Tie.HASH, rebalance=True, hold_seconds=0.0, publish_rows=PublishRowsWhen.NEVER,
        no_relay=True, costs={"hub": 5},
    )  # fmt: skip


LEADER = Hello(
    wire=WIRE_VERSION, oldest=OLDEST_WIRE, capabilities=("store", CARRIES), site="a", node="n1", incarnation=7,
    known_incarnation=5, log_id="log", neighbours=(), heads={}, applied={}, carries=False, addresses=(),
)  # fmt: skip
FOLLOWED = msgspec.structs.replace(LEADER, site="b", incarnation=5, known_incarnation=7)


@pytest.mark.parametrize("capabilities", [("store", CARRIES), ("store",)])
def test_a_link_that_one_site_follows_on_carries_only_between_leaders(capabilities: tuple[str, ...]) -> None:
    follower = msgspec.structs.replace(LEADER, follows=True, capabilities=capabilities)
    assert carries(follower, FOLLOWED) is carries(FOLLOWED, follower) is (CARRIES in capabilities)
    assert not carries(LEADER, FOLLOWED)
