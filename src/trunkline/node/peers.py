"""The links of a node: whom it dials, what it says of itself, and which links carry.

1. A node dials its seeds, every node it knows of its own site and of the sites it exchanges records with or follows, and some
   others (`trunkline.node.membership`). A link that it dialled and no longer wants it closes after SHED_SECONDS; if the other
   side wants it, that one dials.
2. Every link serves the store. A link carries records only if one side's configuration wants it, both ends lead their
   sites, and neither knows a higher incarnation of the other than the one it speaks for (H02).
3. A leader that learns in HELLO of a higher incarnation of its own site than its own raises above it before it speaks: that
   link is refused, and all are made anew once it leads with the new epoch.
4. Of the leaders of one site the one of the highest incarnation is heard: a link whose HELLOs were said before the later one
   was known, and that is up only after, is refused; on the next one both ends know (H25).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import random

import structlog

from trunkline.core.clock import Clock
from trunkline.core.config import LinkConfig, ProcessConfig, TlsConfig
from trunkline.core.errors import Retryable
from trunkline.core.health import Check
from trunkline.core.ids import NodeId
from trunkline.net.channels import Channel
from trunkline.net.endpoint import Endpoint, Target
from trunkline.net.hello import OLDEST_WIRE, WIRE_VERSION, Hello, carries_records, hears
from trunkline.net.link import Link
from trunkline.node.checks import links_check
from trunkline.node.membership import Membership
from trunkline.node.roles import Roles
from trunkline.node.sitecore import Effect, SiteCore

CARRIES, TELLS_ROWS = "trunk", "topology"
SHED_SECONDS = 30.0  # while a fleet starts, each newcomer changes who is wanted

log = structlog.get_logger(__name__)


def leads(hello: Hello) -> bool:
    return CARRIES in hello.capabilities


def carries(mine: Hello, theirs: Hello) -> bool:
    """The same at both ends."""
    current = mine.incarnation >= theirs.known_incarnation and theirs.incarnation >= mine.known_incarnation
    return carries_records(mine, theirs) and current and leads(mine) and leads(theirs)


class Peers:
    def __init__(
        self, config: ProcessConfig, tls: TlsConfig, identity: NodeId, core: SiteCore, roles: Roles, clock: Clock,
        do: Callable[[Iterable[Effect]], None],
    ) -> None:  # fmt: skip
        self.address = ""
        self._identity, self._core, self._roles, self._clock, self._do = identity, core, roles, clock, do
        self._link: LinkConfig = config.link
        self._wanted = (*config.link.links, *config.link.follows)
        sites, areas = frozenset((identity.site, *self._wanted)), config.store.areas
        self._membership = Membership(identity, core.store, sites, areas, config.store.max_peers)
        self._dialled: set[NodeId] = set()
        self._unwanted: dict[NodeId, float] = {}
        self.endpoint = Endpoint(
            identity, tls, self._hello, self, config.link.heartbeat_seconds, clock, random,
            handshake_timeout=config.link.handshake_seconds, heads=self._heads,
        )  # fmt: skip

    async def start(self) -> None:
        self.address = await self.endpoint.start(self._link.listen)
        self._core.addresses = self._link.advertise or (self.address,)

    def aim(self) -> None:
        now, nodes = self._clock.monotonic(), self._core.nodes()
        targets = {f"seed:{address}": Target((address,)) for address in self._link.seeds if address != self.address}
        dialled = self._membership.update(nodes, now)
        targets |= {f"node:{node}": Target(addresses) for node, addresses in dialled.items()}
        former = (self._dialled | self._unwanted.keys()) - dialled.keys()
        self._unwanted = {node: self._unwanted.get(node, now) for node in former if node in nodes}
        self._dialled = set(dialled)
        if self.address:
            self.endpoint.set_targets(targets)

    def shed(self) -> None:
        now = self._clock.monotonic()
        for node in [node for node, since in self._unwanted.items() if now - since >= SHED_SECONDS]:
            del self._unwanted[node]
            link = self.endpoint.links().get(node)
            if link is not None and link.outgoing and not self._is_needed(link):
                link.close("other nodes are nearer to this one now")

    def add(self, area: str, name: str, addresses: Sequence[str]) -> None:
        self._membership.add(area, name, addresses)
        self.aim()

    def delete(self, area: str, name: str) -> bool:
        """It may come back: a seed is dialled all the same, and the other side may dial."""
        deleted = self._membership.delete(area, name, self._clock.monotonic())
        self.aim()
        link = self.endpoint.links().get(NodeId.parse(name))
        if deleted and link is not None and link.peer not in self._dialled:
            link.close("this peer was deleted")
        return deleted

    def _is_needed(self, link: Link) -> bool:
        return self._core.carries_with(link.peer) or not set(self._link.seeds).isdisjoint(link.hello.addresses)

    def renew(self, reason: str) -> None:
        for link in list(self.endpoint.links().values()):
            link.close(reason)

    def checks(self) -> list[Check]:
        linked = {peer.site for peer in self.endpoint.links()}
        links, *others = self.endpoint.checks()
        return [links_check(links, {site: site in linked for site in self._wanted}), *others]

    # -- what the endpoint tells

    def link_up(self, link: Link) -> None:
        self._core.heard_of(link.peer.site, link.hello.incarnation)
        self._core.heard_of(self._identity.site, link.hello.known_incarnation)
        if leads(link.mine) != (self._roles.leads() is not None) or self._roles.outdone():
            raise Retryable("link", "this node's role changes", "connect again")
        mine, theirs = link.mine, link.hello
        if carries(mine, theirs) and theirs.incarnation < self._core.known_incarnation(theirs.site):
            raise Retryable("link", f"a later leader of {theirs.site} is known by now", "connect again")
        effects = self._core.link_up(
            link.peer, carries(mine, theirs), self._clock.monotonic(), hears=hears(mine, theirs),
            capable=TELLS_ROWS in theirs.capabilities, incarnation=theirs.incarnation,
        )  # fmt: skip
        self._do(effects)

    def link_down(self, link: Link, reason: str) -> None:
        log.info("link down", peer=str(link.peer), reason=reason)
        self._do(self._core.link_down(link.peer, self._clock.monotonic()))

    def message(self, link: Link, channel: Channel, body: bytes) -> None:
        self._roles.leads()  # before anything is done with it: a tenure that is over ends here
        self._do(self._core.message(link.peer, channel, body, self._clock.monotonic()))

    # -- inside

    def _heads(self) -> dict[str, int]:
        self._roles.leads()
        carrier = self._core.carrier
        return {self._identity.site: carrier.head.seq} if carrier is not None else {}

    def _hello(self, peer: NodeId) -> Hello:
        leadership = self._roles.leads()
        carrier = self._core.carrier
        return Hello(
            wire=WIRE_VERSION,
            oldest=OLDEST_WIRE,
            capabilities=("store", CARRIES, TELLS_ROWS) if carrier is not None else ("store",),
            site=self._identity.site,
            node=self._identity.node,
            incarnation=self._core.incarnation,
            known_incarnation=self._core.known_incarnation(peer.site),
            log_id=leadership.log_id if leadership is not None else "",
            neighbours=self._core.neighbours(),
            heads=self._heads(),
            applied=carrier.cursors() if carrier is not None else {},
            carries=carrier is not None and peer.site in self._link.links,
            addresses=self._core.addresses,
            follows=carrier is not None and peer.site in self._link.follows,
        )
