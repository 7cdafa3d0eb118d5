"""What a node's configuration means for its store, and what of the store its numbers show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trunkline.core.address import as_dialled
from trunkline.core.bucket import Rate
from trunkline.core.config import ProcessConfig
from trunkline.node import node as node_module
from trunkline.node.settings import store_settings
from trunkline.node.shown import COUNTERS
from trunkline.store.settings import Settings

STORE = Path(node_module.__file__).parents[1] / "store"


def config(**sections: Any) -> ProcessConfig:
    return ProcessConfig.model_validate({"site": "a", "database": "dbname=x", **sections})


def test_the_defaults_are_the_store_s_own() -> None:
    assert store_settings(config()) == Settings()


def test_every_setting_reaches_the_store() -> None:
    store = {"key_ttl_seconds": 60, "compare_seconds": 5, "flood_per_second": 10, "flood_burst": 20, "start_seconds": 3}
    settings = store_settings(config(store=store, link={"links": ["hub"]}))
    assert (settings.ttl_ms, settings.sync_seconds, settings.synced_seconds) == (60_000, 5.0, 3.0)
    assert settings.flood_rate == Rate(10.0, 20.0)


@pytest.mark.parametrize(
    ("link", "waits"),
    [
        ({}, False),
        ({"links": ["hub"]}, True),
        ({"follows": ["hub"]}, True),
        ({"seeds": ["hub:1"]}, True),
        ({"seeds": ["a:1"], "advertise": ["a:1"]}, False),
        ({"seeds": ["127.0.0.1:7"], "listen": "127.0.0.1:7"}, False),
        ({"seeds": ["a:1", "hub:1"], "advertise": ["a:1"]}, True),
    ],
)
def test_a_start_waits_only_where_somebody_is_expected(link: dict[str, Any], waits: bool) -> None:
    assert (store_settings(config(link=link)).synced_seconds is not None) is waits


@pytest.mark.parametrize(
    ("listening", "advertised", "told"),
    [
        ("127.0.0.1:8400", (), "127.0.0.1:8400"),
        ("hub.example.com:8400", ("other:1",), "hub.example.com:8400"),
        ("0.0.0.0:8400", ("hub.example.com:7400", "other:1"), "hub.example.com:8400"),
        ("[::]:8400", ("[2001:db8::1]:7400",), "[2001:db8::1]:8400"),
        ("0.0.0.0:8400", (), ""),
    ],
)
def test_the_api_is_told_by_an_address_that_others_can_use(listening: str, advertised: tuple[str, ...], told: str) -> None:
    assert as_dialled(listening, advertised) == told


def test_every_counter_of_the_store_is_shown_from_the_start() -> None:
    code = "".join(file.read_text() for file in STORE.glob("*.py"))
    counted = set(re.findall(r'counters\["(\w+)"\]', code))
    assert {name for name in COUNTERS if not name.startswith("refused_")} == counted
    assert "refused_too_large" in COUNTERS
