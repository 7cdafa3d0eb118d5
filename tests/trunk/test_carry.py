"""Carrying between joined carriers: windows, slow takers, strays and holes. Always a fleet, never one side."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from trunkline.core.ids import Position
from trunkline.trunk import asks
from trunkline.trunk.carry import Carrier
from trunkline.trunk.memory import MemoryLog, MemorySink
from trunkline.trunk.messages import CODEC, Batch, TrunkMessage
from trunkline.trunk.taker import WINDOW
from trunkline.trunk.wants import open_subscription, proven

MIB = b"x" * (1024 * 1024)


class Fleet:
    """hub — relay — leaf-1, leaf-2: messages in order per link; a site's sink can be held."""

    parents: ClassVar[dict[str, dict[str, str]]] = {
        "hub": dict.fromkeys(("relay", "leaf-1", "leaf-2"), "relay"),
        "relay": {s: s for s in ("hub", "leaf-1", "leaf-2")},
        "leaf-1": dict.fromkeys(("hub", "relay", "leaf-2"), "relay"),
        "leaf-2": dict.fromkeys(("hub", "relay", "leaf-1"), "relay"),
    }

    def __init__(self) -> None:
        self.now = 0.0
        self.logs = {site: MemoryLog(f"log-{site}") for site in self.parents}
        self.sinks = {site: MemorySink() for site in self.parents}
        self.held: dict[str, list[asks.Append]] = {}
        self.queue: deque[tuple[str, asks.Send]] = deque()
        self.carriers = {site: Carrier(site, 1, self.logs[site].log_id) for site in self.parents}
        self.drop: set[type[TrunkMessage]] = set()
        for leaf in ("hub", "leaf-1", "leaf-2"):
            self.do(leaf, self.carriers[leaf].link_up("relay"))
            self.do("relay", self.carriers["relay"].link_up(leaf))
        for site, parents in self.parents.items():
            self.do(site, self.carriers[site].set_parents(parents))
        self.run(3.0)

    def do(self, site: str, effects: list[asks.Effect]) -> None:
        carrier, log, sink = self.carriers[site], self.logs[site], self.sinks[site]
        for effect in effects:
            match effect:
                case asks.Send():
                    self.queue.append((site, effect))
                case asks.Load(origin):
                    self.do(site, carrier.loaded(origin, sink.applied(origin)))
                case asks.Open():
                    self.do(site, carrier.opened(effect.child, effect.id, open_subscription(log, effect.wants), self.now))
                case asks.Read():
                    chunk = log.read(effect.after, 1, effect.destinations)
                    self.do(site, carrier.read(effect.child, effect.id, chunk, tuple(log.clients()), self.now))
                case asks.Append() if site in self.held:
                    self.held[site].append(effect)
                case asks.Append():
                    sink.append(effect.origin, effect.log_id, effect.entries, effect.upto, effect.clients)
                    self.do(site, carrier.appended(effect, self.now))
                case asks.ResetSink(origin, log_id):
                    sink.reset(origin, log_id)
                    self.do(site, carrier.loaded(origin, sink.applied(origin)))
                case asks.Acknowledged():
                    assert proven(log, effect.clients) == effect.clients

    def settle(self) -> None:
        while self.queue:
            sender, send = self.queue.popleft()
            if type(send.message) not in self.drop:
                message = CODEC.decode(CODEC.encode(send.message))
                self.do(send.site, self.carriers[send.site].receive(sender, message, self.now))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.1
            for site, carrier in self.carriers.items():
                self.do(site, carrier.tick(self.now))
            self.settle()

    def commit(self, *destinations: str, payload: bytes = b"x", client: str = "policy") -> None:
        log = self.logs["hub"]
        head = log.commit([(client, destinations, {}, payload)], mark=log.head().seq + 1000)
        self.do("hub", self.carriers["hub"].set_head(head, self.now))
        self.settle()

    def hold(self, site: str) -> None:
        self.held[site] = []

    def release(self, site: str) -> None:
        for work in self.held.pop(site):
            self.do(site, [work])
        self.settle()

    def got(self, site: str) -> list[int]:
        return [e.seq for e in self.sinks[site].received.get("hub", [])]


