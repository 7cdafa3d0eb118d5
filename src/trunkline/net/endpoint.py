"""A node's end of all its links: it listens, dials, and keeps one link per peer.

1. `link_up` and `link_down` alternate per peer, and each link has at most one of both; `message` comes only between.
2. One link per pair of nodes (rule 4 of `trunkline.net.hello`). A connection that would lose against the established
   link is refused at its HELLO, before either side has seen it up. The dialling side is stricter: it gives up its
   own new connection unless an incarnation rose, and it accepts one HELLO per peer at a time. So two links can be
   established at once only if each side dialled one, or if one side has already lost the older one.
3. A breach of the protocol costs the peer that one connection. It is counted by kind, answered by BYE, and logged; the
   same reason of the same peer again only after REPEAT_SECONDS.
4. No task and no socket outlives `stop`.
5. A peer whose certificate has expired or is revoked gets no link, whoever dials, and keeps none: live links are judged
   again every CHECK_SECONDS, by the files of that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import structlog

from trunkline.core.clock import Clock
from trunkline.core.config import TlsConfig
from trunkline.core.errors import Invalid, RemoteProtocolError, Retryable, TrunklineError
from trunkline.core.health import Check
from trunkline.core.ids import NodeId
from trunkline.net.certificate import Certified
from trunkline.net.channels import Channel
from trunkline.net.credentials import Credentials
from trunkline.net.dial import Dialler, Target
from trunkline.net.hello import Bye, Hello, rank
from trunkline.net.link import Link, Pace, Refused, shake_hands
from trunkline.net.listener import Listener
from trunkline.net.stream import Stream, accept_stream, dial_stream
from trunkline.net.tasks import Tasks
from trunkline.net.tls import certified

__all__ = ["HANDSHAKE_TIMEOUT", "VIOLATIONS", "Closes", "Endpoint", "Events", "Target"]

HANDSHAKE_TIMEOUT = 5.0  # TCP, TLS and both HELLOs: some round trips of the slowest link we mean to serve
CERTIFICATE_EXPIRED = 10  # OpenSSL's number for it
CHECK_SECONDS = 1.0  # four small files are read and each link's certificate is looked up: far below a millisecond
REPEAT_SECONDS = 600.0
MAX_REASONS = 1000  # remembered as told; beyond, all are forgotten and may be told again
VIOLATIONS = (
    "tls", "revoked", "expired", "identity", "handshake", "wire version", "control message", "frame", "credit", "message",
    "overload",
)  # fmt: skip

log = structlog.get_logger(__name__)


class Events(Protocol):
    """Called from the event loop; must not block. RemoteProtocolError from `message` closes that link as a violation."""

    def link_up(self, link: Link) -> None: ...

    def link_down(self, link: Link, reason: str) -> None: ...

    def message(self, link: Link, channel: Channel, body: bytes) -> None: ...


Closes = Callable[[str, str, str], None]
"""Told of every connection this side refused or closed by its own rules: kind of VIOLATIONS, peer or address, reason."""


class _AlreadyConnected(Retryable):
    def __init__(self, peer: NodeId) -> None:
        super().__init__(f"connection with {peer}", "another link between the two stays", "none: use that link")
        self.peer = peer


class Endpoint:
    """`hello(peer)` is asked for every connection, `heads` for every heartbeat of every link: it must be cheap.

    `violations` counts by kind what peers did wrong, since the start.
    """

    def __init__(
        self,
        identity: NodeId,
        tls: TlsConfig | Credentials,
        hello: Callable[[NodeId], Hello],
        events: Events,
        heartbeat: float,
        clock: Clock,
        random: Callable[[], float],
        handshake_timeout: float = HANDSHAKE_TIMEOUT,
        closes: Closes | None = None,
        heads: Callable[[], dict[str, int]] = dict,
    ) -> None:
        self.violations: Counter[str] = Counter()
        self.credentials = _own(identity, Credentials(tls, clock) if isinstance(tls, TlsConfig) else tls)
        self._identity = identity
        self._hello = hello
        self._events = events
        self._heartbeat = heartbeat
        self._clock = clock
        self._handshake_timeout = handshake_timeout
        self._closes = closes
        self._heads = heads
        self._dialler = Dialler(identity, self._connect, self._connected, clock, random)
        self._listener = Listener(self._serve, self._overloaded)
        self._guards = Tasks()
        self._sessions = Tasks()
        self._links: dict[NodeId, Link] = {}
        self._shown: dict[Link, Certified] = {}
        self._claims: set[NodeId] = set()
        self._told: dict[tuple[str, str, str], float] = {}
        self._stopped = False

    async def start(self, listen: str) -> str:
        bound = await self._listener.start(listen)
        self._guards.spawn(self._guard(), "guard")
        return bound

    def set_targets(self, targets: Mapping[str, Target]) -> None:
        """A removed target is not dialled any more; its live link stays until one side closes it."""
        if not self._stopped:
            self._dialler.set_targets(targets)

    def links(self) -> dict[NodeId, Link]:
        return dict(self._links)

    @property
    def accept_errors(self) -> int:
        return self._listener.accept_errors

    def checks(self) -> tuple[Check, ...]:
        """For readiness: whether this node can be reached and believed."""
        listening = self._listener.listening
        return (
            Check("links", listening, f"{len(self._links)} up" if listening else "not listening"),
            self.credentials.check(),
        )

    async def stop(self) -> None:
        self._stopped = True
        self._listener.close()
        await self._guards.cancel()
        await self._dialler.stop()
        await self._listener.stop()
        for link in self._links.values():
            link.close("the node stops")
        await self._sessions.join()

    # -- opening connections

    async def _serve(self, accepted: socket.socket) -> None:
        self.credentials.refresh()
        try:
            where = _host(accepted)
            await self._meet(accept_stream(accepted, self.credentials.server), where, outgoing=False)
        except (OSError, TrunklineError) as error:
            log.debug("no link came of an accepted connection", reason=str(error) or type(error).__name__)

    async def _connect(self, address: str) -> NodeId:
        self.credentials.refresh()
        return await self._meet(dial_stream(address, self.credentials.client), address, outgoing=True)

    def _connected(self, peer: NodeId) -> bool:
        return peer in self._links or peer in self._claims

    # -- from a connection to a link

    async def _meet(self, opening: Awaitable[Stream], where: str, outgoing: bool) -> NodeId:
        """The peer's name, once a link with it is up. Every failure is counted here and raised."""
        try:
            async with asyncio.timeout(self._handshake_timeout):
                return await self._greet(await opening, where, outgoing)
        except ssl.SSLError as error:
            kind = "expired" if getattr(error, "verify_code", None) == CERTIFICATE_EXPIRED else "tls"
            self._violation(RemoteProtocolError(kind, str(error), "check both nodes' certificates and ca"), outgoing, where)
            raise
        except TimeoutError:
            if not outgoing:  # an address that does not answer breaks no rule
                why = f"it was not done within {self._handshake_timeout} s"
                self._violation(RemoteProtocolError("handshake", why, "check that the peer is a node"), outgoing, where)
            raise

    async def _greet(self, stream: Stream, where: str, outgoing: bool) -> NodeId:
        peer: NodeId | None = None
        try:
            shown = certified(stream.ssl_object)
            peer = shown.identity
            if peer == self._identity:
                await stream.abort()
                return peer
            if objection := self.credentials.objection(shown):
                raise objection
            with contextlib.ExitStack() as claim:
                link = await self._establish(stream, peer, outgoing, claim)
                self._adopt(link, shown)
        except BaseException as error:
            if isinstance(error, RemoteProtocolError):
                self._violation(error, outgoing, peer or where)
            await stream.close(_goodbye(error))
            if isinstance(error, _AlreadyConnected) and outgoing:
                return error.peer
            raise
        self._sessions.spawn(self._session(link), f"link {peer}")
        return peer

    async def _establish(self, stream: Stream, peer: NodeId, outgoing: bool, claim: contextlib.ExitStack) -> Link:
        mine = self._hello(peer)

        def admit(theirs: Hello) -> None:
            self._admit(mine, theirs, outgoing)
            if outgoing:
                self._claims.add(peer)
                claim.callback(self._release, peer)

        theirs = await shake_hands(stream, peer, mine, admit)
        pace = Pace(self._heartbeat, self._clock, self._heads)
        return Link(stream, peer, mine, theirs, outgoing, pace)

    def _admit(self, mine: Hello, theirs: Hello, outgoing: bool) -> None:
        peer = theirs.identity
        if outgoing and peer in self._claims:
            raise _AlreadyConnected(peer)
        existing = self._links.get(peer)
        if existing is None:
            return
        new, old = rank(mine, theirs, outgoing), existing.rank
        if new < old or (outgoing and new[:2] == old[:2]):
            raise _AlreadyConnected(peer)

    def _release(self, peer: NodeId) -> None:
        self._claims.discard(peer)
        self._dialler.links_changed()

    def _adopt(self, link: Link, shown: Certified) -> None:
        existing = self._links.get(link.peer)
        if existing is not None:
            if link.rank < existing.rank:
                raise _AlreadyConnected(link.peer)
            existing.close("another link between the two stays")
            self._forget(existing, "replaced by another link")
        self._links[link.peer], self._shown[link] = link, shown
        try:
            self._events.link_up(link)
        except BaseException:
            del self._links[link.peer], self._shown[link]
            raise

    # -- the life of a link

    async def _guard(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.credentials.refresh()
            for link, shown in list(self._shown.items()):
                if objection := self.credentials.objection(shown):
                    self._violation(objection, link.outgoing, link.peer)
                    link.close(objection.why)

    async def _session(self, link: Link) -> None:
        reason, goodbye = "this node failed", Bye("this node failed", "see its log")
        try:
            reason = await link.run(self._events.message)
            goodbye = Bye(reason, "connect again")
        except RemoteProtocolError as error:
            self._violation(error, link.outgoing, link.peer)
            reason, goodbye = error.why, Bye(error.why, error.next_step)
        finally:
            try:
                self._forget(link, reason)
            finally:
                await link.finish(goodbye)

    def _forget(self, link: Link, reason: str) -> None:
        if self._links.get(link.peer) is not link:
            return
        del self._links[link.peer], self._shown[link]
        self._dialler.links_changed()
        self._events.link_down(link, reason)

    # -- what peers did wrong

    def _overloaded(self) -> None:
        why = "too many connections are not yet up: the oldest was dropped"
        self._violation(RemoteProtocolError("overload", why, "find out who opens them"), False, "several")

    def _violation(self, error: RemoteProtocolError, outgoing: bool, peer: NodeId | str) -> None:
        """`peer` is its name or, before a certificate told that, its address."""
        kind = error.what if error.what in VIOLATIONS else "message"
        self.violations[kind] += 1
        if self._closes is not None:
            self._closes(kind, str(peer), error.why)
        say = log.warning if self._news((kind, str(peer), error.why)) else log.debug
        say(
            "protocol violation: connection closed",
            kind=kind,
            peer=str(peer),
            dialled=outgoing,
            reason=error.why,
            next_step=error.next_step,
        )

    def _news(self, reason: tuple[str, str, str]) -> bool:
        now = self._clock.monotonic()
        told = self._told.get(reason)
        if told is not None and now - told < REPEAT_SECONDS:
            return False
        if len(self._told) >= MAX_REASONS:
            self._told.clear()
        self._told[reason] = now
        return True


def _own(identity: NodeId, credentials: Credentials) -> Credentials:
    if credentials.identity != identity:
        why = f"it names {credentials.identity}, this node is {identity}"
        raise Invalid("certificate", why, f"issue one with `trunkline ca issue {identity}`")
    return credentials


def _host(accepted: socket.socket) -> str:
    try:
        return str(accepted.getpeername()[0])
    except OSError:  # it is gone already
        return "unknown"


def _goodbye(error: BaseException) -> Bye | None:
    """Nothing to say to a peer that is gone, or that refused first."""
    if isinstance(error, TrunklineError) and not isinstance(error, Refused):
        return Bye(error.why, error.next_step)
    return None
