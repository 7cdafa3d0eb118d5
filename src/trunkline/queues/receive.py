"""Where entries for this site become durable: rows of the receive queues, and the positions, in one transaction.

A client is *held* while its session is not in state `log`, or while its queue is full: nothing of it is stored and its position
stays, so that what was left out comes again. The stream that brings entries does not go back by itself; therefore:

  P1  an entry and the position behind it commit together; a repeated call adds nothing
  P2  positions in a queue are dense and in order of arrival, because the queue's row is locked while they are given
  P3  positions are of one log; entries of another are refused until `reset`, unless nothing of the old one was applied
  P4  every write ends with the fence (H01)
  P5  a client that was held for one moment since `applied` stays out until `applied` is asked again, and with it the stream
      begins anew: nothing is stored behind a gap
  P6  a client without a session gets one in state `new`, and is held (H16)
  P7  a queue that is full takes no more until half of it was passed: backpressure, not loss
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from trunkline.core.config import QueuesConfig
from trunkline.core.errors import LocalProtocolError
from trunkline.core.ids import START, Position
from trunkline.db.lease import Grant, commit_fenced
from trunkline.queues import sinksessions
from trunkline.queues.arrivals import Level, store_entries
from trunkline.queues.messages import Records
from trunkline.queues.sessionrows import SessionRow
from trunkline.queues.sinksessions import OriginSessions, Stored, is_request
from trunkline.trunk.log import Applied, Entry

_DEFAULTS = QueuesConfig()


@dataclass(frozen=True)
class Limits:
    """Of one receive queue. It may pass them by one batch, which is taken whole."""

    entries: int = _DEFAULTS.queue_entries
    bytes: int = _DEFAULTS.queue_bytes

    def reached(self, level: Level) -> bool:
        return level.entries >= self.entries or level.bytes >= self.bytes

    def half_free(self, level: Level) -> bool:
        return level.entries <= self.entries // 2 and level.bytes <= self.bytes // 2


class _Standing:
    """What `applied` last said of an origin, and who was held since."""

    def __init__(self, said: Collection[str] = ()) -> None:
        self._said = frozenset(said)
        self.out = set(said)

    def changed(self, held: Collection[str]) -> bool:
        """True: the stream must begin anew, for what is held now or was held meanwhile is not what was said."""
        return not self._said == self.out == set(held)


class PostgresSink:
    """One call at a time, from any thread. Whoever asks `applied` begins the origin's stream anew from its answer."""

    def __init__(self, pool: ConnectionPool[psycopg.Connection[Any]], grant: Grant, limits: Limits | None = None) -> None:
        self._pool, self._grant, self._limits = pool, grant, limits or Limits()
        self._full: set[tuple[str, str]] = set()
        self._standing: dict[str, _Standing] = {}

    # -- the trunk's side

    def applied(self, origin: str) -> Applied:
        with self._pool.connection() as conn:
            known = sinksessions.of_origin(conn, origin)
        held = self._held(known)
        self._standing[origin] = _Standing(held)
        at = {client: session.row.position for client, session in known.clients.items()}
        reached = {client: position for client, position in at.items() if client not in held or position != START}
        return Applied(known.log_id, reached, tuple(sorted(held)))

    def append(self, origin: str, log_id: str, entries: Sequence[Entry], upto: Position, clients: Sequence[str]) -> bool:
        _require_positions(origin, entries, clients)
        standing = self._standing.setdefault(origin, _Standing())
        with self._pool.connection() as conn:
            conn.execute("SET LOCAL synchronous_commit = on")
            known = self._locked(conn, origin, log_id, clients)
            held = self._held(known)
            takers = set(clients) - held - standing.out
            fresh = [e for e in entries if e.client in takers and e.seq > known.clients[e.client].row.position.seq]
            levels = store_entries(conn, origin, fresh) if fresh else {}
            if takers:
                sinksessions.move(conn, origin, upto, sorted(takers))
            commit_fenced(conn, self._grant)
        held |= self._fill(origin, levels)
        standing.out |= held
        return standing.changed(held)

    def lost(self, origin: str, log_id: str, upto: Position, clients: Sequence[str]) -> None:
        """These clients lack entries that are no longer to be had: their sessions are to be negotiated."""
        self._standing.setdefault(origin, _Standing()).out.update(clients)
        with self._pool.connection() as conn:
            conn.execute("SET LOCAL synchronous_commit = on")
            _check_log(origin, sinksessions.of_origin(conn, origin, lock=True), log_id)
            sinksessions.note_gap(conn, origin, log_id, upto, clients)
            commit_fenced(conn, self._grant)

    def reset(self, origin: str, log_id: str) -> None:
        with self._pool.connection() as conn:
            conn.execute("SET LOCAL synchronous_commit = on")
            sinksessions.begin_anew(conn, origin, log_id)
            commit_fenced(conn, self._grant)

    def room(self) -> frozenset[str]:
        """Origins whose held clients are others than `applied` said: a full queue has room again, or a session was begun anew
        by somebody else. Ask `applied` again for them."""
        with self._pool.connection() as conn:
            sessions = sinksessions.all_sessions(conn)
        held: dict[str, set[str]] = {origin: set() for origin in self._standing}
        for session in sessions:
            if self._holds(session) and session.row.origin in held:
                held[session.row.origin].add(session.row.client)
        return frozenset(origin for origin, clients in held.items() if self._standing[origin].changed(clients))

    def full(self) -> frozenset[tuple[str, str]]:
        """(origin, client) of the queues that take no more for now."""
        return frozenset(self._full)

    # -- the sessions' side

    def sessions(self) -> list[SessionRow]:
        with self._pool.connection() as conn:
            return [session.row for session in sinksessions.all_sessions(conn)]

    def use_log(self, origin: str, client: str, log_id: str, position: Position, lost: tuple[int, int] | None = None) -> bool:
        """False: its sessions are of another log; the origin's `reset` comes first."""
        return self._step(origin, client, lambda conn: sinksessions.use_log(conn, origin, client, log_id, position, lost))

    def begin_snapshot(self, origin: str, client: str, log_id: str, request: str, base: Position, forced: bool) -> bool:
        """False: as `use_log`, or this request is already over."""
        if not is_request(request):
            return False
        return self._step(
            origin, client, lambda conn: sinksessions.begin_snapshot(conn, origin, client, log_id, request, base, forced)
        )

    def store_chunk(self, origin: str, client: str, request: str, chunk: int, records: Records) -> bool:
        """True: it is there. False: it is not the next chunk of the present request, or the queue is full."""
        if self._is_full(origin, client):
            return False
        with self._pool.connection() as conn:
            conn.execute("SET LOCAL synchronous_commit = on")
            level = sinksessions.store_chunk(conn, origin, client, request, chunk, records)
            commit_fenced(conn, self._grant)
        if level is not None:
            self._fill(origin, {client: level})
        return level is not None

    def finish_snapshot(self, origin: str, client: str, request: str, reapplied_to: int = 0) -> bool:
        """False: another request is the present one."""
        finish = sinksessions.finish_snapshot
        return self._step(origin, client, lambda conn: finish(conn, origin, client, request, reapplied_to))

    def _step(self, origin: str, client: str, step: Callable[[psycopg.Connection[Any]], bool]) -> bool:
        """From here on the stream stands elsewhere than this session does (P5)."""
        self._standing.setdefault(origin, _Standing()).out.add(client)
        with self._pool.connection() as conn:
            conn.execute("SET LOCAL synchronous_commit = on")
            done = step(conn)
            commit_fenced(conn, self._grant)
        return done

    # -- who is held

    def _locked(self, conn: psycopg.Connection[Any], origin: str, log_id: str, clients: Sequence[str]) -> OriginSessions:
        known = sinksessions.of_origin(conn, origin, lock=True)
        if not known.is_of(log_id) and known.untouched():
            sinksessions.begin_anew(conn, origin, log_id)
            known = sinksessions.of_origin(conn, origin, lock=True)
        _check_log(origin, known, log_id)
        strangers = set(clients) - known.clients.keys()
        if strangers:
            sinksessions.begin(conn, origin, log_id, sorted(strangers))
            known = sinksessions.of_origin(conn, origin, lock=True)
        return known

    def _held(self, known: OriginSessions) -> set[str]:
        return {client for client, session in known.clients.items() if self._holds(session)}

    def _holds(self, session: Stored) -> bool:
        place = (session.row.origin, session.row.client)
        if self._limits.reached(session.level):
            self._full.add(place)
        elif self._limits.half_free(session.level):
            self._full.discard(place)
        return session.row.state != "log" or place in self._full

    def _fill(self, origin: str, levels: dict[str, Level]) -> set[str]:
        full = {client for client, level in levels.items() if self._limits.reached(level)}
        self._full |= {(origin, client) for client in full}
        return full

    def _is_full(self, origin: str, client: str) -> bool:
        if (origin, client) in self._full:
            with self._pool.connection() as conn:
                self._held(sinksessions.of_origin(conn, origin))
        return (origin, client) in self._full


def _require_positions(origin: str, entries: Sequence[Entry], clients: Sequence[str]) -> None:
    strangers = {e.client for e in entries} - set(clients)
    if strangers:
        why = f"entries of {', '.join(sorted(strangers))} come without a position"
        raise LocalProtocolError(f"log of {origin}", why, "name every entry's client in `clients`")


def _check_log(origin: str, known: OriginSessions, log_id: str) -> None:
    if not known.is_of(log_id):
        why = f"positions are of log {known.log_id}, entries of {log_id}"
        raise LocalProtocolError(f"log of {origin}", why, "reset the origin first")
