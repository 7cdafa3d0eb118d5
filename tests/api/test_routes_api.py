"""Routes over the API, by real tables in memory and in Postgres: each address, the happy way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import psycopg
import pytest
import yaml
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

from memory_node import is_problem
from memory_routes import RoutedInstance, T, routed, simple, with_tenant
from route_place import until as until_said
from routes_in_memory import until
from trunkline.api import routesexamples as example
from trunkline.api import routesmodels as models
from trunkline.routes.instances import Instance, Kind, Presence
from trunkline.routes.keys import Tenant
from trunkline.routes.storage.memory import MemoryStorage
from trunkline.routes.storage.postgres import PostgresStorage
from trunkline.routes.sync.acked_rows import PostgresAcks
from trunkline.routes.sync.memory import MemoryHub, MemorySyncer
from trunkline.routes.sync.postgres import PostgresSyncer
from trunkline.routes.told import PostgresTold

ALARMS = {
    "userId": "boris", "receiver": {"plugin": "debug"}, "sender": {"plugin": "debug", "name": "out"},
    "filterChain": [{"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": "alarm"}}}],
}  # fmt: skip


NAMES = {"i1": ["i2"], "i2": ["i1"]}


def known(name: str) -> dict[str, Any]:
    return {"others": lambda: NAMES[name], "alive": lambda: [Instance(other, Kind.NODE) for other in NAMES[name]]}


@asynccontextmanager
async def in_memory() -> AsyncIterator[tuple[RoutedInstance, RoutedInstance]]:
    hub, storage = MemoryHub(), MemoryStorage()
    async with (
        routed(storage, MemorySyncer(hub, "i1"), **known("i1")) as one,
        routed(storage, MemorySyncer(hub, "i2"), **known("i2")) as two,
    ):
        yield one, two


@asynccontextmanager
async def in_postgres(dsn: str) -> AsyncIterator[tuple[RoutedInstance, RoutedInstance]]:
    async with AsyncConnectionPool(dsn, min_size=1, max_size=2, open=False) as pool:
        acks, told = PostgresAcks(pool), PostgresTold(pool)
        async with (
            routed(PostgresStorage(dsn), PostgresSyncer(dsn, "i1"), **known("i1"), acks=acks, told=told) as one,
            routed(PostgresStorage(dsn), PostgresSyncer(dsn, "i2"), **known("i2"), acks=acks, told=told) as two,
        ):
            yield one, two


@pytest.fixture(params=["memory", "postgres"])
async def pair(
    request: pytest.FixtureRequest, make_database: Callable[..., str]
) -> AsyncIterator[tuple[RoutedInstance, RoutedInstance]]:
    """Two instances of one site."""
    async with in_memory() if request.param == "memory" else in_postgres(make_database("routes")) as two:
        yield two


async def asked(client: httpx.AsyncClient, method: str, path: str, model: type[BaseModel], **more: Any) -> dict[str, Any]:
    """The answer, which is as the API's description has it."""
    answer = await client.request(method, path, **more)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    model.model_validate(found)
    return found


async def test_s01_a_route_without_an_id_is_called_by_its_hash_and_is_the_same_when_sent_again(
    pair: tuple[RoutedInstance, RoutedInstance],
) -> None:
    one, two = pair
    async with one.client() as client:
        await with_tenant(client)
        first = await asked(client, "POST", f"{T}/routes", models.RouteChanged, json=simple(), params={"wait": 30})
        item = first["item"]
        assert (len(item["id"]), item["id"]) == (32, item["hash"])
        assert first["change"]["acked"] == {"i2": item["revision"]}
        assert list(two.runner.running) == [item["hash"]]
        again = await asked(client, "POST", f"{T}/routes", models.RouteChanged, json=simple())
        assert again["item"] == item
        assert again["here"] == {"state": "live", "revision": item["revision"], "refused": 0, "reason": ""}
        assert (await asked(client, "GET", f"{T}/routes", models.RoutesAnswer))["items"] == [item]
    assert one.runner.told == two.runner.told == ["start"]


