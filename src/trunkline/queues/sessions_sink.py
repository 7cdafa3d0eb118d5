"""The sink's half of the sessions: asks the source how to go on, fetches snapshots, and says what to write.

A session is what its row in the table says: new, snapshot or log. Whatever else is known here may be lost at any time.

1. Rows change only by writes that the host has answered. At most one write is under way per session.
2. A question is open while a session does not know how to go on: from its beginning, after a gap or a reset, after each start
   in mid snapshot, and when the source says that something waits. It is asked again until a decision with its number comes;
   each question is answered once. While it is open no chunk is written.
3. Chunks are written in order, each once; LAST follows the chunk before the end marker, and nothing else.
4. Messages for another sink incarnation than the own one, or of an older source incarnation than one heard of, are dropped; a
   mere call (WANTED) is heard whomever it was for. A newer source is believed, and every snapshot under way asks it how to go
   on (H21).
5. Every wait is bounded: what is silent for ASK_SECONDS is asked again, as long as there is a way.
6. A full queue takes no chunk, and is not fetched for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from trunkline.core.errors import RemoteProtocolError
from trunkline.queues.incoming import Incoming, Write, standing
from trunkline.queues.messages import (
    RECORDS,
    Data,
    Decision,
    Done,
    Fetch,
    SessionMessage,
    Verdict,
    Wanted,
)
from trunkline.queues.sessionasks import BeginSnapshot, FinishSnapshot, Reload, Say, SinkEffect, StoreChunk, UseLog
from trunkline.queues.sessionrows import SessionRow
from trunkline.queues.sessionstatus import SessionStatus, SyncStatus, SyncType, no_way, queue_name, since

# A chunk has at most 1 MiB: four of them cover a second's round trip at the rate of a slow link.
WINDOW = 4
ASK_SECONDS = 2.0
STATUS: dict[str, tuple[SyncType, SyncStatus, SyncStatus]] = {
    "new": (SyncType.LOG_ENTRY, SyncStatus.NOT_STARTED, SyncStatus.NOT_STARTED),
    "snapshot": (SyncType.SNAPSHOT, SyncStatus.ONGOING, SyncStatus.ONGOING),
    "log": (SyncType.LOG_ENTRY, SyncStatus.ONGOING, SyncStatus.COMPLETED),
}


class SinkSessions:
    """`epoch` is the unix time at which `now` was 0; it only dates what people see."""

    def __init__(self, site: str, incarnation: int, epoch: float = 0.0) -> None:
        self.site, self.incarnation = site, incarnation
        self._epoch = epoch
        self._sessions: dict[tuple[str, str], Incoming] = {}
        self._sources: dict[str, int] = {}
        self._unreachable: set[str] = set()
        self._questions = 0

    # -- what the table says

    def sessions(self, rows: Iterable[SessionRow], now: float) -> list[SinkEffect]:
        """At the start, after Reload, and whenever the stream found a client new (H16), trimmed, or of another log: as the
        table has it after all writes that were answered. A session with a write under way waits for its answer."""
        effects: list[SinkEffect] = []
        for row in rows:
            session = self._sessions.get((row.origin, row.client))
            if not row.client or (session is not None and session.write is not None):
                continue
            if session is None or standing(session.row) != standing(row):
                session = self._as_in_table(row, now)
            session.row = row
            effects += self._go_on(session, now)
        return effects

    def full(self, origin: str, clients: Collection[str], now: float) -> list[SinkEffect]:
        """Of this origin's queues exactly these have no room."""
        effects: list[SinkEffect] = []
        for session in self._of(origin):
            was, session.full = session.full, session.row.client in clients
            if was and not session.full:
                session.due = session.moved_at = now
                effects += self._go_on(session, now)
        return effects

    def _as_in_table(self, row: SessionRow, now: float) -> Incoming:
        before = self._sessions.get((row.origin, row.client))
        session = self._sessions[row.origin, row.client] = Incoming(row, full=before is not None and before.full)
        session.stand(row, now)
        if row.state != "log":
            self._ask(session, _how_to_go_on(row), now)
        return session

    # -- what the source says

    def reachable(self, origin: str, way: bool, now: float) -> list[SinkEffect]:
        if not way:
            self._unreachable.add(origin)
            return []
        self._unreachable.discard(origin)
        return [e for session in self._of(origin) for e in self._go_on(session, now)]

    def receive(self, source: str, message: SessionMessage, now: float) -> list[SinkEffect]:
        if not isinstance(message, Decision | Data | Wanted) or not self._is_present(source, message):
            return []
        anew = self._believe(source, message.pair[0], now)
        session = self._sessions.get((source, message.client))
        effects = self._take(session, message, now) if session is not None else []
        if anew and session is not None and session.question:
            session.due = now  # it was an answer to a question for its predecessor
        changed = self._of(source) if anew else [session] if session is not None else []
        return effects + [e for each in changed for e in self._go_on(each, now)]

    def _is_present(self, source: str, message: Decision | Data | Wanted) -> bool:
        """A source calls whom it last heard of; a new leader that has asked nothing yet is meant too."""
        by, to = message.pair
        return by >= self._sources.get(source, 0) and (to == self.incarnation or isinstance(message, Wanted))

    def _believe(self, source: str, incarnation: int, now: float) -> bool:
        """True for another leader than before: it knows nothing of what its predecessor promised."""
        before = self._sources.get(source, incarnation)
        self._sources[source] = incarnation
        if before == incarnation:
            return False
        for session in self._of(source):
            if session.question:
                session.due = now
            elif session.row.state == "snapshot" or isinstance(session.write, BeginSnapshot):
                self._ask(session, "resume", now)
        return True

    def _take(self, session: Incoming, message: Decision | Data | Wanted, now: float) -> list[SinkEffect]:
        match message:
            case Data():
                self._chunk(session, message, now)
            case Wanted(_, _, request):
                return self._wanted(session, request, now)
            case Decision(ask=ask) if ask and ask == session.question and session.write is None:
                return self._decided(session, message, now)
        return []

    def _chunk(self, session: Incoming, data: Data, now: float) -> None:
        if not session.fetches(data.request):
            return
        try:
            records = RECORDS.decode(data.body) if not data.last else []
        except RemoteProtocolError as error:
            session.why = str(error)
            return
        if data.last:
            session.end, session.reapplied_to, session.moved_at = data.chunk, data.reapplied_to, now
        elif session.chunks.offer(data.chunk, records):
            session.moved_at = now

    def _wanted(self, session: Incoming, request: str, now: float) -> list[SinkEffect]:
        """A snapshot that is under way needs no word; of one that was completed, the source missed the DONE."""
        if session.question:
            session.due = now
        elif session.completed(request):
            return self._done(session)
        elif session.row.state == "log" and request:
            self._ask(session, "forced", now)
        elif session.row.state == "snapshot" and not session.fetches(request):
            self._ask(session, "resume", now)
        return []

    def _decided(self, session: Incoming, said: Decision, now: float) -> list[SinkEffect]:
        row = session.row
        match said.verdict, row.state:
            case Verdict.WAIT, _:
                session.why, session.due = said.why, now + ASK_SECONDS
            case Verdict.LOG, "new":
                return self._write(session, UseLog(row.origin, row.client, said.log_id, said.base, said.lost), now)
            case Verdict.LOG, "log":
                session.answered(now)
            case Verdict.SNAPSHOT, _ if session.completed(said.request):
                return self._done_already(session, now)
            case Verdict.SNAPSHOT, _ if session.begins_by(said):
                begin = BeginSnapshot(row.origin, row.client, said.log_id, said.request, said.base, said.forced)
                return self._write(session, begin, now)
            case Verdict.SNAPSHOT, _:
                session.answered(now)
        return []

    def _done_already(self, session: Incoming, now: float) -> list[SinkEffect]:
        """The source missed the DONE. A session that needs another snapshot asks on."""
        session.due = now + ASK_SECONDS
        if session.row.state == "log":
            session.answered(now)
        return self._done(session)

    def _write(self, session: Incoming, write: Write, now: float) -> list[SinkEffect]:
        session.answered(now)
        session.write = write
        return [write]

    # -- what the host has written

    def using_log(self, work: UseLog, taken: bool, now: float) -> list[SinkEffect]:
        session = self._written(work, taken, now)
        if session is not None:
            session.stand(replace(session.row, state="log", log_id=work.log_id, position=work.position), now)
        return [Reload(work.origin)]

    def begun(self, work: BeginSnapshot, taken: bool, now: float) -> list[SinkEffect]:
        session = self._written(work, taken, now)
        if session is None:
            return [Reload(work.origin)]
        begun = replace(session.row, state="snapshot", log_id=work.log_id, request=work.request, chunk=0, completed_at=None)
        session.stand(replace(begun, base=work.base, forced=work.forced), now)
        return self._go_on(session, now)

    def stored(self, work: StoreChunk, taken: bool, now: float) -> list[SinkEffect]:
        session = self._written(work, taken, now)
        if session is None:
            return [Reload(work.origin)]
        session.row = replace(session.row, chunk=work.chunk + 1)
        session.chunks.passed()
        session.due = session.moved_at = now
        return self._go_on(session, now)

    def finished(self, work: FinishSnapshot, taken: bool, now: float) -> list[SinkEffect]:
        session = self._written(work, taken, now)
        if session is None:
            return [Reload(work.origin)]
        row = replace(session.row, state="log", position=session.row.base, completed_at=self._epoch + now)
        session.stand(row, now)
        return [*self._done(session), Reload(work.origin)]

    def _written(self, work: Write, taken: bool, now: float) -> Incoming | None:
        """None: the table is not as this half took it to be, or the session has begun anew since. What it says is awaited."""
        session = self._sessions.get((work.origin, work.client))
        if session is None or session.write != work:
            return None
        session.write = None
        if taken:
            return session
        if not session.question and session.row.state != "log":
            self._ask(session, _how_to_go_on(session.row), now)
        return None

    # -- what is said

    def tick(self, now: float) -> list[SinkEffect]:
        return [e for session in self._sessions.values() for e in self._go_on(session, now)]

    def _go_on(self, session: Incoming, now: float) -> list[SinkEffect]:
        write = session.next_write()
        if write is None:
            return self._talk(session, now)
        session.write = write
        return [write, *self._talk(session, now)]

    def _talk(self, session: Incoming, now: float) -> list[SinkEffect]:
        row = session.row
        if now < session.due or row.origin in self._unreachable:
            return []
        if session.question and session.write is None:
            session.due = now + ASK_SECONDS
            return [Say(row.origin, session.negotiate(self._pair(row.origin)))]
        if session.question or not session.wants_chunks():
            return []
        session.due, session.fetched = now + ASK_SECONDS, row.chunk
        return [Say(row.origin, Fetch(row.client, self._pair(row.origin), row.request, row.chunk, WINDOW))]

    def _done(self, session: Incoming) -> list[SinkEffect]:
        row = session.row
        return [Say(row.origin, Done(row.client, self._pair(row.origin), row.request))]

    def _ask(self, session: Incoming, reason: str, now: float) -> None:
        self._questions += 1
        session.ask(self._questions, reason, now)

    def _pair(self, origin: str) -> tuple[int, int]:
        return self._sources.get(origin, 0), self.incarnation

    def _of(self, origin: str) -> list[Incoming]:
        return [session for (of, _), session in self._sessions.items() if of == origin]

    # -- what people see

    def status(self, now: float) -> list[SessionStatus]:
        return [self._status(session, now) for _, session in sorted(self._sessions.items(), key=lambda item: item[0])]

    def _status(self, session: Incoming, now: float) -> SessionStatus:
        row = session.row
        kind, status, snapshot = STATUS[row.state]
        return SessionStatus(
            role="sink",
            remote=row.origin,
            client=row.client,
            connection="DOWN" if row.origin in self._unreachable else "UP",
            state=row.state,
            type=kind,
            status=status,
            snapshot=snapshot if row.request else SyncStatus.NOT_STARTED,
            base=row.base.seq if row.request else None,
            request=row.request,
            forced=row.forced,
            completed_at=row.completed_at,
            applied=row.position.seq,
            consistent=row.state == "log",
            stall=self._stall(session, now),
        )

    def _stall(self, session: Incoming, now: float) -> str:
        row, silent = session.row, now - session.moved_at
        if session.full:
            return f"queue {queue_name(row.client, row.origin)} is full: no consumer reads it fast enough"
        if row.state == "log":
            return ""
        if row.origin in self._unreachable:
            return no_way(row.origin)
        if session.question:
            return session.why or since(f"waits for an answer of site {row.origin}", silent)
        if silent < ASK_SECONDS or session.write is not None:
            return ""
        return session.why or since(f"no chunk of {row.client} came from site {row.origin}", silent)


def _how_to_go_on(row: SessionRow) -> str:
    return "resume" if row.state == "snapshot" else row.reason
