"""What a leader runs for its site: the topology, which decides from whom each origin is taken, and the carrier, which takes it.

Each answers the other through here:

    topology  Move, TakeFromAny     →  carrier     subscribes
    carrier   Accepted              →  topology    publishes and tells the row
    topology  Publish, PublishRows  →  the store   whose link rows come back to it
    topology  Tell                  →  neighbours
    carrier   how far it is, what it holds back  →  topology's watchdog

1. The topology begins when the store is synced, so that a node that starts does not first choose parents from a part of the
   links there are. What neighbours tell before is kept for it.
2. A row is told only after its parent accepted; a lost one is told before anything is done about it. The topology keeps that
   order, and effects are performed in the order they come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trunkline.core.ids import NodeId, Position
from trunkline.net.channels import Channel
from trunkline.topology import effects as wishes
from trunkline.topology import messages as topology_messages
from trunkline.topology.links import LINK_ROWS, LinkRow
from trunkline.topology.neighbours import Neighbour
from trunkline.topology.rows import PUBLISHED_ROWS, PublishedRows
from trunkline.topology.settings import Settings
from trunkline.topology.topology import Topology
from trunkline.trunk import asks, messages
from trunkline.trunk.carry import Carrier
from trunkline.trunk.handover import Handover

LINKS, ROWS = "link:", "rows:"


@dataclass(frozen=True)
class Frame:
    """Hand this to the link of that node."""

    peer: NodeId
    channel: Channel
    body: bytes
    bulk: bool = False
    """It may wait behind everything else, and may be lost: whoever needs it asks for it again."""


HostWork = asks.Load | asks.Open | asks.Read | asks.Append | asks.ResetSink | asks.Acknowledged | asks.Lost | asks.Deliver
Effect = Frame | HostWork


@dataclass(frozen=True)
class Linked:
    """A neighbour as its link's HELLOs made it."""

    node: NodeId
    incarnation: int
    hears: bool = True
    """Whether this site takes records from it; it may only be served."""
    capable: bool = True


