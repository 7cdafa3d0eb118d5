"""What every storage of routes does: the rules S1 to S8 of trunkline.routes.storage.base, and the tests of its first model.

A storage passes by subclassing `StorageSuite` with a fixture `place`, which says where the routes are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

import pytest

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps
from trunkline.routes.keys import HOUSE, RouteKey, Tenant
from trunkline.routes.storage.apart import MANY
from trunkline.routes.storage.base import (
    REMEMBER,
    Change,
    Conflict,
    Fragment,
    NoSuchTenant,
    Put,
    Remove,
    RouteConfig,
    Scan,
    Storage,
    TenantConfig,
)

MINE, OTHER = Tenant("myorg", "myapp"), Tenant("myorg", "other")


class Place(Protocol):
    def storage(self, remember: float = REMEMBER) -> Storage:
        """A further instance's own way to the same routes."""

    async def configurations(self) -> int:
        """How many are kept."""

    async def break_connections(self) -> None: ...


def key(id: str, tenant: Tenant = MINE) -> RouteKey:
    return RouteKey(tenant, id)


def put(id: str, config: int = 1, tenant: Tenant = MINE, **more: Any) -> Put:
    return Put(key(id, tenant), f"hash-{tenant.app}-{config}", {"sender": {"plugin": "debug"}, "number": config}, **more)


def revisions(scan: Scan) -> dict[RouteKey, int]:
    return {line.key: line.revision for line in scan.routes}


def hashes(scan: Scan) -> dict[RouteKey, str]:
    return {line.key: line.hash for line in scan.routes}


@asynccontextmanager
async def opened(place: Place, remember: float = REMEMBER) -> AsyncIterator[Storage]:
    storage = place.storage(remember)
    await storage.open()
    try:
        yield storage
    finally:
        await storage.close()


