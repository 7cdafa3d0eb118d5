"""The protocols of one node put together, without I/O: store, topology and trunk over named links.

The node runs it under asyncio with sockets and Postgres, the simulator under virtual time with memory: the same code.
A node that is not its site's leader runs only the store; the leader also carries (`trunkline.node.carrying`). The peers of
the store are nodes, the neighbours of the trunk are sites.

1. Only the leader persists its site's `link:` row; one that steps down lets go of it, so that two never fight over it.
2. An incarnation never goes back: the highest one known of each site is kept, whoever told it, and is what a peer hears of
   itself. A leader that is told of a higher one than its own (`outdone_by`) must raise its epoch before it speaks (H02).
3. A leader's topology waits until the store is synced (`trunkline.node.carrying`), but never longer than a peer may take to
   get a link and to answer.
4. A frame of the store that its link did not take is told to the store (`not_sent`), which sends it, or what came after it,
   when there is room again (`has_room`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from trunkline.core.codec import Codec
from trunkline.core.errors import RemoteProtocolError, TrunklineError
from trunkline.core.ids import NodeId, Position
from trunkline.net.channels import Channel
from trunkline.node.carrying import LINKS, ROWS, Carrying, Effect, Frame, HostWork, Linked, make
from trunkline.store import messages as store_messages
from trunkline.store.settings import Settings
from trunkline.store.store import Store
from trunkline.topology.links import LINK_ROWS, LinkRow
from trunkline.topology.rows import PUBLISHED_ROWS, Row
from trunkline.topology.settings import Settings as TopologySettings
from trunkline.topology.topology import Topology
from trunkline.trunk import asks
from trunkline.trunk.carry import Carrier
from trunkline.trunk.handover import Handover
from trunkline.trunk.log import Applied, Chunk
from trunkline.trunk.wants import Opened

__all__ = ["Effect", "Frame", "HostWork", "NodeRecord", "SiteCore"]

NODES = "node:"
HIGHEST_INCARNATION = 2**32 - 2  # a link row's version has 32 bits for it, and there must be one above


class NodeRecord(msgspec.Struct, frozen=True):
    """Value of `node:<site>/<node>`."""

    addresses: tuple[str, ...]
    incarnation: int
    capabilities: tuple[str, ...] = ("store",)
    api: str = ""
    """Where its REST API is reached; empty: not known."""
    areas: tuple[str, ...] = ()
    """Further areas it is in, besides `fleet` and its site's."""


NODE_RECORDS: Codec[NodeRecord] = Codec("node record", NodeRecord)