@dataclass
class Carrying:
    site: str
    incarnation: int
    carrier: Carrier
    topology: Topology
    persist: Callable[[str, bytes | None, int | None, float], None]
    """key, value (None: let go of it), version (None: the next), now"""
    _linked: dict[str, Linked] = field(default_factory=dict)
    _early: list[tuple[str, topology_messages.TopologyMessage]] = field(default_factory=list)
    begun: bool = False
    _published: int = 0

    # -- events

    def begin(self, links: Mapping[str, LinkRow], now: float) -> list[Effect]:
        if self.begun:
            return []
        self.begun = True
        effects = self._wished(self.topology.begin(self.incarnation, links, now), now)
        for linked in self._linked.values():
            effects += self._wished(self.topology.link_up(_neighbour(linked), now), now)
        for site, message in self._early:
            effects += self._hear(site, message, now)
        self._early.clear()
        return effects

    def link_up(self, linked: Linked, now: float) -> list[Effect]:
        site = linked.node.site
        self._linked[site] = linked
        effects = self.carried(self.carrier.link_up(site, linked.capable), now)
        return effects + (self._wished(self.topology.link_up(_neighbour(linked), now), now) if self.begun else [])

    def link_down(self, site: str, now: float) -> list[Effect]:
        self._linked.pop(site, None)
        self._early = [(who, message) for who, message in self._early if who != site]
        effects = self.carried(self.carrier.link_down(site), now)
        return effects + (self._wished(self.topology.link_down(site, now), now) if self.begun else [])

    def links_changed(self, changed: Mapping[str, LinkRow | None], now: float) -> list[Effect]:
        return self._wished(self.topology.set_links(changed, now), now) if self.begun and changed else []

    def told(self, site: str, body: bytes, now: float) -> list[Effect]:
        message = topology_messages.CODEC.decode(body)
        if not self.begun:
            self._early.append((site, message))
            return []
        return self._hear(site, message, now)

    def received(self, site: str, body: bytes, now: float) -> list[Effect]:
        message = messages.CODEC.decode(body)
        effects = self.carried(self.carrier.receive(site, message, now), now)
        if isinstance(message, messages.Batch) and self.begun and not self._linked[site].capable:
            has = topology_messages.Progress({message.origin: message.upto.seq}, {})  # it tells nothing itself
            effects += self._wished(self.topology.progress(site, has, now), now)
        return effects

    def tick(self, now: float) -> list[Effect]:
        effects = self.carried(self.carrier.tick(now), now)
        if self.begun:
            carrier = self.carrier
            wished = self.topology.tick(now, carrier.cursors(), carrier.head.seq, carrier.withheld())
            effects += self._wished(wished, now)
        return effects

    def set_head(self, head: Position, now: float) -> list[Effect]:
        return self.carried(self.carrier.set_head(head, now), now)

    def unicast(self, to: str, body: bytes, bulk: bool, now: float) -> list[Effect]:
        return self.carried(self.carrier.unicast(to, body, bulk), now)

    def carried(self, effects: Sequence[asks.Effect], now: float) -> list[Effect]:
        """What the carrier wants, for the host."""
        out: list[Effect] = []
        for effect in effects:
            match effect:
                case asks.Send(site, message):
                    # a neighbour without the capability knows one channel for all of the trunk
                    capable = site in self._linked and self._linked[site].capable
                    apart = capable and not messages.travels_in_stream(message)
                    codec = messages.CODEC if capable else messages.PLAIN
                    bulk = isinstance(message, messages.Send) and message.bulk
                    out += self._frame(site, Channel.SIGNAL if apart else Channel.TRUNK, codec.encode(message), bulk)
                case asks.Accepted(origin, site):
                    out += self._wished(self.topology.subscribed(origin, site, now), now)
                case _:
                    out.append(effect)
        return out

    # -- inside

    def _hear(self, site: str, message: topology_messages.TopologyMessage, now: float) -> list[Effect]:
        if isinstance(message, topology_messages.Told):
            return self._wished(self.topology.told(site, message, now), now)
        return self._wished(self.topology.progress(site, message, now), now)

    def _wished(self, effects: Sequence[wishes.Effect], now: float) -> list[Effect]:
        """What the topology wants, in its order."""
        out: list[Effect] = []
        for effect in effects:
            match effect:
                case wishes.Move(origin, via, manner):
                    out += self.carried(self.carrier.move(origin, via, manner is wishes.Manner.GENTLE, now), now)
                case wishes.TakeFromAny(origin, sites):
                    out += self.carried(self.carrier.take_from_any(origin, sites, now), now)
                case wishes.Tell(site, message):
                    out += self._frame(site, Channel.TOPOLOGY, topology_messages.CODEC.encode(message))
                case wishes.Publish(row):
                    self._published += 1
                    self.persist(LINKS + self.site, LINK_ROWS.encode(row), row.version(self._published), now)
                case wishes.PublishRows(rows):
                    published = None if rows is None else PUBLISHED_ROWS.encode(PublishedRows(self.incarnation, rows))
                    self.persist(ROWS + self.site, published, None, now)
        return out

    def _frame(self, site: str, channel: Channel, body: bytes, bulk: bool = False) -> list[Effect]:
        return [Frame(self._linked[site].node, channel, body, bulk)] if site in self._linked else []


def _neighbour(linked: Linked) -> Neighbour:
    return Neighbour(linked.node.site, linked.incarnation, linked.hears, linked.capable)


def make(
    site: str, incarnation: int, log_id: str, head: Position, settings: Settings, handover: Handover,
    random: Callable[[], float], persist: Callable[[str, bytes | None, int | None, float], None],
) -> Carrying:  # fmt: skip
    carrier = Carrier(site, incarnation, log_id, head, handover=handover)
    return Carrying(site, incarnation, carrier, Topology(site, settings, random), persist)
