"""A node of a site with several: all share the site's database, and the one that holds its lease leads.

It keeps the rules of `trunkline.db.lease.LeaseKeeper` and of the node, as events in virtual time instead of threads:

1. Before anything else happens in it, a node looks at its tenure: one that ran out ends the leadership first (H03). So a
   paused leader that wakes up steps down before it handles what waited.
2. Everything durable that a leader does for its site is fenced (H01); an answer that comes after its end is dropped.
3. Links are made anew when the role changes, and carry only between two leaders of different sites.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial

from trunkline.core.ids import Position
from trunkline.db.keeper import Tenure
from trunkline.db.lease import Grant, Terms
from trunkline.net.channels import Channel
from trunkline.net.simhost import Greeting, Outlet
from trunkline.node.sim.database import Database
from trunkline.node.sim.setup import Setup, site_of
from trunkline.node.sim.site import SimSite
from trunkline.node.sitecore import Effect, HostWork
from trunkline.trunk import asks

TERMS = Terms(seconds=2.5, renew_every=0.75, margin=0.35)  # a quarter of a leader's: many reigns within one run
TRY_AGAIN = 0.25
_FENCED = (asks.Append, asks.ResetSink, asks.Lost)


class LeasedNode(SimSite):
    def __init__(self, host: str, databases: dict[str, Database], outlet: Outlet, now: float, setup: Setup) -> None:
        self.tenure = Tenure(outlet.clock, TERMS)
        self._asking = False
        self._ask_at = now
        self._peers: dict[str, None] = {}
        super().__init__(host, databases, outlet, now, setup)

    def _begin(self, now: float) -> None:
        self._do(self.core.begin(now))

    # -- what happens to it

    def greeting(self) -> Greeting:
        return Greeting(leads=self.core.carrier is not None, incarnation=self.core.incarnation)

    def link_up(self, peer: str, mine: Greeting, theirs: Greeting, now: float) -> None:
        self._look()
        self._peers[peer] = None
        if mine != self.greeting():
            self.outlet.close(peer)  # the role changed during the handshake
        carries = mine.leads and theirs.leads and site_of(peer) != self.database.site
        self._do(self._linked(peer, theirs, carries, now))

    def link_down(self, peer: str, now: float) -> None:
        self._look()
        self._peers.pop(peer, None)
        super().link_down(peer, now)

    def message(self, peer: str, channel: Channel, body: bytes, now: float) -> None:
        self._look()
        super().message(peer, channel, body, now)

    def tick(self, now: float) -> None:
        self._look()
        if now >= self._ask_at and not self._asking:
            self._ask(now)
        self._do(self.core.tick(now))
        if self.core.carrier is not None and self.database.unstamped and not self._stamping:
            self._stamping = True
            self._ask_stamp()

    # -- the lease

    def _look(self) -> None:
        if self.tenure.grant is not None and not self.tenure.holds():
            self._step_down("its lease ran out by its own clock")
        grant = self.tenure.grant
        if grant is not None and self.core.carrier is not None and grant.epoch < self.database.led:
            self.witness.saw("H03", f"{self.host} acts under epoch {grant.epoch} after {self.database.led} began")

    def _ask(self, now: float) -> None:
        self._asking, held = True, self.tenure.grant
        lease, seconds = self.database.lease, self.tenure.terms.seconds
        if held is None:
            holder = uuid.UUID(int=self.outlet.random.getrandbits(128))
            self.outlet.disk(partial(lease.acquire, holder, seconds), partial(self._won, now))
        else:
            self.outlet.disk(partial(lease.renew, held, seconds), partial(self._renewed, held, now))

    def _won(self, asked_at: float, grant: Grant | None, now: float) -> None:
        self._asking, self._ask_at = False, now + TRY_AGAIN
        if grant is None:
            return
        self.tenure.won(grant, asked_at)
        if not self.tenure.holds():
            self.tenure.lost()
            self._release(grant)
            return
        self._ask_at = now + self.tenure.terms.renew_every
        self.outlet.disk(self.database.log.head, partial(self._lead, grant))

    def _renewed(self, grant: Grant, asked_at: float, still: bool, now: float) -> None:
        self._look()
        self._asking, self._ask_at = False, now + self.tenure.terms.renew_every
        if self.tenure.grant is None:
            self._release(grant)
        elif still:
            self.tenure.won(grant, asked_at)
        else:
            self._step_down("its lease is another's")

    def _release(self, grant: Grant) -> None:
        self.outlet.disk(partial(self.database.lease.release, grant), lambda result, now: None)

    def _lead(self, grant: Grant, head: Position, now: float) -> None:
        self._look()
        if self.tenure.grant is not grant:
            return
        if grant.epoch <= self.database.led:
            self.witness.saw("H02", f"{self.host} leads under epoch {grant.epoch}, after {self.database.led}")
        self.database.led = max(self.database.led, grant.epoch)
        self.outlet.note(f"leads under epoch {grant.epoch}")
        self._do(self.core.lead(grant.epoch, self.database.log.log_id, head, now))
        self._renew_links()

    def _step_down(self, why: str) -> None:
        self.tenure.lost()
        self._stamping = False
        if self.core.carrier is not None:
            self.outlet.note(f"leads no more: {why}")
            self.core.step_down()
            self._renew_links()

    def _renew_links(self) -> None:
        for peer in self._peers:
            self.outlet.close(peer)

    # -- fenced work

    def _ask_stamp(self) -> None:
        grant = self.tenure.grant
        if grant is not None:
            self.outlet.disk(partial(self.database.fenced, grant, self.database.stamp), partial(self._stamp_answered, grant))

    def _stamp_answered(self, grant: Grant, head: Position | None, now: float) -> None:
        self._look()
        if self.tenure.grant is grant:
            self._stamped(head, now)

    def _perform(self, work: HostWork) -> None:
        grant = self.tenure.grant
        if grant is not None:
            step = partial(self.durable, work)
            fenced = partial(self.database.fenced, grant, step) if isinstance(work, _FENCED) else step
            self.outlet.disk(fenced, partial(self._answer_to, grant))

    def _answer_to(self, grant: Grant, answer: Callable[[float], list[Effect]] | None, now: float) -> None:
        self._look()
        if answer is not None and self.tenure.grant is grant:
            self._do(answer(now))