class StorageSuite:
    @pytest.fixture
    async def storage(self, place: Place) -> AsyncIterator[Storage]:
        async with opened(place) as storage:
            yield storage

    @pytest.fixture
    async def second(self, place: Place) -> AsyncIterator[Storage]:
        async with opened(place) as storage:
            yield storage

    async def test_the_model_counts_two_four_two_none(self, storage: Storage) -> None:
        assert await storage.read([key("a")]) == {}
        assert await storage.scan() == Scan(0, [], {})
        await storage.change([put("a")])
        await storage.change([put("b", 2)])
        assert len(await storage.of_tenant(MINE)) == 2
        await storage.change([put("c", 3), put("d", 4)])
        assert [route.key.id for route in await storage.of_tenant(MINE)] == ["a", "b", "c", "d"]
        await storage.change([Remove(key("a"))])
        await storage.change([Remove(key("c"))])
        assert set(await storage.read([key("a"), key("b"), key("c"), key("d")])) == {key("b"), key("d")}
        await storage.change([Remove(key("b")), Remove(key("d"))])
        assert await storage.of_tenant(MINE) == []
        assert (await storage.scan()).routes == []

    async def test_created_is_kept_and_modified_moves(self, storage: Storage) -> None:
        first = (await storage.change([put("a")]))[key("a")]
        assert first.created == first.modified > 1_700_000_000
        second = (await storage.change([put("a", 2)]))[key("a")]
        assert second.created == first.created
        assert second.modified > first.modified
        assert second.revision > first.revision
        assert await storage.read([key("a")]) == {key("a"): second}
        again = (await storage.change([Remove(key("a"))])) or (await storage.change([put("a")]))
        assert again[key("a")].created > second.modified, "a route that is made anew is new"

    async def test_what_a_change_gives_is_what_is_read(self, storage: Storage) -> None:
        await storage.change([put("old", 1), put("same", 1)])
        changes: list[Change] = [put("old", 2, notes={"desc": "x"}), put("same", 1), put("new", 2), Remove(key("none"))]
        given = await storage.change(changes)
        assert list(given) == [key("old"), key("same"), key("new")]
        assert await storage.read(list(given)) == given
        assert sorted(given.values(), key=lambda route: route.key) == await storage.of_tenant(MINE)
        assert given[key("old")].notes == {"desc": "x"}
        assert given[key("old")].body == put("old", 2).body

    async def test_what_is_known_already_need_not_be_read_again(self, storage: Storage) -> None:
        given = await storage.change([put("a", 1), put("b", 1), put("c", 2)])
        known = {put("a", 1).hash: put("a", 1).body, put("x", 9).hash: put("x", 9).body}
        assert await storage.read(list(given), known) == given
        assert await storage.read([key("a"), key("none")], known) == {key("a"): given[key("a")]}

    async def test_the_same_id_in_another_tenant_is_another_route(self, storage: Storage) -> None:
        near = [MINE, OTHER, Tenant("myorg", "myapp0"), Tenant("myorg", "myapp/x"), Tenant("myorgmy", "app"), Tenant("", "")]
        for number, tenant in enumerate(near):
            assert await storage.of_tenant(tenant) == []
            await storage.change([put("r100", number, tenant)])
        for number, tenant in enumerate(near):
            [route] = await storage.of_tenant(tenant)
            assert (route.key, route.body["number"]) == (key("r100", tenant), number)
        await storage.change([Remove(key("r100", MINE))])
        assert await storage.of_tenant(MINE) == []
        assert set(hashes(await storage.scan())) == {key("r100", tenant) for tenant in near[1:]}

    async def test_routes_are_listed_in_the_order_of_their_ids(self, storage: Storage) -> None:
        ids = ["Z1", "a", "a-1", "a.1", "a%b", "a/b", "b", "zz", "ä", "日本", "\U0001f600"]
        await storage.change([put(id) for id in reversed(ids)])
        assert [route.key.id for route in await storage.of_tenant(MINE)] == sorted(ids)
        assert [route.key.id for route in await storage.of_tenant(MINE, sorted(ids)[1], 2)] == sorted(ids)[2:4]

    async def test_rule_s1_every_change_has_a_revision_above_all_before(self, storage: Storage) -> None:
        seen = [(await storage.scan()).revision]
        for changes in ([put("a")], [put("b"), put("c", 2)], [put("a", 3)], [Remove(key("b"))], [put("b")]):
            await storage.change(changes)
            seen.append((await storage.scan()).revision)
        assert seen == sorted(set(seen))
        _, one, several, update, removal, anew = seen
        assert revisions(await storage.scan()) == {key("a"): update, key("b"): anew, key("c"): several}
        assert one < several < update < removal < anew

    async def test_rule_s1_concurrent_writers_get_revisions_in_the_order_of_their_answers(self, place: Place) -> None:
        """100 writers of one id, and each of its own, over four instances."""
        async with AsyncExitStack() as stack:
            instances = [await stack.enter_async_context(opened(place)) for _ in range(4)]
            answered: list[int] = []

            async def write(number: int) -> int:
                before = max(answered, default=0)
                made = await instances[number % 4].change([put("x", number), put(f"own{number}", number)])
                revision = made[key("x")].revision
                assert made[key(f"own{number}")].revision == revision > before
                answered.append(revision)
                return revision

            made = await asyncio.gather(*map(write, range(100)))
            assert len(set(made)) == 100
            scan = await instances[0].scan()
            assert scan.revision == max(made)
            assert hashes(scan)[key("x")] == put("x", made.index(max(made))).hash
            assert revisions(scan) == {key("x"): max(made), **{key(f"own{n}"): revision for n, revision in enumerate(made)}}

    async def test_a_put_that_changes_nothing_keeps_its_revision(self, storage: Storage) -> None:
        first = await storage.change([put("a", notes={"desc": "one", "debug": True})])
        before = await storage.scan()
        assert await storage.change([put("a", notes={"debug": True, "desc": "one"})]) == first
        assert await storage.change([put("a", notes={"desc": "one", "debug": True}, expect=first[key("a")].revision)]) == first
        assert await storage.scan() == before
        noted = (await storage.change([put("a", notes={"desc": "one", "debug": 1})]))[key("a")]
        assert noted.revision > before.revision
        assert noted.hash == first[key("a")].hash
        assert await storage.bodies([noted.hash]) == {noted.hash: put("a").body}

    async def test_to_change_nothing_is_no_change(self, storage: Storage) -> None:
        await storage.change([put("a")])
        before = await storage.scan()
        assert await storage.change([]) == {}
        assert await storage.change([Remove(key("none")), Remove(key("never"), expect=0)]) == {}
        assert await storage.scan() == before
        assert await storage.read([]) == {}
        assert await storage.bodies([]) == {}
        assert await storage.bodies(["unknown"]) == {}

    async def test_rule_s2_of_two_writers_that_read_the_same_one_wins(self, storage: Storage, second: Storage) -> None:
        read = (await storage.change([put("a")]))[key("a")].revision

        async def write(instance: Storage, config: int) -> int:
            return (await instance.change([put("a", config, expect=read)]))[key("a")].revision

        outcomes = await asyncio.gather(write(storage, 2), write(second, 3), return_exceptions=True)
        [won] = [outcome for outcome in outcomes if isinstance(outcome, int)]
        [lost] = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
        assert lost.what == "route myorg/myapp/a"
        assert lost.why == f"it was at revision {read} when it was read, and is at {won} now; nothing was changed"
        assert lost.next_step == "read it again and decide anew"
        [kept] = await storage.of_tenant(MINE)
        assert (kept.revision, kept.hash) == (won, put("a", 2 + outcomes.index(won)).hash)

    async def test_rule_s2_one_of_many_makes_a_new_route(self, storage: Storage, second: Storage) -> None:
        tries = [(storage, second)[n % 2].change([put("a", n, expect=0)]) for n in range(10)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        [made] = [outcome for outcome in outcomes if isinstance(outcome, dict)]
        refused = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
        assert len(refused) == 9
        there = f"it is there already, at revision {made[key('a')].revision}; nothing was changed"
        assert {error.why for error in refused} == {there}
        assert await storage.read([key("a")]) == made

    async def test_rule_s2_what_is_gone_is_not_as_it_was_read(self, storage: Storage) -> None:
        read = (await storage.change([put("a")]))[key("a")].revision
        with pytest.raises(Conflict, match=f"is at {read} now"):
            await storage.change([Remove(key("a"), expect=read + 1)])
        with pytest.raises(Conflict, match="is there already"):
            await storage.change([Remove(key("a"), expect=0)])
        await storage.change([Remove(key("a"), expect=read)])
        for change in (put("a", 2, expect=read), Remove(key("a"), expect=read)):
            with pytest.raises(Conflict, match=f"at revision {read} when it was read, and is not there any more"):
                await storage.change([change])
        assert (await storage.scan()).routes == []

    @pytest.mark.parametrize("wrong", [0, 3, 5])
    async def test_rule_s2_a_change_is_made_as_a_whole_or_not_at_all(self, place: Place, storage: Storage, wrong: int) -> None:
        await storage.change([put("a"), put("b", 2), put("gone", 3)])
        before, configurations = await storage.scan(), await place.configurations()
        changes: list[Change] = [put("a", 4), Remove(key("gone")), put("new", 5), put("b", 1), put("other", 6)]
        changes.insert(wrong, put("conflict", 7, expect=before.revision))
        with pytest.raises(Conflict, match="route myorg/myapp/conflict"):
            await storage.change(changes)
        assert await storage.scan() == before
        assert await place.configurations() == configurations
        assert await storage.bodies([put("new", 5).hash]) == {}

    async def test_rule_s3_a_configuration_that_ids_share_is_kept_once(self, place: Place, storage: Storage) -> None:
        await storage.change([put(f"r{n}", 1) for n in range(50)])
        await storage.change([put("later", 1)])
        assert await place.configurations() == 1
        await storage.change([put("r0", 2), put("r1", 2)])  # they part
        assert await place.configurations() == 2
        await storage.change([put("r0", 1), put("r1", 1)])  # and meet again
        assert await place.configurations() == 1
        assert await storage.bodies([put("", 1).hash, put("", 2).hash]) == {put("", 1).hash: put("", 1).body}
        await storage.change([Remove(key(f"r{n}")) for n in range(50)])
        assert await place.configurations() == 1
        await storage.change([Remove(key("later")), put("other", 3)])
        assert await storage.bodies([put("", 1).hash, put("", 3).hash]) == {put("", 3).hash: put("", 3).body}
        assert await place.configurations() == 1

    async def test_rule_s4_a_scan_is_one_moment(self, storage: Storage, second: Storage) -> None:
        await storage.change([put("a", 0), put("b", 0)])
        done = asyncio.Event()

        async def move() -> None:
            for number in range(1, 40):
                await second.change([put("a", number), put("b", number)])
                await second.change([put(f"n{number}", number), Remove(key(f"n{number - 1}"))])
            done.set()

        async def look() -> list[int]:
            seen = []
            while not done.is_set():
                scan = await storage.scan()
                assert len({hash for key, hash in hashes(scan).items() if key.id in "ab"}) == 1
                assert max([*revisions(scan).values(), *scan.removed.values()]) == scan.revision
                assert not set(scan.removed) & set(hashes(scan))
                seen.append(scan.revision)
                await asyncio.sleep(0)
            return seen

        _, seen = await asyncio.gather(move(), look())
        assert seen == sorted(seen)
        assert set(hashes(await storage.scan())) == {key("a"), key("b"), key("n39")}

    async def test_rule_s4_a_removal_is_remembered_with_its_revision(self, storage: Storage) -> None:
        await storage.change([put("a"), put("b"), put("c"), put("a", 9, OTHER)])
        await storage.change([Remove(key("a"))])
        first = (await storage.scan()).revision
        await storage.change([Remove(key("b")), put("d")])
        second = (await storage.scan()).revision
        for _ in range(2):
            assert (await storage.scan()).removed == {key("a"): first, key("b"): second}
        await storage.change([put("a")])
        assert (await storage.scan()).removed == {key("b"): second}, "what was put again is not removed"
        await storage.change([Remove(key("a"))])
        third = (await storage.scan()).revision
        assert (await storage.scan()).removed == {key("a"): third, key("b"): second}

    async def test_h41_what_is_newer_than_a_revision_is_told_with_its_removals(self, storage: Storage) -> None:
        await storage.change([put("a"), put("b"), put("c")])
        before = (await storage.scan()).revision
        assert await storage.newer(before) == Scan(before, [], {})
        await storage.change([put("b", 2)])
        await storage.change([Remove(key("c")), put("d")])
        scan = await storage.scan()
        newer = await storage.newer(before)
        assert (newer.revision, hashes(newer)) == (scan.revision, {at: hashes(scan)[at] for at in (key("b"), key("d"))})
        assert newer.removed == {key("c"): scan.revision}
        assert await storage.newer(scan.revision) == Scan(scan.revision, [], {})

    async def test_rule_s4_an_old_removal_is_forgotten_after_a_scan_has_told_it(self, place: Place) -> None:
        async with opened(place, remember=0) as forgetful:
            await forgetful.change([put("a"), put("b")])
            await forgetful.change([Remove(key("a"))])
            assert set((await forgetful.scan()).removed) == {key("a")}
            await forgetful.change([Remove(key("b"))])
            assert set((await forgetful.scan()).removed) == {key("b")}
            assert (await forgetful.scan()).removed == {}

    async def test_rule_s5_what_was_acknowledged_is_there_for_others(self, place: Place, storage: Storage) -> None:
        given = await storage.change([put("a", notes={"desc": "kept"}), put("b", 2)])
        tenant = await storage.put_tenant(TenantConfig(MINE, 10.0, ("me",), True))
        fragment = await storage.put_fragment(Fragment(MINE, "f", {"plugin": "debug"}))
        scan = await storage.scan()
        await storage.close()
        async with opened(place) as later:
            assert await later.read([key("a"), key("b")]) == given
            assert await later.scan() == scan
            assert (await later.tenants(), await later.fragments(MINE)) == ([tenant], [fragment])

    async def test_rule_s6_bodies_come_back_as_they_were(self, storage: Storage) -> None:
        body = {
            "": "", "none": None, "no": False, "list": [], "map": {}, "deep": [[[{"x": [1, 2.0, "3"]}]]],
            "whole": 1, "float": 1.0, "minus": -0.0, "big": 2**63 - 1, "small": -(2**63), "huge": 1.7e308, "tiny": 5e-324,
            "third": 1 / 3, "text": "\"quoted\" 'too' \\ \\u0000 \\\\ / \n\r\t\x01\x7f\u2028 {a,b} %s $1 ; --",
            "äöü": "日本語", "\U0001f600": "\U0010ffff", "key\"\\with": "'", "nul": "\\u0000",
        }  # fmt: skip
        ids = ["plain", "a/b", "a%2Fb", "a%b", 'quo"te', "back\\slash", "{curly},", "日本", "NULL", "sp ace", " "]
        await storage.change([Put(key(id), f"hash {id}", {**body, "id": id}, {"desc": id, **body}) for id in ids])
        found = await storage.read([key(id) for id in ids])
        assert set(found) == {key(id) for id in ids}
        for id in ids:
            route = found[key(id)]
            assert dumps(route.body) == dumps({**body, "id": id})
            assert dumps(route.notes) == dumps({"desc": id, **body})
            assert route.hash == f"hash {id}"
            assert dumps((await storage.bodies([route.hash]))[route.hash]) == dumps(route.body)
        assert hashes(await storage.scan()) == {key(id): f"hash {id}" for id in ids}
        await storage.change([Remove(key(id)) for id in ids])
        assert set((await storage.scan()).removed) == {key(id) for id in ids}

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (Put(key("a"), "h", {"x": ["nul \x00"]}), "NUL character"),
            (Put(key("a"), "h", {"nul\x00": 1}), "NUL character"),
            (Put(key("a"), "h", {}, {"desc": "\\\x00"}), "NUL character"),
            (Put(key("nul\x00"), "h", {}), "NUL character"),
            (Put(key("a", Tenant("nul\x00", "")), "h", {}), "NUL character"),
            (Put(key("a"), "nul\x00", {}), "NUL character"),
            (Remove(key("nul\x00")), "NUL character"),
            (Put(key("a"), "h", {"x": "\ud800"}), "cannot be written as JSON"),
            (Put(key("\ud800"), "h", {}), "half of a pair"),
            (Put(key("a"), "h", {"x": float("nan"), "y": None}), "not finite"),
            (Put(key("a"), "h", {"x": [{"y": float("inf")}]}), "not finite"),
            (Put(key("a"), "h", {"x": {1, 2}}), "cannot be written as JSON"),
            (Put(key("a"), "h", {"x": 2**64}), "cannot be written as JSON"),
            (Put(key("a"), "", {}), "no hash"),
            (put("good", 2), "names it twice"),
        ],
    )
    async def test_rule_s6_what_cannot_be_kept_is_refused(self, storage: Storage, change: Change, why: str) -> None:
        await storage.change([put("before")])
        before = await storage.scan()
        with pytest.raises(Invalid, match=why) as refused:
            await storage.change([put("good"), change])
        assert "route" in refused.value.what
        assert refused.value.what.isprintable()
        assert await storage.scan() == before

    async def test_what_the_caller_does_with_its_body_later_is_its_own(self, storage: Storage) -> None:
        body = {"list": [1]}
        given = await storage.change([Put(key("a"), "h", body, {"notes": body})])
        body["list"].append(2)
        assert (given[key("a")].body, given[key("a")].notes) == ({"list": [1]}, {"notes": {"list": [1]}})
        assert await storage.bodies(["h"]) == {"h": {"list": [1]}}

    async def test_rule_s7_a_connection_that_broke_is_made_anew(self, place: Place, storage: Storage) -> None:
        given = await storage.change([put("a")])
        await place.break_connections()
        assert await storage.read([key("a")]) == given
        await place.break_connections()
        changed = await storage.change([put("a", 2, expect=given[key("a")].revision)])
        assert await storage.read([key("a")]) == changed

    async def test_many_at_once_are_as_few(self, place: Place, storage: Storage) -> None:
        many = [put(f"r{n:05d}", n % 7, (MINE, OTHER)[n % 2], notes={"desc": str(n)}) for n in range(3 * MANY)]
        given = await storage.change(many)
        assert list(given) == [change.key for change in many]
        assert [(r.hash, r.body, r.notes) for r in given.values()] == [(p.hash, p.body, p.notes) for p in many]
        assert await place.configurations() == 14
        assert await storage.read(list(given)) == given
        assert await storage.of_tenant(OTHER) == [route for route in given.values() if route.key.tenant == OTHER]
        scan = await storage.scan()
        assert hashes(scan) == {change.key: change.hash for change in many}
        assert set(revisions(scan).values()) == {scan.revision}
        assert await storage.change(many) == given
        with pytest.raises(Conflict, match=f"route {many[-1].key}: "):
            await storage.change([*(Remove(p.key) for p in many[:-1]), put(many[-1].key.id, 1, OTHER, expect=0)])
        assert await storage.scan() == scan
        assert await storage.change([Remove(change.key) for change in many]) == {}
        gone = await storage.scan()
        assert gone.removed == dict.fromkeys(given, gone.revision)
        assert (gone.routes, await place.configurations()) == ([], 0)

    async def test_a_long_story_ends_as_a_plain_map_says(self, place: Place, storage: Storage) -> None:
        chance, table, removed = random.Random(11), dict[RouteKey, RouteConfig](), dict[RouteKey, int]()
        outcomes = {"made": 0, "refused": 0}
        for _ in range(70):
            changes = [self._any_change(chance, table, key(f"r{n}")) for n in chance.sample(range(9), chance.randint(1, 4))]
            stale = any(c.expect not in (None, table[c.key].revision if c.key in table else 0) for c in changes)
            try:
                given = await storage.change(changes)
                assert not stale
            except Conflict:
                assert stale
                outcomes["refused"] += 1
                continue
            outcomes["made"] += 1
            self._follow(changes, given, table, removed, (await storage.scan()).revision)
            assert await storage.of_tenant(MINE) == [table[at] for at in sorted(table)]
            scan = await storage.scan()
            assert (revisions(scan), scan.removed) == ({at: route.revision for at, route in table.items()}, removed)
            assert await place.configurations() == len({route.hash for route in table.values()})
        assert min(outcomes.values()) > 10, outcomes

    def _any_change(self, chance: random.Random, table: dict[RouteKey, RouteConfig], at: RouteKey) -> Change:
        now = table[at].revision if at in table else 0
        expect = chance.choice([None, None, None, now, now, now, now, now + 1])
        if chance.random() < 0.3:
            return Remove(at, expect)
        return put(at.id, chance.randint(1, 4), notes=chance.choice([{}, {"desc": "x"}]), expect=expect)

    def _follow(
        self, changes: list[Change], given: dict[RouteKey, RouteConfig], table: dict[RouteKey, RouteConfig],
        removed: dict[RouteKey, int], revision: int,
    ) -> None:  # fmt: skip
        for change in changes:
            before = table.pop(change.key, None)
            if isinstance(change, Remove):
                removed.update({change.key: revision} if before else {})
                continue
            route = table[change.key] = given[change.key]
            assert (route.hash, route.body, route.notes) == (change.hash, change.body, change.notes)
            if before and (before.hash, before.notes) == (change.hash, change.notes):
                assert route == before
            else:
                assert route.revision == revision
                assert route.created == (before.created if before else route.modified)
            removed.pop(change.key, None)

    async def test_tenants_come_and_go(self, storage: Storage) -> None:
        assert (await storage.tenants(), await storage.tenant(MINE)) == ([], None)
        plain = await storage.put_tenant(TenantConfig(OTHER))
        assert plain == TenantConfig(OTHER, None, (), False, plain.modified)
        assert plain.modified > 1_700_000_000
        for quota in (10, 20.5, 0, None):
            config = await storage.put_tenant(TenantConfig(MINE, quota, ("me", 'you "too"'), True))
            assert config == TenantConfig(MINE, quota, ("me", 'you "too"'), True, config.modified)
            assert await storage.tenant(MINE) == config
        assert await storage.tenants() == [config, plain]
        assert await storage.remove_tenant(MINE)
        assert not await storage.remove_tenant(MINE)
        assert (await storage.tenant(MINE), await storage.tenants()) == (None, [plain])

    @pytest.mark.parametrize("quota", [-1.0, float("nan"), float("inf")])
    async def test_a_quota_that_is_none_is_refused(self, storage: Storage, quota: float) -> None:
        with pytest.raises(Invalid, match="is no quota"):
            await storage.put_tenant(TenantConfig(MINE, quota))
        with pytest.raises(Invalid, match="NUL"):
            await storage.put_tenant(TenantConfig(MINE, clients=("\x00",)))
        assert await storage.tenants() == []

    async def test_a_tenant_with_routes_stays(self, storage: Storage) -> None:
        await storage.put_tenant(TenantConfig(MINE))
        await storage.put_fragment(Fragment(MINE, "f", {}))
        await storage.change([put("a"), put("b"), put("c", 1, Tenant("myorg", "myapp0"))])
        with pytest.raises(Conflict) as refused:
            await storage.remove_tenant(MINE)
        assert str(refused.value) == (
            "tenant myorg/myapp: it still has 2 routes (next: remove its routes first, then the tenant)"
        )
        assert await storage.tenant(MINE)
        assert len(await storage.fragments(MINE)) == 1
        await storage.change([Remove(key("a")), Remove(key("b"))])
        assert await storage.remove_tenant(MINE)

    async def test_rule_s8_a_tenant_that_was_removed_meanwhile_gets_no_route(self, storage: Storage) -> None:
        await storage.put_tenant(TenantConfig(MINE))
        house = put("h", 1, HOUSE, asks_tenant=True)
        await storage.change([put("a", asks_tenant=True), house])
        with pytest.raises(NoSuchTenant, match="tenant myorg/other: there is none"):
            await storage.change([put("a", 2, asks_tenant=True), put("b", 1, OTHER, asks_tenant=True)])
        assert set(hashes(await storage.scan()).values()) == {"hash-myapp-1", house.hash}
        await storage.change([Remove(key("a")), put("b", 1, OTHER)])
        assert await storage.remove_tenant(MINE)
        with pytest.raises(NoSuchTenant):
            await storage.change([put("a", asks_tenant=True)])

    async def test_fragments_are_their_tenants_own(self, storage: Storage) -> None:
        body = {"plugin": "debug", "name": "x", "config": {"text": 'ä"\\', "float": 1.0}}
        for tenant in (MINE, OTHER):
            assert await storage.fragment(tenant, "f/1") is None
            assert await storage.put_tenant(TenantConfig(tenant))
        first = await storage.put_fragment(Fragment(MINE, "f/1", body))
        assert first == Fragment(MINE, "f/1", body, first.modified)
        assert await storage.fragment(OTHER, "f/1") is None
        other = await storage.put_fragment(Fragment(OTHER, "f/1", {"plugin": "nop"}))
        second = await storage.put_fragment(Fragment(MINE, "e", {}))
        changed = await storage.put_fragment(Fragment(MINE, "f/1", {"plugin": "http"}))
        assert changed.modified > first.modified
        assert await storage.fragment(MINE, "f/1") == changed
        assert await storage.fragments(MINE) == [second, changed]
        assert await storage.remove_fragment(MINE, "e")
        assert not await storage.remove_fragment(MINE, "e")
        assert await storage.fragments(MINE) == [changed]
        with pytest.raises(Invalid, match="NUL"):
            await storage.put_fragment(Fragment(MINE, "f/1", {"x": "\x00"}))
        assert await storage.remove_tenant(MINE)
        assert (await storage.fragments(MINE), await storage.fragments(OTHER)) == ([], [other])

    @pytest.mark.parametrize("name", ["nul\x00", "\ud800"])
    async def test_a_name_that_cannot_be_kept_is_not_found(self, storage: Storage, name: str) -> None:
        asked = [storage.read([key(name)]), storage.of_tenant(Tenant(name, "")), storage.fragment(MINE, name)]
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            assert not answer or isinstance(answer, Invalid), answer