@dataclass
class SiteCore:
    identity: NodeId
    addresses: tuple[str, ...]
    random: Callable[[], float]
    settings: Settings = field(default_factory=Settings)
    areas: tuple[str, ...] = ()
    topology_settings: TopologySettings = field(default_factory=TopologySettings)
    handover: Handover = Handover.EXACT
    store: Store = field(init=False)
    carrying: Carrying | None = None
    incarnation: int = 0
    api: str = ""
    nodes_changed: bool = True
    _known: dict[str, int] = field(default_factory=dict)
    _linked: dict[str, Linked] = field(default_factory=dict)
    _begun: float | None = None

    def __post_init__(self) -> None:
        self.store = Store(self.identity, self.random, self.settings, self.areas, noted=(NODES, LINKS, ROWS))

    @property
    def carrier(self) -> Carrier | None:
        return self.carrying.carrier if self.carrying is not None else None

    @property
    def topology(self) -> Topology:
        """A node that does not lead has an empty one."""
        return self.carrying.topology if self.carrying is not None else Topology(self.identity.site)

    # -- roles

    def begin(self, now: float) -> list[Effect]:
        """Says who this node is; again whenever that changed."""
        record = NodeRecord(self.addresses, self.incarnation, api=self.api, areas=self.areas)
        self.store.fleet.persist(f"{NODES}{self.identity}", NODE_RECORDS.encode(record), now)
        if self._begun is None:
            self._begun = now
            for area in self.store.areas.values():
                area.peers_known(now)
        return self._frames(self.store.tick(now))

    def lead(self, epoch: int, log_id: str, head: Position, now: float) -> list[Effect]:
        """This node now speaks for its site; the epoch of its lease is the incarnation."""
        self.incarnation = epoch
        self.carrying = make(
            self.identity.site, epoch, log_id, head, self.topology_settings, self.handover, self.random, self._persist
        )
        effects: list[Effect] = self.begin(now)
        for linked in self._linked.values():
            effects += self.carrying.link_up(linked, now)
        return effects + self._update_topology(now)

    def step_down(self) -> None:
        self.carrying = None
        for key in (self._link_key, ROWS + self.identity.site):
            self.store.fleet.clear(key)

    def heard_of(self, site: str, incarnation: int) -> None:
        """Somebody, or something durable, knows of this incarnation of the site."""
        if incarnation > HIGHEST_INCARNATION:
            raise RemoteProtocolError("message", f"no site is at incarnation {incarnation}", "run an unmodified node")
        self._known[site] = max(incarnation, self._known.get(site, 0))

    def known_incarnation(self, site: str) -> int:
        row = self.link_row(site)
        told = row.incarnation if row is not None and row.incarnation <= HIGHEST_INCARNATION else 0
        return max(told, self._known.get(site, 0))

    def outdone_by(self, epoch: int) -> int:
        """The incarnation of its own site that a leader with this epoch must raise above; 0 when there is none.

        The version of the row in the store tells as much as the row: it stays above what others once brought.
        """
        stored = self.store.fleet.table.entries.get(self._link_key)
        brought = stored.value.version >> 32 if stored is not None else 0
        known = max(self.known_incarnation(self.identity.site), brought if brought <= HIGHEST_INCARNATION else 0)
        return known if known > epoch else 0

    # -- links

    def link_up(
        self, peer: NodeId, carries: bool, now: float, *, hears: bool = True, capable: bool = True, incarnation: int = 0
    ) -> list[Effect]:
        effects: list[Effect] = self._frames(self.store.link_up(peer, now))
        if carries:
            former = self._linked.get(peer.site)
            linked = self._linked[peer.site] = Linked(peer, incarnation, hears, capable)
            if self.carrying is not None:
                effects += self.carrying.link_down(peer.site, now) if former is not None else []
                effects += self.carrying.link_up(linked, now)
        return effects + self._update_topology(now)

    def link_down(self, peer: NodeId, now: float) -> list[Effect]:
        effects: list[Effect] = self._frames(self.store.link_down(peer, now))
        if self.carries_with(peer):
            del self._linked[peer.site]
            if self.carrying is not None:
                effects += self.carrying.link_down(peer.site, now)
        return effects + self._update_topology(now)

    def message(self, peer: NodeId, channel: Channel, body: bytes, now: float) -> list[Effect]:
        match channel:
            case Channel.STORE:
                effects: list[Effect] = self._frames(self.store.receive(peer, store_messages.CODEC.decode(body), now))
                return effects + self._update_topology(now)
            case Channel.TRUNK | Channel.SIGNAL | Channel.TOPOLOGY:
                if not self.carries_with(peer):
                    raise RemoteProtocolError("trunk message", f"the link with {peer} carries nothing", "configure the link")
                if self.carrying is None:
                    return []
                take = self.carrying.told if channel is Channel.TOPOLOGY else self.carrying.received
                return take(peer.site, body, now)
            case Channel.CONTROL:
                raise RemoteProtocolError("message", "control frames end at the link", "run an unmodified node")

    def tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = self._frames(self.store.tick(now))
        effects += self._update_topology(now)
        return effects + (self.carrying.tick(now) if self.carrying is not None else [])

    # -- the store's clients and its links

    def written(self, sends: Sequence[store_messages.Send], now: float) -> list[Effect]:
        """A client changed the store, which wants these sent."""
        return self._frames(sends) + self._update_topology(now)

    def not_sent(self, peer: NodeId, body: bytes, now: float) -> None:
        self.store.not_sent(peer, store_messages.CODEC.decode(body), now)

    def has_room(self, peer: NodeId, now: float) -> list[Effect]:
        return self._frames(self.store.has_room(peer, now))

    # -- answers of the host, for the trunk

    def set_head(self, head: Position, now: float) -> list[Effect]:
        return self.carrying.set_head(head, now) if self.carrying is not None else []

    def unicast(self, to: str, body: bytes, bulk: bool, now: float) -> list[Effect]:
        """A message for one site; at most once."""
        return self.carrying.unicast(to, body, bulk, now) if self.carrying is not None else []

    def loaded(self, origin: str, applied: Applied, now: float) -> list[Effect]:
        return self._answer(lambda carrier: carrier.loaded(origin, applied), now)

    def opened(self, work: asks.Open, opened: Opened, now: float) -> list[Effect]:
        return self._answer(lambda carrier: carrier.opened(work.child, work.id, opened, now), now)

    def read(self, work: asks.Read, chunk: Chunk, clients: Sequence[str], now: float) -> list[Effect]:
        return self._answer(lambda carrier: carrier.read(work.child, work.id, chunk, tuple(clients), now), now)

    def appended(self, work: asks.Append, now: float) -> list[Effect]:
        return self._answer(lambda carrier: carrier.appended(work, now), now)

    def _answer(self, answer: Callable[[Carrier], list[asks.Effect]], now: float) -> list[Effect]:
        return self.carrying.carried(answer(self.carrying.carrier), now) if self.carrying is not None else []

    # -- looking

    def neighbours(self) -> tuple[str, ...]:
        return tuple(self._linked)

    def reaches(self, site: str) -> bool:
        """Whether a message for that site would get on its way."""
        return self.carrying is not None and self.carrying.carrier.reaches(site)

    def sent_towards(self, site: str) -> int | None:
        """How far the own log has been sent to those who take it for that site; None: nobody does."""
        return self.carrying.carrier.sent_towards(site) if self.carrying is not None else None

    def carries_with(self, peer: NodeId) -> bool:
        linked = self._linked.get(peer.site)
        return linked is not None and linked.node == peer

    def nodes(self) -> dict[NodeId, NodeRecord]:
        """Every node the store knows of; what cannot be read is as if it were not there."""
        found: dict[NodeId, NodeRecord] = {}
        for key, data in self.store.fleet.matching(NODES).items():
            with suppress(TrunklineError):
                found[NodeId.parse(key.removeprefix(NODES))] = NODE_RECORDS.decode(data)
        return found

    def links(self) -> dict[str, LinkRow]:
        rows = {key.removeprefix(LINKS): self.link_row(key.removeprefix(LINKS)) for key in self.store.fleet.matching(LINKS)}
        return {site: row for site, row in rows.items() if row is not None}

    def link_row(self, site: str) -> LinkRow | None:
        entry = self.store.fleet.table.entries.get(LINKS + site)
        with suppress(TrunklineError):
            return LINK_ROWS.decode(entry.value.data) if entry is not None and entry.value.data else None
        return None

    def published_rows(self) -> dict[str, tuple[Row, ...]]:
        """Of every site that publishes its rows."""
        found: dict[str, tuple[Row, ...]] = {}
        for key, data in self.store.fleet.matching(ROWS).items():
            with suppress(TrunklineError):
                found[key.removeprefix(ROWS)] = PUBLISHED_ROWS.decode(data).rows
        return found

    # -- inside

    @property
    def _link_key(self) -> str:
        return LINKS + self.identity.site

    def _update_topology(self, now: float) -> list[Effect]:
        """After anything that can change whom others hear."""
        changed: dict[str, LinkRow | None] = {}
        for key in self.store.fleet.changes():
            site = key.removeprefix(LINKS)
            if key.startswith(LINKS) and site != self.identity.site:
                changed[site] = self.link_row(site)
            self.nodes_changed = self.nodes_changed or key.startswith(NODES)
        carrying = self.carrying
        if carrying is None or not self._may_look(now):
            return []
        if not carrying.begun:
            others = {site: row for site, row in self.links().items() if site != self.identity.site}
            return carrying.begin(others, now)
        return carrying.links_changed(changed, now)

    def _persist(self, key: str, data: bytes | None, version: int | None, now: float) -> None:
        if data is None:
            self.store.fleet.clear(key)
        else:
            self.store.fleet.persist(key, data, now, version=version or 1)

    def _may_look(self, now: float) -> bool:
        longest = self.settings.link_seconds + self.settings.answer_seconds
        return self.store.fleet.synced or (self._begun is not None and now - self._begun >= longest)

    def _frames(self, sends: Sequence[store_messages.Send]) -> list[Effect]:
        bodies: dict[int, bytes] = {}
        for send in sends:
            if id(send.message) not in bodies:  # one message may be for many peers
                bodies[id(send.message)] = store_messages.CODEC.encode(send.message)
        return [Frame(NodeId.parse(s.peer), Channel.STORE, bodies[id(s.message)]) for s in sends]
