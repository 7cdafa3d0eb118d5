"""Three instances of a site as real processes over real Postgres and real Redis: the scenarios of table and sync."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
import redis

from route_processes import InstanceProcess, Refused, RouteSite, route, site_of
from trunkline.cli.dev.redis import RedisServer
from waiting import eventually

REGION = "us-west-2"


@pytest.fixture(scope="module", params=["postgres", "redis"])
def site(
    request: pytest.FixtureRequest, make_databases: Callable[..., str], redis_server: RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RouteSite]:  # fmt: skip
    where = "postgres" if request.param == "postgres" else redis_server.url
    dsn = make_databases("queues", "routes")
    with site_of(tmp_path_factory.mktemp("instances"), dsn, where, "i1", "i2", "i3", region=REGION) as site:
        yield site


@pytest.fixture
def org(site: RouteSite) -> Iterator[str]:
    """A tenant of this test alone; its name is the mark of its plugins, too."""
    name = f"o{uuid.uuid4().hex[:8]}"
    yield name
    site.clear(name)


def three(site: RouteSite) -> list[InstanceProcess]:
    return [site.instances[name] for name in ("i1", "i2", "i3")]


def live(site: RouteSite, org: str) -> dict[str, int]:
    """Live routes with the number of their ids, which are the same everywhere."""
    lives = [instance.ask("table", org=org)["live"] for instance in site.instances.values()]
    assert all(one == lives[0] for one in lives)
    found: dict[str, int] = lives[0]
    return found


def opened(instance: InstanceProcess, end: str, org: str) -> int:
    return instance.hooks("opened", end, org) - instance.hooks("closed", end, org)


def missed(instance: InstanceProcess, change: Callable[[], object]) -> None:
    """The instance loses the delta of this change."""
    before = instance.ask("lost")
    instance.ask("deaf", on=True)
    change()
    eventually(lambda: instance.ask("lost") > before, why=instance.log)
    instance.ask("deaf", on=False)


def test_s01_a_route_without_an_id_gets_its_hash_and_is_live_on_three_processes(site: RouteSite, org: str) -> None:
    i1, i2, _ = three(site)
    first = i1.ask("add", org=org, body=route(org))
    assert len(first["id"]) >= 32
    stored = site.agree(org)
    assert stored == {first["id"]: [first["revision"], first["id"]]}
    assert i2.ask("add", org=org, body=route(org)) == first
    assert site.agree(org) == stored
    assert live(site, org) == {first["id"]: 1}
    for instance in three(site):
        eventually(lambda at=instance: at.sent(org), why=instance.log)


def test_s02_an_identical_update_restarts_nothing_on_three_processes(site: RouteSite, org: str) -> None:
    body = route(org, ticks={"rounds": 5})
    for instance in three(site) * 2:
        instance.ask("add", org=org, body=body, id="r100")
        site.agree(org)
    for instance in three(site):
        eventually(lambda at=instance: at.hooks("rests", "receiver", org), why=instance.log)
        assert instance.sent(org) == [{"n": n} for n in range(5)]
        assert [instance.hooks("opened", end, org) for end in ("receiver", "sender")] == [1, 1]
        assert instance.hooks("runs", "receiver", org) == 1


def test_s03_ids_with_the_same_configuration_share_one_live_route_on_three_processes(site: RouteSite, org: str) -> None:
    i1, i2, i3 = three(site)
    body = route(org, ticks={"rounds": 5})
    for id in "ab":
        i1.ask("add", org=org, body=body, id=id)
    stored = site.agree(org)
    assert live(site, org) == {stored["a"][1]: 2}
    for instance in three(site):
        eventually(lambda at=instance: at.hooks("rests", "receiver", org), why=instance.log)
        assert instance.sent(org) == [{"n": n} for n in range(5)]

    i2.ask("remove", org=org, id="a")
    site.agree(org)
    assert live(site, org) == {stored["b"][1]: 1}
    assert i3.ask("burst", org=org, id="b", count=1, seconds=30) == {"acked": 1}
    assert len(i3.sent(org)) == 6

    i3.ask("remove", org=org, id="b")
    assert site.agree(org) == {}
    for instance in three(site):
        for end in ("receiver", "sender"):
            eventually(lambda at=instance, end=end: at.hooks("closed", end, org) == 1, why=instance.log)
            assert instance.hooks("opened", end, org) == 1
    i1.ask("remove", org=org, id="b")
    assert live(site, org) == {}


def test_s05_a_repair_starts_what_an_instance_missed_on_three_processes(site: RouteSite, org: str) -> None:
    i1, _, i3 = three(site)
    missed(i3, lambda: i1.ask("add", org=org, body=route(org), id="x"))
    assert i3.ask("table", org=org)["ids"] == {}
    assert i3.ask("repair") == 1
    assert list(site.agree(org)) == ["x"]
    eventually(lambda: i3.sent(org), why=i3.log)
    assert i3.ask("repair") == 0


@pytest.mark.parametrize("what", ["delete of b", "delete of a", "update of b"])
def test_s06_a_repair_finds_a_missed_change_of_an_alias_on_three_processes(site: RouteSite, org: str, what: str) -> None:
    i1, i2, _ = three(site)
    for id in "ab":
        i1.ask("add", org=org, body=route(org), id=id)
    shared = site.agree(org)["a"][1]
    changes: dict[str, Callable[[], object]] = {
        "delete of b": lambda: i1.ask("remove", org=org, id="b"),
        "delete of a": lambda: i1.ask("remove", org=org, id="a"),
        "update of b": lambda: i1.ask("add", org=org, body=route(org, userId="ada"), id="b"),
    }
    missed(i2, changes[what])
    assert i2.ask("table", org=org)["live"] == {shared: 2}
    assert i2.ask("repair") == 1
    stored = site.agree(org)
    assert live(site, org) == {hash: 1 for _, hash in stored.values()}
    assert live(site, org)[shared] == 1
    assert i2.ask("repair") == 0


def test_s07_a_hundred_concurrent_writers_of_one_id_leave_one_live_route_on_three_processes(site: RouteSite, org: str) -> None:
    bodies = [route(org, userId=f"writer {n}") for n in range(100)]
    asked = [three(site)[n % 3].asking("add", org=org, body=body, id="x") for n, body in enumerate(bodies)]
    revisions = {one.result(60)["revision"] for one in asked}
    assert len(revisions) > 1
    stored = site.agree(org)
    assert list(stored) == ["x"]
    assert stored["x"][0] >= max(revisions)
    assert live(site, org) == {stored["x"][1]: 1}
    for instance in three(site):
        eventually(lambda at=instance: opened(at, "receiver", org) == opened(at, "sender", org) == 1, why=instance.log)
        assert instance.ask("receivers", org=org) == 1
        assert instance.ask("repair") == 0


def test_s08_a_bad_update_leaves_a_stream_of_100_events_a_second_without_a_gap(site: RouteSite, org: str) -> None:
    i1, i2, _ = three(site)
    i1.ask("add", org=org, body=route(org), id="x")
    stored = site.agree(org)
    for instance in three(site):
        eventually(lambda at=instance: len(at.sent(org)) >= 20, why=instance.log)
    with pytest.raises(Refused, match="doesnotexist") as refused:
        i2.ask("add", org=org, body={**route(org), "sender": {"plugin": "doesnotexist"}}, id="x")
    assert refused.value.kind in ("Mistakes", "Invalid")
    assert site.agree(org) == stored
    for instance in three(site):
        before = len(instance.sent(org))
        eventually(lambda at=instance, so_far=before: len(at.sent(org)) >= so_far + 20, why=instance.log)
        assert instance.hooks("runs", "receiver", org) == instance.hooks("opened", "sender", org) == 1
        sent = instance.sent(org)
        assert sent == [{"n": n} for n in range(len(sent))]


def test_s08_an_update_that_does_not_start_leaves_the_old_version_running_on_three_processes(site: RouteSite, org: str) -> None:
    i1, *_ = three(site)
    i1.ask("add", org=org, body=route(org), id="x")
    running = site.agree(org)["x"][1]
    i1.ask("add", org=org, body=route(org, sends={"fails": True}), id="x")
    for instance in three(site):
        eventually(lambda at=instance: at.ask("table", org=org)["refused"], why=instance.log)
        assert "the ledger is away" in instance.ask("table", org=org)["refused"]["x"]
        assert "the ledger is away" in instance.ask("check")[1]
        assert instance.ask("table", org=org)["live"] == {running: 1}
        before = len(instance.sent(org))
        eventually(lambda at=instance, so_far=before: len(at.sent(org)) > so_far, why=instance.log)
        assert instance.hooks("runs", "receiver", org) == 1


def test_a_change_of_filters_alone_leaves_the_stream_without_a_gap(site: RouteSite, org: str) -> None:
    i1, i2, _ = three(site)
    for n in range(6):
        tag = {"plugin": "transform", "config": {"transformation": {"n": "{.n}", "version": n}}}
        (i1, i2)[n % 2].ask("add", org=org, body=route(org, filterChain=[tag]), id="x")
        site.agree(org)
        for instance in three(site):
            eventually(lambda at=instance, n=n: at.sent(org) and at.sent(org)[-1]["version"] == n, why=instance.log)
    for instance in three(site):
        sent = instance.sent(org)
        assert [one["n"] for one in sent] == list(range(len(sent)))
        assert [one["version"] for one in sent] == sorted(one["version"] for one in sent)
        assert instance.hooks("opened", "receiver", org) == instance.hooks("opened", "sender", org) == 1


@pytest.mark.parametrize("resting", [{"inactive": True}, {"region": "us-east-1"}])
def test_s11_what_does_not_run_here_is_stored_but_not_live_on_three_processes(
    site: RouteSite, org: str, resting: dict[str, object]
) -> None:
    i1, i2, i3 = three(site)
    i1.ask("add", org=org, body=route(org, **resting), id="x")
    assert list(site.agree(org)) == ["x"]
    assert live(site, org) == {}
    assert [instance.ask("repair") for instance in three(site)] == [0, 0, 0]
    assert [instance.hooks("opened", "receiver", org) for instance in three(site)] == [0, 0, 0]
    if "inactive" in resting:
        i2.ask("toggle", org=org, id="x")
        site.agree(org)
        for instance in three(site):
            eventually(lambda at=instance: at.sent(org), why=instance.log)
        i3.ask("toggle", org=org, id="x")
        site.agree(org)
        for instance in three(site):
            eventually(lambda at=instance: opened(at, "receiver", org) == opened(at, "sender", org) == 0, why=instance.log)


def test_s14_of_five_processes_four_hear_one_publish_and_the_publisher_does_not(site: RouteSite, org: str) -> None:
    site.start("i4", "i5", region=REGION)
    try:
        before = {name: instance.ask("heard") for name, instance in site.instances.items()}
        site.any.ask("add", org=org, body=route(org, inactive=True), id="x")
        site.agree(org)
        heard = {name: instance.ask("heard") - before[name] for name, instance in site.instances.items()}
        assert heard == {"i1": 0, "i2": 1, "i3": 1, "i4": 1, "i5": 1}
    finally:
        site.leave("i4")
        site.leave("i5")


def test_s15_routes_of_one_process_hold_what_a_fragment_of_another_one_says(site: RouteSite, org: str) -> None:
    i1, i2, i3 = three(site)
    i1.ask("quota", org=org, per_second=None)
    ledger = {"plugin": "ledger", "config": {"mark": org}}
    written = route(org, userId="somebody")
    i1.ask("write_fragment", org=org, body={"name": "debugSender", **ledger})
    i2.ask("write", org=org, id="named", body=written | {"sender": {"fragmentName": "debugSender"}})
    i3.ask("write", org=org, id="renamed", body=written | {"sender": {"fragmentName": "debugSender", "name": "mine"}})
    for id, name in (("named-as", "debugSender"), ("renamed-as", "mine")):
        i1.ask("write", org=org, id=id, body=written | {"sender": {**ledger, "name": name}})
    for wrong, said in (
        ({"sender": {"fragmentName": "debugSendr"}}, "debugSendr"),
        ({"filterChain": [{"fragmentName": "debugSender"}]}, "not a filter"),
    ):
        with pytest.raises(Refused, match=said):
            i2.ask("write", org=org, id="wrong", body=written | wrong)
    stored = {id: hash for id, (_, hash) in site.agree(org).items()}
    assert stored.keys() == {"named", "named-as", "renamed", "renamed-as"}
    assert stored["named"] == stored["named-as"] != stored["renamed"] == stored["renamed-as"]
    assert live(site, org) == {stored["named"]: 2, stored["renamed"]: 2}
    for instance in three(site):
        eventually(lambda at=instance: at.sent(org), why=instance.log)


def test_g5_an_instance_that_hears_nothing_has_the_stored_table_within_a_repair_period(site: RouteSite, org: str) -> None:
    (deaf,) = site.start("i6", region=REGION, repair_seconds=1.0)
    try:
        deaf.ask("deaf", on=True)
        i1, i2, _ = three(site)
        for n in range(4):
            i1.ask("add", org=org, body=route(org, userId=f"{n % 2}"), id=f"r{n}")
        assert len(site.agree(org)) == 4
        i2.ask("remove", org=org, id="r0")
        i2.ask("add", org=org, body=route(org, userId="new"), id="r1")
        assert len(site.agree(org)) == 3
        assert sorted(live(site, org).values()) == [1, 1, 1]
        eventually(lambda: opened(deaf, "receiver", org) == 1, why=deaf.log)
    finally:
        site.leave("i6")


def test_h40_repairs_beside_changes_neither_kill_nor_resurrect_on_three_processes(site: RouteSite, org: str) -> None:
    for n in range(3):
        three(site)[n].ask("add", org=org, body=route(org, userId="stays"), id=f"stays-{n}")
    site.agree(org)
    for n in range(20):
        instance = three(site)[n % 3]
        repairs = [each.asking("repair") for each in three(site)]
        instance.ask("add", org=org, body=route(org, userId=f"{n}", inactive=True), id=f"goes-{n}")
        repairs += [each.asking("repair") for each in three(site)]
        instance.ask("remove", org=org, id=f"goes-{n - 3}")
        for one in repairs:
            one.result(60)
    stored = site.agree(org)
    assert set(stored) == {"stays-0", "stays-1", "stays-2", "goes-17", "goes-18", "goes-19"}
    assert live(site, org) == {stored["stays-0"][1]: 3}
    for instance in three(site):
        assert instance.ask("repair") == 0
        assert instance.hooks("opened", "receiver", org) == instance.hooks("opened", "sender", org) == 1


def test_h41_a_change_while_nobody_listens_is_seen_when_they_do_again(site: RouteSite, org: str) -> None:
    i1, i2, _ = three(site)
    for n in range(5):
        hang_up(site)
        (i1, i2)[n % 2].ask("add", org=org, body=route(org, userId=f"{n}", inactive=True), id=f"r{n}")
    assert len(site.agree(org)) == 5


def test_h41_a_change_whose_publisher_is_killed_before_it_tells_is_seen_within_seconds(site: RouteSite, org: str) -> None:
    killed, looks = site.start("i7", "i8", region=REGION, look_seconds=0.2)
    try:
        for id in ("stays", "goes"):
            site.any.ask("add", org=org, body=route(org, userId=id, inactive=True), id=id)
        site.agree(org)
        killed.ask("dies_after_a_change")
        with pytest.raises(Refused):
            killed.ask("add", org=org, body=route(org), id="new")
        eventually(lambda: set(looks.ask("table", org=org)["ids"]) == {"stays", "goes", "new"}, why=looks.log)
        assert "new" not in site.any.ask("table", org=org)["ids"]
    finally:
        site.instances.pop("i7").kill()
        for instance in three(site):
            instance.ask("repair")
        site.leave("i8")


def hang_up(site: RouteSite) -> None:
    """Ends the connections over which instances listen."""
    if site.where == "postgres":
        with psycopg.connect(site.dsn, autocommit=True) as conn:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'trunkline-routes-listen' AND datname = current_database()"
            )
    else:
        with redis.Redis.from_url(site.where, decode_responses=True) as client:
            for one in client.client_list():
                if one["name"] == "trunkline-routes-listen":
                    client.client_kill_filter(_id=one["id"])
