"""Flooding, sync, ttl and own keys: always several stores joined by a wire, never one alone."""

from __future__ import annotations

from collections import deque

import pytest

from trunkline.core.errors import RemoteProtocolError
from trunkline.store.flood import CODEC, Publish, Send, Store
from trunkline.store.values import Value


class Wire:
    """Joins stores; delivers in order, through the codec, and counts."""

    def __init__(self, *names: str) -> None:
        self.stores = {name: Store(name, "fleet", sync_seconds=30) for name in names}
        self.queue: deque[tuple[str, Send]] = deque()
        self.delivered = 0
        self.now = 0.0

    def say(self, sender: str, sends: list[Send]) -> None:
        self.queue.extend((sender, send) for send in sends)

    def link(self, a: str, b: str) -> None:
        self.say(a, self.stores[a].peer_up(b, self.now))
        self.say(b, self.stores[b].peer_up(a, self.now))
        self.settle()

    def settle(self) -> None:
        while self.queue:
            sender, send = self.queue.popleft()
            if sender in self.stores[send.peer].peers:
                self.delivered += 1
                message = CODEC.decode(CODEC.encode(send.message))
                self.say(send.peer, self.stores[send.peer].receive(sender, message, self.now))

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for name, store in self.stores.items():
            self.say(name, store.tick(self.now))
        self.settle()

    def persist(self, name: str, key: str, data: bytes, ttl_ms: int = 300_000) -> None:
        self.say(name, self.stores[name].persist(key, data, self.now, ttl_ms))
        self.settle()

    def everywhere(self, key: str) -> set[bytes | None]:
        return {s.values[key].data if key in s.values else None for s in self.stores.values()}


def test_a_change_reaches_everybody_over_hops() -> None:
    wire = Wire("a/n", "b/n", "c/n")
    wire.link("a/n", "b/n")
    wire.link("b/n", "c/n")
    wire.persist("a/n", "node:a/n", b"here")
    assert wire.everywhere("node:a/n") == {b"here"}


def test_in_a_ring_a_change_is_not_sent_back_along_its_path() -> None:
    wire = Wire("a/n", "b/n", "c/n")
    for pair in (("a/n", "b/n"), ("b/n", "c/n"), ("a/n", "c/n")):
        wire.link(*pair)
    wire.delivered = 0
    wire.persist("a/n", "k", b"x")
    assert wire.everywhere("k") == {b"x"}
    assert wire.delivered == 4  # a→b, a→c, b→c, c→b: nobody tells a


def test_a_new_peer_is_synced_both_ways() -> None:
    wire = Wire("a/n", "b/n")
    wire.persist("a/n", "ka", b"1")
    wire.persist("b/n", "kb", b"2")
    wire.link("a/n", "b/n")
    assert wire.everywhere("ka") == {b"1"}
    assert wire.everywhere("kb") == {b"2"}


def test_a_key_lives_while_its_owner_refreshes_it_and_then_goes() -> None:
    wire = Wire("a/n", "b/n", "c/n")
    wire.link("a/n", "b/n")
    wire.link("b/n", "c/n")
    wire.persist("a/n", "k", b"x", ttl_ms=8_000)
    for _ in range(20):
        wire.tick(1.0)
    assert wire.everywhere("k") == {b"x"}
    wire.stores["b/n"].peer_down("a/n")
    wire.stores["a/n"].peer_down("b/n")
    for _ in range(9):
        wire.tick(1.0)
    assert "k" not in wire.stores["b/n"].values
    assert "k" not in wire.stores["c/n"].values
    assert "k" in wire.stores["a/n"].values


def test_a_restarted_owner_wins_over_what_it_said_in_its_former_life() -> None:
    wire = Wire("a/n", "b/n")
    wire.link("a/n", "b/n")
    wire.persist("a/n", "node:a/n", b"z-old-address")
    wire.stores["a/n"] = Store("a/n", "fleet")
    wire.persist("a/n", "node:a/n", b"a-new-address")
    wire.link("a/n", "b/n")
    assert wire.everywhere("node:a/n") == {b"a-new-address"}


def test_what_a_lost_message_left_different_heals_by_anti_entropy() -> None:
    wire = Wire("a/n", "b/n", "c/n")
    wire.link("a/n", "b/n")
    wire.link("b/n", "c/n")
    wire.say("a/n", wire.stores["a/n"].persist("k", b"x", wire.now))
    wire.queue.clear()  # the publication is lost on every link
    assert wire.everywhere("k") == {b"x", None}
    for _ in range(70):
        wire.tick(1.0)
    assert wire.everywhere("k") == {b"x"}


def test_one_bad_key_does_not_harm_the_good_ones_of_its_publication() -> None:
    store = Store("b/n", "fleet")
    store.peer_up("a/n", 0.0)
    values = {"node:b/n": Value(1, "a/n", b"forged", 1000), "k": Value(1, "a/n", b"good", 1000)}
    store.receive("a/n", Publish("fleet", values, ("a/n",)), 0.0)
    assert set(store.values) == {"k"}
    assert store.counters["owner"] == 1


@pytest.mark.parametrize(
    "message",
    [Publish("fleet", {}, ()), Publish("fleet", {}, ("somebody/else",)), Publish("other", {}, ("a/n",))],
)
def test_a_false_last_hop_or_area_is_a_protocol_error(message: Publish) -> None:
    with pytest.raises(RemoteProtocolError):
        Store("b/n", "fleet").receive("a/n", message, 0.0)


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x93\xa3pub", b"garbage" * 9])
def test_malformed_bodies_are_protocol_errors(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        CODEC.decode(body)
