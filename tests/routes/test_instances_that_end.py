"""Instances of a site as real processes that come, break, are killed and stop: who runs what, and what is left of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from route_processes import InstanceProcess, Refused, RouteSite, route, site_of
from trunkline.cli.dev.redis import RedisServer
from trunkline.db.lease import STANDBY_TERMS
from trunkline.routes.groups import Group, ranked
from waiting import eventually

ORG = "acme"
GROUP = "tick" + ORG
NAMES = ("i1", "i2", "i3")


@pytest.fixture
def dsn(make_database: Callable[..., str]) -> str:
    return make_database("queues", "routes")


@pytest.fixture
def site(dsn: str, tmp_path: Path) -> Iterator[RouteSite]:
    with site_of(tmp_path, dsn, "postgres", *NAMES) as site:
        yield site


def holders(site: RouteSite) -> list[InstanceProcess]:
    return [instance for instance in site.instances.values() if GROUP in instance.ask("groups")]


def holder(site: RouteSite) -> InstanceProcess:
    eventually(lambda: len(holders(site)) == 1, why=site.logs)
    return holders(site)[0]


def epochs(instance: InstanceProcess) -> list[int]:
    return [entry["epoch"] for entry in instance.entries() if entry.get("hook") == "runs"]


def reads(instance: InstanceProcess) -> None:
    """Events come in here."""
    before = len(instance.sent(ORG))
    eventually(lambda: len(instance.sent(ORG)) > before + 5, why=instance.log)


def test_g5_when_the_instance_that_runs_a_receiver_group_is_killed_another_takes_over(site: RouteSite) -> None:
    site.any.ask("add", org=ORG, body=route(ORG, "tick"), id="x")
    site.agree(ORG)
    first = holder(site)
    reads(first)
    assert [instance.hooks("runs", "receiver", ORG) for instance in site.instances.values() if instance is not first] == [0, 0]
    del site.instances[first.name]
    first.kill()
    second = holder(site)
    reads(second)
    assert epochs(second)[-1] > epochs(first)[-1]
    eventually(lambda: second.ask("instances") == 2, why=second.log)
    (other,) = [instance for instance in site.instances.values() if instance is not second]
    assert other.hooks("runs", "receiver", ORG) == 0
    other.ask("remove", org=ORG, id="x")
    eventually(lambda: not holders(site), why=site.logs)
    eventually(lambda: second.hooks("closed", "receiver", ORG) == 1, why=second.log)


def test_g5_an_instance_that_slept_finds_its_group_taken_and_does_not_go_on(site: RouteSite) -> None:
    site.any.ask("add", org=ORG, body=route(ORG, "tick"), id="x")
    site.agree(ORG)
    first = holder(site)
    reads(first)
    others = [instance for instance in site.instances.values() if instance is not first]
    with first.paused():
        eventually(lambda: any(GROUP in instance.ask("groups") for instance in others), why=site.logs)
        (second,) = [instance for instance in others if GROUP in instance.ask("groups")]
        reads(second)
    eventually(lambda: first.hooks("rests", "receiver", ORG) == 1, STANDBY_TERMS.seconds * 4, first.log)
    assert GROUP not in first.ask("groups")
    reads(second)


def test_h04_another_process_takes_the_group_of_a_preferred_one_whose_receivers_fail(site: RouteSite) -> None:
    order = ranked(Group("tick", ORG), [instance.id for instance in site.instances.values()])
    by_id = {instance.id: instance for instance in site.instances.values()}
    preferred = by_id[order[0]]
    site.any.ask("add", org=ORG, body=route(ORG, "tick", ticks={"breaks": preferred.name}), id="x")
    site.agree(ORG)
    well = [instance for instance in site.instances.values() if instance is not preferred]
    eventually(lambda: any(len(instance.sent(ORG)) > 5 for instance in well), why=site.logs)
    assert preferred.sent(ORG) == []
    assert GROUP not in preferred.ask("groups")


@pytest.mark.parametrize("where", ["postgres", "redis"])
def test_s12_a_fourth_instance_runs_all_50_routes_when_it_is_ready_and_stops_each_of_them_once(
    where: str, dsn: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    with site_of(tmp_path, dsn, where if where == "postgres" else redis_server.url, "i1") as site:
        asked = [site.any.asking("add", org=ORG, body=_held(n), id=f"r{n}") for n in range(50)]
        for one in asked:
            one.result(60)
        (fourth,) = site.start("i4")
        assert len(fourth.ask("table", org=ORG)["live"]) == 50
        assert fourth.ask("check")[0]
        for n in range(50):
            assert fourth.ask("burst", org=ORG, id=f"r{n}", count=2, seconds=30) == {"acked": 2}
        assert fourth.sent("r7") == [], "it is buffered"
        assert site.leave("i4").stop() == 0
        for n in range(50):
            assert fourth.sent(f"r{n}") == [{"n": 0}, {"n": 1}]
            for end in ("receiver", "sender"):
                assert (fourth.hooks("opened", end, f"r{n}"), fourth.hooks("closed", end, f"r{n}")) == (1, 1)
        eventually(lambda: site.any.ask("instances") == 1, why=site.logs)


def _held(n: int) -> dict[str, object]:
    return route(f"r{n}", ticks={"rounds": 0}, sends={"holds": True})


def test_s10_a_storage_that_cannot_write_leaves_the_old_version_live_on_three_processes(site: RouteSite, dsn: str) -> None:
    i1, i2, _ = site.instances.values()
    i1.ask("add", org=ORG, body=route(ORG), id="x")
    stored = site.agree(ORG)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("ALTER TABLE routes.config RENAME TO away")
        with pytest.raises(Refused, match="the storage of routes"):
            i2.ask("add", org=ORG, body=route(ORG, userId="new"), id="x")
        for instance in site.instances.values():
            assert instance.ask("table", org=ORG)["ids"] == stored
            reads(instance)
        conn.execute("ALTER TABLE routes.away RENAME TO config")
    assert site.agree(ORG) == stored
    i2.ask("add", org=ORG, body=route(ORG, userId="new"), id="x")
    assert site.agree(ORG)["x"][0] > stored["x"][0]
    for instance in site.instances.values():
        sent = instance.sent(ORG)
        assert sent == [{"n": n} for n in range(len(sent))]


def test_s10_a_redis_that_is_gone_leaves_the_old_version_live_on_three_processes(dsn: str, tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis")
    server.start()
    try:
        with site_of(tmp_path, dsn, server.url, *NAMES) as site:
            i1, i2, _ = site.instances.values()
            i1.ask("add", org=ORG, body=route(ORG), id="x")
            stored = site.agree(ORG)
            server.stop()
            with pytest.raises(Refused, match="Redis"):
                i2.ask("add", org=ORG, body=route(ORG, userId="new"), id="x")
            for instance in site.instances.values():
                assert instance.ask("table", org=ORG)["ids"] == stored
                reads(instance)
    finally:
        server.stop()
