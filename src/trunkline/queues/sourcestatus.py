"""A session of the source as people see it."""

from __future__ import annotations

from trunkline.queues.negotiation import Facts
from trunkline.queues.outgoing import Outgoing
from trunkline.queues.sessionstatus import SessionStatus, SyncStatus, SyncType, no_way, since
from trunkline.queues.states import Connection, Replication

# Silence below this is the ordinary time between two acknowledgements or two questions.
SILENT_SECONDS = 5.0
SYNC: dict[Replication, tuple[SyncType, SyncStatus]] = {
    Replication.INITIALIZED: (SyncType.LOG_ENTRY, SyncStatus.NOT_STARTED),
    Replication.SNAPSHOT: (SyncType.SNAPSHOT, SyncStatus.ONGOING),
    Replication.WAIT_APPLY: (SyncType.SNAPSHOT, SyncStatus.ONGOING),
    Replication.LOG_ENTRY: (SyncType.LOG_ENTRY, SyncStatus.ONGOING),
    Replication.ERROR: (SyncType.LOG_ENTRY, SyncStatus.ERROR),
}


def status_of(session: Outgoing, facts: Facts, way: bool, waits_for: str, now: float) -> SessionStatus:
    kind, status = SYNC[session.replication]
    key = (session.site, session.client)
    request = session.current.id if session.current is not None else session.promised or session.delivered
    return SessionStatus(
        role="source",
        remote=session.site,
        client=session.client,
        connection=session.connection,
        state=session.replication,
        type=kind,
        status=SyncStatus.STOPPED if session.connection is Connection.STOPPED else status,
        snapshot=_snapshot(session, now),
        base=session.base.seq if request and session.base.mark else None,
        request=request,
        forced=session.current.forced if session.current is not None else session.forced,
        completed_at=session.completed_at,
        sent=facts.sent.get(key),
        acknowledged=facts.acknowledged[key].seq if key in facts.acknowledged else None,
        remaining=remaining(session, facts),
        stall=_stall(session, facts, way, waits_for, now),
    )


def remaining(session: Outgoing, facts: Facts) -> int:
    """Entries not acknowledged yet: as counted, else at the most as many as there are numbers."""
    key = (session.site, session.client)
    acknowledged = facts.acknowledged[key].seq if key in facts.acknowledged else 0
    return facts.behind.get(key, max(0, facts.last.get(key, 0) - acknowledged))


def _snapshot(session: Outgoing, now: float) -> SyncStatus:
    if session.current is not None or session.asking or session.asked:
        return SyncStatus.ONGOING
    if session.retry.waits(now):
        return SyncStatus.ERROR
    return SyncStatus.COMPLETED if session.delivered else SyncStatus.NOT_STARTED


def _stall(session: Outgoing, facts: Facts, way: bool, waits_for: str, now: float) -> str:
    if not way:
        return no_way(session.site)
    if session.awaits_snapshot and waits_for:
        return waits_for
    if session.current is not None and now - session.heard_at >= SILENT_SECONDS:
        return since(f"site {session.site} fetches nothing", now - session.heard_at)
    behind = session.replication is Replication.LOG_ENTRY and remaining(session, facts)
    if behind and now - session.acknowledged_at >= SILENT_SECONDS:
        return since(f"site {session.site} acknowledges nothing", now - session.acknowledged_at)
    return ""
