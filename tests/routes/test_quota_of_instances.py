"""A tenant's quota over three instances as real processes: however the events are spread, and however it changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from route_processes import InstanceProcess, RouteSite, route, site_of
from trunkline.cli.dev.redis import RedisServer
from trunkline.routes.quota import SPARE
from waiting import eventually

ORG = "acme"
ANSWER = 1.0
"""Seconds that a bucket may take to answer: slots that were given by then count as used."""


@pytest.fixture(scope="module", params=["postgres", "redis"])
def site(
    request: pytest.FixtureRequest, make_databases: Callable[..., str], redis_server: RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RouteSite]:  # fmt: skip
    where = "postgres" if request.param == "postgres" else redis_server.url
    dsn = make_databases("queues", "routes")
    with site_of(tmp_path_factory.mktemp("instances"), dsn, where, "i1", "i2", "i3") as site:
        site.any.ask("add", org=ORG, body=route(ORG, ticks={"rounds": 0}), id="x")
        site.agree(ORG)
        yield site


def set_quota(site: RouteSite, by: InstanceProcess, per_second: float | None) -> None:
    by.ask("quota", org=ORG, per_second=per_second)
    for instance in site.instances.values():
        eventually(lambda at=instance: at.ask("known_quota", org=ORG) == per_second, why=instance.log)


def passed(instances: Sequence[InstanceProcess], count: int, seconds: float) -> tuple[int, float]:
    """Events that passed of so many that came at once at each of these, and how long that took."""
    began = time.monotonic()
    asked = [instance.asking("burst", org=ORG, id="x", count=count, seconds=seconds) for instance in instances]
    return sum(one.result(60).get("acked", 0) for one in asked), time.monotonic() - began


@pytest.mark.parametrize("busy", [("i1",), ("i1", "i2", "i3")])
def test_s33_a_quota_holds_over_three_processes_however_events_are_spread(site: RouteSite, busy: tuple[str, ...]) -> None:
    set_quota(site, site.instances["i2"], 20.0)
    count, took = passed([site.instances[name] for name in busy], 120, 3.0)
    assert count <= 20 * (took + 1 + SPARE + ANSWER) + 1
    assert count >= 30


def test_s33_a_changed_quota_counts_on_all_three_processes(site: RouteSite) -> None:
    i1, i2, i3 = site.instances.values()
    set_quota(site, i1, 0.0)
    assert passed([i1, i2, i3], 5, 0.5)[0] == 0
    set_quota(site, i2, 1000.0)
    assert passed([i3], 1000, 20.0)[0] == 1000
    set_quota(site, i3, None)
    assert passed([i1, i2, i3], 500, 20.0)[0] == 1500
