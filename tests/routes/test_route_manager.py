"""Three routing table managers over one storage and one hub in memory. Later the same scenarios run on real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from routes_in_memory import TENANT, RecordingRunner, Site, h, hash_of, key, live_everywhere, route, site_of, until
from trunkline.core.errors import Invalid, Retryable
from trunkline.routes.manager import NoSuchRoute, Status
from trunkline.routes.shared import End
from trunkline.routes.storage.base import Put
from trunkline.routes.table import Kind

I1, I2, I3 = "i1", "i2", "i3"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with site_of(I1, I2, I3) as site:
        yield site


async def test_s01_a_route_without_an_id_gets_its_hash_and_is_live_everywhere_in_memory(site: Site) -> None:
    manager = site.instances[I1].manager
    first = await manager.add(TENANT, route())
    at = key(h())
    assert len(at.id) >= 32
    assert first.here == {at: Status(1, h(), live=True)}
    async with asyncio.timeout(1.0):
        await site.agrees()
    site.clock.advance(60)
    again = await manager.add(TENANT, route())
    await site.agrees()
    assert again.session == "", "there was nothing to tell"
    assert again.routes == first.routes
    assert again.routes[at].created == first.routes[at].created != site.clock.wall()
    assert await site.stored() == {at.id: (1, h())}
    assert live_everywhere(site) == {h(): 1}
    assert [i.runner.told for i in site.instances.values()] == [[("start", h())]] * 3


async def test_s02_an_identical_update_restarts_nothing_in_memory(site: Site) -> None:
    for name in (I1, I1, I2, I3):
        await site.instances[name].manager.add(TENANT, route(), "r100")
        await site.agrees()
    for instance in site.instances.values():
        instance.runner.receive("R", {"foo": "bar"})
        assert list(instance.runner.starts.values()) == [1, 1]
        assert instance.runner.delivered == [("S", {"foo": "bar"})]


async def test_s03_ids_with_the_same_configuration_share_one_live_route_in_memory(site: Site) -> None:
    manager, runner = site.instances[I1].manager, site.instances[I2].runner
    for id in "ab":
        await manager.add(TENANT, route(), id)
    await site.agrees()
    assert live_everywhere(site) == {h(): 2}
    for number in range(5):
        runner.receive("R", number)
    assert runner.delivered == [("S", number) for number in range(5)]

    await manager.remove(key("a"))
    await site.agrees()
    assert live_everywhere(site) == {h(): 1}
    runner.receive("R", 5)
    assert len(runner.delivered) == 6

    await manager.remove(key("b"))
    await site.agrees()
    assert live_everywhere(site) == {}
    assert [(dict(i.runner.plugins.users), list(i.runner.stops.values())) for i in site.instances.values()] == [
        ({}, [1, 1])
    ] * 3

    before = await site.storage.scan()
    await manager.remove(key("b"))
    assert await site.storage.scan() == before
    assert live_everywhere(site) == {}


async def test_s05_a_missed_add_is_repaired_in_memory(site: Site) -> None:
    third = site.instances[I3]
    third.syncer.deaf = True
    await site.instances[I1].manager.add(TENANT, route(), "x")
    await until(lambda: site.instances[I2].holds())
    assert third.holds() == {}
    repaired = await third.manager.repair()
    assert (repaired.count, repaired.routes) == (1, {key("x"): Kind.MISSING})
    assert live_everywhere(site) == {h(): 1}
    assert (await third.manager.repair()).count == 0


@pytest.mark.parametrize("missed", ["delete b", "delete a", "update b"])
async def test_s06_what_was_missed_of_an_alias_is_repaired_in_memory(site: Site, missed: str) -> None:
    first, second = site.instances[I1].manager, site.instances[I2]
    for id in "ab":
        await first.add(TENANT, route(), id)
    await site.agrees()
    second.syncer.deaf = True
    operation, id = missed.split()
    await (first.remove(key(id)) if operation == "delete" else first.add(TENANT, route("other"), id))
    repaired = await second.manager.repair()
    assert repaired.routes == {key(id): Kind.EXTRA if operation == "delete" else Kind.DIFFERENT}
    await site.agrees()
    assert second.live() == ({h(): 1} if operation == "delete" else {h(): 1, h("other"): 1})
    assert (await second.manager.repair()).count == 0


async def test_s07_a_hundred_concurrent_writers_of_one_id_leave_one_live_route_in_memory(site: Site) -> None:
    managers = [instance.manager for instance in site.instances.values()]
    await asyncio.gather(*[managers[n % 3].add(TENANT, route(n), "x") for n in range(100)])
    await site.agrees()
    ((_, hash),) = (await site.stored()).values()
    assert live_everywhere(site) == {hash: 1}
    for instance in site.instances.values():
        assert instance.runner.running_plugins(End.RECEIVER) == 1
        assert instance.runner.running_plugins(End.SENDER) == 1
        assert (await instance.manager.repair()).count == 0


async def test_s08_an_update_with_an_unknown_plugin_changes_nothing_in_memory(site: Site) -> None:
    manager, runner = site.instances[I2].manager, site.instances[I2].runner
    await manager.add(TENANT, route(), "x")
    await site.agrees()
    before = await site.storage.scan()
    stream = asyncio.create_task(_stream(runner, 100))
    with pytest.raises(Invalid, match="there is no plugin doesnotexist"):
        await manager.add(TENANT, {**route(), "sender": {"plugin": "doesnotexist"}}, "x")
    await stream
    assert runner.delivered == [("S", number) for number in range(100)]
    assert await site.storage.scan() == before
    assert [i.runner.told for i in site.instances.values()] == [[("start", h())]] * 3


async def _stream(runner: RecordingRunner, events: int) -> None:
    for number in range(events):
        runner.receive("R", number)
        await asyncio.sleep(0)


async def test_s08_an_update_that_does_not_start_leaves_the_old_version_running_and_says_why_in_memory(site: Site) -> None:
    manager, second = site.instances[I1].manager, site.instances[I2]
    await manager.add(TENANT, route(), "x")
    await site.agrees()
    second.runner.broken.add(h("new"))
    stream = asyncio.create_task(_stream(second.runner, 100))
    changed = await manager.add(TENANT, route("new"), "x")
    await stream
    await until(lambda: (manager.awaited.outcome(changed.session) or changed).complete)  # type: ignore[union-attr]
    outcome = manager.awaited.outcome(changed.session)
    assert outcome is not None
    assert outcome.acked == {I3: 2}
    assert outcome.refused == {I2: "ConnectionError: the broker is away"}
    assert second.manager.status(key("x")) == Status(1, h(), True, "ConnectionError: the broker is away", 2)
    assert second.live() == {h(): 1}
    assert second.runner.delivered == [("S", number) for number in range(100)]

    repaired = await second.manager.repair()
    assert (repaired.count, repaired.refused) == (0, {key("x"): "ConnectionError: the broker is away"})
    second.runner.broken.clear()
    assert (await second.manager.repair()).routes == {key("x"): Kind.DIFFERENT}
    assert second.manager.status(key("x")) == Status(2, h("new"), live=True)


async def test_s10_a_storage_that_fails_on_an_update_leaves_the_old_version_live_everywhere_in_memory(site: Site) -> None:
    manager = site.instances[I1].manager
    await manager.add(TENANT, route(), "x")
    await site.agrees()
    site.storage.away = True
    with pytest.raises(Retryable, match="it is away"):
        await manager.add(TENANT, route("new"), "x")
    await until(lambda: all(site.instances[name].syncer.counts.heard == 2 for name in (I2, I3)))
    assert live_everywhere(site) == {h(): 1}
    site.storage.away = False
    assert [(await i.manager.repair()).count for i in site.instances.values()] == [0, 0, 0]
    assert live_everywhere(site) == {h(): 1}
    assert [i.runner.told for i in site.instances.values()] == [[("start", h())]] * 3


@pytest.mark.parametrize("resting", [{"inactive": True}, {"region": "us-east-1"}])
async def test_s11_what_does_not_run_here_is_stored_and_listed_but_not_live_in_memory(resting: dict[str, object]) -> None:
    async with site_of(I1, I2, I3, region="us-west-2") as site:
        changed = await site.instances[I1].manager.add(TENANT, route(**resting), "x")
        await site.agrees()
        reason = (
            "it is inactive" if "inactive" in resting else "it runs in region us-east-1 only; this instance is in us-west-2"
        )
        assert changed.here[key("x")] == Status(1, h(**resting), False, reason)
        assert [config.key.id for config in await site.storage.of_tenant(TENANT)] == ["x"]
        assert live_everywhere(site) == {}
        assert [(await i.manager.repair()).count for i in site.instances.values()] == [0, 0, 0]
        assert site.instances[I2].manager.route(key("x")) is None


async def test_s11_toggling_makes_a_route_live_and_stops_it_again_everywhere_in_memory(site: Site) -> None:
    await site.instances[I1].manager.add(TENANT, route(inactive=True), "x", {"desc": "mine"})
    await site.instances[I2].manager.toggle(key("x"))
    async with asyncio.timeout(1.0):
        await site.agrees()
    assert live_everywhere(site) == {h(inactive=False): 1}
    await site.instances[I3].manager.toggle(key("x"))
    await site.agrees()
    assert live_everywhere(site) == {}
    (stored,) = await site.storage.of_tenant(TENANT)
    assert stored.notes == {"desc": "mine"}
    with pytest.raises(NoSuchRoute, match="route myorg/myapp/y: there is none"):
        await site.instances[I1].manager.toggle(key("y"))


async def test_s12_a_new_instance_runs_everything_before_it_is_ready_and_stops_each_plugin_once_in_memory(site: Site) -> None:
    changes = [Put(key(f"r{n}"), hash_of(TENANT, body), body) for n in range(50) for body in [route(n, f"R{n}", f"S{n}")]]
    await site.instances[I1].manager.change(changes)
    fourth = await site.join("i4")
    assert fourth.manager.ready
    assert len(fourth.live()) == len(fourth.runner.running) == 50
    fourth.runner.receive("R7", "buffered")
    assert fourth.runner.sent == []
    await site.leave("i4")
    assert not fourth.manager.ready
    assert fourth.runner.running == {}
    assert sorted(fourth.runner.stops.values()) == [1] * 100
    assert fourth.runner.stops == fourth.runner.starts
    assert fourth.runner.sent == [("S7", "buffered")]


async def test_s22_a_slow_start_delays_no_other_route_in_memory(site: Site) -> None:
    manager = site.instances[I1].manager
    for id in ("x", "y"):
        await manager.add(TENANT, route(), id)
    await site.agrees()
    gate = asyncio.Event()
    for instance in site.instances.values():
        instance.runner.gates[h("slow")] = gate
    slow = asyncio.create_task(manager.add(TENANT, route("slow"), "x"))
    await until(lambda: all(h("slow") in i.runner.built for i in site.instances.values()))

    await manager.add(TENANT, route("z"), "z")
    await manager.remove(key("y"))
    await until(lambda: all(i.holds().keys() == {"x", "z"} for i in site.instances.values()))
    assert live_everywhere(site) == {h(): 1, h("z"): 1}, "the old version of x runs on"
    for instance in site.instances.values():
        instance.runner.receive("R", "now")
        assert len(instance.runner.delivered) == 2
    assert not slow.done()

    gate.set()
    assert (await slow).here[key("x")].live
    await site.agrees()
    assert live_everywhere(site) == {h("slow"): 1, h("z"): 1}


async def test_h40_a_repair_neither_kills_nor_resurrects_what_changed_while_it_scanned(site: Site) -> None:
    first, second = site.instances[I1].manager, site.instances[I2]
    await first.add(TENANT, route("old"), "removed")
    await first.add(TENANT, route("old"), "updated")
    await site.agrees()
    site.storage.hold_scan = asyncio.Event()
    site.storage.scanned.clear()
    repair = asyncio.create_task(second.manager.repair())
    await site.storage.scanned.wait()
    await first.remove(key("removed"))
    await first.add(TENANT, route("new"), "updated")
    await first.add(TENANT, route("new"), "added")
    await site.agrees()
    told = list(second.runner.told)
    site.storage.hold_scan.set()
    assert (await repair).count == 0
    assert second.runner.told == told
    assert second.live() == {h("new"): 2}


async def test_h40_what_changes_while_an_instance_loads_is_as_stored_when_it_is_ready(site: Site) -> None:
    first = site.instances[I1].manager
    for id in ("removed", "updated", "kept"):
        await first.add(TENANT, route("old"), id)
    site.storage.hold_scan = asyncio.Event()
    site.storage.scanned.clear()
    joining = asyncio.create_task(site.join("i4"))
    await site.storage.scanned.wait()
    await first.remove(key("removed"))
    await first.add(TENANT, route("new"), "updated")
    await first.add(TENANT, route("new"), "added")
    await until(lambda: site.instances["i4"].holds().keys() == {"updated", "added"})
    site.storage.hold_scan.set()
    fourth = await joining
    assert fourth.holds() == await site.stored()
    assert fourth.live() == {h("new"): 2, h("old"): 1}


async def test_l1_what_a_delta_is_bringing_in_while_an_instance_loads_is_not_loaded_beside_it(site: Site) -> None:
    first = site.instances[I1].manager
    await first.add(TENANT, route("old"), "x")
    await first.add(TENANT, route("old"), "y")
    site.storage.hold_scan = asyncio.Event()
    site.storage.scanned.clear()
    joining = asyncio.create_task(site.join("i4"))
    await site.storage.scanned.wait()
    fourth = site.instances["i4"]
    gate = fourth.runner.gates[h("slow")] = asyncio.Event()
    await first.add(TENANT, route("slow"), "x")
    await until(lambda: fourth.runner.built == [h("slow")])
    site.storage.hold_scan.set()
    await until(lambda: fourth.holds().keys() == {"y"})
    assert not joining.done()
    gate.set()
    await joining
    assert fourth.holds() == await site.stored()
    assert fourth.live() == {h("slow"): 1, h("old"): 1}


async def test_a_removed_configuration_that_a_loading_instance_cannot_read_any_more_is_looked_at_again(site: Site) -> None:
    first = site.instances[I1].manager
    await first.add(TENANT, route("old"), "x")
    site.storage.hold_scan = asyncio.Event()
    site.storage.scanned.clear()
    joining = asyncio.create_task(site.join("i4"))
    await site.storage.scanned.wait()
    site.instances["i4"].syncer.deaf = True
    await first.add(TENANT, route("new"), "x")
    site.storage.hold_scan.set()
    fourth = await joining
    assert fourth.holds() == await site.stored()
