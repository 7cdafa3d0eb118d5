"""The rules of a routing table manager and of what it is made of, each under its number, on instances in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from costs import no_collection
from routes_in_memory import TENANT, RecordingRunner, Site, compile, h, hash_of, key, live_everywhere, route, site_of, until
from trunkline.core.clock import ManualClock
from trunkline.core.errors import Invalid, Retryable
from trunkline.routes.live import LiveRoute, LiveRoutes
from trunkline.routes.looking import Looks
from trunkline.routes.manager import GAP_SECONDS, Status, rests_outside
from trunkline.routes.repair import Pace, Repairs
from trunkline.routes.storage.base import Body, Conflict, Put, Remove, RouteConfig
from trunkline.routes.storage.memory import MemoryStorage
from trunkline.routes.sync.base import Delta, Item, Operation
from trunkline.routes.sync.waiting import MANY
from trunkline.routes.table import Kind

I1, I2, I3 = "i1", "i2", "i3"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with site_of(I1, I2, I3) as site:
        yield site


async def test_m1_two_writers_that_read_the_same_revision_do_not_both_win(site: Site) -> None:
    managers = [instance.manager for instance in site.instances.values()]
    await managers[0].add(TENANT, route(), "x")
    writers = [manager.add(TENANT, route(n), "x", expect=1) for n, manager in enumerate(managers)]
    results = await asyncio.gather(*writers, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Changed", "Conflict", "Conflict"]
    with pytest.raises(Conflict):
        await managers[1].remove(key("x"), expect=1)
    await site.agrees()
    assert list(live_everywhere(site).values()) == [1]


async def test_m1_a_change_of_several_routes_is_made_as_a_whole_or_not_at_all(site: Site) -> None:
    manager = site.instances[I1].manager
    await manager.add(TENANT, route(), "a")
    bad = {**route(), "receiver": {"plugin": "sqs"}}
    with pytest.raises(Invalid):
        await manager.change([Remove(key("a")), Put(key("b"), hash_of(TENANT, bad), bad)])
    assert (await site.stored()).keys() == {"a"}
    changed = await manager.change([Remove(key("a")), *[Put(key(id), h(), route()) for id in "bc"]])
    assert {at.id: status.live for at, status in changed.here.items()} == {"a": False, "b": True, "c": True}
    await site.agrees()
    assert live_everywhere(site) == {h(): 2}
    assert {i.runner.told.count(("start", h())) for i in site.instances.values()} == {1}


async def test_m1_what_was_compiled_to_be_checked_is_what_starts_and_nobody_else_gets_it() -> None:
    """Another id of the same configuration, and a later start of it, are compiled for themselves."""
    made: list[str] = []

    def compiled(config: RouteConfig) -> Body:
        made.append(config.key.id)
        return config.body

    live = LiveRoutes(RecordingRunner(), compiled, rests_outside(""))
    stored = {id: RouteConfig(key(id), h(), route(), {}, 1, 0.0, 0.0) for id in "ab"}
    ready = LiveRoute(h(), stored["a"], {**route(), "made": "before"})
    with live.prepared([ready]):
        assert (await live.bring(key("a"), stored["a"])).changed
        assert live.routes[h()].compiled is ready.compiled
        await live.bring(key("a"), None)
        await live.bring(key("b"), stored["b"])
    with live.prepared([ready]):
        pass
    await live.bring(key("b"), None)
    await live.bring(key("a"), msgspec.structs.replace(stored["a"], revision=9))
    assert made == ["b", "a"]
    await live.close()


async def test_m1_of_very_many_that_start_at_once_each_has_its_own_time() -> None:
    """Which does not go by while all the others are compiled."""

    class Waiting(RecordingRunner):
        async def start(self, route: LiveRoute) -> None:
            for _ in range(5):
                await asyncio.sleep(0)

    def compiled(config: RouteConfig) -> Body:
        until = time.monotonic() + 0.0005
        while time.monotonic() < until:
            pass
        return config.body

    live = LiveRoutes(Waiting(), compiled, rests_outside(""), start_seconds=0.6)
    stored = [RouteConfig(key(str(n)), h(str(n)), route(str(n)), {}, 1, 0.0, 0.0) for n in range(2000)]
    found = await asyncio.gather(*[live.bring(one.key, one) for one in stored])
    assert {brought.reason for brought in found} == {""}
    await live.close()


async def test_m2_every_instance_acks_with_the_revision_it_has(site: Site) -> None:
    manager = site.instances[I1].manager
    for expected in (1, 2):
        changed = await manager.add(TENANT, route(expected), "x")
        await until(lambda session=changed.session: manager.awaited.outcome(session).complete)  # type: ignore[misc, union-attr]
        outcome = manager.awaited.outcome(changed.session)
        assert outcome is not None
        assert outcome.acked == {I2: expected, I3: expected}
        assert outcome.everywhere


async def test_m2_deltas_of_tenants_go_to_whom_they_concern(site: Site) -> None:
    heard: list[Delta] = []

    async def hear(delta: Delta) -> None:
        heard.append(delta)

    site.instances[I2].manager._on_tenant = hear
    delta = Delta(Operation.ADD, TENANT, "", I1, "s1", Item.TENANT)
    site.instances[I1].syncer.publish([delta])
    await until(lambda: heard)
    assert heard == [delta]


async def test_l1_a_hundred_deltas_of_one_route_cost_two_looks(site: Site) -> None:
    second = site.instances[I2]
    await site.instances[I1].manager.add(TENANT, route(), "x")
    await site.agrees()
    gate = second.runner.gates[h("slow")] = asyncio.Event()
    await site.instances[I1].manager.add(TENANT, route("slow"), "x")
    await until(lambda: h("slow") in second.runner.built)
    for n in range(100):
        await site.instances[I1].manager.add(TENANT, route(n), "x")
    await until(lambda: second.syncer.counts.heard == 102)
    gate.set()
    await site.agrees()
    assert second.runner.built == [h(), h("slow"), h(99)]


async def test_a_repair_comes_by_itself_and_reports_what_it_repaired() -> None:
    async with site_of(I1, I2, pace=Pace(seconds=0.02)) as site:
        second = site.instances[I2]
        second.syncer.deaf = True
        await site.instances[I1].manager.add(TENANT, route(), "x")
        await until(lambda: second.manager.repairs.reports)
        (report,) = second.manager.repairs.reports
        assert (report.revision, report.routes, report.refused) == (1, {key("x"): Kind.MISSING}, {})
        assert second.live() == {h(): 1}


async def test_h41_a_removal_that_nobody_told_of_is_seen_by_the_next_look() -> None:
    async with site_of(I1, I2, pace=Pace(seconds=100_000.0, look=0.02)) as site:
        second = site.instances[I2]
        for id in "xy":
            await site.instances[I1].manager.add(TENANT, route(), id)
        await site.agrees()
        second.syncer.deaf = True
        await site.instances[I1].manager.remove(key("x"))
        await site.instances[I1].manager.add(TENANT, route("new"), "y")
        await site.agrees()
        assert second.live() == {h("new"): 1}
        assert second.manager.repairs.done == 0


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 270.0), (0.5, 300.0), (1.0, 330.0)])
async def test_repairs_of_several_instances_are_spread_around_five_minutes(chance: float, pause: float) -> None:
    live = LiveRoutes(RecordingRunner(), compile, rests_outside(""))
    storage = MemoryStorage()
    repairs = Repairs(storage, live, Looks(storage, live), ManualClock(), lambda: chance, Pace())
    assert repairs._pause(300.0) == pytest.approx(pause)


async def test_l4_a_configuration_that_does_not_start_is_tried_once_for_all_its_ids(site: Site) -> None:
    first, second = site.instances[I1].manager, site.instances[I2]
    second.runner.broken.add(h())
    changed = await first.change([Put(key(f"r{n}"), h(), route()) for n in range(20)])
    await until(lambda: first.awaited.outcome(changed.session).complete)  # type: ignore[union-attr]
    assert second.runner.built == [h()]
    expected = Status(reason="ConnectionError: the broker is away", refused=1)
    assert list(second.manager.statuses().values()) == [expected] * 20
    second.runner.broken.clear()
    assert (await second.manager.repair()).count == 20
    assert second.live() == {h(): 20}
    await first.change([Remove(key(f"r{n}")) for n in range(20)])
    await until(lambda: second.manager.statuses() == {})


async def test_v1_who_wants_a_configuration_that_is_being_replaced_waits_and_then_starts_it(site: Site) -> None:
    first = site.instances[I1]
    await first.manager.add(TENANT, route(), "x")
    gate = first.runner.gates[h("slow")] = asyncio.Event()
    replacing = asyncio.create_task(first.manager.add(TENANT, route("slow"), "x"))
    await until(lambda: h("slow") in first.runner.built)
    joining = asyncio.create_task(first.manager.add(TENANT, route(), "y"))
    await until(lambda: "y" in site.instances[I2].holds())
    assert (joining.done(), first.live()) == (False, {h(): 1})
    gate.set()
    await asyncio.gather(replacing, joining)
    assert first.live() == {h("slow"): 1, h(): 1}
    assert first.runner.told == [("start", h()), ("replace", h("slow")), ("start", h())]


async def test_v2_who_waits_for_a_start_that_fails_is_refused_with_the_same_reason(site: Site) -> None:
    first = site.instances[I1]
    gate = first.runner.gates[h()] = asyncio.Event()
    first.runner.broken.add(h())
    adds = [asyncio.create_task(first.manager.add(TENANT, route(), id)) for id in "abc"]
    await until(lambda: first.runner.built)
    for _ in range(20):
        await asyncio.sleep(0)
    gate.set()
    statuses = [changed.here[key(id)] for id, changed in zip("abc", await asyncio.gather(*adds), strict=True)]
    assert {status.reason for status in statuses} == {"ConnectionError: the broker is away"}
    assert first.runner.built == [h()]


async def test_a_start_that_takes_too_long_is_refused_and_the_old_version_runs_on() -> None:
    async with site_of(I1, start_seconds=0.02) as site:
        manager, runner = site.instances[I1].manager, site.instances[I1].runner
        await manager.add(TENANT, route(), "x")
        runner.gates[h("hangs")] = asyncio.Event()
        changed = await manager.add(TENANT, route("hangs"), "x")
        assert changed.here[key("x")] == Status(1, h(), True, "it did not start in time", 2)
        assert runner.running.keys() == {h()}


async def test_a_filter_only_change_restarts_neither_receiver_nor_sender(site: Site) -> None:
    manager = site.instances[I1].manager
    for mark in (1, 2, 3):
        await manager.add(TENANT, route(mark), "x")
    await site.agrees()
    for instance in site.instances.values():
        assert list(instance.runner.starts.values()) == [1, 1]
        assert not instance.runner.stops
        assert {what for what, _ in instance.runner.told[1:]} == {"replace"}


async def test_a_reload_builds_the_live_route_anew_once_at_every_instance(site: Site) -> None:
    manager = site.instances[I1].manager
    for id in "ab":
        await manager.add(TENANT, route(), id, {"desc": id})
    await site.agrees()
    before = [instance.manager.route(key("a")) for instance in site.instances.values()]
    await manager.reload([key("a"), key("b")])
    await site.agrees()
    for instance, old in zip(site.instances.values(), before, strict=True):
        assert instance.runner.told == [("start", h()), ("replace", h())]
        assert instance.manager.route(key("a")) is instance.manager.route(key("b")) is not old
        assert instance.live() == {h(): 2}
    await manager.reload([key("b")])
    await site.agrees()
    assert [instance.runner.told.count(("replace", h())) for instance in site.instances.values()] == [2, 2, 2]
    assert [config.notes["desc"] for config in await site.storage.of_tenant(TENANT)] == ["a", "b"]


async def test_m5_a_delta_that_comes_while_the_storage_is_away_is_made_good_by_a_repair_that_comes_soon(site: Site) -> None:
    await site.instances[I1].manager.add(TENANT, route(), "x")
    await site.agrees()
    other = route("new")
    await site.storage.change([Put(key("x"), hash_of(TENANT, other), other)])
    site.storage.away = True
    site.instances[I1].syncer.publish([Delta(Operation.ADD, TENANT, "x", I1, "s1")])
    await until(lambda: all(i.syncer.counts.heard == 2 for i in (site.instances[I2], site.instances[I3])))
    site.storage.away = False
    await until(lambda: all(site.instances[name].runner.running.keys() == {h("new")} for name in (I2, I3)))


async def test_m5_a_change_that_was_made_though_the_answer_was_lost_is_live_everywhere(site: Site) -> None:
    site.storage.silent = True
    with pytest.raises(Retryable, match="it did not answer"):
        await site.instances[I1].manager.add(TENANT, route(), "x")
    await site.agrees()
    assert live_everywhere(site) == {h(): 1}


async def test_m5_after_a_gap_the_whole_table_is_compared(site: Site) -> None:
    site.hub.lose()
    await site.instances[I1].manager.add(TENANT, route(), "x")
    assert site.instances[I2].holds() == {}
    site.hub.mend()
    await site.agrees()
    assert live_everywhere(site) == {h(): 1}


async def test_m2_a_change_of_very_many_is_acked_when_it_was_looked_at_with_what_was_refused() -> None:
    async with site_of(I1, I2) as site:
        one, two = site.instances[I1].manager, site.instances[I2]
        two.runner.broken |= {h("old"), h("bad")}
        await one.add(TENANT, route("old"), "old")
        await until(lambda: two.manager.table.refused)
        two.runner.gates[h("bad")] = asyncio.Event()
        puts = [Put(key(f"r{n}"), h(), route()) for n in range(MANY)]
        changed = await one.change([*puts, Put(key("sad"), h("bad"), route("bad"))])
        await until(lambda: len(two.manager.table.ids) == MANY)
        outcome = await one.everywhere(changed.session, 2 * GAP_SECONDS)
        assert outcome is not None
        assert outcome.missing == (I2,)
        two.runner.gates[h("bad")].set()
        outcome = await one.everywhere(changed.session, 30)
        assert outcome is not None
        assert outcome.refused == {I2: "myorg/myapp/sad: ConnectionError: the broker is away"}


async def test_m4_an_instance_that_cannot_load_leaves_nothing_running(site: Site) -> None:
    await site.instances[I1].manager.add(TENANT, route(), "x")
    site.storage.away = True
    with pytest.raises(Retryable, match="it is away"):
        await site.join("i4")
    fourth = site.instances.pop("i4")
    assert (fourth.manager.ready, fourth.runner.running, site.hub.listeners) == (False, {}, 3)
    site.storage.away = False


async def test_m4_a_route_that_does_not_start_does_not_keep_an_instance_from_being_ready(site: Site) -> None:
    for mark in ("good", "bad"):
        await site.instances[I1].manager.add(TENANT, route(mark), mark)
    fourth = site.instances["i4"] = type(site.instances[I1])(site, "i4")
    fourth.runner.broken.add(h("bad"))
    await fourth.manager.start()
    assert fourth.manager.ready
    assert fourth.manager.statuses() == {
        key("bad"): Status(reason="ConnectionError: the broker is away", refused=2),
        key("good"): Status(1, h("good"), live=True),
    }


async def test_m4_stopping_does_not_wait_for_a_start_that_hangs(site: Site) -> None:
    first = site.instances[I1]
    await first.manager.add(TENANT, route(), "x")
    first.runner.gates[h("hangs")] = asyncio.Event()
    adding = asyncio.create_task(first.manager.add(TENANT, route("hangs"), "x"))
    await until(lambda: h("hangs") in first.runner.built)
    async with asyncio.timeout(2.0):
        await site.leave(I1)
        await adding
    assert first.runner.running == {}
    assert first.runner.told == [("start", h()), ("stop", h())]


async def test_m4_an_instance_that_is_not_ready_changes_nothing(site: Site) -> None:
    left = await site.leave(I3)
    with pytest.raises(Retryable, match="instance i3 is not ready"):
        await left.manager.add(TENANT, route(), "x")
    assert await site.stored() == {}


async def test_v2_a_reload_that_fails_leaves_the_live_route_as_it_is_and_is_tried_once(site: Site) -> None:
    first = site.instances[I1]
    await first.manager.change([Put(key(id), h(), route()) for id in "abc"])
    old = first.manager.route(key("a"))
    first.runner.broken.add(h())
    changed = await first.manager.reload([key(id) for id in "abc"])
    assert {status.reason for status in changed.here.values()} == {"ConnectionError: the broker is away"}
    assert all(status.live for status in changed.here.values())
    assert first.runner.built == [h(), h()]
    assert first.manager.route(key("c")) is old
    first.runner.broken.clear()
    assert (await first.manager.repair()).count == 3
    assert first.manager.route(key("c")) is first.manager.route(key("a")) is not old
    assert first.live() == {h(): 3}


async def test_a_hundred_thousand_ids_of_a_thousand_configurations_start_in_two_seconds() -> None:
    async with site_of(I1) as site:
        bodies = [route(n) for n in range(1_000)]
        hashes = [hash_of(TENANT, body) for body in bodies]
        await site.storage.change([Put(key(f"r{n}"), hashes[n % 1_000], bodies[n % 1_000]) for n in range(100_000)])
        with no_collection():
            begun = time.process_time()
            second = await site.join(I2)
            assert time.process_time() - begun <= 2.0
        assert len(second.manager.table.ids) == 100_000
        assert set(second.live().values()) == {100}


async def test_who_is_told_to_repair_in_the_moment_it_ends_ends(site: Site) -> None:
    repairs = site.instances[I1].manager.repairs
    for turns in range(6):
        repairing = asyncio.create_task(repairs.run())
        await asyncio.sleep(0.001)
        repairs.soon()
        for _ in range(turns):
            await asyncio.sleep(0)
        repairing.cancel()
        done, _ = await asyncio.wait([repairing], timeout=4.0)  # who has to be told again ends after five seconds
        assert done