async def test_a_route_is_updated_switched_reloaded_and_removed_everywhere(pair: tuple[RoutedInstance, RoutedInstance]) -> None:
    one, two = pair
    at = f"{T}/routes/alarms"
    async with one.client() as client, two.client() as other:
        await with_tenant(client)
        await asked(client, "PUT", at, models.RouteChanged, json=simple(), params={"wait": 30})
        await asked(client, "PUT", at, models.RouteChanged, json=ALARMS, params={"wait": 30})
        shown = await asked(other, "GET", at, models.RouteAnswer)
        assert shown["item"]["filterChain"] == ALARMS["filterChain"]
        await asked(other, "PUT", f"{at}/reload", models.RouteChanged, params={"wait": 30})
        off = await asked(other, "PUT", f"{at}/toggleEnable", models.RouteChanged, params={"wait": 30})
        assert (off["item"]["inactive"], off["item"]["status"], off["here"]["state"]) == (True, "stopped", "rests")
        assert two.runner.told == one.runner.told == ["start", "replace", "replace", "stop"]
        on = await asked(client, "PUT", f"{at}/toggleEnable", models.RouteChanged, params={"wait": 30})
        assert (on["item"]["inactive"], on["item"]["hash"]) == (False, shown["item"]["hash"])
        await asked(client, "DELETE", at, models.RouteRemoved, params={"wait": 30})
        again = await asked(client, "DELETE", at, models.RouteRemoved)
        assert (again["item"], (await client.get(at)).status_code) == ("alarms", 404)
        assert two.runner.running == one.runner.running == {}


async def test_the_status_says_what_every_instance_has_or_why_not(pair: tuple[RoutedInstance, RoutedInstance]) -> None:
    one, two = pair
    async with one.client() as client, two.client() as other:
        await with_tenant(client)
        await asked(client, "PUT", f"{T}/routes/ok", models.RouteChanged, json=simple(), params={"wait": 30})
        two.runner.fails = "the broker is away"
        put = await asked(client, "PUT", f"{T}/routes/sad", models.RouteChanged, json=ALARMS, params={"wait": 30})
        assert "the broker is away" in put["change"]["refused"]["i2"]
        found = await asked(client, "GET", "/v1/routes/status", models.StandingShown)
        states = {route["id"]: [(at["instance"], at["state"]) for at in route["instances"]] for route in found["routes"]}
        assert states == {"ok": [("i1", "live"), ("i2", "acked")], "sad": [("i1", "live"), ("i2", "refused")]}
        (only,) = (await asked(client, "GET", "/v1/routes/status?org=myorg&app=myapp&id=sad", models.StandingShown))["routes"]
        assert "the broker is away" in only["instances"][1]["reason"]
        here = (await asked(other, "GET", "/v1/routes/status?org=myorg&app=myapp&id=sad", models.StandingShown))["routes"]
        assert (here[0]["instances"][0]["state"], here[0]["instances"][0]["revision"]) == ("refused", 0)
        if two.operating.acks is not None:  # kept for all: so the publisher's own word is known here, too
            assert here[0]["instances"][1]["state"] == "acked"


async def test_long_after_a_change_the_status_says_what_every_instance_has(make_database: Callable[..., str]) -> None:
    dsn = make_database("routes")
    async with in_postgres(dsn) as (one, two), one.client() as client:
        presence = Presence(dsn, Instance("i2", Kind.NODE), every=0.05)
        presence.tells = two.manager.told
        await presence.start()
        try:
            await with_tenant(client)
            await asked(client, "PUT", f"{T}/routes/ok", models.RouteChanged, json=simple(), params={"wait": 30})
            two.runner.fails = "the broker is away"
            await asked(client, "PUT", f"{T}/routes/sad", models.RouteChanged, json=ALARMS, params={"wait": 30})
            with psycopg.connect(dsn) as conn:
                conn.execute("DELETE FROM routes.ack")  # as after a day
            await two.manager.repairs.look()

            async def says(**wanted: str) -> bool:
                found = await asked(client, "GET", "/v1/routes/status", models.StandingShown)
                return {route["id"]: route["instances"][1]["state"] for route in found["routes"]} == wanted

            await until_said(lambda: says(ok="loaded", sad="refused"))
            two.runner.fails = ""
            await two.manager.repair()
            await until_said(lambda: says(ok="loaded", sad="loaded"))
        finally:
            await presence.stop()


