"""One taker of an origin's stream: a child's subscription, or this site itself.

A taker is fed pieces of the stream in order and hands them on as fast as its window allows.

    sent ≤ cursor      sent: handed on; cursor: put into the stream, queued or found not to be wanted
    queued             bytes waiting here; a taker with a window of them is full, and is fed no more
    lagging            left the stream because it was full; what is queued stays, the rest is asked for again later
    unconfirmed        bytes handed on and not yet taken; at most a window and one piece
    busy               an answer is awaited: the log's next chunk for a child, the sink's commit for this site
    proposal           the child's next subscription; it *turns* to that one when this site can serve it (H13)
    introduced         of this site: clients that the sink has been told of
    fed                the lane of this site's own stream that feeds it, whatever lane the child asked for
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from trunkline.core.errors import LocalProtocolError
from trunkline.core.ids import Position
from trunkline.trunk.log import Applied, Entry, messages_in, size_of
from trunkline.trunk.messages import Lane
from trunkline.trunk.wants import is_strange, lifted, lowest_of, needed_above

# A window covers the longest round trip we care for at the rate of a link; every buffer below is a multiple of it.
WINDOW = 4 * 1024 * 1024
# The catch-up's share: what it may have on its way is a quarter of what the live entries may.
WINDOWS = {Lane.LIVE: WINDOW, Lane.CATCH_UP: WINDOW // 4}
# Sets of destinations whose threshold is remembered; beyond it they are worked out anew.
REMEMBERED = 4096


class Piece(msgspec.Struct, frozen=True):
    id: int
    log_id: str
    prev: int
    entries: tuple[Entry, ...]
    upto: Position
    clients: tuple[str, ...]
    size: int = 0
    opens: bool = False
    after: int = -1


@dataclass(frozen=True)
class Proposal:
    id: int
    wants: dict[str, Applied]
    kept: frozenset[str]


@dataclass(eq=False)
class Taker:
    site: str
    id: int
    wants: dict[str, Applied]
    lane: Lane = Lane.LIVE
    log_id: str = ""
    clients: tuple[str, ...] = ()
    cursor: Position | None = None
    sent: Position | None = None
    sent_at: float = 0.0
    queued: int = 0
    unconfirmed: int = 0
    lagging: bool = False
    busy: bool = False
    reading: int = 0
    opened: bool = False
    fed: Lane = Lane.LIVE
    proposal: Proposal | None = None
    introduced: set[str] = field(default_factory=set)
    _queue: deque[Piece] = field(default_factory=deque)
    _open: deque[tuple[int, int, int]] = field(default_factory=deque)
    _above: dict[tuple[str, tuple[str, ...]], int | None] = field(default_factory=dict)

    # -- where it stands

    def begin(self, at: Position) -> None:
        self.cursor = self.sent = at

    def start_at(self, at: Position) -> None:
        """The origin begins the stream here: nothing before it is wanted by any taker's destinations."""
        if self.cursor is None:
            self.begin(at)
        elif self.cursor.seq < at.seq:
            self.cursor = at

    def standing(self) -> dict[str, Applied]:
        """What its destinations want, now that the stream to them stands at the cursor."""
        stands = self._standing()
        if self.proposal is None:
            return stands
        kept = self.proposal.kept & stands.keys()
        return {site: stands[site] if site in kept else want for site, want in self.proposal.wants.items()}

    def _standing(self) -> dict[str, Applied]:
        if self.cursor is None or not self.cursor.mark:
            return self.wants
        return {site: lifted(want, self.cursor, self.clients, self.log_id) for site, want in self.wants.items()}

    def newcomers(self) -> dict[str, Applied]:
        assert self.proposal is not None
        kept = self.proposal.kept & self.wants.keys()
        return {site: want for site, want in self.proposal.wants.items() if site not in kept}

    def lowest(self) -> int:
        if self.cursor is not None:
            return self.cursor.seq
        return min(map(lowest_of, self.standing().values()), default=0)

    def turn(self, start: Position) -> None:
        """From here on the proposed subscription is served: its newcomers from `start`, the others without a break."""
        assert self.proposal is not None
        assert self.cursor is not None
        assert self.sent is not None
        after, self.wants = self.cursor, self.standing()
        if self._queue or self.sent.seq < after.seq:
            self._queue.append(Piece(self.id, self.log_id, 0, (), after, self.clients))
        self.id, self.proposal = self.proposal.id, None
        self.cursor = start if start.seq < after.seq else after
        self._queue.append(
            Piece(self.id, self.log_id, self.cursor.seq, (), self.cursor, self.clients, opens=True, after=after.seq)
        )
        self._above.clear()

    # -- into the queue

    def offer(self, log_id: str, prev: int, entries: tuple[Entry, ...], upto: Position, clients: tuple[str, ...]) -> int:
        """Puts the stretch (prev, upto] of the stream into the queue; returns how many messages of it this taker wants."""
        if self.cursor is None or prev > self.cursor.seq:
            raise LocalProtocolError(
                f"stream to {self.site}", f"it stands at {self.cursor}, not at {prev}", "report this defect"
            )
        if upto.seq < self.cursor.seq:
            return 0
        wanted = self._wanted(entries, self.cursor.seq)
        if wanted:
            size = size_of(wanted)
            self._queue.append(Piece(self.id, log_id, self.cursor.seq, wanted, upto, clients, size))
            self.queued += size
        self.log_id, self.clients, self.cursor = log_id, clients, upto
        return messages_in(wanted)

    def _wanted(self, entries: tuple[Entry, ...], after: int) -> tuple[Entry, ...]:
        """Entries of one client for the same sites are alike: one look at the wants does for all of them."""
        above, wanted = self._above, []
        if len(above) > REMEMBERED:
            above.clear()
        for e in entries:
            key = (e.client, e.destinations)
            if key in above:
                least = above[key]
            else:
                least = above[key] = needed_above(self.wants, e)
            if least is not None and e.seq > least and e.seq > after:
                wanted.append(e)
        return entries if len(wanted) == len(entries) else tuple(wanted)

    def meets_strangers(self) -> bool:
        unmet = set(self.clients) - self.introduced
        return any(is_strange(want, client) for want in self.wants.values() for client in unmet)

    def full(self) -> bool:
        return self.queued >= WINDOW

    # -- out of the queue

    @property
    def window(self) -> int:
        return WINDOWS[self.lane]

    @property
    def at_once(self) -> int:
        """Bytes to read for it: half of a live window, so that the next piece is read while this one is on its way."""
        return min(self.window, WINDOW // 2)

    def next_piece(self, now: float) -> Piece | None:
        """The next piece the window allows; it covers everything found unwanted since, when it is the last one."""
        if not self._queue or self.unconfirmed >= self.window:
            return None
        piece = self._queue.popleft()
        self.queued -= piece.size
        upto = piece.upto
        if not self._queue and self.cursor is not None:
            upto, piece = self.cursor, msgspec.structs.replace(piece, clients=self.clients)
        prev = piece.prev if piece.opens else self._sent_seq()
        return self._hand_on(piece, prev, upto, now)

    def sign_of_life(self, now: float) -> Piece | None:
        """Without entries: says how far the stream is, and that it lives."""
        if self._queue or self.cursor is None:
            return None
        piece = Piece(self.id, self.log_id, 0, (), self.cursor, self.clients)
        return self._hand_on(piece, self._sent_seq(), self.cursor, now)

    def _sent_seq(self) -> int:
        assert self.sent is not None
        return self.sent.seq

    def _hand_on(self, piece: Piece, prev: int, upto: Position, now: float) -> Piece:
        opens, self.opened = piece.opens or not self.opened, True
        self.sent, self.sent_at = upto, now
        if piece.entries:
            self._open.append((piece.id, upto.seq, piece.size))
            self.unconfirmed += piece.size
        return msgspec.structs.replace(piece, prev=prev, upto=upto, opens=opens)

    def knows(self, id: int) -> bool:
        return id == self.id or any(id == sent for sent, _, _ in self._open)

    def confirm(self, id: int, seq: int) -> None:
        """Taken up to `seq` under that subscription, and with it everything under those before."""
        while self._open and (self._open[0][0] < id or (self._open[0][0] == id and self._open[0][1] <= seq)):
            self.unconfirmed -= self._open.popleft()[2]
