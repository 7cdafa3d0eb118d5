"""One session as its source knows it: whom it was promised what, how much of it is out, and where its two machines stand."""

from __future__ import annotations

from dataclasses import dataclass, field

from trunkline.core.ids import START, Position
from trunkline.queues.retries import Retry
from trunkline.queues.sessionrows import RequestRow
from trunkline.queues.states import (
    CONNECTION,
    REPLICATION,
    Connection,
    ConnectionEvent,
    Replication,
    ReplicationEvent,
    after,
)

# What a sink may ask to have on its way at once; it is bounded here too, for sinks that ask for more.
WINDOW = 4
# A sink asks for the same chunk again after two seconds; what comes sooner is the same message twice. Over a slow link a chunk
# takes longer: what is sent again in vain is sent again after twice the time, and what arrives says how long it takes.
RESEND_SECONDS, MOST_RESEND_SECONDS = 1.0, 20.0


@dataclass(eq=False)
class Outgoing:
    site: str
    client: str
    connection: Connection = Connection.WAITING_FOR_CONNECTIVITY
    replication: Replication = Replication.INITIALIZED
    retry: Retry = field(default_factory=Retry)
    question: int = 0
    """The last one of the sink; older ones are late."""
    current: RequestRow | None = None
    """The newest open request for it that it does not have yet."""
    current_since: float = 0.0
    promised: str = ""
    """The request it was told to fetch."""
    forced: bool = False
    base: Position = START
    wanted: int = 0
    """All chunks before this one are durable at the sink."""
    sent: int = 0
    limit: int = 0
    """wanted ≤ sent ≤ limit ≤ wanted + WINDOW, but for what is sent again."""
    sent_at: float = 0.0
    patience: float = RESEND_SECONDS
    """A chunk that was sent so many seconds ago, and is asked for again, is taken to be lost."""
    reached: int = 0
    """All chunks before this one were sent."""
    under_way: dict[int, float] = field(default_factory=dict)
    """Chunks that were sent once, and when."""
    asking: bool = False
    asked: str = ""
    """The request written for it, until it is seen in the table."""
    asked_at: float = 0.0
    delivered: str = ""
    completed_at: float | None = None
    heard_at: float = 0.0
    called_at: float = float("-inf")
    acknowledged: int = -1
    acknowledged_at: float = 0.0
    """Before its first acknowledgement: since when it is known."""

    @property
    def awaits_snapshot(self) -> bool:
        return self.replication is Replication.SNAPSHOT or self.current is not None

    def acknowledge(self, seq: int, now: float) -> None:
        """Who acknowledges entries takes the log; a session that does asks for nothing."""
        if self.acknowledged != seq:
            self.acknowledged, self.acknowledged_at = seq, now
        self.replicate(ReplicationEvent.LOG_REQUEST)
        if self.replication is Replication.LOG_ENTRY and self.connection is Connection.VERIFYING_REMOTE_LEADER:
            self.connect(ConnectionEvent.LEADER_FOUND, ConnectionEvent.COMPLETE)

    def connect(self, *events: ConnectionEvent) -> None:
        for event in events:
            self.connection = after(CONNECTION, self.connection, event)

    def replicate(self, *events: ReplicationEvent) -> None:
        for event in events:
            self.replication = after(REPLICATION, self.replication, event)

    def promise(self, request: RequestRow, chunk: int) -> None:
        """The sink goes on at this chunk. A promise that is repeated changes nothing."""
        if self.promised == request.id:
            return
        self.promised, self.base, self.forced, self.completed_at = request.id, request.base, request.forced, None
        self.wanted = self.sent = self.limit = self.reached = chunk
        self.under_way.clear()
        self.replicate(ReplicationEvent.STOP, ReplicationEvent.SNAPSHOT_REQUEST)

    def forget_promise(self) -> None:
        self.promised = ""

    def fetch(self, chunk: int, window: int, now: float) -> None:
        if chunk < self.wanted:
            return  # overtaken on its way
        arrived = [self.under_way.pop(n) for n in list(self.under_way) if n < chunk]
        if arrived:
            self.patience = min(max(RESEND_SECONDS, 2 * (now - min(arrived))), MOST_RESEND_SECONDS)
        if chunk == self.wanted and self.sent > chunk and now - self.sent_at >= self.patience:
            self.sent, self.patience = chunk, min(2 * self.patience, MOST_RESEND_SECONDS)
        self.wanted, self.sent = chunk, max(self.sent, chunk)
        self.limit = chunk + min(window, WINDOW)

    def next_chunk(self, now: float) -> int | None:
        """The next one that may go out and is there; the end marker stands in the place after the last one."""
        request = self.current
        if request is None or request.id != self.promised or self.sent >= self.limit:
            return None
        if self.sent > request.chunks or (self.sent == request.chunks and request.state != "complete"):
            return None
        number, self.sent, self.sent_at = self.sent, self.sent + 1, now
        if number < self.reached:
            self.under_way.pop(number, None)
        else:
            self.under_way[number], self.reached = now, number + 1
        return number