async def test_many_changes_are_one_and_a_dry_run_changes_nothing(pair: tuple[RoutedInstance, RoutedInstance]) -> None:
    one, two = pair
    tenant = {"orgId": "myorg", "appId": "myapp"}
    async with one.client() as client:
        await with_tenant(client)
        old = await asked(client, "PUT", f"{T}/routes/old", models.RouteChanged, json=simple())
        changes = [
            {"put": {**ALARMS, "id": "new", "tenant": tenant, "colour": "red"}, "revision": 0},
            {"remove": {"tenant": tenant, "id": "old"}, "revision": old["item"]["revision"]},
            {"remove": {"tenant": tenant, "id": "nobody"}},
        ]
        body = {"changes": changes, "dry_run": True}
        dry = await asked(client, "POST", "/v1/routes/apply", models.AppliedShown, json=body)
        assert [route["what"] for route in dry["routes"]] == ["added", "removed", "absent"]
        assert "colour" in dry["routes"][0]["warnings"][0]["key"]
        assert [route["id"] for route in (await client.get(f"{T}/routes")).json()["items"]] == ["old"]
        done = await asked(client, "POST", "/v1/routes/apply?wait=30", models.AppliedShown, json={"changes": changes})
        assert [route["what"] for route in done["routes"]] == ["added", "removed", "absent"]
        assert done["change"]["complete"]
        assert [route["id"] for route in (await client.get("/v1/routes")).json()["items"]] == ["new"]
        again = await client.post("/v1/routes/apply", json={"changes": changes})
        assert again.status_code == 409, again.text
        await until(lambda: len(two.runner.running) == 1)


async def test_a_repair_says_what_it_found(pair: tuple[RoutedInstance, RoutedInstance]) -> None:
    one, _ = pair
    async with one.client() as client:
        await with_tenant(client)
        await asked(client, "PUT", f"{T}/routes/a", models.RouteChanged, json=simple())
        found = await asked(client, "POST", "/v1/routes/repair", models.RepairShown)
        assert (found["repaired"], found["refused"]) == ([], [])
        assert (await asked(client, "GET", "/v1/routes/repair", models.RepairsShown)) == {"repairs": []}


async def test_tenants_are_made_changed_and_removed_and_their_quota_counts_everywhere(
    pair: tuple[RoutedInstance, RoutedInstance],
) -> None:
    one, two = pair
    async with one.client() as client, two.client() as other:
        made = await asked(
            client, "POST", T, models.TenantChanged, json={"quota": {"eventsPerSec": 10}, "clientSecret": "psst"}
        )
        assert (made["item"]["quota"], made["warnings"][0]["key"]) == ({"eventsPerSec": 10}, "clientSecret")
        assert "psst" not in str(made)
        assert (await client.post(f"{T}/config", json={})).status_code == 409
        await asked(
            client, "PUT", f"{T}/config", models.TenantChanged, json={"quota": {"eventsPerSec": 20}, "clientIds": ["ci"]}
        )
        await until(lambda: [config.events_per_second for config in two.operating.tenants.known.values()] == [None, 20])
        listed = await asked(other, "GET", "/v1/tenants", models.TenantsAnswer)
        assert [item["tenant"]["orgId"] for item in listed["items"]] == ["myorg", "trunkline"]
        assert (await asked(other, "GET", T, models.TenantAnswer))["item"]["clientIds"] == ["ci"]
        await asked(other, "DELETE", T, models.TenantRemoved)
        assert (await client.get(T)).status_code == 404
        await until(lambda: len(one.operating.tenants.known) == 1)


async def test_a_tenant_that_went_unheard_of_gets_no_route() -> None:
    async with routed() as at, at.client() as client:
        await with_tenant(client)
        assert await at.storage.remove_tenant(Tenant("myorg", "myapp"))  # of which the delta was lost
        answer = await client.put(f"{T}/routes/r", json=simple())
        assert is_problem(answer, 404, "no-such-tenant"), answer.text
        assert (await at.storage.scan()).routes == []


