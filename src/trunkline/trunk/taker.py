"""One taker of an origin's stream: a child's subscription, or this site itself.

A taker is fed pieces of the stream in order and hands them on as fast as its window allows.

    sent ≤ cursor      sent: handed on; cursor: put into the stream, queued or found not to be wanted
    queued             bytes waiting here; a taker with a window of them is full, and is fed no more
    lagging            left the stream because it was full; what is queued stays, the rest is asked for again later
    unconfirmed        bytes handed on and not yet taken; at most a window and one piece
    busy               an answer is awaited: the log's next chunk for a child, the sink's commit for this site
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from trunkline.core.errors import LocalProtocolError
from trunkline.core.ids import Position
from trunkline.trunk.log import Applied, Entry
from trunkline.trunk.wants import lifted, needs

# A window covers the longest round trip we care for at the rate of a link; every buffer below is a multiple of it.
WINDOW = 4 * 1024 * 1024


class Piece(msgspec.Struct, frozen=True):
    log_id: str
    prev: int
    entries: tuple[Entry, ...]
    upto: Position
    clients: tuple[str, ...]
    opens: bool = False

    def size(self) -> int:
        return sum(entry.size() for entry in self.entries)


@dataclass(eq=False)
class Taker:
    site: str
    id: int
    wants: dict[str, Applied]
    log_id: str = ""
    clients: tuple[str, ...] = ()
    cursor: Position | None = None
    sent: Position | None = None
    sent_at: float = 0.0
    queued: int = 0
    unconfirmed: int = 0
    lagging: bool = False
    busy: bool = False
    opened: bool = False
    took: int = 0
    _queue: deque[Piece] = field(default_factory=deque)
    _open: deque[tuple[int, int]] = field(default_factory=deque)

    def begin(self, at: Position) -> None:
        self.cursor = self.sent = at

    def start_at(self, at: Position) -> None:
        """The origin begins the stream here: nothing before it is wanted by any taker's destinations."""
        if self.cursor is None:
            self.begin(at)
        elif self.cursor.seq < at.seq:
            self.cursor = at

    def offer(self, log_id: str, prev: int, entries: Iterable[Entry], upto: Position, clients: tuple[str, ...]) -> int:
        """Puts the stretch (prev, upto] of the stream into the queue; returns how many entries of it this taker wants."""
        if self.cursor is None or prev > self.cursor.seq:
            raise LocalProtocolError(
                f"stream to {self.site}", f"it stands at {self.cursor}, not at {prev}", "report this defect"
            )
        if upto.seq < self.cursor.seq:
            return 0
        after = self.cursor.seq
        wanted = tuple(e for e in entries if e.seq > after and needs(self.wants, e))
        self.log_id, self.clients, self.cursor = log_id, clients, upto
        if wanted:
            piece = Piece(log_id, after, wanted, upto, clients)
            self._queue.append(piece)
            self.queued += piece.size()
            self.took += len(wanted)
        return len(wanted)

    def full(self) -> bool:
        return self.queued >= WINDOW

    def next_piece(self, now: float) -> Piece | None:
        """The next piece the window allows; it covers everything found unwanted since, when it is the last one."""
        if not self._queue or self.unconfirmed >= WINDOW:
            return None
        piece = self._queue.popleft()
        self.queued -= piece.size()
        upto = piece.upto if self._queue or self.cursor is None else self.cursor
        return self._hand_on(msgspec.structs.replace(piece, prev=self._sent_seq(), upto=upto), now)

    def sign_of_life(self, now: float) -> Piece | None:
        """Without entries: says how far the stream is, and that it lives."""
        if self._queue or self.cursor is None:
            return None
        return self._hand_on(Piece(self.log_id, self._sent_seq(), (), self.cursor, self.clients), now)

    def _sent_seq(self) -> int:
        assert self.sent is not None
        return self.sent.seq

    def _hand_on(self, piece: Piece, now: float) -> Piece:
        if not self.opened:
            self.opened, piece = True, msgspec.structs.replace(piece, opens=True)
        self.sent, self.sent_at = piece.upto, now
        if piece.entries:
            self._open.append((piece.upto.seq, piece.size()))
            self.unconfirmed += self._open[-1][1]
        return piece

    def confirm(self, seq: int) -> None:
        while self._open and self._open[0][0] <= seq:
            self.unconfirmed -= self._open.popleft()[1]

    def standing(self) -> dict[str, Applied]:
        """What its destinations want, now that the stream to them stands at the cursor."""
        if self.cursor is None or not self.cursor.mark:
            return self.wants
        return {site: lifted(want, self.cursor, self.clients, self.log_id) for site, want in self.wants.items()}
