"""Leading and following: what the lease says becomes what the node does.

1. What is wanted is read from the lease's keeper, never remembered: every change only wakes `_follow`, which makes the
   node lead or follow as the keeper says now. So no order of events, and no crash between two, leaves it in between.
2. A leader acts only while its tenure holds by its own clock (H03). Everything it does asks `leads` first; the first that
   finds the tenure over retires the leadership there and then: the core steps down and the links that carried close.
   Its threads are stopped after that; what they still write is fenced.
3. Work that fails leaves a stream waiting for its answer. The leader then begins anew, from what is durable; after
   STUMBLES of these it comes to rest, lets go of the lease and leaves it to others for a while (H04).
4. The lease is let go only when this node's work has come to rest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import random

import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.core.config import QueuesConfig
from trunkline.core.errors import RemoteProtocolError
from trunkline.core.ids import NodeId, Position
from trunkline.db.away import AWAY, in_one_line
from trunkline.db.keeper import LeaseKeeper
from trunkline.db.lease import Grant, Terms
from trunkline.node.leadership import Leadership
from trunkline.node.sessions import Loop, Ways
from trunkline.node.sitecore import Effect, HostWork, SiteCore
from trunkline.node.supervise import Kept, Supervisor, in_thread
from trunkline.trunk import asks

LEASE = "leader"
STUMBLES = 3
STUMBLE_SECONDS = 60.0
ANEW_SECONDS = 1.0
RETRY_SECONDS = 0.5

log = structlog.get_logger(__name__)


@dataclass
class Stumbles:
    """When a leader's failures mean that another should try."""

    rest: Backoff
    times: deque[float] = field(default_factory=deque)
    last: float = 0.0

    def failed(self, now: float) -> float:
        """Seconds to leave the lease to others; 0: begin anew."""
        if now - self.last > 10 * STUMBLE_SECONDS:
            self.rest.success()
        self.last = now
        while self.times and now - self.times[0] > STUMBLE_SECONDS:
            self.times.popleft()
        self.times.append(now)
        if len(self.times) < STUMBLES:
            return 0.0
        self.times.clear()
        return self.rest.after_failure()


@dataclass
class _Led:
    leadership: Leadership
    since: float
    threads: tuple[Kept, ...]
    failed: bool = False