async def test_an_instance_that_never_answers_is_waited_for_as_long_as_was_asked() -> None:
    async with routed(others=lambda: ["mute"]) as at, at.client(request_seconds=0.2) as client:
        await with_tenant(client)
        answer = await client.put(f"{T}/routes/r", params={"wait": 0.4}, json=simple())
        assert answer.status_code == 200, answer.text
        change = answer.json()["change"]
        assert (change["complete"], change["missing"]) == (False, ["mute"])
        answer = await client.get(f"/v1/routes/changes/{change['session']}", params={"wait": 0.4})
        assert answer.status_code == 200, answer.text


async def test_lists_come_in_pages(pair: tuple[RoutedInstance, RoutedInstance]) -> None:
    one, _ = pair
    async with one.client() as client:
        await with_tenant(client)
        for id in ("c", "a", "b"):
            await client.put(f"{T}/routes/{id}", json=simple())
        for path in (f"{T}/routes", "/v1/routes", "/ears/v1/routes", f"/ears{T}/routes"):
            first = await asked(client, "GET", path, models.RoutesAnswer, params={"limit": 2})
            rest = await asked(client, "GET", path, models.RoutesAnswer, params={"limit": 2, "after": first["next"]})
            assert [item["id"] for item in first["items"] + rest["items"]] == ["a", "b", "c"]
            assert rest["next"] is None


async def test_plugins_that_run_and_those_that_could(pair: tuple[RoutedInstance, RoutedInstance]) -> None:
    one, _ = pair
    async with one.client() as client:
        await with_tenant(client)
        for id in ("a", "b"):
            await client.put(f"{T}/routes/{id}", json=ALARMS | {"name": id})
        senders = await asked(client, "GET", f"{T}/senders", models.RunningsAnswer)
        assert [(item["name"], item["referenceCount"]) for item in senders["items"]] == [("out", 2)]
        assert (await asked(client, "GET", f"{T}/senders/out", models.RunningAnswer))["item"] == senders["items"][0]
        assert (await client.get(f"{T}/senders/in")).status_code == 404
        for path in ("/v1/filters", f"{T}/filters", "/v1/receivers", f"{T}/receivers", "/v1/senders"):
            assert (await asked(client, "GET", path, models.RunningsAnswer))["items"]
        declared = await asked(client, "GET", "/v1/plugins", models.DeclaredAnswer)
        assert {"filter", "receiver", "sender"} == {item["kind"] for item in declared["items"]}
        match = await asked(client, "GET", "/v1/plugins/filter/match", models.DeclarationAnswer)
        assert "patternsLogic" in match["item"]["schema"]["properties"]


async def test_yaml_is_taken_and_given(pair: tuple[RoutedInstance, RoutedInstance]) -> None:
    one, _ = pair
    async with one.client() as client:
        await with_tenant(client)
        text = "userId: ada\nreceiver: {plugin: debug}\nsender: {plugin: debug}\n"
        answer = await client.put(f"{T}/routes/y", content=text, headers={"Content-Type": "application/x-yaml"})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/yaml")
        assert yaml.safe_load(answer.text)["item"]["userId"] == "ada"
        shown = await client.get(f"{T}/routes/y", headers={"Accept": "application/yaml"})
        assert yaml.safe_load(shown.text)["item"] == (await client.get(f"{T}/routes/y")).json()["item"]


async def test_explain_knows_the_regions_that_routes_run_in() -> None:
    async with routed(region="eu") as at, at.client() as client:
        await with_tenant(client)
        for id, region in (("here", "eu"), ("everywhere", ""), ("there", "us")):
            await client.put(f"{T}/routes/{id}", json=simple(region=region))
        body = {"tenant": {"orgId": "myorg", "appId": "myapp"}, "payload": 1}
        found = (await asked(client, "POST", "/v1/routes/explain", models.ExplainShown, json=body))["routes"]
        assert {one["id"]: one["verdict"] for one in found} == {"here": "taken", "everywhere": "taken", "there": "elsewhere"}
        assert [one["reason"] for one in found if one["id"] == "there"] == ["it runs in region us only; this instance is in eu"]


