"""One session as its sink knows it: its row in the table, the question it has open, and the chunks that wait to be written."""

from __future__ import annotations

from dataclasses import dataclass, field

from trunkline.queues.chunks import InOrder
from trunkline.queues.messages import Decision, Negotiate, Pair, Records
from trunkline.queues.sessionasks import BeginSnapshot, FinishSnapshot, StoreChunk, UseLog
from trunkline.queues.sessionrows import SessionRow

Write = UseLog | BeginSnapshot | StoreChunk | FinishSnapshot
# The position of a session that never had one, or whose origin began anew, says nothing.
WITHOUT_POSITION = ("first", "reset")


@dataclass(eq=False)
class Incoming:
    row: SessionRow
    full: bool = False
    question: int = 0
    """Its number; 0: none is open."""
    reason: str = ""
    why: str = ""
    """What the source said when it could not decide yet, or what is wrong with what it sends."""
    due: float = 0.0
    """When to ask again, for a decision or for chunks."""
    moved_at: float = 0.0
    chunks: InOrder[Records] = field(default_factory=InOrder)
    end: int = -1
    """The number of the end marker, once it came, and what it said."""
    reapplied_to: int = 0
    fetched: int = -1
    write: Write | None = None

    def stand(self, row: SessionRow, now: float) -> None:
        """As the table has it; what was fetched and is not in there counts for nothing."""
        self.row, self.chunks, self.end, self.fetched = row, InOrder(row.chunk), -1, -1
        self.due = self.moved_at = now

    def ask(self, number: int, reason: str, now: float) -> None:
        self.question, self.reason, self.due, self.moved_at, self.why = number, reason, now, now, ""

    def answered(self, now: float) -> None:
        self.question, self.due, self.moved_at, self.why = 0, now, now, ""

    def fetches(self, request: str) -> bool:
        return self.row.state == "snapshot" and self.row.request == request

    def completed(self, request: str) -> bool:
        """A row keeps the request that it completed, also when it needs another one."""
        return self.row.state != "snapshot" and self.row.request == request != ""

    def begins_by(self, said: Decision) -> bool:
        return (self.row.state, self.row.request, self.row.base) != ("snapshot", said.request, said.base)

    def next_write(self) -> Write | None:
        row, records = self.row, self.chunks.first()
        if self.write is not None or self.question or row.state != "snapshot":
            return None
        if row.chunk == self.end:
            return FinishSnapshot(row.origin, row.client, row.request, self.reapplied_to)
        if records is None or self.full:
            return None
        return StoreChunk(row.origin, row.client, row.request, row.chunk, records)

    def wants_chunks(self) -> bool:
        """One that is being written is not asked for again, and none of a snapshot that another one takes the place of."""
        writing = isinstance(self.write, BeginSnapshot) or (self.write is not None and self.fetched == self.row.chunk)
        return self.row.state == "snapshot" and self.row.chunk != self.end and not self.full and not writing

    def negotiate(self, pair: Pair) -> Negotiate:
        row = self.row
        position = None if row.state == "new" and row.reason in WITHOUT_POSITION else row.position
        request, chunk = (row.request, row.chunk) if row.state == "snapshot" else ("", 0)
        return Negotiate(row.client, pair, row.log_id, position, self.reason, request, chunk, self.question)


def standing(row: SessionRow) -> tuple[object, ...]:
    """What two readings of a row must share to be of the same standing; in state log the position moves by itself."""
    more = {"new": (row.reason, row.log_id), "snapshot": (row.chunk, row.base), "log": ()}
    return (row.state, row.request, *more[row.state])