class Roles:
    """`do` performs the core's effects; `renew_links` closes all links, for they say in their HELLO who leads."""

    def __init__(
        self, identity: NodeId, dsn: str, queues: QueuesConfig, terms: Terms, clock: Clock, core: SiteCore,
        supervisor: Supervisor, do: Callable[[Iterable[Effect]], None], renew_links: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.keeper = LeaseKeeper(dsn, LEASE, terms, clock, self._on_won, self._wake, owner=str(identity))
        self.why_resting = ""
        self._identity, self._dsn, self._clock, self._core, self._supervisor = identity, dsn, clock, core, supervisor
        self._queues, self._do, self._renew_links = queues, do, renew_links
        self._led: _Led | None = None
        self._retired: list[_Led] = []
        self._stumbles = Stumbles(Backoff(10.0, 120.0, random))
        self._rest = 0.0
        self._raised_above = 0
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._follower: Kept | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.keeper.start()
        self._follower = self._supervisor.keep("roles", self._follow)

    async def stop(self) -> None:
        """Comes to rest first, then lets go of the lease: the next leader finds everything as this one left it."""
        if self._follower is None:
            return
        await self._follower.stop()
        self._retire("this node stops")
        await self._bury()
        await asyncio.to_thread(self.keeper.stop)

    def leads(self) -> Leadership | None:
        """The leadership, if it holds at this moment."""
        led = self._led
        if led is None:
            return None
        if led.leadership.grant is not self.keeper.grant:
            self._retire("this node no longer leads its site")
            return None
        return led.leadership

    def outdone(self) -> bool:
        """Whether this leader must raise its epoch before it speaks (H02); then it is asked for here."""
        leadership = self.leads()
        return leadership is not None and self._raise(leadership.grant)

    @property
    def led_since(self) -> float | None:
        return self._led.since if self._led is not None and self.leads() is not None else None

    async def perform(self, work: HostWork) -> bool:
        """False: it was not done, because this node does not lead."""
        leadership = self.leads()
        if leadership is None:
            return False
        try:
            answer = await leadership.perform(work)
        except Exception:
            if leadership is not self.leads():
                return False  # what a former leadership could not do is nobody's fault now
            raise
        if answer is None or leadership is not self.leads():
            return False
        self._do(answer(self._core, self._clock.monotonic()))
        return True

    def stumbled(self, error: Exception) -> None:
        """Work of the present leadership failed, or it could not even begin; each leadership counts once."""
        led = self._led
        if led is not None and led.failed:
            return
        self._rest = self._stumbles.failed(self._clock.monotonic())
        self.why_resting = f"{type(error).__name__}: {in_one_line(error)}"
        what = "work fails; leaving the lease to others" if self._rest else "work failed; leading anew"
        log.error(what, reason=self.why_resting, rest_seconds=round(self._rest, 1))
        if led is not None and self._loop is not None:
            led.failed = True
            self._loop.call_later(0.0 if self._rest else ANEW_SECONDS, self._begin_anew, led)

    # -- inside

    def _on_won(self, grant: Grant) -> None:
        self._wake()

    def _wake(self) -> None:
        """From the keeper's threads."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._changed.set)

    def _begin_anew(self, led: _Led) -> None:
        if self._led is led:
            self._retire("this node begins anew")

    async def _follow(self) -> None:
        while True:
            self._changed.clear()
            self.leads()
            await self._bury()
            if self._rest:
                self.keeper.give_up(self._rest)
                self._rest = 0.0
            elif (grant := self.keeper.grant) is not None and self._led is None and not self.keeper.rests:
                await self._lead(grant)
            await self._changed.wait()

    def _raise(self, grant: Grant) -> bool:
        known = self._core.outdone_by(grant.epoch)
        if known > self._raised_above:
            self._raised_above = known
            log.warning("a higher incarnation of this site is known; raising above it", epoch=grant.epoch, known=known)
            self.keeper.raise_above(known)
        return bool(known)

    async def _lead(self, grant: Grant) -> None:
        if self._raise(grant):
            return
        try:
            leadership = await self._make(grant)
        except AWAY as error:
            log.warning("cannot lead yet: the database does not answer", reason=in_one_line(error))
            await asyncio.sleep(RETRY_SECONDS)
            self._changed.set()
            return
        except Exception as error:
            self.stumbled(error)
            raise
        if grant is not self.keeper.grant:
            await asyncio.to_thread(leadership.stop)
            return
        now = self._clock.monotonic()
        for site, generation in leadership.generations.items():
            with suppress(RemoteProtocolError):
                self._core.heard_of(site, generation)
        works = {"stamper": leadership.stamp, "sessions": leadership.run_sessions}
        kept = [self._supervisor.keep(n, partial(in_thread, n, work), self.stumbled) for n, work in works.items()]
        self._led = _Led(leadership, now, tuple(kept))
        self._do(self._core.lead(grant.epoch, leadership.log_id, leadership.head, now))
        self._renew_links("this node leads its site now")
        log.info("leading", site=self._identity.site, incarnation=grant.epoch)

    async def _make(self, grant: Grant) -> Leadership:
        made: list[Leadership] = []
        try:
            await in_thread("lead", lambda stop: made.append(self._leadership(grant)))
        except asyncio.CancelledError:
            for leadership in made:
                leadership.stop()
            raise
        return made[0]

    def _leadership(self, grant: Grant) -> Leadership:
        loop = Loop(
            say=lambda to, body, bulk: self._led_do(lambda now: self._core.unicast(to, body, bulk, now)),
            reload=lambda origin: self._led_do(lambda now: [asks.Load(origin)]),
            ask_ways=lambda sites, learn: self._led_do(lambda now: self._tell_ways(sites, learn)),
        )
        return Leadership(self._dsn, grant, self._identity, self._queues, self._on_head, loop)

    def _tell_ways(self, sites: Collection[str], learn: Callable[[dict[str, Ways]], None]) -> list[Effect]:
        learn({site: Ways(self._core.reaches(site), self._core.sent_towards(site)) for site in sites})
        return []

    def _on_head(self, head: Position) -> None:
        """From the stamper's thread."""
        self._led_do(lambda now: self._core.set_head(head, now))

    def _led_do(self, work: Callable[[float], list[Effect]]) -> None:
        """From any thread: on the loop, and only while this node leads."""

        def do() -> None:
            if self.leads() is not None:
                self._do(work(self._clock.monotonic()))

        if self._loop is not None:
            self._loop.call_soon_threadsafe(do)

    def _retire(self, reason: str) -> None:
        led, self._led = self._led, None
        if led is not None:
            self._retired.append(led)
            self._core.step_down()
            self._renew_links(reason)
            self._changed.set()
            log.info("not leading", site=self._identity.site, reason=reason)

    async def _bury(self) -> None:
        while self._retired:
            led = self._retired[0]
            for thread in led.threads:
                await thread.stop()
            await asyncio.to_thread(led.leadership.stop)
            self._retired.remove(led)
