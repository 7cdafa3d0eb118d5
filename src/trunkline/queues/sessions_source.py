"""The source's half of the sessions: answers sinks that ask how to go on, and sends the chunks of snapshots they fetch.

It holds no truth: positions are the sinks', requests and chunks the table's. All it knows is learnt again after a restart.

1. The newest open request of a (client, destination) is the only one: an older one is neither promised nor sent any more, and
   its DONE counts for nothing.
2. Chunks go only to whom the request was promised since this leader began, and at most WINDOW ahead of what is durable there.
3. A destination has a snapshot when it says DONE; until then it is called (WANTED) every CALL_SECONDS while it is silent.
4. At most one request is asked for at a time per session; after one that failed, `retries` says when. A request that somebody
   else wrote, such as a forced one, is taken up at once.
5. Messages for an older source incarnation are answered with the present pair and nothing else; those of an older sink
   incarnation than one heard of, or for a newer source, are dropped (H21).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trunkline.core.ids import START
from trunkline.queues.messages import Data, Decision, Done, Fetch, Negotiate, SessionMessage, Verdict, Wanted
from trunkline.queues.negotiation import Case, Choice, Facts, decide
from trunkline.queues.outgoing import RESEND_SECONDS, Outgoing
from trunkline.queues.sessionasks import AskSnapshot, Delivered, ReadChunk, Say, SourceEffect, Supersede
from trunkline.queues.sessionrows import RequestRow
from trunkline.queues.sessionstatus import SessionStatus, no_provider, provider_awaited, retry_awaited
from trunkline.queues.sourcestatus import status_of
from trunkline.queues.states import ConnectionEvent, ReplicationEvent

CALL_SECONDS = 5.0
# A request that was written and is not in the table when it is read for so long is over already.
SEEN_SECONDS = 5.0
OTHER_LEADER = "another leader answers now: ask it again"
JUST_STARTED = "the source has only just started"


class SourceSessions:
    """`epoch` is the unix time at which `now` was 0; it only dates what people see."""

    def __init__(self, site: str, incarnation: int, log_id: str, epoch: float = 0.0) -> None:
        self.site, self.incarnation, self.log_id = site, incarnation, log_id
        self._epoch = epoch
        self._sessions: dict[tuple[str, str], Outgoing] = {}
        self._sinks: dict[str, int] = {}
        self._ways: dict[str, bool] = {}
        self._facts: Facts | None = None
        self._requests: dict[str, RequestRow] | None = None
        self._providers: frozenset[str] = frozenset()
        self._superseded: set[str] = set()
        self._stopped = False

    # -- what the tables say

    def facts(self, facts: Facts, now: float) -> None:
        self._facts = facts
        for key in facts.last.keys() - self._sessions.keys():
            self._session(*key).acknowledged_at = now
        for key, position in facts.acknowledged.items():
            self._session(*key).acknowledge(position.seq, now)

    def requests(self, rows: Sequence[RequestRow], providers: Collection[str], now: float) -> list[SourceEffect]:
        """All open ones, oldest first, and the clients that have a provider."""
        self._requests, self._providers = {row.id: row for row in rows}, frozenset(providers)
        newest = {(site, row.client): row for row in rows for site in row.waiting}
        for key in newest:
            self._session(*key)
        effects: list[SourceEffect] = []
        for key, session in self._sessions.items():
            row = newest.get(key)
            effects += self._follow(session, row if row is None or row.id != session.delivered else None, now)
        return effects + self._supersede(rows, newest)

    def _follow(self, session: Outgoing, row: RequestRow | None, now: float) -> list[SourceEffect]:
        before, session.current = session.current, row
        if row is None:
            if before is not None and before.id != session.delivered:
                self._failed(session, now)
            if session.asked and now - session.asked_at > SEEN_SECONDS:
                session.asked = ""
                self._failed(session, now)
            return []
        if before is None or before.id != row.id:
            session.retry.interrupt()
            session.asked, session.current_since = "", now
        if session.promised == row.id:
            return self._pump(session, now)
        news = row.usable and (before is None or before.id != row.id or not before.usable)
        return self._call(session, now) if news else []

    def _failed(self, session: Outgoing, now: float) -> None:
        session.retry.failed(now)
        session.forget_promise()
        session.replicate(ReplicationEvent.CANCEL)

    def _supersede(self, rows: Sequence[RequestRow], newest: dict[tuple[str, str], RequestRow]) -> list[SourceEffect]:
        unneeded = {r.id for r in rows if all(newest[site, r.client].id != r.id for site in r.waiting) and r.waiting}
        fresh, self._superseded = unneeded - self._superseded, unneeded
        return [Supersede(row.id) for row in rows if row.id in fresh]

    # -- what sinks say

    def reachable(self, site: str, way: bool, now: float) -> list[SourceEffect]:
        self._ways[site] = way
        effects: list[SourceEffect] = []
        for session in self._of(site):
            session.connect(ConnectionEvent.UP if way else ConnectionEvent.DOWN)
            if not way:
                session.patience = RESEND_SECONDS  # the next way may be a quicker one
            effects += self._call_if_silent(session, now) if way else []
        return effects

    def receive(self, destination: str, message: SessionMessage, now: float) -> list[SourceEffect]:
        if self._stopped or not isinstance(message, Negotiate | Fetch | Done):
            return []
        to, by = message.pair
        if to > self.incarnation or by < self._sinks.get(destination, 0):
            return []
        self._believe(destination, by)
        if to != self.incarnation and not (to == 0 and isinstance(message, Negotiate)):
            ask = message.ask if isinstance(message, Negotiate) else 0
            return [self._say_wait(destination, message.client, ask, OTHER_LEADER)]
        session = self._session(destination, message.client)
        session.connect(ConnectionEvent.UP, ConnectionEvent.LEADER_FOUND)
        session.heard_at = now
        match message:
            case Negotiate():
                return self._negotiate(session, message, now)
            case Fetch():
                return self._fetch(session, message, now)
            case Done():
                return self._done(session, message.request, now)

    def _believe(self, destination: str, incarnation: int) -> None:
        """Another leader there knows nothing of what its predecessor was promised."""
        if self._sinks.get(destination) == incarnation:
            return
        self._sinks[destination] = incarnation
        for session in self._of(destination):
            session.question = 0
            session.forget_promise()
            session.connect(ConnectionEvent.LEADER_LOSS)

    def _negotiate(self, session: Outgoing, asked: Negotiate, now: float) -> list[SourceEffect]:
        if asked.ask < session.question:
            return []
        if self._facts is None or self._requests is None:
            return [self._say_wait(session.site, session.client, asked.ask, JUST_STARTED)]
        if asked.ask != session.question:
            session.forget_promise()
        session.question = asked.ask
        session.connect(ConnectionEvent.ASKED)
        provided = session.client in self._providers
        choice = decide(Case(session.site, asked, self.log_id, self._facts, session.current, provided))
        session.connect(ConnectionEvent.FAILED if choice.verdict is Verdict.WAIT else ConnectionEvent.COMPLETE)
        return self._answer(session, asked, choice, now)

    def _answer(self, session: Outgoing, asked: Negotiate, choice: Choice, now: float) -> list[SourceEffect]:
        request = session.current
        match choice.verdict:
            case Verdict.WAIT:
                effects = self._ask(session, asked.reason, now) if choice.ask else []
                return [*effects, self._say_wait(session.site, session.client, asked.ask, self.waits_for(session, now))]
            case Verdict.SNAPSHOT if request is not None:
                session.promise(request, asked.chunk if asked.request == request.id else 0)
                return [self._say_decision(session, asked.ask, choice, request.id, request.forced)]
            case _:
                session.replicate(ReplicationEvent.STOP, ReplicationEvent.LOG_REQUEST)
                return [self._say_decision(session, asked.ask, choice)]

    def _ask(self, session: Outgoing, reason: str, now: float) -> list[SourceEffect]:
        if session.asking or session.asked or session.retry.waits(now):
            return []
        session.asking, session.current_since = True, now
        session.replicate(ReplicationEvent.STOP, ReplicationEvent.SNAPSHOT_REQUEST)
        return [AskSnapshot(session.client, session.site, reason, False)]

    def _fetch(self, session: Outgoing, fetch: Fetch, now: float) -> list[SourceEffect]:
        if session.current is None or not fetch.request == session.promised == session.current.id:
            return self._call(session, now, but=fetch.request)
        session.fetch(fetch.chunk, fetch.window, now)
        return self._pump(session, now)

    def _done(self, session: Outgoing, request: str, now: float) -> list[SourceEffect]:
        row = session.current
        if row is None or row.id != request:
            return []
        session.delivered, session.current, session.completed_at = request, None, self._epoch + now
        session.base, session.forced = row.base, row.forced
        session.retry.succeeded()
        session.forget_promise()
        session.connect(ConnectionEvent.COMPLETE)
        session.replicate(
            ReplicationEvent.SNAPSHOT_REQUEST, ReplicationEvent.TRANSFER_COMPLETE, ReplicationEvent.APPLY_COMPLETE
        )
        return [Delivered(request, session.site), self._say_decision(session, 0, Choice(Verdict.LOG, row.base))]

    # -- what the host did

    def asked(self, work: AskSnapshot, request: str, now: float) -> list[SourceEffect]:
        session = self._session(work.destination, work.client)
        seen = session.current is not None and session.current.id == request
        session.asking, session.asked, session.asked_at = False, "" if seen else request, now
        return []

    def chunk(self, work: ReadChunk, body: bytes | None, now: float) -> list[SourceEffect]:
        session = self._session(work.to, work.client)
        if body is None or work.pair != self._pair(work.to) or session.promised != work.request:
            return []
        return [Say(work.to, Data(work.client, work.pair, work.request, work.chunk, body))]

    def stop(self) -> None:
        """This leadership ends: nobody is answered any more."""
        self._stopped = True
        for session in self._sessions.values():
            session.connect(ConnectionEvent.LOCAL_LOSS)
            session.replicate(ReplicationEvent.STOP)

    # -- what is said

    def tick(self, now: float) -> list[SourceEffect]:
        return [e for session in self._sessions.values() for e in self._call_if_silent(session, now)]

    def _call_if_silent(self, session: Outgoing, now: float) -> list[SourceEffect]:
        row = session.current
        silent = now - max(session.heard_at, session.called_at) >= CALL_SECONDS
        return self._call(session, now) if row is not None and row.usable and silent else []

    def _call(self, session: Outgoing, now: float, but: str = "") -> list[SourceEffect]:
        """Who fetches `but` was not promised it by this leader: named again, it would be taken for what is under way."""
        if self._stopped or not self._ways.get(session.site, True):
            return []
        session.called_at = now
        request = session.current.id if session.current is not None and session.current.id != but else ""
        return [Say(session.site, Wanted(session.client, self._pair(session.site), request))]

    def _pump(self, session: Outgoing, now: float) -> list[SourceEffect]:
        effects: list[SourceEffect] = []
        while (number := session.next_chunk(now)) is not None:
            effects.append(self._piece(session, number))
        return effects

    def _piece(self, session: Outgoing, number: int) -> SourceEffect:
        assert session.current is not None
        pair = self._pair(session.site)
        if number < session.current.chunks:
            return ReadChunk(session.promised, session.client, number, session.site, pair)
        session.replicate(ReplicationEvent.TRANSFER_COMPLETE)
        return Say(session.site, Data(session.client, pair, session.promised, number, b"", True, session.current.reapplied_to))

    def _say_wait(self, site: str, client: str, ask: int, why: str) -> Say:
        return Say(site, Decision(client, self._pair(site), Verdict.WAIT, self.log_id, START, why=why, ask=ask))

    def _say_decision(self, session: Outgoing, ask: int, choice: Choice, request: str = "", forced: bool = False) -> Say:
        pair, base = self._pair(session.site), choice.base
        said = Decision(session.client, pair, choice.verdict, self.log_id, base, request, forced, ask=ask, lost=choice.lost)
        return Say(session.site, said)

    def _pair(self, site: str) -> tuple[int, int]:
        return self.incarnation, self._sinks.get(site, 0)

    def _session(self, site: str, client: str) -> Outgoing:
        session = self._sessions.get((site, client))
        if session is None:
            session = self._sessions[site, client] = Outgoing(site, client)
            if self._ways.get(site):
                session.connect(ConnectionEvent.UP)
        return session

    def _of(self, site: str) -> list[Outgoing]:
        return [session for session in self._sessions.values() if session.site == site]

    # -- what people see

    def status(self, now: float) -> list[SessionStatus]:
        sessions = [self._sessions[key] for key in sorted(self._sessions)]
        facts = self._facts or Facts()
        return [
            status_of(s, facts, self._ways.get(s.site, True), self.waits_for(s, now) if s.awaits_snapshot else "", now)
            for s in sessions
        ]

    def waits_for(self, session: Outgoing, now: float) -> str:
        """Why there is no snapshot to fetch yet; empty when none is awaited."""
        waiting = session.asking or bool(session.asked) or (session.current is not None and not session.current.usable)
        if session.client not in self._providers and (waiting or session.current is None):
            return no_provider(session.client)
        if session.retry.waits(now):
            return retry_awaited(session.client, session.retry.due - now)
        return provider_awaited(session.client, now - session.current_since) if waiting else ""
