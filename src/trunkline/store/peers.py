"""The peers of one area: their states, who may sync now, and who has to wait. Pure.

    IDLE         not in step, and no sync runs
    SYNCING      the first sync since it was IDLE runs
    INITIALIZED  in step: changes are flooded to it as they come

1. What a state does with an event is a table; a pair that is not in it is a defect and raises.
2. A failure of whatever kind is one step of that peer's backoff, and of no other's; a success takes all steps back. An
   inconsistency is no failure: the peer is synced again at once.
3. At most `limit` syncs run at a time. It begins at 2 and doubles with every success up to 32. Peers that failed when they were
   last asked take at most half of it: those that do not answer never hold up those that do.
4. Every sync has a number of its own; a connection that is gone takes its number with it.
5. An idle peer waits for nothing but its next sync, which finds whatever was to be sent to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from trunkline.core.backoff import Backoff
from trunkline.core.errors import LocalProtocolError
from trunkline.store.sync import Sync

FIRST_LIMIT: Final = 2
HIGHEST_LIMIT: Final = 32


class PeerState(StrEnum):
    IDLE = "idle"
    SYNCING = "syncing"
    INITIALIZED = "initialized"


class PeerEvent(StrEnum):
    PEER_ADD = "sync sent"
    PEER_DEL = "deleted"
    SYNC_RESP_RCVD = "sync done"
    API_ERROR = "failed"
    INCONSISTENCY_DETECTED = "inconsistent"


_I, _S, _D = PeerState.IDLE, PeerState.SYNCING, PeerState.INITIALIZED
_E = PeerEvent
TRANSITIONS: Final = {
    (_I, _E.PEER_ADD): _S,
    (_I, _E.API_ERROR): _I,
    (_I, _E.INCONSISTENCY_DETECTED): _I,
    (_S, _E.SYNC_RESP_RCVD): _D,
    (_S, _E.API_ERROR): _I,
    (_S, _E.INCONSISTENCY_DETECTED): _I,
    (_D, _E.SYNC_RESP_RCVD): _D,
    (_D, _E.API_ERROR): _I,
    (_D, _E.INCONSISTENCY_DETECTED): _I,
}
"""A deleted peer is gone: no state leads there."""


@dataclass(eq=False)
class Peer:
    name: str
    backoff: Backoff
    addresses: tuple[str, ...] = ()
    kept: bool = False
    """Added by name: stays when its link goes."""
    linked: bool = False
    state: PeerState = PeerState.IDLE
    since: float = 0.0
    flaps: int = -1
    """Counts every entry to and every exit from INITIALIZED: 0 after the first sync, 2 after one more."""
    failures: int = 0
    reason: str = ""
    """Of the last failure."""
    retry_at: float = 0.0
    sync: Sync | None = None
    pending: dict[str, bool] = field(default_factory=dict)
    """Keys to flood later; True: with their bytes."""
    again: bool = False
    """A sync must follow, or follow the open one: too many keys waited and were dropped, or something did not fit."""
    blocked: bool = False
    """Its link's queue is full."""

    def step(self, event: PeerEvent, now: float) -> None:
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise LocalProtocolError(f"peer {self.name}", f"{event} while it is {self.state}", "report this: it is a defect")
        if after is not self.state:
            self.flaps += (self.state is _D) + (after is _D)
            self.state, self.since = after, now
        if after is _I:
            self.sync, self.again = None, False
            self.pending.clear()

    @property
    def can_take(self) -> bool:
        """Changes may be flooded to it now."""
        return self.state is _D and not self.blocked


class Peers:
    def __init__(self, initial_backoff: float, highest_backoff: float, random: Callable[[], float]) -> None:
        self.by_name: dict[str, Peer] = {}
        self.limit = FIRST_LIMIT
        self._initial, self._highest, self._random = initial_backoff, highest_backoff, random
        self._syncs = 0
        self._turn: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self.by_name)

    def add(self, name: str, now: float, addresses: tuple[str, ...] = (), kept: bool = True) -> Peer:
        """A peer that is there already keeps its session, whatever its addresses are now."""
        peer = self.by_name.get(name)
        if peer is None:
            peer = self.by_name[name] = Peer(name, Backoff(self._initial, self._highest, self._random), since=now)
        peer.addresses = addresses or peer.addresses
        peer.kept = peer.kept or kept
        return peer

    def delete(self, name: str) -> Peer | None:
        self._turn.pop(name, None)
        return self.by_name.pop(name, None)

    def next_sync(self) -> int:
        self._syncs += 1
        return self._syncs

    # -- outcomes

    def failed(self, peer: Peer, reason: str, now: float) -> None:
        peer.step(PeerEvent.API_ERROR, now)
        peer.reason = reason
        peer.failures += 1
        peer.retry_at = now + peer.backoff.after_failure()

    def succeeded(self, peer: Peer, now: float) -> None:
        peer.step(PeerEvent.SYNC_RESP_RCVD, now)
        peer.sync, peer.reason, peer.retry_at = None, "", 0.0
        peer.backoff.success()
        self.limit = min(HIGHEST_LIMIT, self.limit * 2)

    # -- who is next

    def running(self) -> int:
        return sum(peer.sync is not None for peer in self.by_name.values())

    def ready(self, now: float) -> list[Peer]:
        """Who may begin a sync now: idle peers and those that need another one, as many as the limit leaves room for."""
        waiting = [p for p in self.by_name.values() if p.sync is None and (p.state is _I or p.again)]
        waiting = [p for p in waiting if p.linked and not p.blocked and p.retry_at <= now]
        if not waiting:
            return []
        sound = [p for p in waiting if not p.backoff.failures]
        doubtful = sorted((p for p in waiting if p.backoff.failures), key=lambda p: p.retry_at)
        asked = sum(p.sync is not None and p.backoff.failures > 0 for p in self.by_name.values())
        chosen = sound + doubtful[: max(0, self.limit // 2 - asked)]
        return chosen[: max(0, self.limit - self.running())]

    def in_turn(self) -> Peer | None:
        """One that is in step; the next call names the next one."""
        for name, peer in self.by_name.items():
            if peer.can_take:
                self._turn.setdefault(name)
        for name in list(self._turn):
            del self._turn[name]
            found = self.by_name.get(name)
            if found is not None and found.can_take and found.sync is None:
                self._turn[name] = None
                return found
        return None
