"""Dialling: one task per target keeps its peer connected.

1. A target's peer is not known before the first connection: only the certificate names it. Once known, and as long as
   a link with it exists (whoever dialled), its task waits.
2. Addresses are tried in order; when none worked, or the link ended, the task waits its backoff before the next round.
   The backoff starts anew only after a link that lasted: links that die at once must not make a storm of handshakes.
3. A changed address makes the peer unknown again and is tried at once: it is not the one that failed. Live links stay.
4. An address that turned out to be this node's own is never dialled again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.core.errors import TrunklineError
from trunkline.core.ids import NodeId
from trunkline.net.tasks import Tasks

BACKOFF_FIRST = 0.1
BACKOFF_MOST = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Target:
    addresses: tuple[str, ...]


@dataclass
class _Dial:
    key: str
    target: Target
    task: asyncio.Task[None] | None = None
    peer: NodeId | None = None
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    complaints: dict[str, str] = field(default_factory=dict)  # by address


class Dialler:
    """`connect` gives the peer's name once a link with it is up, made by this call or before; it raises otherwise."""

    def __init__(
        self,
        identity: NodeId,
        connect: Callable[[str], Awaitable[NodeId]],
        connected: Callable[[NodeId], bool],
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._identity = identity
        self._connect = connect
        self._connected = connected
        self._clock = clock
        self._random = random
        self._dials: dict[str, _Dial] = {}
        self._own: set[str] = set()
        self._tasks = Tasks()
        self._change = asyncio.Event()

    def set_targets(self, targets: Mapping[str, Target]) -> None:
        for key in self._dials.keys() - targets.keys():
            self._stop(self._dials.pop(key))
        for key, target in targets.items():
            dial = self._dials.get(key)
            if dial is None:
                self._start(_Dial(key, target))
            elif dial.target != target:
                dial.target, dial.peer, dial.complaints = target, None, {}
                dial.moved.set()
        self.links_changed()

    def links_changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def stop(self) -> None:
        self._dials.clear()
        await self._tasks.cancel()

    def _start(self, dial: _Dial) -> None:
        self._dials[dial.key] = dial
        dial.task = self._tasks.spawn(self._keep(dial), f"dial {dial.key}")

    def _stop(self, dial: _Dial) -> None:
        if dial.task is not None:
            dial.task.cancel()

    async def _keep(self, dial: _Dial) -> None:
        backoff = Backoff(BACKOFF_FIRST, BACKOFF_MOST, self._random)
        while True:
            await self._until_due(dial)
            dial.moved.clear()
            began = self._clock.monotonic()
            if await self._round(dial):
                await self._until_due(dial)
                if self._clock.monotonic() - began >= BACKOFF_MOST:
                    backoff.success()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.after_failure()):
                    await dial.moved.wait()

    async def _until_due(self, dial: _Dial) -> None:
        while not self._foreign(dial.target) or (dial.peer is not None and self._connected(dial.peer)):
            await self._change.wait()

    def _foreign(self, target: Target) -> list[str]:
        return [address for address in target.addresses if address not in self._own]

    async def _round(self, dial: _Dial) -> bool:
        target = dial.target
        for address in self._foreign(target):
            try:
                peer = await self._connect(address)
            except Exception as error:
                self._complain(dial, address, error)
                continue
            if peer == self._identity:
                self._own.add(address)
                continue
            dial.complaints.clear()
            if dial.target == target:
                dial.peer = peer
            return True
        return False

    def _complain(self, dial: _Dial, address: str, error: Exception) -> None:
        """Once per address and reason, not once per attempt."""
        reason = str(error) or type(error).__name__
        if dial.complaints.get(address) != reason:
            dial.complaints[address] = reason
            defect = not isinstance(error, OSError | TrunklineError)
            say = log.error if defect else log.info
            again = "none: tried again"
            say("cannot connect", target=dial.key, address=address, reason=reason, next_step=again, exc_info=defect)
