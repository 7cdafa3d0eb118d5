"""A site of one node, which always leads: the host work of `SiteCore` over a database in memory.

Every durable step takes its time on the simulated disk, and only then is the core told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from trunkline.core.ids import START, NodeId, Position
from trunkline.net.channels import Channel
from trunkline.net.simhost import Greeting, Outlet
from trunkline.node.sim.database import Database
from trunkline.node.sim.setup import Setup, site_of
from trunkline.node.sitecore import Effect, Frame, HostWork, SiteCore
from trunkline.store.area import Area
from trunkline.store.settings import Settings
from trunkline.topology.settings import PublishRowsWhen
from trunkline.topology.settings import Settings as TopologySettings
from trunkline.trunk import asks, messages
from trunkline.trunk.handover import Handover
from trunkline.trunk.wants import open_subscription, proven

NODE = "node-1"
READ_LIMIT = 20
SETTINGS = Settings(sync_seconds=5.0, answer_seconds=2.0, longest_backoff=4.0)
# Short, so that links count again, and shorter paths are taken, within a run.
TOPOLOGY = TopologySettings(hold_seconds=0.4, first_damping=0.4, longest_damping=3.0, repeat_seconds=2.0)


@cache
def node_id(host: str) -> NodeId:
    site, slash, node = host.partition("/")
    return NodeId(site, node if slash else NODE)


@dataclass(frozen=True)
class SiteSettings:
    store: Settings = SETTINGS
    topology: TopologySettings = TOPOLOGY
    handover: Handover = Handover.EXACT


QUICK = SiteSettings()
# Rows for people are half of what the store then carries: thousands of universes are cheaper without.
LEAN = SiteSettings(topology=replace(TOPOLOGY, publish_rows=PublishRowsWhen.NEVER))


class SimSite:
    def __init__(
        self,
        host: str,
        databases: dict[str, Database],
        outlet: Outlet,
        now: float,
        setup: Setup,
        settings: SiteSettings = QUICK,
    ) -> None:
        self.host, self.databases, self.outlet = host, databases, outlet
        self.setup, self.settings = setup, settings
        self.database = databases[site_of(host)]
        self.witness = self.database.witness
        self.core = SiteCore(
            node_id(host), (host,), outlet.random.random, settings.store, topology_settings=settings.topology,
            handover=settings.handover,
        )  # fmt: skip
        self.after: Callable[[SimSite], None] = lambda site: None
        self._stamping = False
        self._begin(now)

    def _begin(self, now: float) -> None:
        database = self.database
        database.epoch += 1
        self._do(self.core.lead(database.epoch, database.log.log_id, database.stamp(), now))

    @property
    def store(self) -> Area:
        return self.core.store.fleet

    # -- what happens to it

    def greeting(self) -> Greeting:
        return Greeting(incarnation=self.core.incarnation)

    def link_up(self, peer: str, mine: Greeting, theirs: Greeting, now: float) -> None:
        self._do(self._linked(peer, theirs, True, now))

    def _linked(self, peer: str, theirs: Greeting, carries: bool, now: float) -> list[Effect]:
        hears = self.setup.hears(self.host, peer)
        return self.core.link_up(
            node_id(peer), carries, now, incarnation=theirs.incarnation, hears=hears, capable=theirs.capable
        )  # fmt: skip

    def link_down(self, peer: str, now: float) -> None:
        self._do(self.core.link_down(node_id(peer), now))

    def message(self, peer: str, channel: Channel, body: bytes, now: float) -> None:
        self._do(self.core.message(node_id(peer), channel, body, now))

    def tick(self, now: float) -> None:
        self._do(self.core.tick(now))
        if self.database.unstamped and not self._stamping:
            self._stamping = True
            self._ask_stamp()

    # -- the log

    def _ask_stamp(self) -> None:
        self.outlet.disk(self.database.stamp, self._stamped)

    def _stamped(self, head: Position | None, now: float) -> None:
        self._stamping = False
        if head is not None:
            self._do(self.core.set_head(head, now))

    # -- what it does

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Frame):
                self._send(effect)
            else:
                self._perform(effect)
        self.after(self)

    def _send(self, frame: Frame) -> None:
        peer = frame.peer.site if frame.peer.node == NODE else str(frame.peer)
        if self.witness.crossings is not None and frame.channel is Channel.TRUNK:
            message = messages.CODEC.decode(frame.body)
            if isinstance(message, messages.Batch):
                a, b = sorted((self.core.identity.site, frame.peer.site))
                self.witness.crossings.update((a, b, message.origin, entry.seq) for entry in message.entries)
        self.outlet.send(peer, frame.channel, frame.body)

    def _perform(self, work: HostWork) -> None:
        self.outlet.disk(partial(self.durable, work), self._answered)

    def _answered(self, answer: Callable[[float], list[Effect]], now: float) -> None:
        self._do(answer(now))

    def durable(self, work: HostWork) -> Callable[[float], list[Effect]]:
        """Does the work and returns what to tell the core."""
        return _WORK[type(work)](self, work)

    def _load(self, work: asks.Load) -> Callable[[float], list[Effect]]:
        applied = self.database.sink.applied(work.origin)
        return lambda now: self.core.loaded(work.origin, applied, now)

    def _open(self, work: asks.Open) -> Callable[[float], list[Effect]]:
        opened = open_subscription(self.database.log, work.wants)
        return lambda now: self.core.opened(work, opened, now)

    def _read(self, work: asks.Read) -> Callable[[float], list[Effect]]:
        chunk = self.database.log.read(work.after, READ_LIMIT, work.destinations)
        clients = tuple(self.database.log.clients())
        return lambda now: self.core.read(work, chunk, clients, now)

    def _append(self, work: asks.Append) -> Callable[[float], list[Effect]]:
        received = self.database.sink.received.setdefault(work.origin, [])
        before = len(received)
        self.database.sink.append(work.origin, work.log_id, work.entries, work.upto, work.clients)
        stored = [entry.seq for entry in received[before:]]
        if stored:
            self.outlet.note(f"stored {_listed(stored)} of {work.origin}, up to {work.upto.seq}")
        self._look_for_gap(work.origin, stored, work.upto.seq)
        return lambda now: self.core.appended(work, now)

    def _look_for_gap(self, origin: str, stored: list[int], upto: int) -> None:
        """A position passes no entry that is not there, and nothing comes twice."""
        since, site = self.database.stored_upto.get(origin, 0), self.database.site
        due = self.databases[origin].log.read(since, upto - since, {site}).entries if upto > since else ()
        expected = [entry.seq for entry in due if entry.seq <= upto]
        if any(seq <= since for seq in stored):
            self.witness.saw("G3", f"{site} stored {_listed(stored)} of {origin} although it was at {since}")
        elif stored != expected:
            missing = [seq for seq in expected if seq not in stored]
            self.witness.saw("G4", f"{site} went on to {upto} of {origin} without {_listed(missing)}")
        self.database.stored_upto[origin] = max(since, upto)

    def _reset_sink(self, work: asks.ResetSink) -> Callable[[float], list[Effect]]:
        self.database.sink.reset(work.origin, work.log_id)
        self.database.stored_upto[work.origin] = 0
        self.outlet.note(f"forgot its positions of {work.origin}")
        return self._load(asks.Load(work.origin))

    def _lost(self, work: asks.Lost) -> Callable[[float], list[Effect]]:
        lowest, database = self.databases[work.origin].log.lowest(), self.database
        if work.upto.seq > lowest.seq:
            self.witness.saw(
                "G4", f"{database.site} gave {work.origin} up to {work.upto.seq} for lost; {lowest.seq} was trimmed"
            )
        database.sink.lost(work.origin, work.log_id, work.upto, work.clients)
        database.stored_upto[work.origin] = max(database.stored_upto.get(work.origin, 0), work.upto.seq)
        self.outlet.note(f"put on record that {work.origin} is lost up to {work.upto.seq}")
        return self._load(asks.Load(work.origin))

    def _deliver(self, work: asks.Deliver) -> Callable[[float], list[Effect]]:
        self.outlet.note(f"got {len(work.body)} bytes from {work.source}")
        return lambda now: []

    def _acknowledged(self, work: asks.Acknowledged) -> Callable[[float], list[Effect]]:
        positions = proven(self.database.log, work.clients)
        self.database.acknowledged[work.destination] = positions
        self._doubt(work.destination, positions)
        return lambda now: []

    def _doubt(self, destination: str, positions: dict[str, Position]) -> None:
        """An acknowledgement names only what is durable."""
        site = self.database.site
        has = self.databases[destination].sink.applied(site).clients
        for client, position in positions.items():
            if position.seq > has.get(client, START).seq:
                self.witness.saw("acks", f"{site} believes that {destination} has its {client} up to {position.seq}")


_WORK: dict[type[Any], Callable[[Any, Any], Callable[[float], list[Effect]]]] = {
    asks.Load: SimSite._load,
    asks.Open: SimSite._open,
    asks.Read: SimSite._read,
    asks.Append: SimSite._append,
    asks.ResetSink: SimSite._reset_sink,
    asks.Acknowledged: SimSite._acknowledged,
    asks.Lost: SimSite._lost,
    asks.Deliver: SimSite._deliver,
}


def _listed(seqs: Sequence[int]) -> str:
    return ", ".join(map(str, seqs))