def test_an_entry_for_two_sites_behind_one_relay_crosses_the_relay_s_link_once() -> None:
    fleet = Fleet()
    for _ in range(10):
        fleet.commit("leaf-1", "leaf-2")
    assert fleet.got("leaf-1") == fleet.got("leaf-2") == list(range(1, 11))
    assert fleet.got("relay") == []
    assert fleet.carriers["hub"].counters["relay", "sent"] == 10
    assert fleet.carriers["relay"].counters["hub", "received"] == 10


def test_a_site_gets_only_what_is_for_it_and_its_position_moves_all_the_same() -> None:
    fleet = Fleet()
    fleet.commit("leaf-1")
    fleet.commit("leaf-2")
    fleet.commit("*")
    fleet.run(3.0)
    assert fleet.got("leaf-1") == [1, 3]
    assert fleet.got("leaf-2") == [2, 3]
    assert fleet.got("relay") == [3]
    assert fleet.sinks["relay"].applied("hub").clients == {"policy": Position(3, 1002)}


def test_a_slow_child_never_slows_its_sibling_and_comes_back_with_everything_once() -> None:
    fleet = Fleet()
    fleet.hold("leaf-1")
    for _ in range(30):
        fleet.commit("leaf-1", "leaf-2", payload=MIB)
    assert fleet.got("leaf-2") == list(range(1, 31))
    assert fleet.carriers["relay"].counters["leaf-1", "lagged"] >= 1
    fleet.release("leaf-1")
    fleet.run(10.0)
    assert fleet.got("leaf-1") == list(range(1, 31))
    assert fleet.got("leaf-2") == list(range(1, 31))


def test_g8_a_lone_slow_child_holds_the_origin_back_with_bounded_buffers() -> None:
    fleet = Fleet()
    fleet.hold("leaf-1")
    for _ in range(60):
        fleet.commit("leaf-1", payload=MIB)
    sent = fleet.carriers["hub"].counters["relay", "sent"]
    assert sent * len(MIB) <= 5 * WINDOW
    assert fleet.carriers["relay"].counters["leaf-1", "lagged"] == 0
    fleet.release("leaf-1")
    fleet.run(10.0)
    assert fleet.got("leaf-1") == list(range(1, 61))
    assert fleet.carriers["hub"].counters["relay", "sent"] == 60


def test_a_hole_is_seen_and_mended_by_subscribing_again() -> None:
    fleet = Fleet()
    fleet.commit("leaf-1")
    fleet.drop = {Batch}
    fleet.commit("leaf-1")
    fleet.drop = set()
    fleet.commit("leaf-1")
    fleet.run(6.0)
    assert fleet.got("leaf-1") == [1, 2, 3]
    assert fleet.carriers["relay"].counters["hub", "hole"] + fleet.carriers["relay"].counters["hub", "silence"] >= 1


def test_a_batch_under_an_old_subscription_is_a_stray_and_changes_nothing() -> None:
    fleet = Fleet()
    fleet.commit("leaf-1")
    before = fleet.got("leaf-1")
    stray = Batch(999, "hub", "log-hub", 1, (), Position(7, 7), ("policy",), False)
    effects = fleet.carriers["leaf-1"].receive("relay", stray, fleet.now)
    assert [type(e.message).__name__ for e in effects if isinstance(e, asks.Send)] == ["Stop"]
    assert fleet.got("leaf-1") == before


def test_a_child_that_leaves_and_returns_resumes_behind_its_own_position() -> None:
    fleet = Fleet()
    fleet.commit("leaf-1", "leaf-2")
    fleet.do("relay", fleet.carriers["relay"].link_down("leaf-1"))
    fleet.do("leaf-1", fleet.carriers["leaf-1"].link_down("relay"))
    for _ in range(5):
        fleet.commit("leaf-1", "leaf-2")
    fleet.run(2.0)
    assert fleet.got("leaf-1") == [1]
    fleet.do("relay", fleet.carriers["relay"].link_up("leaf-1"))
    fleet.do("leaf-1", fleet.carriers["leaf-1"].link_up("relay"))
    fleet.run(3.0)
    assert fleet.got("leaf-1") == fleet.got("leaf-2") == [1, 2, 3, 4, 5, 6]
    received = fleet.carriers["leaf-2"].counters["relay", "received"]
    assert received == 6, "the sibling is sent nothing again"
