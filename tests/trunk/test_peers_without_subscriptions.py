"""A neighbour that knows no subscriptions sends everything of every origin unasked; a carrier makes the best of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from trunkline.core.ids import START, Position
from trunkline.trunk import asks
from trunkline.trunk.carry import Carrier
from trunkline.trunk.log import Entry
from trunkline.trunk.memory import MemoryLog, MemorySink
from trunkline.trunk.messages import CODEC, Ack, Batch, SubscribeAll, TrunkMessage
from trunkline.trunk.wants import open_subscription


@dataclass
class OldPeer:
    """Has everything of everybody; sends all of it from the positions it was told, and then whatever comes."""

    logs: dict[str, MemoryLog]
    asked: list[SubscribeAll] = field(default_factory=list)
    at: dict[str, Position] = field(default_factory=dict)
    sent: list[Batch] = field(default_factory=list)
    acknowledged: dict[tuple[str, str], dict[str, Position]] = field(default_factory=dict)

    def hear(self, message: TrunkMessage) -> None:
        assert isinstance(message, SubscribeAll | Ack), f"it does not understand {message}"
        if isinstance(message, Ack):
            self.acknowledged[message.origin, message.destination] = message.clients
        else:
            self.asked.append(message)
            for origin in message.positions or self.logs:
                want = message.positions.get(origin)
                self.at[origin] = max(want.clients.values(), default=START) if want else START

    def speak(self) -> list[Batch]:
        batches = []
        for origin, log in self.logs.items():
            at = self.at.setdefault(origin, START)
            head = log.head()
            entries = tuple(log.read(at.seq, 10_000, {"x", "y"}).entries) if head.seq > at.seq else ()
            batches.append(Batch(0, origin, log.log_id, at.seq, entries, head, tuple(log.clients()), False))
            self.at[origin] = head
        self.sent += batches
        return batches


class Mesh:
    """a — x, old — x; the old one has a's and b's records; x takes them as the test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.logs = {site: MemoryLog(f"log-{site}") for site in ("a", "b")}
        self.old, self.sink = OldPeer(self.logs), MemorySink()
        self.a, self.x = Carrier("a", 1, "log-a"), Carrier("x", 1, "log-x")
        self.accepted: list[tuple[str, str]] = []
        self.do(self.a, self.a.link_up("x"))
        self.do(self.x, self.x.link_up("a"))
        self.do(self.x, self.x.link_up("old", capable=False))

    def do(self, carrier: Carrier, effects: list[asks.Effect]) -> None:
        for effect in effects:
            match effect:
                case asks.Send(site, message):
                    self.carry(carrier.site, site, CODEC.decode(CODEC.encode(message)))
                case asks.Load(origin):
                    self.do(carrier, carrier.loaded(origin, self.sink.applied(origin)))
                case asks.Open():
                    opened = open_subscription(self.logs["a"], effect.wants)
                    self.do(carrier, carrier.opened(effect.child, effect.id, opened, self.now))
                case asks.Read():
                    chunk = self.logs["a"].read(effect.after, 1000, effect.destinations)
                    self.do(carrier, carrier.read(effect.child, effect.id, chunk, ("policy",), self.now))
                case asks.Append():
                    self.sink.append(effect.origin, effect.log_id, effect.entries, effect.upto, effect.clients)
                    self.do(carrier, carrier.appended(effect, self.now))
                case asks.Accepted():
                    self.accepted.append((effect.origin, effect.site))
                case _:
                    pass

    def carry(self, sender: str, to: str, message: TrunkMessage) -> None:
        if to == "old":
            self.old.hear(message)
        else:
            carrier = {"a": self.a, "x": self.x}[to]
            self.do(carrier, carrier.receive(sender, message, self.now))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            for carrier in (self.a, self.x):
                self.do(carrier, carrier.tick(self.now))
            for batch in self.old.speak():
                self.carry("old", "x", batch)

    def move(self, origin: str, via: str) -> None:
        self.do(self.x, self.x.move(origin, via, False, self.now))

    def write(self, origin: str, number: int) -> None:
        for _ in range(number):
            head = self.logs[origin].commit([("policy", ("x",), {}, b"x")], self.logs[origin].head().seq + 1000)
            if origin == "a":
                self.do(self.a, self.a.set_head(head, self.now))

    def got(self, origin: str) -> list[int]:
        return [entry.seq for entry in self.sink.received.get(origin, [])]


def test_s22_an_origin_taken_from_the_old_peer_comes_once_and_is_asked_of_nobody_else() -> None:
    mesh = Mesh()
    mesh.move("a", "old")
    mesh.move("b", "old")
    mesh.run(2.0)
    mesh.write("a", 1000)
    mesh.write("b", 10)
    mesh.run(2.0)
    assert mesh.got("a") == list(range(1, 1001))
    assert mesh.got("b") == list(range(1, 11))
    assert len(mesh.old.asked) == 1, "it is asked once"
    assert mesh.x.counters["old", "received"] == 1010
    assert mesh.x.counters["a", "received"] == mesh.x.counters["old", "duplicate"] == 0
    assert sorted(mesh.accepted) == [("a", "old"), ("b", "old")]


def test_s22_taken_directly_the_old_peers_copies_are_dropped_and_counted_and_there_are_two_at_most() -> None:
    mesh = Mesh()
    mesh.move("a", "a")
    mesh.run(2.0)
    mesh.write("a", 1000)
    mesh.run(2.0)
    assert mesh.got("a") == list(range(1, 1001))
    assert mesh.x.counters["a", "received"] == 1000
    assert mesh.x.counters["old", "duplicate"] == mesh.x.counters["old", "received"] == 1000
    assert mesh.x.counters["old", "stray"] == 0, "it would not understand STOP"


def test_a_move_to_the_old_peer_goes_on_where_this_site_is_even_if_that_was_dropped_before() -> None:
    mesh = Mesh()
    mesh.write("b", 5)
    mesh.run(2.0)  # nobody takes b: all of it is dropped
    assert mesh.got("b") == []
    mesh.move("b", "old")
    mesh.run(2.0)
    mesh.write("b", 5)
    mesh.run(8.0)
    assert mesh.got("b") == list(range(1, 11)), "what was dropped is asked for again"


def test_a_move_away_from_the_old_peer_loses_nothing() -> None:
    mesh = Mesh()
    mesh.move("a", "old")
    mesh.run(1.0)
    mesh.write("a", 10)
    mesh.run(1.0)
    mesh.move("a", "a")
    mesh.write("a", 10)
    mesh.run(3.0)
    assert mesh.got("a") == list(range(1, 21))
    assert mesh.x.counters["a", "received"] <= 10


def test_it_is_acknowledged_in_the_way_it_knows() -> None:
    mesh = Mesh()
    mesh.move("a", "old")
    mesh.write("a", 3)
    mesh.run(3.0)
    assert mesh.old.acknowledged["a", "x"] == {"policy": Position(3, 1002)}


def test_entries_for_others_are_not_stored_here() -> None:
    mesh = Mesh()
    mesh.move("a", "old")
    mesh.run(1.0)
    mesh.logs["a"].commit([("policy", ("y",), {}, b"not for x")], 1)
    mesh.write("a", 1)
    mesh.run(2.0)
    assert mesh.got("a") == [2]
    assert Entry(1, "policy", ("y",), {}, b"not for x") not in mesh.sink.received["a"]
