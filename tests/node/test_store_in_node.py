"""The replicated store inside real nodes: what clients write and see, whom nodes dial, and what a slow peer costs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nodesinprocess import Nodes

from trunkline.api.storeview import Put, Query, StoreView
from trunkline.core.errors import Invalid, Retryable
from trunkline.core.ids import NodeId
from trunkline.net.channels import Channel
from trunkline.node.membership import chosen
from trunkline.node.shown import COUNTERS
from trunkline.node.sitecore import NodeRecord
from trunkline.node.storeview import MOST_WATCHES
from waiting import eventually

ALL = Query()
NAMES = ("a/n1", "a/n2", "b/n1")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("nodes"))
    try:
        nodes.add("a", ("n1", "n2"), make_databases("queues"), links=["b"], areas=["plant"])
        nodes.add("b", ("n1",), make_databases("queues"), areas=["plant"])
        nodes.start()
        nodes.wait_ready()
        for name in NAMES:
            eventually(lambda name=name: nodes.at[name].store.areas()["fleet"]["initialized"] == 2, why=lambda: seen(nodes))
        yield nodes
    finally:
        nodes.close()


def seen(nodes: Nodes) -> dict[str, Any]:
    return {name: (node.store.areas(), node.store.peers("fleet")) for name, node in nodes.at.items()}


def stores(nodes: Nodes) -> list[StoreView]:
    return [nodes.at[name].store for name in NAMES]


def test_what_is_set_on_one_is_seen_on_all(nodes: Nodes) -> None:
    one, two, three = stores(nodes)
    assert one.put("fleet", {"app:text": Put(b"hello"), "app:bytes": Put(b"\xff\x00", ttl_ms=60_000)}) == {}
    for store in (two, three):
        eventually(lambda store=store: store.get("fleet", "app:bytes") is not None)
        text, raw = store.get("fleet", "app:text"), store.get("fleet", "app:bytes")
        assert text is not None
        assert raw is not None
        assert {k: text[k] for k in ("version", "originator", "ttl_ms", "ttl_version", "bytes", "text")} == {
            "version": 1, "originator": "a/n1", "ttl_ms": None, "ttl_version": 0, "bytes": 5, "text": "hello",
        }  # fmt: skip
        assert (raw["base64"], raw["bytes"], "text" in raw) == ("/wA=", 2, False)
        assert 0 < raw["ttl_ms"] < 60_000
    assert three.put("fleet", {"app:text": Put(b"hello again")}) == {}
    for store in (one, two):
        eventually(lambda store=store: (store.get("fleet", "app:text") or {}).get("text") == "hello again")
    found = two.dump("fleet", Query(prefixes=("app:",)), values=False)
    assert list(found) == ["app:bytes", "app:text"]
    assert set(found["app:text"]) == {"version", "originator", "ttl_ms", "ttl_version", "hash", "bytes"}
    assert list(two.dump("fleet", Query(prefixes=("app:",), originators=("b/n1",), every=True), values=True)) == ["app:text"]
    assert len({store.signature("fleet", Query(prefixes=("app:",))) for store in stores(nodes)}) == 1


def test_a_signature_tells_values_and_names_and_not_ttls(nodes: Nodes) -> None:
    store, query = nodes.at["a/n1"].store, Query(prefixes=("sig:",))
    assert store.signature("fleet", query) == "0" * 16
    store.put("fleet", {"sig:a": Put(b"1")})
    first = store.signature("fleet", query)
    assert store.refresh("fleet", {"sig:a": 50_000}) == {}
    assert store.signature("fleet", query) == first
    store.put("fleet", {"sig:b": Put(b"1")})
    assert store.signature("fleet", query) != first


def test_keys_stay_in_their_area(nodes: Nodes) -> None:
    one, two, three = stores(nodes)
    assert sorted(one.areas()) == ["fleet", "plant", "site:a"]
    one.put("site:a", {"own": Put(b"a")})
    one.put("plant", {"shared": Put(b"p")})
    eventually(lambda: two.get("site:a", "own"))
    eventually(lambda: three.get("plant", "shared"))
    assert three.get("fleet", "own") is None
    assert three.get("fleet", "shared") is None
    with pytest.raises(Invalid, match="this node is not in it"):
        three.get("site:a", "own")
    assert set(three.peers("plant")) == {"a/n1", "a/n2"}
    assert set(one.peers("site:a")) == {"a/n2"}


def test_a_watch_shows_what_is_there_and_then_each_change(nodes: Nodes) -> None:
    one, _, three = stores(nodes)
    one.put("fleet", {"watched:1": Put(b"x"), "unwatched": Put(b"y")})
    eventually(lambda: three.get("fleet", "unwatched"))
    woken = threading.Event()
    events: list[dict[str, Any]] = []
    watch = three.watch("fleet", Query(prefixes=("watched:",)), False, woken.set)

    def kinds(most: int = 100) -> list[tuple[str, str]]:
        events.extend(watch.read(most))
        return [(event["event"], event.get("key", event.get("peer"))) for event in events]

    assert woken.wait(20)
    before = [("value", "watched:1"), ("snapshot_done", ""), ("synced", "")]
    eventually(lambda: kinds() == before, why=lambda: events)
    woken.clear()
    one.put("fleet", {"watched:2": Put(b"z", ttl_ms=900)})
    assert woken.wait(20)
    one.erase("fleet", ["watched:1"])
    expected = [*before, ("value", "watched:2"), ("erased", "watched:1"), ("expired", "watched:2")]
    eventually(lambda: kinds() == expected, why=lambda: events)
    assert events[3]["text"] == "z"
    assert events[3]["skipped"] == 0
    assert three.areas()["fleet"]["watches"] == 1
    watch.close()
    watch.close()
    assert three.areas()["fleet"]["watches"] == 0


def test_there_is_a_limit_to_watches(nodes: Nodes) -> None:
    store = nodes.at["a/n1"].store
    watches = [store.watch("fleet", ALL, False, lambda: None) for _ in range(MOST_WATCHES)]
    try:
        with pytest.raises(Retryable, match="100 already"):
            store.watch("plant", ALL, False, lambda: None)
    finally:
        for watch in watches:
            watch.close()
    store.watch("plant", ALL, False, lambda: None).close()


def test_a_client_that_is_gone_does_not_harm_the_store(nodes: Nodes) -> None:
    def gone() -> None:
        raise RuntimeError("Event loop is closed")

    store = nodes.at["a/n1"].store
    watch = store.watch("fleet", ALL, False, gone)
    watch.read(10_000)
    assert store.put("fleet", {"after": Put(b"1")}) == {}
    watch.close()
    with pytest.raises(Invalid, match="not a regular expression"):
        store.watch("fleet", Query(patterns=("(",)), False, gone)


def test_a_key_that_is_kept_comes_back_until_it_is_cleared(nodes: Nodes) -> None:
    one, two, _ = stores(nodes)
    one.put("fleet", {"kept": Put(b"mine", keep="persist"), "until": Put(b"mine", keep="set", ttl_ms=9_000)})
    eventually(lambda: two.get("fleet", "kept") and two.get("fleet", "until"))
    own = one.own("fleet")
    assert own["kept"] == {"keep": "persist", "version": 1, "ttl_ms": 300_000, "bytes": 4}
    assert own["until"] == {"keep": "set", "version": 1, "ttl_ms": 9_000, "bytes": 4}
    assert own["node:a/n1"]["keep"] == "persist"
    two.put("fleet", {"kept": Put(b"theirs"), "until": Put(b"theirs")})
    eventually(lambda: (two.get("fleet", "kept") or {}).get("version") == 3)
    assert (two.get("fleet", "kept") or {})["text"] == "mine"
    eventually(lambda: (one.get("fleet", "until") or {}).get("text") == "theirs")
    eventually(lambda: "until" not in one.own("fleet"))
    assert one.clear("fleet", ["kept", "never"]) == {"never": "no_need_to_update"}
    assert "kept" not in one.own("fleet")


def test_keys_of_nodes_are_not_for_clients(nodes: Nodes) -> None:
    store = nodes.at["a/n1"].store
    keys = ("node:a/n1", "link:a", "site:a", "node:z/n1")
    refused = dict.fromkeys(keys, "not_the_owner")
    before = store.get("fleet", "node:a/n1") or {}
    assert store.put("fleet", {key: Put(b"x") for key in keys}) == refused
    assert store.put("fleet", {key: Put(b"x", keep="persist") for key in keys}) == refused
    assert store.refresh("fleet", dict.fromkeys(keys, 1000)) == refused
    assert store.erase("fleet", keys) == refused
    assert store.clear("fleet", keys) == refused
    assert (store.get("fleet", "node:a/n1") or {})["hash"] == before["hash"]
    assert "node:a/n1" in store.own("fleet")
    assert store.areas()["fleet"]["counters"]["refused_not_the_owner"] >= 5 * len(keys)


@pytest.mark.parametrize("keep", ["no", "set", "persist"])
@pytest.mark.parametrize(
    ("key", "put", "reason"),
    [
        ("bad", {"ttl_ms": 0}, "invalid_ttl"),
        ("bad", {"ttl_ms": -(2**31)}, "invalid_ttl"),
        ("bad", {"ttl_ms": 2**70}, "invalid_ttl"),
        ("bad", {"version": 0}, "old_version"),
        ("bad", {"version": -1}, "old_version"),
        ("bad", {"version": 2**64}, "invalid_version"),
        ("bad", {"data": bytes(10 * 1024 * 1024)}, "too_large"),
        ("b" * 257, {}, "too_large"),
        ("b" * 70_000, {}, "too_large"),
        ("", {}, "too_large"),
    ],
)
def test_what_may_not_be_stored_is_refused_with_its_reason_and_counted(
    nodes: Nodes, key: str, put: dict[str, Any], reason: str, keep: str
) -> None:
    store = nodes.at["a/n1"].store

    def state() -> tuple[int, int, int]:
        area = store.areas()["plant"]
        return area["keys"], area["own"], area["counters"][f"refused_{reason}"]

    keys, own, refused = state()
    assert store.put("plant", {key: Put(**{"data": b"x", "keep": keep, **put})}) == {key: reason}
    assert state() == (keys, own, refused + 1)


def test_a_key_that_is_no_text_is_refused(nodes: Nodes) -> None:
    with pytest.raises(Invalid, match="not text"):
        nodes.at["a/n1"].store.put("fleet", {"\ud800": Put(b"x")})
    with pytest.raises(Invalid, match="no such way to keep"):
        nodes.at["a/n1"].store.put("fleet", {"x": Put(b"x", keep="for ever")})


def test_many_keys_written_at_once_come_to_all_and_are_dumped_in_order(nodes: Nodes) -> None:
    one, _, three = stores(nodes)
    puts = {f"many:{n:05}": Put(b"v" * 100, ttl_ms=60_000) for n in range(5_000)}
    before = one.areas()["plant"]["bytes"]
    assert one.put("plant", puts) == {}
    assert one.areas()["plant"]["bytes"] == before + 500_000
    query = Query(prefixes=("many:",))
    eventually(lambda: len(three.dump("plant", query, values=False)) == 5_000)
    assert list(three.dump("plant", query, values=False)) == sorted(puts)
    assert list(three.dump("plant", query, False, after="many:00041", most=3)) == ["many:00042", "many:00043", "many:00044"]
    assert list(three.dump("plant", query, False, after="many:04997", most=3)) == ["many:04998", "many:04999"]
    eventually(lambda: one.signature("plant", query) == three.signature("plant", query))
    assert one.erase("plant", list(puts)) == {}
    eventually(lambda: not three.dump("plant", query, values=False))


def test_nodes_find_the_api_of_each_other_in_the_store(nodes: Nodes) -> None:
    one, two = nodes.at["a/n1"], nodes.at["b/n1"]
    nodes.on_loop(lambda: one.api_listens("127.0.0.1:8400"))

    def known() -> str:
        return str(nodes.on_loop(two._core.nodes)[NodeId("a", "n1")].api)

    eventually(lambda: known() == "127.0.0.1:8400", why=known)
    records = nodes.on_loop(two._core.nodes)
    assert records[NodeId("a", "n1")].areas == ("plant",)
    assert set(map(str, records)) == set(NAMES)


def test_numbers_and_the_check_say_who_is_in_step(nodes: Nodes) -> None:
    for name in NAMES:
        ok, reason = nodes.checks(name)["store"]
        assert ok
        assert reason.startswith("2 of 2 peers in step, ")
        area = nodes.at[name].store.areas()["fleet"]
        assert (area["peers"], area["initialized"], area["idle"], area["syncing"], area["pending"]) == (2, 2, 0, 0, 0)
        assert area["synced"] is True
        assert area["counters"].keys() >= set(COUNTERS)
        assert area["counters"]["full_syncs_ok"] >= 2
        for peer in nodes.at[name].store.peers("fleet").values():
            assert (peer["state"], peer["linked"], peer["reason"], peer["pending"]) == ("initialized", True, "", 0)
            assert peer["addresses"]


def test_a_peer_that_reads_too_slowly_keeps_its_link_and_gets_everything_later(nodes: Nodes) -> None:
    fast, slow = nodes.at["a/n1"].store, nodes.at["b/n1"].store
    link, other_end = nodes.link("a/n1", "b/n1"), nodes.link("b/n1", "a/n1")
    nodes.on_loop(lambda: other_end.pause(Channel.STORE))
    puts = {f"big:{n:03}": Put(bytes([n % 251]) * 60_000, ttl_ms=120_000) for n in range(400)}
    assert fast.put("site:a", {"nobody at b": Put(b"")}) == {}
    assert fast.put("plant", puts) == {}
    eventually(lambda: fast.areas()["plant"]["blocked"] == 1, why=lambda: fast.peers("plant"))
    assert fast.peers("plant")["b/n1"]["pending"] > 0
    assert fast.put("fleet", {"small": Put(b"1")}) == {}
    eventually(lambda: nodes.at["a/n2"].store.get("fleet", "small"))
    assert nodes.link("a/n1", "b/n1") is link
    nodes.on_loop(lambda: other_end.resume(Channel.STORE))
    query = Query(prefixes=("big:",))
    eventually(lambda: slow.signature("plant", query) == fast.signature("plant", query), why=lambda: fast.peers("plant"))
    assert len(slow.dump("plant", query, values=False)) == 400
    eventually(lambda: slow.get("fleet", "small"))
    eventually(lambda: fast.areas()["plant"]["blocked"] == 0)
    assert nodes.link("a/n1", "b/n1") is link


def test_a_peer_can_be_added_and_deleted_by_name(nodes: Nodes) -> None:
    store = nodes.at["b/n1"].store
    store.add_peer("fleet", "z/n1", ["127.0.0.1:1"])
    peer = store.peers("fleet")["z/n1"]
    assert (peer["state"], peer["linked"], peer["addresses"]) == ("idle", False, ["127.0.0.1:1"])
    assert nodes.checks("b/n1")["store"][1].startswith("2 of 3 peers in step")
    assert store.delete_peer("fleet", "z/n1")
    assert not store.delete_peer("fleet", "z/n1")
    assert set(store.peers("fleet")) == {"a/n1", "a/n2"}


def test_a_watch_may_be_closed_after_its_node_is_gone(tmp_path: Path, make_database: Callable[..., str]) -> None:
    nodes = Nodes(tmp_path)
    try:
        nodes.add("lonely", ("n1",), make_database("queues"))
        nodes.start()
        nodes.wait_ready()
        node = nodes.at["lonely/n1"]
        assert nodes.checks("lonely/n1")["store"][1].startswith("0 of 0 peers in step, ")
        watch = node.store.watch("fleet", ALL, False, lambda: None)
    finally:
        nodes.close()
    watch.close()
    with pytest.raises(Retryable, match="it does not run"):
        node.store.areas()


def test_a_node_that_knows_one_seed_gets_links_to_others_up_to_its_limit(
    tmp_path: Path, make_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.node.peers.SHED_SECONDS", 0.2)
    sites = ("hub", "p", "q", "r", "s")
    nodes = Nodes(tmp_path)
    try:
        for site in sites:
            nodes.add(site, ("n1",), make_database("queues"), max_peers=1)
        nodes.start()
        records = {NodeId(site, "n1"): NodeRecord(("x:1",), 0) for site in sites}
        pairs = {frozenset((site, "hub")) for site in sites[1:]}
        pairs |= {frozenset((n.site, o.site)) for n in records for o in chosen(n, records, (n.site,), (), 1)}
        expected = {f"{s}/n1": {f"{o}/n1" for pair in pairs if s in pair for o in pair - {s}} for s in sites}
        assert any("hub" not in pair for pair in pairs)
        eventually(lambda: {name: nodes.links(name) for name in nodes.at} == expected, why=lambda: (expected, seen(nodes)))
    finally:
        nodes.close()
