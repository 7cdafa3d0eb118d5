"""What the API refuses about routes, and how: a user's mistake is never a 500, and everything wrong is told at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from memory_node import bearing, is_problem, token
from memory_routes import PASSWORD, RoutedInstance, T, routed, simple, with_tenant
from routes_in_memory import UnsteadyStorage
from trunkline.core.clock import ManualClock
from trunkline.core.config import Role

WRONG: dict[str, dict[str, Any]] = {
    "userId": {"receiver": {"plugin": "debug"}, "sender": {"plugin": "debug"}},
    "sender": {"userId": "x", "receiver": {"plugin": "debug"}},
    "receiver": {"userId": "x", "sender": {"plugin": "debug"}},
    "name": simple(name="simple/route"),
    "receiver.plugin": simple(receiver={"plugin": "sqs"}),
    "filterChain[0].config.pattern": simple(
        filterChain=[{"plugin": "match", "config": {"matcher": "patternregex", "pattern": {"a": "("}}}]
    ),
    "filterChain[0].config": simple(filterChain=[{"plugin": "js", "config": {"source": "return ("}}]),
    "sender.config.nowhere": simple(sender={"plugin": "debug", "config": {"nowhere": 1}}),
    "receiver.config": simple(
        receiver={"plugin": "kafka", "config": {"topic": "t", "groupId": "g", "password": "secret://no"}}
    ),
}


@pytest.fixture
async def at() -> AsyncIterator[RoutedInstance]:
    async with routed() as at:
        yield at


@pytest.fixture
async def client(at: RoutedInstance) -> AsyncIterator[httpx.AsyncClient]:
    async with at.client() as client:
        await with_tenant(client)
        yield client


@pytest.mark.parametrize("key", WRONG)
async def test_s34_what_is_wrong_with_a_route_is_a_400_that_names_the_field(client: httpx.AsyncClient, key: str) -> None:
    for answer in (await client.post(f"{T}/routes", json=WRONG[key]), await client.put(f"{T}/routes/r", json=WRONG[key])):
        assert is_problem(answer, 400, "invalid"), answer.text
        (mistake,) = answer.json()["mistakes"]
        assert mistake["key"].startswith(key)
        assert mistake["reason"]
    assert (await client.get(f"{T}/routes")).json()["items"] == []


async def test_s34_all_mistakes_come_at_once_and_each_says_what_would_be_right(client: httpx.AsyncClient) -> None:
    route = {"id": "a/b", "receiver": {"plugin": "sqs"}, "sender": {"plugin": "kinesis"}, "filterChain": [{"plugin": "sample"}]}
    answer = await client.post(f"{T}/routes", json=route)
    assert is_problem(answer, 400, "invalid")
    found = {one["key"]: (one["reason"], one["next"]) for one in answer.json()["mistakes"]}
    assert set(found) == {"id", "userId", "receiver.plugin", "sender.plugin", "filterChain[0].plugin"}
    assert "write 'queue'" in found["receiver.plugin"][0]
    assert "write 'kafka'" in found["sender.plugin"][0]


async def test_s34_the_id_of_the_body_is_that_of_the_address_or_none(client: httpx.AsyncClient) -> None:
    for id in ("", "r", None):
        assert (await client.put(f"{T}/routes/r", json=simple(id=id) if id is not None else simple())).status_code == 200
    answer = await client.put(f"{T}/routes/r", json=simple(id="other"))
    assert is_problem(answer, 400, "invalid")
    assert answer.json()["mistakes"][0]["key"] == "id"


@pytest.mark.parametrize(
    ("method", "path", "slug"),
    [
        ("GET", f"{T}/routes/none", "no-such-route"),
        ("PUT", f"{T}/routes/none/toggleEnable", "no-such-route"),
        ("PUT", f"{T}/routes/none/reload", "no-such-route"),
        ("POST", f"{T}/routes/none/event", "no-such-route"),
        ("GET", f"{T}/fragments/none", "no-such-fragment"),
        ("GET", f"{T}/senders/none", "no-such-plugin"),
        ("GET", "/v1/plugins/filter/none", "no-such-plugin"),
        ("GET", "/v1/plugins/none/none", "no-such-plugin"),
        ("GET", "/v1/routes/changes/none", "no-such-change"),
        *(
            (method, f"/v1/orgs/no/applications/body{end}", "no-such-tenant")
            for method, end in [
                ("GET", ""), ("GET", "/config"), ("DELETE", ""), ("GET", "/routes"), ("POST", "/routes"), ("GET", "/routes/x"),
                ("PUT", "/routes/x"), ("DELETE", "/routes/x"), ("PUT", "/routes/x/reload"), ("PUT", "/routes/x/toggleEnable"),
                ("POST", "/routes/x/event"), ("POST", "/event"), ("GET", "/fragments"), ("POST", "/fragments"),
                ("GET", "/fragments/f"), ("PUT", "/fragments/f"), ("DELETE", "/fragments/f"), ("GET", "/senders"),
                ("GET", "/receivers"), ("GET", "/filters/f"),
            ]
        ),
    ],
)  # fmt: skip
async def test_s34_what_is_unknown_is_a_404_wherever_it_is_asked_for(
    client: httpx.AsyncClient, method: str, path: str, slug: str
) -> None:
    for prefix in ("", "/ears") if "/orgs/" in path else ("",):
        body = {"json": simple()} if method in ("POST", "PUT") else {}
        assert is_problem(await client.request(method, prefix + path, **body), 404, slug)


async def test_s34_conflicts_are_409(client: httpx.AsyncClient) -> None:
    assert is_problem(await client.post(T, json={}), 409, "exists")
    made = (await client.put(f"{T}/routes/r", json=simple())).json()["item"]["revision"]
    assert is_problem(await client.delete(T), 409, "conflict")
    assert is_problem(await client.delete(f"{T}/config"), 409, "conflict")
    assert is_problem(await client.put(f"{T}/routes/r?revision=0", json=simple()), 409, "conflict")
    assert is_problem(await client.delete(f"{T}/routes/r?revision={made + 1}"), 409, "conflict")
    assert (await client.delete(f"{T}/routes/r?revision={made}")).status_code == 200
    assert (await client.delete(T)).status_code == 200


async def test_s34_a_body_that_is_too_large_is_a_413_also_in_pieces(at: RoutedInstance) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 100

    async with at.client(max_body_bytes=2048) as client:
        await with_tenant(client)
        assert (await client.put(f"{T}/routes/r", json=simple())).status_code == 200
        for method, path in (("POST", f"{T}/routes"), ("PUT", f"{T}/routes/r"), ("POST", f"{T}/routes/r/event"), ("PUT", T)):
            assert is_problem(await client.request(method, path, content=b" " * 4000), 413, "too-large")
            assert is_problem(await client.request(method, path, content=pieces()), 413, "too-large")


async def test_s34_a_bad_token_is_a_401_and_one_that_does_not_reach_a_403(at: RoutedInstance) -> None:
    tokens = (token("ops", Role.ADMIN), token("reader", Role.READ), token("mine", Role.WRITE, "myorg/myapp"))
    async with at.client(tokens=tokens) as client:
        await client.put(T, json={}, headers=bearing("ops"))
        for headers in ({}, bearing("stranger")):
            assert is_problem(await client.get(f"{T}/routes", headers=headers), 401, "unauthenticated")
        assert is_problem(await client.post(f"{T}/routes", json=simple(), headers=bearing("reader")), 403, "forbidden")
        assert is_problem(await client.put(T, json={}, headers=bearing("mine")), 403, "forbidden")
        assert (await client.post(f"{T}/routes", json=simple(), headers=bearing("mine"))).status_code == 200


async def test_what_is_no_route_at_all_is_a_400(client: httpx.AsyncClient) -> None:
    for content in (b"", b"nonsense", b"[]", b"null", b'"r"', b"[" * 5000, b'{"a":' * 200 + b"1" + b"}" * 200, b"\xff"):
        for path in (f"{T}/routes", f"{T}/fragments", "/v1/routes/apply", "/v1/routes/explain", "/v1/routes/test"):
            answer = await client.post(path, content=content)
            assert is_problem(answer, 400, "invalid"), (path, content[:20], answer.text)
        assert is_problem(await client.put(T, content=content), 400, "invalid")


@pytest.mark.parametrize(
    "text", ["a: [", "a: 1\na: 2", "x: 2020-01-01", "? [1]\n: 2", "1: 2", "&a [*a]", "\ud800", "a: !!binary aGk=", ".nan"]
)
async def test_yaml_that_is_no_json_is_a_400(client: httpx.AsyncClient, text: str) -> None:
    headers = {"Content-Type": "application/yaml"}
    answer = await client.post(f"{T}/routes", content=text.encode("utf-8", "surrogatepass"), headers=headers)
    assert is_problem(answer, 400, "invalid"), answer.text


async def test_aliases_that_make_a_short_text_endless_are_refused(client: httpx.AsyncClient) -> None:
    lines = ["a: &x0 [1,1,1,1,1,1,1,1,1,1]", *(f"b{n}: &x{n} [{','.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 12))]
    answer = await client.post(f"{T}/routes", content="\n".join(lines), headers={"Content-Type": "text/yaml"})
    assert is_problem(answer, 400, "invalid")


async def test_mistakes_of_a_bulk_change_say_where_they_are_and_nothing_is_changed(client: httpx.AsyncClient) -> None:
    tenant = {"orgId": "myorg", "appId": "myapp"}
    changes = [
        {"put": simple(id="a", tenant=tenant)},
        {"put": simple(id="b", tenant=tenant, receiver={"plugin": "sqs"})},
        {"put": simple(id="c", tenant={"orgId": "no", "appId": "body"})},
    ]
    answer = await client.post("/v1/routes/apply", json={"changes": changes})
    assert is_problem(answer, 400, "invalid")
    assert [one["key"] for one in answer.json()["mistakes"]] == ["changes[1].put.receiver.plugin", "changes[2].tenant"]
    assert (await client.get("/v1/routes")).json()["items"] == []
    twice = [{"put": simple(id="a", tenant=tenant)}, {"remove": {"id": "a", "tenant": tenant}}]
    assert is_problem(await client.post("/v1/routes/apply", json={"changes": twice}), 400, "invalid")


async def test_s08_an_update_that_is_wrong_leaves_the_old_version_running_and_stored(
    at: RoutedInstance, client: httpx.AsyncClient
) -> None:
    before = (await client.put(f"{T}/routes/x", json=simple())).json()["item"]
    answer = await client.put(f"{T}/routes/x", json=simple(receiver={"plugin": "doesnotexist"}))
    assert is_problem(answer, 400, "invalid")
    assert (await client.get(f"{T}/routes/x")).json()["item"] == before
    assert (at.runner.told, list(at.runner.running)) == (["start"], [before["hash"]])


async def test_s10_a_storage_that_fails_is_a_503_and_the_old_version_runs_on() -> None:
    storage = UnsteadyStorage(ManualClock())
    async with routed(storage) as at, at.client() as client:
        await with_tenant(client)
        before = (await client.put(f"{T}/routes/x", json=simple())).json()["item"]
        storage.away = True
        assert is_problem(await client.put(f"{T}/routes/x", json=simple(name="other")), 503, "unavailable")
        storage.away = False
        assert (await client.get(f"{T}/routes/x")).json()["item"] == before
        assert list(at.runner.running) == [before["hash"]]


async def test_s11_an_inactive_route_or_one_of_another_region_is_stored_and_not_live() -> None:
    async with routed(region="us-west-2") as at, at.client() as client:
        await with_tenant(client)
        for id, more in {"off": {"inactive": True}, "east": {"region": "us-east-1"}}.items():
            put = (await client.put(f"{T}/routes/{id}", json=simple(**more))).json()
            assert (put["here"]["state"], bool(put["here"]["reason"])) == ("rests", True)
        assert [item["id"] for item in (await client.get(f"{T}/routes")).json()["items"]] == ["east", "off"]
        assert at.runner.running == {}
        assert (await client.post("/v1/routes/repair")).json()["repaired"] == []
        assert is_problem(await client.post(f"{T}/routes/off/event", json={}), 409, "not-live")
        on = (await client.put(f"{T}/routes/off/toggleEnable")).json()
        assert (on["here"]["state"], on["item"]["status"]) == ("live", "running")
        assert (await client.put(f"{T}/routes/off/toggleEnable")).json()["here"]["state"] == "rests"
        assert at.runner.told == ["start", "stop"]


async def test_s15_a_route_is_stored_with_its_fragments_filled_in(client: httpx.AsyncClient) -> None:
    fragment = {"name": "debugSender", "plugin": "debug", "config": {"destination": "stdout"}}
    made = await client.post(f"{T}/fragments", json=fragment)
    assert made.status_code == 200, made.text
    assert made.json()["item"]["config"] == {"destination": "stdout"}
    for given, name in (({}, "debugSender"), ({"name": "mine"}, "mine")):
        put = await client.put(f"{T}/routes/f", json=simple(sender={"fragmentName": "debugSender", **given}))
        assert put.status_code == 200, put.text
        assert put.json()["item"]["sender"] == {"plugin": "debug", "name": name, "config": {"destination": "stdout"}}
    unknown = await client.put(f"{T}/routes/g", json=simple(sender={"fragmentName": "nobody"}))
    assert is_problem(unknown, 400, "invalid")
    assert "nobody" in unknown.json()["detail"]
    misfit = await client.put(f"{T}/routes/g", json=simple(filterChain=[{"fragmentName": "debugSender"}]))
    assert is_problem(misfit, 400, "invalid")
    assert (await client.put(f"{T}/fragments/debugSender", json=fragment | {"config": {}})).status_code == 200
    assert (await client.get(f"{T}/routes/f")).json()["item"]["sender"]["config"] == {"destination": "stdout"}
    assert [item["name"] for item in (await client.get("/v1/fragments")).json()["items"]] == ["debugSender"]
    assert (await client.delete(f"{T}/fragments/debugSender")).json()["item"] == "debugSender"
    assert is_problem(await client.get(f"{T}/fragments/debugSender"), 404, "no-such-fragment")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"plugin": "debug"},
        {"name": "a/b", "plugin": "debug"},
        {"name": "f", "plugin": "nobody"},
        {"name": "f", "plugin": "debug", "config": {"no": 1}},
        {"name": "f", "plugin": 5},
    ],
)
async def test_a_fragment_is_checked_as_if_it_stood_in_a_route(client: httpx.AsyncClient, body: Any) -> None:
    answer = await client.post(f"{T}/fragments", json=body)
    assert is_problem(answer, 400, "invalid"), answer.text
    assert answer.json()["mistakes"]


@pytest.mark.parametrize(
    "body",
    [{"quota": {"eventsPerSec": -1}}, {"quota": 5}, {"clientIds": "x"}, {"openEventApi": "perhaps"}, {"quota": {"x": 1}}],
)
async def test_what_is_wrong_with_a_tenant_is_a_400(client: httpx.AsyncClient, body: Any) -> None:
    for answer in (await client.put(T, json=body), await client.post("/v1/orgs/new/applications/one", json=body)):
        assert is_problem(answer, 400, "invalid"), answer.text
    assert is_problem(await client.get("/v1/orgs/new/applications/one"), 404, "no-such-tenant")


async def test_a_tenant_cannot_have_any_name(client: httpx.AsyncClient) -> None:
    for org in ("a.b", "-a", "a%20b", "a%00"):
        assert is_problem(await client.put(f"/v1/orgs/{org}/applications/x", json={}), 400, "invalid")


async def test_a_node_without_a_routing_table_says_so() -> None:
    async with routed() as at:
        at.node.routes.end()
        async with at.client() as client:
            assert is_problem(await client.get(f"{T}/routes"), 503, "unavailable")


async def test_waiting_for_who_does_not_answer_ends_in_time(at: RoutedInstance) -> None:
    async with routed(others=lambda: ["ghost"]) as alone, alone.client() as client:
        await with_tenant(client)
        put = (await client.put(f"{T}/routes/x?wait=0.05", json=simple())).json()
        assert (put["change"]["complete"], put["change"]["missing"]) == (False, ["ghost"])
        answer = await asyncio.wait_for(client.get(f"/v1/routes/changes/{put['change']['session']}?wait=0.05"), 30)
        assert answer.json() == put["change"]


SECRET_ROUTE = simple(
    receiver={"plugin": "kafka", "config": {"brokers": "k:1", "topic": "t", "groupId": "g", "password": PASSWORD}},
    sender={"plugin": "http", "config": {"url": "http://h/x", "auth": {"type": "bearer", "token": PASSWORD}}},
    filterChain=[
        {"plugin": "hash", "config": {"fromPath": ".a", "toPath": ".b", "hashAlgorithm": "hmac-sha256", "key": PASSWORD}}
    ],
)


async def test_s34_secrets_are_never_echoed_and_what_was_shown_can_be_sent_back(
    client: httpx.AsyncClient, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    async def ask(method: str, path: str, json: Any = None) -> Any:
        answer = await client.request(method, path, json=json)
        said.append(answer.text)
        return answer.json()

    first = (await ask("PUT", f"{T}/routes/s", SECRET_ROUTE))["item"]
    back = (await ask("PUT", f"{T}/routes/s", first))["item"]
    assert (back["hash"], back["revision"]) == (first["hash"], first["revision"])
    await ask("PUT", f"{T}/routes/s", {**first, "name": "other"})
    await ask("PUT", f"{T}/routes/s", {**SECRET_ROUTE, "name": "a/b"})
    await ask("PUT", f"{T}/routes/s", {**SECRET_ROUTE, "sender": {"plugin": "http", "config": {"token": PASSWORD}}})
    await ask("POST", f"{T}/fragments", {"name": "f", "plugin": "kafka", "config": SECRET_ROUTE["receiver"]["config"]})
    shown = await ask("GET", f"{T}/fragments/f")
    assert (await ask("PUT", f"{T}/fragments/f", shown["item"]))["item"]["config"] == shown["item"]["config"]
    tenant = {"orgId": "myorg", "appId": "myapp"}
    await ask("POST", "/v1/routes/explain", {"tenant": tenant, "payload": {"a": 1}})
    await ask("POST", "/v1/routes/test", {"tenant": tenant, "id": "s", "events": [{"payload": {"a": 1}}, {"payload": 1}]})
    await ask("PUT", f"{T}/routes/r", simple(receiver={**SECRET_ROUTE["receiver"], "fragmentName": "f"}))
    lists = ("routes", "fragments", "receivers", "senders", "filters")
    more = (f"{T}/routes/s", "/v1/routes/status", "/v1/plugins", "/openapi.json", "/docs")
    for path in (*(f"{T}/{name}" for name in lists), *(f"/v1/{name}" for name in lists), *more):
        said.append((await client.get(path)).text)
    assert len(said) > 20
    assert [text for text in said if PASSWORD in text] == []
    logged = capfd.readouterr()
    assert PASSWORD not in logged.out + logged.err


async def test_stars_that_mean_nothing_are_refused(client: httpx.AsyncClient) -> None:
    route = simple(sender={"plugin": "http", "config": {"url": "http://h", "auth": {"type": "bearer", "token": "***"}}})
    answer = await client.put(f"{T}/routes/s", json=route)
    assert is_problem(answer, 400, "invalid")
    assert "stars" in answer.json()["detail"]