async def test_a_whole_number_that_json_cannot_have_is_refused_with_its_place() -> None:
    async with routed() as at, at.client() as client:
        await with_tenant(client)
        for number in ("18446744073709551616", "-9223372036854775809"):
            text = yaml.dump({**ALARMS, "desc": "x"}).replace("alarm", number)
            answer = await client.put(f"{T}/routes/y", content=text, headers={"Content-Type": "application/yaml"})
            assert is_problem(answer, 400, "invalid"), answer.text
            assert "filterChain[0].config.pattern.kind" in answer.text
        text = text.replace(number, "18446744073709551615")
        answer = await client.put(f"{T}/routes/y", content=text, headers={"Content-Type": "application/yaml"})
        assert answer.status_code == 200, answer.text


async def test_explain_says_which_routes_take_an_event_and_which_comparison_failed(
    pair: tuple[RoutedInstance, RoutedInstance],
) -> None:
    one, _ = pair
    tenant = {"orgId": "myorg", "appId": "myapp"}
    async with one.client() as client:
        await with_tenant(client)
        for id in ("alarms", "too"):
            await client.put(f"{T}/routes/{id}", json=ALARMS)
        await client.put(f"{T}/routes/all", json=simple())
        body = {"tenant": tenant, "payload": {"kind": "heartbeat"}}
        found = (await asked(client, "POST", "/v1/routes/explain", models.ExplainShown, json=body))["routes"]
        assert [(one["id"], one["verdict"]) for one in found] == [("alarms", "dropped"), ("all", "taken"), ("too", "dropped")]
        assert found[0]["reason"] == 'payload.kind is "heartbeat", wanted "alarm"'
        events = [{"payload": {"kind": kind}} for kind in ("alarm", "x")]
        stored = {"tenant": tenant, "id": "alarms", "events": events}
        written = {"tenant": tenant, "route": ALARMS, "events": events}
        for asks in (stored, written):
            tried = await asked(client, "POST", "/v1/routes/test", models.TestShown, json=asks)
            assert [event["verdict"] for event in tried["events"]] == ["taken", "dropped"]
        assert one.runner.told == ["start", "start"]


async def test_ids_of_any_legal_characters_work_in_addresses(pair: tuple[RoutedInstance, RoutedInstance]) -> None:
    one, _ = pair
    async with one.client() as client:
        await with_tenant(client)
        for id in ("a.b-c_d", "event", "0", "a" * 255, "a..b", "reload"):
            assert (await client.put(f"{T}/routes/{id}", json=simple())).status_code == 200
            assert (await client.get(f"{T}/routes/{id}")).json()["item"]["id"] == id
            assert (await client.delete(f"{T}/routes/{id}")).json()["item"] == id


def test_examples_fit_their_models() -> None:
    fits: dict[type[BaseModel], Any] = {
        models.RouteChanged: example.CHANGED, models.RouteAnswer: example.ONE, models.RouteRemoved: example.REMOVED,
        models.RoutesAnswer: example.LIST, models.RoutesReloaded: example.RELOADED, models.TenantAnswer: example.TENANT_ONE,
        models.TenantChanged: example.TENANT_CHANGED, models.TenantRemoved: example.TENANT_REMOVED,
        models.TenantsAnswer: example.TENANTS, models.FragmentAnswer: example.FRAGMENT,
        models.FragmentsAnswer: example.FRAGMENTS, models.FragmentRemoved: example.FRAGMENT_REMOVED,
        models.RunningAnswer: example.RUNNING,
        models.RunningsAnswer: example.RUNNINGS, models.DeclaredAnswer: example.DECLARED,
        models.DeclarationAnswer: example.DECLARATION, models.StandingShown: example.STANDING,
        models.RepairShown: example.REPAIR, models.RepairsShown: example.REPAIRS, models.ApplyWanted: example.APPLY,
        models.AppliedShown: example.APPLIED, models.EventAnswer: example.EVENT_DONE, models.ExplainWanted: example.EXPLAIN,
        models.ExplainShown: example.EXPLAINED, models.TestWanted: example.TEST, models.TestShown: example.TESTED,
    }  # fmt: skip
    for model, shown in fits.items():
        model.model_validate(shown)
