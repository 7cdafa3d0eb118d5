"""Events over the API through routes that the local runner runs, over Postgres: outcomes, quota, hooks, dead letters."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from memory_node import is_problem
from memory_routes import PASSWORD, T, routed, simple, with_tenant
from running_routes import here, pool_of, until
from trunkline.api import routesmodels as models
from trunkline.core.clock import SystemClock
from trunkline.routes.keys import RouteKey
from trunkline.routes.local.deadletters import DeadLetters
from trunkline.routes.local.outbox import Outbox
from trunkline.routes.local.runner import LocalRunner
from trunkline.routes.quota_buckets import MemoryBuckets
from trunkline.routes.quotas import Quotas
from trunkline.routes.registry import registry
from trunkline.routes.storage.base import RouteConfig
from trunkline.routes.storage.postgres import PostgresStorage
from trunkline.routes.sync.postgres import PostgresSyncer

SPLIT = {"plugin": "split"}
NOP: dict[str, Any] = {"receiver": {"plugin": "nop"}}


@pytest.fixture
async def client(make_database: Callable[..., str]) -> AsyncIterator[httpx.AsyncClient]:
    dsn, clock = make_database("queues", "routes"), SystemClock()
    quotas = Quotas(MemoryBuckets(clock), clock, random.random)
    async with pool_of(dsn) as pool:
        runner = LocalRunner(here(dsn, pool), registry(), {}, quotas, Outbox(pool))
        await runner.open()
        storage = PostgresStorage(dsn)

        async def stored(key: RouteKey) -> RouteConfig | None:
            return (await storage.read([key])).get(key)

        async with routed(
            storage, PostgresSyncer(dsn, "i1"), runner, injects=runner, hooks=runner.hooks, quotas=quotas, event_seconds=1.0,
            dead_letters=DeadLetters(pool),
        ) as at, at.client() as client:  # fmt: skip
            runner.receive(stored, 0.2)
            await with_tenant(client)
            yield client
            await runner.rest()
        await runner.close()


async def test_s34_events_go_through_one_route_and_every_failure_has_its_status(client: httpx.AsyncClient) -> None:
    await client.put(f"{T}/routes/ok", json=simple(**NOP, filterChain=[SPLIT]))
    await client.put(f"{T}/routes/fails", json=simple(**NOP, filterChain=[{**SPLIT, "onError": "fail"}]))
    done = await client.post(f"{T}/routes/ok/event", json=[1, 2])
    assert done.status_code == 200, done.text
    models.EventAnswer.model_validate(done.json())
    assert done.json()["item"]["routes"] == [{"id": "ok", "outcome": "sent", "sent": 2, "kept": 0, "letters": []}]
    nacked = await client.post(f"{T}/routes/fails/event", json={"no": "array"})
    assert is_problem(nacked, 502, "not-delivered"), nacked.text
    await with_tenant(client, quota={"eventsPerSec": 0})
    assert is_problem(await client.post(f"{T}/routes/ok/event", json=[1]), 429, "quota-exhausted")


async def test_what_is_posted_goes_to_the_http_receivers_that_hear_it(client: httpx.AsyncClient) -> None:
    await client.put(f"{T}/routes/hears", json=simple(receiver={"plugin": "http", "config": {"path": "/a/b"}}))
    assert is_problem(await client.post(f"{T}/event/a", json=1), 404, "no-receiver")
    answer = await client.post(f"{T}/event/a/b", json=1)
    assert answer.status_code == 200, answer.text
    assert [one["id"] for one in answer.json()["item"]["routes"]] == ["hears"]


async def test_dead_letters_are_listed_shown_tried_again_and_dropped(client: httpx.AsyncClient) -> None:
    await client.put(f"{T}/routes/r", json=simple(**NOP, filterChain=[SPLIT]))
    for n in range(3):
        dead = (await client.post(f"{T}/routes/r/event", json={"n": n})).json()["item"]
        assert dead["routes"][0]["outcome"] == "dead_letter"
    listed = (await client.get("/v1/deadletters", params={"org": "myorg", "app": "myapp", "route": "r", "limit": 2})).json()
    models.LettersShown.model_validate(listed)
    first, second = (row["id"] for row in listed["letters"])
    assert (listed["next"], listed["letters"][0]["step"]) == (second, "filterChain[0] split")
    shown = (await client.get(f"/v1/deadletters/{first}")).json()
    models.LetterShown.model_validate(shown)
    assert shown["content"]["payload"] == {"n": 0}
    assert (await client.post(f"/v1/deadletters/{first}")).json() == {"id": first, "tried_again": True}
    assert (await client.delete(f"/v1/deadletters/{second}")).json() == {"id": second, "dropped": True}
    for method in ("GET", "POST", "DELETE"):
        assert is_problem(await client.request(method, f"/v1/deadletters/{second}"), 404, "no-such-dead-letter")


SECRETIVE: dict[str, Any] = {
    "filterChain": [
        {
            "plugin": "transform",
            "config": {"transformation": {"token": f"{PASSWORD}-2", "n": "{payload.n}", "of": "{payload.of}"}},
        }
    ],
    "sender": {
        "plugin": "http",
        "config": {
            "url": f"http://me:{PASSWORD}@127.0.0.1:1",
            "urlPath": f"/{{payload.n}}?api_key={PASSWORD}-3",
            "method": "POST",
            "headers": {"x-api-key": PASSWORD, "authorization": f"Bearer {PASSWORD}-4 {{payload.n}}"},
            "attempts": 1,
        },
    },
}


async def test_s34_no_way_out_echoes_what_a_route_hides(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    said = [await client.put(f"{T}/routes/r", json=simple(**NOP, **SECRETIVE))]
    event = {"payload": {"n": 1, "of": "z"}, "metadata": {}}
    tenant = {"orgId": "myorg", "appId": "myapp"}
    said += [await client.get(f"{T}/{path}") for path in ("routes", "routes/r", "receivers", "senders", "filters")]
    said += [await client.post("/v1/routes/explain", json={"tenant": tenant, **event})]
    shown = said[2].json()["item"]
    for route in ({}, {"route": shown}, {"route": simple(**NOP, **SECRETIVE)}):
        said += [await client.post("/v1/routes/test", json={"tenant": tenant, "id": "r", "events": [event], **route})]
    said += [await client.post(f"{T}/routes/r/event", json={"n": 1, "of": "z"})]
    elsewhere = simple(**NOP, filterChain=SECRETIVE["filterChain"])
    said += [await client.put(f"{T}/routes/r", json=elsewhere)]  # what waits for the sender before becomes a dead letter
    letters = [*(await eventually_letters(client)), 0]
    said += [
        await client.get("/v1/routes/status"),
        await client.get("/v1/deadletters"),
        await client.get(f"/v1/deadletters/{letters[0]}"),
    ]
    assert [answer.status_code for answer in said] == [200] * len(said), [answer.text for answer in said]
    assert [answer.url for answer in said if PASSWORD in answer.text] == []
    explained = said[6].json()["routes"][0]["messages"][0]
    assert explained["headers"]["x-api-key"] == "***"
    assert explained["url"] == "http://me:***@127.0.0.1:1/1?api_key=***"
    assert '"n":1' in explained["body"]
    assert PASSWORD not in "".join(capfd.readouterr()) + caplog.text


async def eventually_letters(client: httpx.AsyncClient) -> list[int]:
    found: list[int] = []

    async def there() -> bool:
        found[:] = [row["id"] for row in (await client.get("/v1/deadletters")).json()["letters"]]
        return bool(found)

    await until(there)
    return found


async def test_stars_show_nothing_of_another_plugin(client: httpx.AsyncClient) -> None:
    await client.put(f"{T}/routes/r", json=simple(**NOP, **SECRETIVE))
    sender = {"plugin": "queue", "config": {"client": "c", "destinations": ["hub"], "headers": {"x-api-key": "***"}}}
    asked = {"tenant": {"orgId": "myorg", "appId": "myapp"}, "id": "r", "events": [{"payload": 1}]}
    tried = await client.post("/v1/routes/test", json={**asked, "route": simple(**NOP, sender=sender)})
    assert PASSWORD not in tried.text
    assert tried.json()["events"][0]["messages"][0]["headers"] == {"x-api-key": "***"}
    put = await client.put(f"{T}/routes/r", json=simple(**NOP, sender=sender))
    assert is_problem(put, 400, "invalid"), put.text
