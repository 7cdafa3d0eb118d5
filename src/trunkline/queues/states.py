"""The states of a session at its source, as people see them. Both machines are tables; an event without a row changes nothing.

Connection:   waiting → verifying (a way to the site is there) → negotiating (its leader speaks) → replicating
Replication:  initialized → snapshot → wait for apply (all chunks are out) → log entries

1. Loss of the remote leader sends the connection back to verifying, loss of the way to waiting; the replication stops.
2. Only the end of this leadership, or an error nobody can mend, ends a session.
3. A sync that is cancelled begins again as a snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class Connection(StrEnum):
    WAITING_FOR_CONNECTIVITY = "WAITING_FOR_CONNECTIVITY"
    VERIFYING_REMOTE_LEADER = "VERIFYING_REMOTE_LEADER"
    NEGOTIATING = "NEGOTIATING"
    REPLICATING = "REPLICATING"
    STOPPED = "STOPPED"
    UNRECOVERABLE = "UNRECOVERABLE"


class ConnectionEvent(StrEnum):
    UP = "ON_CONNECTION_UP"
    DOWN = "ON_CONNECTION_DOWN"
    LEADER_FOUND = "REMOTE_LEADER_FOUND"
    LEADER_NOT_FOUND = "REMOTE_LEADER_NOT_FOUND"
    LEADER_LOSS = "REMOTE_LEADER_LOSS"
    LOCAL_LOSS = "LOCAL_LEADER_LOSS"
    ASKED = "NEGOTIATION_ASKED"
    COMPLETE = "NEGOTIATION_COMPLETE"
    FAILED = "NEGOTIATION_FAILED"
    ERROR = "ERROR"


class Replication(StrEnum):
    INITIALIZED = "INITIALIZED"
    SNAPSHOT = "IN_SNAPSHOT_SYNC"
    WAIT_APPLY = "WAIT_SNAPSHOT_APPLY"
    LOG_ENTRY = "IN_LOG_ENTRY_SYNC"
    ERROR = "ERROR"


class ReplicationEvent(StrEnum):
    SNAPSHOT_REQUEST = "SNAPSHOT_SYNC_REQUEST"
    SNAPSHOT_CONTINUE = "SNAPSHOT_SYNC_CONTINUE"
    TRANSFER_COMPLETE = "SNAPSHOT_TRANSFER_COMPLETE"
    APPLY_IN_PROGRESS = "SNAPSHOT_APPLY_IN_PROGRESS"
    APPLY_COMPLETE = "SNAPSHOT_APPLY_COMPLETE"
    LOG_REQUEST = "LOG_ENTRY_SYNC_REQUEST"
    LOG_CONTINUE = "LOG_ENTRY_SYNC_CONTINUE"
    LOG_REPLICATED = "LOG_ENTRY_SYNC_REPLICATED"
    CANCEL = "SYNC_CANCEL"
    STOP = "REPLICATION_STOP"
    SHUTDOWN = "REPLICATION_SHUTDOWN"


_C, _CE, _R, _RE = Connection, ConnectionEvent, Replication, ReplicationEvent
_ALIVE = (_C.WAITING_FOR_CONNECTIVITY, _C.VERIFYING_REMOTE_LEADER, _C.NEGOTIATING, _C.REPLICATING)
_CONNECTED = _ALIVE[1:]
_SYNCING = (_R.SNAPSHOT, _R.WAIT_APPLY, _R.LOG_ENTRY)

CONNECTION: Mapping[tuple[Connection, ConnectionEvent], Connection] = {
    (_C.WAITING_FOR_CONNECTIVITY, _CE.UP): _C.VERIFYING_REMOTE_LEADER,
    (_C.VERIFYING_REMOTE_LEADER, _CE.LEADER_FOUND): _C.NEGOTIATING,
    (_C.VERIFYING_REMOTE_LEADER, _CE.LEADER_NOT_FOUND): _C.VERIFYING_REMOTE_LEADER,
    (_C.NEGOTIATING, _CE.COMPLETE): _C.REPLICATING,
    (_C.NEGOTIATING, _CE.FAILED): _C.NEGOTIATING,
    (_C.REPLICATING, _CE.ASKED): _C.NEGOTIATING,
    **{(state, _CE.DOWN): _C.WAITING_FOR_CONNECTIVITY for state in _CONNECTED},
    **{(state, _CE.LEADER_LOSS): _C.VERIFYING_REMOTE_LEADER for state in _CONNECTED},
    **{(state, _CE.LOCAL_LOSS): _C.STOPPED for state in _ALIVE},
    **{(state, _CE.ERROR): _C.UNRECOVERABLE for state in _ALIVE},
}

REPLICATION: Mapping[tuple[Replication, ReplicationEvent], Replication] = {
    (_R.INITIALIZED, _RE.SNAPSHOT_REQUEST): _R.SNAPSHOT,
    (_R.INITIALIZED, _RE.TRANSFER_COMPLETE): _R.WAIT_APPLY,
    (_R.INITIALIZED, _RE.LOG_REQUEST): _R.LOG_ENTRY,
    (_R.LOG_ENTRY, _RE.SNAPSHOT_REQUEST): _R.SNAPSHOT,
    (_R.LOG_ENTRY, _RE.LOG_CONTINUE): _R.LOG_ENTRY,
    (_R.LOG_ENTRY, _RE.LOG_REPLICATED): _R.LOG_ENTRY,
    (_R.SNAPSHOT, _RE.SNAPSHOT_REQUEST): _R.SNAPSHOT,
    (_R.SNAPSHOT, _RE.SNAPSHOT_CONTINUE): _R.SNAPSHOT,
    (_R.SNAPSHOT, _RE.TRANSFER_COMPLETE): _R.WAIT_APPLY,
    (_R.SNAPSHOT, _RE.APPLY_COMPLETE): _R.LOG_ENTRY,
    (_R.WAIT_APPLY, _RE.SNAPSHOT_REQUEST): _R.SNAPSHOT,
    (_R.WAIT_APPLY, _RE.APPLY_IN_PROGRESS): _R.WAIT_APPLY,
    (_R.WAIT_APPLY, _RE.APPLY_COMPLETE): _R.LOG_ENTRY,
    **{(state, _RE.CANCEL): _R.SNAPSHOT for state in _SYNCING},
    **{(state, _RE.STOP): _R.INITIALIZED for state in (_R.INITIALIZED, *_SYNCING)},
    **{(state, _RE.SHUTDOWN): _R.ERROR for state in (_R.INITIALIZED, *_SYNCING)},
}

S = TypeVar("S", Connection, Replication)
E = TypeVar("E", ConnectionEvent, ReplicationEvent)


def after(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    return table.get((state, event), state)
