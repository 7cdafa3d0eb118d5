"""A node's end of all its links: it listens, dials, and keeps one link per peer.

1. `link_up` and `link_down` alternate per peer, and each link has at most one of both; `message` comes only between.
2. One link per pair of nodes (rule 4 of `trunkline.net.hello`). A connection that would lose against the established
   link is refused at its HELLO, before either side has seen it up. The dialling side is stricter: it gives up its
   own new connection unless an incarnation rose, and it accepts one HELLO per peer at a time. So two links can be
   established at once only if each side dialled one, or if one side has already lost the older one.
3. A breach of the protocol costs the peer that one connection. It is counted by kind, logged, and answered by BYE.
4. No task and no socket outlives `stop`.
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
from trunkline.core.ids import NodeId
from trunkline.net.channels import Channel
from trunkline.net.dial import Dialler, Target
from trunkline.net.hello import Bye, Hello, rank
from trunkline.net.link import Link, Pace, Refused, shake_hands
from trunkline.net.stream import Stream, accept_stream, dial_stream, split_address
from trunkline.net.tasks import Tasks
from trunkline.net.tls import certified_identity, client_context, server_context

__all__ = ["HANDSHAKE_TIMEOUT", "VIOLATIONS", "Endpoint", "Events", "Target"]

HANDSHAKE_TIMEOUT = 5.0  # TCP, TLS and both HELLOs: some round trips of the slowest link we mean to serve
MAX_HANDSHAKES = 256  # accepted and not yet up; each costs a socket and some 50 KB for at most HANDSHAKE_TIMEOUT
ACCEPT_PAUSE = 0.5  # after an error of accept itself, such as no free file descriptors
BACKLOG = 256
VIOLATIONS = ("tls", "handshake", "identity", "wire version", "control message", "frame", "message", "overload")

log = structlog.get_logger(__name__)


class Events(Protocol):
    """Called from the event loop; must not block. RemoteProtocolError from `message` closes that link as a violation."""

    def link_up(self, link: Link) -> None: ...

    def link_down(self, link: Link, reason: str) -> None: ...

    def message(self, link: Link, channel: Channel, body: bytes) -> None: ...


class _AlreadyConnected(Retryable):
    def __init__(self, peer: NodeId) -> None:
        super().__init__(f"connection with {peer}", "another link between the two stays", "none: use that link")
        self.peer = peer


class Endpoint:
    """`hello(peer)` is asked for every connection and, for its heads, for every heartbeat: it must be cheap."""

    def __init__(
        self,
        identity: NodeId,
        tls: TlsConfig,
        hello: Callable[[NodeId], Hello],
        events: Events,
        heartbeat: float,
        clock: Clock,
        random: Callable[[], float],
        handshake_timeout: float = HANDSHAKE_TIMEOUT,
    ) -> None:
        self.violations: Counter[str] = Counter()
        self._identity = identity
        self._hello = hello
        self._events = events
        self._heartbeat = heartbeat
        self._clock = clock
        self._handshake_timeout = handshake_timeout
        self._server_context = server_context(tls.ca, tls.certificate, tls.key)
        self._client_context = client_context(tls.ca, tls.certificate, tls.key)
        self._dialler = Dialler(identity, self._connect, self._connected, clock, random)
        self._handshakes = Tasks()
        self._sessions = Tasks()
        self._links: dict[NodeId, Link] = {}
        self._claims: set[NodeId] = set()
        self._listener: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._stopped = False

    async def start(self, listen: str) -> str:
        host, port = split_address(listen)
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, *_, where = found[0]
            self._listener = socket.create_server(where[:2], family=family, backlog=BACKLOG)
        except OSError as error:
            raise Invalid(f"listen address {listen}", str(error), "choose a free address of this machine") from None
        self._listener.setblocking(False)
        self._accept_from_now_on()
        bound = self._listener.getsockname()
        return f"[{bound[0]}]:{bound[1]}" if family == socket.AF_INET6 else f"{bound[0]}:{bound[1]}"

    def set_targets(self, targets: Mapping[str, Target]) -> None:
        """A removed target is not dialled any more; its live link stays until one side closes it."""
        if not self._stopped:
            self._dialler.set_targets(targets)

    def links(self) -> dict[NodeId, Link]:
        return dict(self._links)

    async def stop(self) -> None:
        self._stopped = True
        self._stop_listening()
        await self._dialler.stop()
        await self._handshakes.cancel()
        for link in self._links.values():
            link.close("the node stops")
        await self._sessions.join()

    # -- listening

    def _accept_from_now_on(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.error("cannot accept", reason=str(error), next_step="raise the limit of open files")
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            self._pause = loop.call_later(ACCEPT_PAUSE, self._accept_from_now_on)
            return
        if len(self._handshakes) >= MAX_HANDSHAKES:
            self.violations["overload"] += 1
            accepted.close()
            return
        accepted.setblocking(False)
        self._handshakes.spawn(self._serve(accepted), "serve")

    def _stop_listening(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    async def _serve(self, accepted: socket.socket) -> None:
        try:
            await self._meet(accept_stream(accepted, self._server_context), outgoing=False)
        except (OSError, TrunklineError) as error:
            log.debug("no link came of an accepted connection", reason=str(error) or type(error).__name__)

    # -- dialling

    async def _connect(self, address: str) -> NodeId:
        return await self._meet(dial_stream(address, self._client_context), outgoing=True)

    def _connected(self, peer: NodeId) -> bool:
        return peer in self._links or peer in self._claims

    # -- from a connection to a link

    async def _meet(self, opening: Awaitable[Stream], outgoing: bool) -> NodeId:
        """The peer's name, once a link with it is up. Every failure is counted here and raised."""
        try:
            async with asyncio.timeout(self._handshake_timeout):
                return await self._greet(await opening, outgoing)
        except ssl.SSLError as error:
            self._violation(RemoteProtocolError("tls", str(error), "check both nodes' certificates and ca"), outgoing)
            raise
        except TimeoutError:
            if not outgoing:  # an address that does not answer breaks no rule
                why = f"it was not done within {self._handshake_timeout} s"
                self._violation(RemoteProtocolError("handshake", why, "check that the peer is a node"), outgoing)
            raise

    async def _greet(self, stream: Stream, outgoing: bool) -> NodeId:
        peer: NodeId | None = None
        try:
            peer = certified_identity(stream.ssl_object)
            if peer == self._identity:
                await stream.abort()
                return peer
            with contextlib.ExitStack() as claim:
                link = await self._establish(stream, peer, outgoing, claim)
                self._adopt(link)
        except BaseException as error:
            if isinstance(error, RemoteProtocolError):
                self._violation(error, outgoing, peer)
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
        pace = Pace(self._heartbeat, self._clock, lambda: self._hello(peer).heads)
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

    def _adopt(self, link: Link) -> None:
        existing = self._links.get(link.peer)
        if existing is not None:
            if link.rank < existing.rank:
                raise _AlreadyConnected(link.peer)
            existing.close("another link between the two stays")
            self._forget(existing, "replaced by another link")
        self._links[link.peer] = link
        try:
            self._events.link_up(link)
        except BaseException:
            del self._links[link.peer]
            raise

    # -- the life of a link

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
        del self._links[link.peer]
        self._dialler.links_changed()
        self._events.link_down(link, reason)

    def _violation(self, error: RemoteProtocolError, outgoing: bool, peer: NodeId | None = None) -> None:
        kind = error.what if error.what in VIOLATIONS else "message"
        self.violations[kind] += 1
        log.warning(
            "protocol violation: connection closed",
            kind=kind,
            peer=str(peer) if peer else "unknown",
            dialled=outgoing,
            reason=error.why,
            next_step=error.next_step,
        )


def _goodbye(error: BaseException) -> Bye | None:
    """Nothing to say to a peer that is gone, or that refused first."""
    if isinstance(error, TrunklineError) and not isinstance(error, Refused):
        return Bye(error.why, error.next_step)
    return None
