"""The replicated store over the API: reading, writing, erasing, areas, peers, and every refusal with its reason."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from memory_node import MemoryNode, bearing, client_over, is_problem, token
from memory_store import MemoryStore
from trunkline.api import storequery
from trunkline.api.storereasons import WORDS
from trunkline.core.clock import ManualClock
from trunkline.core.config import Role
from trunkline.store.values import MAX_KEY, MAX_VALUE, Reason

FLEET = "/v1/store/fleet"


def at(key: str, area: str = "fleet") -> str:
    return f"/v1/store/{area}/keys/{quote(key, safe='').replace('.', '%2E')}"


async def put(client: httpx.AsyncClient, key: str, area: str = "fleet", **body: Any) -> httpx.Response:
    return await client.put(at(key, area), json={"text": "on"} | body)


# -- one key


async def test_a_key_is_written_read_and_erased(client: httpx.AsyncClient) -> None:
    written = await put(client, "app/lamp", ttl_ms=30_000)
    assert written.status_code == 200
    stored = written.json()["stored"]
    assert (stored["version"], stored["originator"], stored["bytes"]) == (1, "paris/node-1", 2)
    found = (await client.get(at("app/lamp"))).json()
    assert found["key"] == "app/lamp"
    assert found["text"] == "on"
    assert 29_000 < found.pop("ttl_ms") <= 30_000
    assert {name: found[name] for name in stored if name != "ttl_ms"} == {n: v for n, v in stored.items() if n != "ttl_ms"}
    assert (await client.delete(at("app/lamp"))).json() == {"key": "app/lamp", "erased": True}
    assert is_problem(await client.get(at("app/lamp")), 404, "no-such-key")
    assert is_problem(await client.delete(at("app/lamp")), 404, "no-such-key")


@pytest.mark.parametrize(
    "key", ["a/b", "/a", "a/", "50%", "%2F", "ключ/キー", "a b+c", "a?b#c", "..", "a\nb", "a\n", "é" * 256]
)
async def test_any_key_of_256_characters_is_found_again(client: httpx.AsyncClient, node: MemoryNode, key: str) -> None:
    assert (await put(client, key)).status_code == 200
    assert list(node.store.area("fleet").table.entries) == [key]
    assert (await client.get(at(key))).json()["key"] == key
    assert (await client.get(FLEET)).json()["values"].keys() == {key}
    assert (await client.delete(at(key))).status_code == 200


@pytest.mark.parametrize("key", ["", "k" * (MAX_KEY + 1)])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_what_is_no_key_is_refused(client: httpx.AsyncClient, method: str, key: str) -> None:
    body = {"json": {"text": "on"}} if method == "PUT" else {}
    assert is_problem(await client.request(method, at(key), **body), 400, "invalid")


async def test_bytes_that_are_no_text_come_and_go_as_base64(client: httpx.AsyncClient) -> None:
    data = base64.b64encode(b"\xff\x00").decode()
    assert (await client.put(at("app/raw"), json={"base64": data})).status_code == 200
    found = (await client.get(at("app/raw"))).json()
    assert (found["base64"], found["bytes"], found["ttl_ms"]) == (data, 2, None)
    assert "text" not in found
    assert (await client.put(at("app/empty"), json={"text": ""})).status_code == 200
    assert (await client.get(at("app/empty"))).json()["text"] == ""


async def test_the_largest_value_fits_and_one_byte_more_does_not(client: httpx.AsyncClient) -> None:
    assert (await put(client, "app/x", text="x" * MAX_VALUE)).status_code == 200
    answer = await put(client, "app/x", text="x" * (MAX_VALUE + 1))
    assert is_problem(answer, 413, "too-large")
    assert str(MAX_VALUE) in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"1", b"{", b"{}", b'{"text":"a","base64":"YQ=="}', b'{"base64":"?"}', b'{"base64":"YQ"}', b'{"text":1}',
        b'{"text":"a","ttl_ms":0}', b'{"text":"a","ttl_ms":-1}', b'{"text":"a","ttl_ms":"1"}', b'{"text":"a","ttl_ms":1e99}',
        b'{"text":"a","version":0}', b'{"text":"a","version":18446744073709551616}', b'{"text":"a","keep":"maybe"}',
        b'{"text":"a","tll_ms":1}', b'{"text":"\\ud800"}',
    ],
)  # fmt: skip
async def test_a_wrong_body_is_refused_and_writes_nothing(client: httpx.AsyncClient, node: MemoryNode, body: bytes) -> None:
    assert is_problem(await client.put(at("app/x"), content=body), 400, "invalid")
    assert len(node.store.area("fleet").table) == 0


@pytest.mark.parametrize(
    ("key", "body", "reason"),
    [
        ("app/x", {"version": 4}, "old_version"),
        ("app/x", {"version": 5, "text": "a"}, "no_need_to_update"),
        ("node:lyon/node-1", {}, "not_the_owner"),
        ("link:paris", {}, "not_the_owner"),
        ("site:paris", {}, "not_the_owner"),
    ],
)
async def test_a_refused_value_is_a_conflict_that_says_why_and_what_to_do(
    client: httpx.AsyncClient, key: str, body: dict[str, Any], reason: str
) -> None:
    await put(client, "app/x", text="b", version=5)
    answer = await put(client, key, **body)
    assert is_problem(answer, 409, "not-taken")
    why, next_step = WORDS[reason]
    assert answer.json()["detail"] == f"key {key!r}: {reason}: {why}"
    assert answer.json()["next"] == next_step
    assert (await client.get(at("app/x"))).json()["text"] == "b"


def test_every_reason_has_its_words() -> None:
    assert set(WORDS) == set(Reason)


async def test_without_a_version_it_is_one_above_what_is_stored(client: httpx.AsyncClient, node: MemoryNode) -> None:
    node.store.write("app/x", b"old", version=41)
    assert (await put(client, "app/x")).json()["stored"]["version"] == 42


# -- kept keys


async def test_a_key_that_is_kept_is_written_by_the_next_tick_refreshed_and_let_go() -> None:
    clock = ManualClock()
    node = MemoryNode(MemoryStore(clock=clock))
    async with client_over(node) as client:
        assert (await put(client, "app/x", keep="persist", ttl_ms=20_000)).json() == {"key": "app/x", "stored": None}
        node.store.tick()
        own = (await client.get(f"{FLEET}/own")).json()
        assert own == {"area": "fleet", "keys": {"app/x": {"keep": "persist", "version": 1, "ttl_ms": 20_000, "bytes": 2}}}
        clock.advance(10)
        node.store.tick()
        assert (await client.get(at("app/x"))).json()["ttl_version"] == 1
        answer = await client.post(f"{FLEET}/clear", json={"keys": ["app/x", "app/y"]})
        assert answer.json() == {"taken": ["app/x"], "refused": {"app/y": "no_need_to_update"}}
        assert (await client.get(f"{FLEET}/own")).json()["keys"] == {}
        clock.advance(21)
        node.store.tick()
        assert (await client.get(at("app/x"))).status_code == 404


# -- many keys


async def test_s35_each_of_many_is_taken_or_has_its_reason(client: httpx.AsyncClient, node: MemoryNode) -> None:
    node.store.write("old", b"x", version=7)
    node.store.write("same", b"x", version=7, originator="paris/node-1")
    values = {
        "new": {"text": "1", "ttl_ms": 60_000}, "old": {"text": "1", "version": 6}, "same": {"text": "x", "version": 7},
        "node:a/b": {"text": "1"}, "k" * (MAX_KEY + 1): {"text": "1"},
    }  # fmt: skip
    answer = await client.post(f"{FLEET}/keys", json={"values": values})
    assert answer.json() == {
        "taken": ["new"],
        "refused": {
            "old": "old_version", "same": "no_need_to_update", "node:a/b": "not_the_owner", "k" * (MAX_KEY + 1): "too_large",
        },
    }  # fmt: skip
    assert (await client.get(FLEET)).json()["values"].keys() == {"new", "old", "same"}


async def test_one_wrong_value_of_many_is_named_and_nothing_is_written(client: httpx.AsyncClient, node: MemoryNode) -> None:
    answer = await client.post(f"{FLEET}/keys", json={"values": {"a": {"text": "1"}, "b": {"text": "1", "ttl_ms": -5}}})
    assert is_problem(answer, 400, "invalid")
    assert "values.b.ttl_ms" in answer.json()["detail"]
    assert len(node.store.area("fleet").table) == 0


async def test_a_refresh_moves_the_ttl_and_nothing_else(client: httpx.AsyncClient) -> None:
    before = (await put(client, "app/x", ttl_ms=5_000)).json()["stored"]
    answer = await client.post(f"{FLEET}/refresh", json={"app/x": 60_000, "app/none": 60_000})
    assert answer.json() == {"taken": ["app/x"], "refused": {"app/none": "inconsistent"}}
    after = (await client.get(at("app/x"))).json()
    assert after["ttl_ms"] > 50_000
    assert (after["version"], after["hash"], after["ttl_version"]) == (before["version"], before["hash"], 1)
    await client.post(f"{FLEET}/refresh", json={"app/x": None})
    assert (await client.get(at("app/x"))).json()["ttl_ms"] is None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("refresh", {}),
        ("refresh", {"a": 0}),
        ("refresh", []),
        ("clear", {"keys": []}),
        ("clear", ["a"]),
        ("keys", {"values": {}}),
    ],
)
async def test_wrong_bodies_of_many_are_refused(client: httpx.AsyncClient, path: str, body: Any) -> None:
    assert is_problem(await client.post(f"{FLEET}/{path}", json=body), 400, "invalid")


# -- dumps


@pytest.fixture
async def filled(client: httpx.AsyncClient, node: MemoryNode) -> httpx.AsyncClient:
    for number, key in enumerate(["10.0.0.96", "10.0.0.128", "192.10.0.0", "192.168.0.0"]):
        node.store.write(key, f"v{number}".encode(), originator=f"lyon/node-{number % 2 + 1}")
    return client


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("", ["10.0.0.128", "10.0.0.96", "192.10.0.0", "192.168.0.0"]),
        ("?prefix=10.", ["10.0.0.128", "10.0.0.96"]),
        ("?prefix=10.0.0.9&prefix=192.1", ["10.0.0.96", "192.10.0.0", "192.168.0.0"]),
        ("?key=10%5C.0%5C.0%5C.", ["10.0.0.128", "10.0.0.96"]),
        ("?key=.*168&key=.*96", ["10.0.0.96", "192.168.0.0"]),
        ("?originator=lyon/node-2", ["10.0.0.128", "192.168.0.0"]),
        ("?key=10&originator=lyon/node-2", ["10.0.0.128", "10.0.0.96", "192.168.0.0"]),
        ("?key=10&originator=lyon/node-2&match=all", ["10.0.0.128"]),
        ("?prefix=nothing", []),
    ],
)
async def test_s32_a_dump_is_filtered_by_prefix_pattern_and_originator(
    filled: httpx.AsyncClient, query: str, keys: list[str]
) -> None:
    assert list((await filled.get(FLEET + query)).json()["values"]) == keys
    assert list((await filled.get(f"{FLEET}/hashes{query}")).json()["hashes"]) == keys


@pytest.mark.parametrize(
    "query",
    ["key=(", "key=" + "a" * 300, "match=some", "values=perhaps", "limit=0", "limit=10001", "key=(a%2B)%2B", "key=.*.*.*.*"],
)
async def test_s32_a_wrong_query_is_refused(filled: httpx.AsyncClient, query: str) -> None:
    assert is_problem(await filled.get(f"{FLEET}?{query}"), 400, "invalid")


async def test_a_pattern_that_could_hold_the_node_up_is_refused(filled: httpx.AsyncClient) -> None:
    answer = await filled.get(FLEET, params={"key": "(a+)+b"})
    assert answer.status_code == 400
    assert "it might take very long to match" in answer.text


async def test_a_dump_without_values_has_no_bytes(filled: httpx.AsyncClient) -> None:
    with_values = (await filled.get(FLEET)).json()["values"]["10.0.0.96"]
    without = (await filled.get(f"{FLEET}?values=false")).json()["values"]["10.0.0.96"]
    assert with_values.pop("text") == "v0"
    assert with_values == without


@pytest.mark.parametrize("values", ["true", "false"])
async def test_pages_follow_each_other_without_a_gap(filled: httpx.AsyncClient, values: str) -> None:
    seen, after = [], ""
    while after is not None:
        page = (await filled.get(FLEET, params={"limit": 3, "after": after, "values": values})).json()
        assert 0 < len(page["values"]) <= 3
        seen += list(page["values"])
        after = page["next"]
    assert seen == ["10.0.0.128", "10.0.0.96", "192.10.0.0", "192.168.0.0"]


async def test_a_page_ends_when_its_values_are_large(filled: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storequery, "PAGE_BYTES", 3)
    assert len((await filled.get(FLEET)).json()["values"]) == 2
    assert len((await filled.get(f"{FLEET}?values=false")).json()["values"]) == 4


async def test_hashes_are_those_of_the_values(filled: httpx.AsyncClient) -> None:
    values = (await filled.get(FLEET)).json()["values"]
    hashes = (await filled.get(f"{FLEET}/hashes")).json()["hashes"]
    assert hashes == {
        key: {name: value[name] for name in ("version", "originator", "hash", "ttl_version")} for key, value in values.items()
    }


async def test_s38_the_signature_changes_with_a_value_and_not_with_a_ttl(filled: httpx.AsyncClient) -> None:
    async def signature(query: str = "") -> str:
        return str((await filled.get(f"{FLEET}/signature{query}")).json()["signature"])

    before, others = await signature(), await signature("?prefix=10.")
    await filled.post(f"{FLEET}/refresh", json={"192.10.0.0": 60_000})
    assert await signature() == before
    await put(filled, "192.10.0.0")
    assert await signature() != before
    assert await signature("?prefix=10.") == others


# -- areas


async def test_s31_a_key_stays_in_its_area(client: httpx.AsyncClient) -> None:
    await put(client, "app/x", "site:paris")
    assert (await client.get(at("app/x", "site:paris"))).status_code == 200
    assert (await client.get(at("app/x"))).status_code == 404
    areas = (await client.get("/v1/store")).json()["areas"]
    assert {name: area["keys"] for name, area in areas.items()} == {"fleet": 0, "site:paris": 1, "plant-1": 0}
    assert (await client.get("/v1/store/site:paris/summary")).json()["counters"]["updated_key_vals"] == 1


async def test_s31_several_areas_or_all_are_dumped_at_once(client: httpx.AsyncClient) -> None:
    await put(client, "app/x", "site:paris")
    await put(client, "app/y")
    everything = (await client.get("/v1/store/*")).json()["areas"]
    assert {name: list(area["values"]) for name, area in everything.items()} == {
        "fleet": ["app/y"], "site:paris": ["app/x"], "plant-1": [],
    }  # fmt: skip
    some = (await client.get("/v1/store/*?area=fleet&area=plant-1&prefix=app/z")).json()["areas"]
    assert {name: list(area["values"]) for name, area in some.items()} == {"fleet": [], "plant-1": []}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None), ("GET", "/keys/a", None), ("PUT", "/keys/a", {"text": "x"}), ("DELETE", "/keys/a", None),
        ("POST", "/keys", {"values": {"a": {"text": "x"}}}), ("POST", "/refresh", {"a": 1}),
        ("POST", "/clear", {"keys": ["a"]}),
        ("GET", "/hashes", None), ("GET", "/own", None), ("GET", "/summary", None), ("GET", "/signature", None),
        ("GET", "/watch", None), ("GET", "/peers", None), ("PUT", "/peers/a/b", {"addresses": ["h:1"]}),
        ("DELETE", "/peers/a/b", None),
    ],
)  # fmt: skip
async def test_s31_an_area_the_node_is_not_in_is_said_with_those_it_is_in(
    client: httpx.AsyncClient, method: str, path: str, body: Any
) -> None:
    answer = await client.request(method, f"/v1/store/site:lyon{path}", json=body)
    assert is_problem(answer, 404, "no-such-area")
    assert answer.json()["detail"].startswith("area 'site:lyon': ")
    assert answer.json()["next"] == "ask for one of fleet, plant-1, site:paris"


async def test_s31_one_unknown_area_of_several_is_named(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/store/*?area=fleet&area=site:lyon")
    assert is_problem(answer, 404, "no-such-area")
    assert "site:lyon" in answer.json()["detail"]


# -- peers


async def test_peers_are_added_changed_listed_and_deleted(client: httpx.AsyncClient) -> None:
    one = f"{FLEET}/peers/lyon/node-1"
    await client.put(one, json={"addresses": ["lyon.example.com:7400"]})
    added = await client.put(one, json={"addresses": ["lyon.example.com:7401", "[::1]:7400"]})
    assert added.json() == {"peer": "lyon/node-1", "addresses": ["lyon.example.com:7401", "[::1]:7400"]}
    peers = (await client.get(f"{FLEET}/peers")).json()["peers"]
    assert peers.keys() == {"lyon/node-1"}
    assert peers["lyon/node-1"]["addresses"] == ["lyon.example.com:7401", "[::1]:7400"]
    assert (peers["lyon/node-1"]["state"], peers["lyon/node-1"]["linked"]) == ("idle", False)
    assert (await client.delete(one)).json() == {"peer": "lyon/node-1", "deleted": True}
    assert is_problem(await client.delete(one), 404, "not-found")


@pytest.mark.parametrize("addresses", [[], ["nowhere"], ["0.0.0.0:1"], ["h:0"], "h:1", None])
async def test_a_peer_needs_addresses_that_can_be_dialled(client: httpx.AsyncClient, addresses: Any) -> None:
    assert is_problem(await client.put(f"{FLEET}/peers/a/b", json={"addresses": addresses}), 400, "invalid")


async def test_a_peer_has_the_name_of_a_node(client: httpx.AsyncClient) -> None:
    assert is_problem(await client.put(f"{FLEET}/peers/A/b", json={"addresses": ["h:1"]}), 400, "invalid")
    assert is_problem(await client.delete(f"{FLEET}/peers/A/b"), 400, "invalid")


# -- roles


@pytest.mark.parametrize(
    ("method", "path", "body", "role"),
    [
        ("GET", "", None, Role.READ),
        ("GET", "/keys/a", None, Role.READ),
        ("GET", "/peers", None, Role.READ),
        ("PUT", "/keys/a", {"text": "x"}, Role.WRITE),
        ("DELETE", "/keys/a", None, Role.WRITE),
        ("POST", "/keys", {"values": {"a": {"text": "x"}}}, Role.WRITE),
        ("POST", "/refresh", {"a": 60_000}, Role.WRITE),
        ("POST", "/clear", {"keys": ["a"]}, Role.WRITE),
        ("PUT", "/peers/a/b", {"addresses": ["h:1"]}, Role.ADMIN),
        ("DELETE", "/peers/a/b", None, Role.ADMIN),
    ],
)
async def test_each_needs_its_role(node: MemoryNode, method: str, path: str, body: Any, role: Role) -> None:
    node.store.write("a", b"x")
    node.store.add_peer("fleet", "a/b", ["h:1"])
    roles = list(Role)
    tokens = (*(token(str(one), one) for one in roles), token("tenant", Role.ADMIN, "acme"))
    async with client_over(node, tokens=tokens) as client:
        for one in roles[: roles.index(role)]:
            answer = await client.request(method, FLEET + path, json=body, headers=bearing(str(one)))
            assert is_problem(answer, 403, "forbidden")
        answer = await client.request(method, FLEET + path, json=body, headers=bearing("tenant"))
        assert is_problem(answer, 403, "forbidden")
        answer = await client.request(method, FLEET + path, json=body, headers=bearing(str(role)))
        assert answer.status_code == 200, answer.text
