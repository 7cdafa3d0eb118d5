"""The links of a node: whom it dials, what it says of itself, and which links carry.

1. A node dials its seeds, every node it knows of its own site, and every node of the sites it exchanges records with.
2. Every link serves the store. A link carries records only if one side's configuration wants it, both ends lead their
   sites, and neither knows a higher incarnation of the other than the one it speaks for (H02).
3. A leader that learns in HELLO of a higher incarnation of its own site than its own raises above it before it speaks: that
   link is refused, and all are made anew once it leads with the new epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import random

import structlog

from trunkline.core.clock import Clock
from trunkline.core.config import LinkConfig, ProcessConfig, TlsConfig
from trunkline.core.errors import Retryable
from trunkline.core.health import Check
from trunkline.core.ids import NodeId
from trunkline.net.channels import Channel
from trunkline.net.endpoint import Endpoint, Target
from trunkline.net.hello import OLDEST_WIRE, WIRE_VERSION, Hello
from trunkline.net.link import Link
from trunkline.node.checks import links_check
from trunkline.node.roles import Roles
from trunkline.node.sitecore import Effect, SiteCore

CARRIES = "trunk"

log = structlog.get_logger(__name__)


def leads(hello: Hello) -> bool:
    return CARRIES in hello.capabilities


def carries(mine: Hello, theirs: Hello) -> bool:
    """The same at both ends."""
    wanted = mine.carries or theirs.carries
    current = mine.incarnation >= theirs.known_incarnation and theirs.incarnation >= mine.known_incarnation
    return wanted and current and leads(mine) and leads(theirs)


class Peers:
    def __init__(
        self, config: ProcessConfig, tls: TlsConfig, identity: NodeId, core: SiteCore, roles: Roles, clock: Clock,
        do: Callable[[Iterable[Effect]], None],
    ) -> None:  # fmt: skip
        self.address = ""
        self._identity, self._core, self._roles, self._clock, self._do = identity, core, roles, clock, do
        self._link: LinkConfig = config.link
        self.endpoint = Endpoint(
            identity, tls, self._hello, self, config.link.heartbeat_seconds, clock, random,
            handshake_timeout=config.link.handshake_seconds,
        )  # fmt: skip

    async def start(self) -> None:
        self.address = await self.endpoint.start(self._link.listen)
        self._core.addresses = self._link.advertise or (self.address,)

    def aim(self) -> None:
        targets = {f"seed:{address}": Target((address,)) for address in self._link.seeds if address != self.address}
        wanted = {self._identity.site, *self._link.links}
        for node, record in self._core.nodes().items():
            if node.site in wanted and node != self._identity and record.addresses:
                targets[f"node:{node}"] = Target(record.addresses)
        self.endpoint.set_targets(targets)

    def renew(self, reason: str) -> None:
        for link in list(self.endpoint.links().values()):
            link.close(reason)

    def checks(self) -> list[Check]:
        linked = {peer.site for peer in self.endpoint.links()}
        links, *others = self.endpoint.checks()
        return [links_check(links, {site: site in linked for site in self._link.links}), *others]

    # -- what the endpoint tells

    def link_up(self, link: Link) -> None:
        self._core.heard_of(link.peer.site, link.hello.incarnation)
        self._core.heard_of(self._identity.site, link.hello.known_incarnation)
        if leads(link.mine) != (self._roles.leads() is not None) or self._roles.outdone():
            raise Retryable("link", "this node's role changes", "connect again")
        self._do(self._core.link_up(link.peer, carries(link.mine, link.hello), self._clock.monotonic()))

    def link_down(self, link: Link, reason: str) -> None:
        log.info("link down", peer=str(link.peer), reason=reason)
        self._do(self._core.link_down(link.peer, self._clock.monotonic()))

    def message(self, link: Link, channel: Channel, body: bytes) -> None:
        self._roles.leads()  # before anything is done with it: a tenure that is over ends here
        self._do(self._core.message(link.peer, channel, body, self._clock.monotonic()))

    # -- inside

    def _hello(self, peer: NodeId) -> Hello:
        leadership = self._roles.leads()
        carrier = self._core.carrier
        return Hello(
            wire=WIRE_VERSION,
            oldest=OLDEST_WIRE,
            capabilities=("store", CARRIES) if carrier is not None else ("store",),
            site=self._identity.site,
            node=self._identity.node,
            incarnation=self._core.incarnation,
            known_incarnation=self._core.known_incarnation(peer.site),
            log_id=leadership.log_id if leadership is not None else "",
            neighbours=self._core.neighbours(),
            heads={self._identity.site: carrier.head.seq} if carrier is not None else {},
            applied={},
            carries=carrier is not None and peer.site in self._link.links,
            addresses=self._core.addresses,
        )
