"""What the API answers about queues and their sessions, and what it takes, as its description shows it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Shown(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LogShown(_Shown):
    name: str
    log_id: str = Field(description="of the log; another one after it began anew")
    head: int = Field(description="number of its last entry")
    lowest: int = Field(description="entries up to this one were trimmed")
    slot: int = Field(description="the partition that new entries go into")
    bytes: int = Field(description="what the log's tables take on disk")


class SendingShown(_Shown):
    destination: str
    client: str
    acknowledged: int = Field(description="the last entry that is durable there, as far as it said")
    needs_snapshot: bool = Field(description="nothing is kept for it any more: a snapshot brings it back")
    over_cap: bool = Field(description="because it had too many entries before it")


class ReaderShown(_Shown):
    name: str
    detached: bool
    position: int
    behind: int = Field(description="entries before it")
    tries: int = Field(description="how often it refused what is next")


class ReceivingShown(_Shown):
    name: str
    client: str
    remote: str
    head: int = Field(description="position of the last entry")
    tail: int = Field(description="up to here every consumer has passed")
    waiting: int
    waiting_bytes: int
    full: bool = Field(description="it takes nothing until its consumers went on")
    session: str = Field(description="new, snapshot or log; none: there is no session")
    seq: int = Field(description="the origin's last entry that was taken")
    consumers: list[ReaderShown]


class ConsumerShown(_Shown):
    client: str
    name: str
    detached: bool = Field(description="it was idle for too long, and nothing waits for it any more")
    idle_seconds: float


class ProviderShown(_Shown):
    client: str
    owner: str
    idle_seconds: float


class RequestShown(_Shown):
    id: str
    client: str
    destinations: list[str]
    reason: str
    forced: bool
    state: str = Field(description="wanted, ready, providing or complete")
    base: int | None = Field(description="the snapshot is of the state after this entry")
    chunks: int
    records: int
    bytes: int
    progress: int | None = Field(description="in percent, if its provider says so")
    age_seconds: float


class DeadLettersShown(_Shown):
    client: str
    consumer: str
    letters: int


class QueuesShown(_Shown):
    log: LogShown
    sending: list[SendingShown]
    receiving: list[ReceivingShown]
    consumers: list[ConsumerShown]
    providers: list[ProviderShown]
    requests: list[RequestShown] = Field(description="snapshots that are not over")
    dead_letters: list[DeadLettersShown]


class SessionShown(_Shown):
    role: str = Field(description="source: this site sends; sink: it receives")
    remote: str = Field(description="the site at the other end")
    client: str
    connection: str = Field(description="of a source: the state of its connection; of a sink: whether there is a way")
    state: str
    type: str = Field(description="SNAPSHOT or LOG_ENTRY: what it does now")
    status: str = Field(description="NOT_STARTED, ONGOING, COMPLETED, STOPPED or ERROR")
    snapshot: str = Field(description="the same, of the snapshot under way or the last one; so are the next four")
    base: int | None = Field(description="the snapshot is of the state after this entry")
    request: str
    forced: bool
    completed_at: float | None = Field(description="Unix seconds")
    sent: int | None = Field(description="number of the last entry that was sent")
    acknowledged: int | None
    applied: int | None = Field(description="number of the last entry that is in the receive queue")
    remaining: int | None = Field(description="entries still to bring, about")
    consistent: bool | None = Field(description="of a sink: its queue holds no part of an unfinished snapshot at its end")
    stall: str = Field(description="why it does not go on; empty when it does")
    age_seconds: float = Field(description="how long ago the leader wrote this")
    unacknowledged_seconds: float | None = Field(description="of a source: how long the oldest entry waits to be acknowledged")


class SessionsShown(_Shown):
    sessions: list[SessionShown]


class EntryShown(_Shown):
    position: int
    client: str
    seq: int = Field(description="number in the origin's log; of a snapshot's records: its base")
    index: int
    request: str | None = Field(description="the snapshot it belongs to")
    kind: str = Field(description="log_entry, snapshot, last, start or lost")
    message_id: str | None = Field(description="the same for the same record, however often it comes")
    destinations: list[str] | None = Field(description="of the send log alone")
    headers: dict[str, str]
    bytes: int = Field(description="of the whole payload")
    cut: bool = Field(description="whether this is only its beginning")
    text: str | None
    base64: str | None = Field(description="where it is not text")


class EntriesShown(_Shown):
    name: str
    after: int
    entries: list[EntryShown]


class SyncWanted(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    site: str | None = Field(default=None, description="for this site")
    all: bool = Field(default=False, description="for every site that there is a session with")
    client: str | None = Field(default=None, description="of this client; left out: of all that have a provider")

    @model_validator(mode="after")
    def _one_of_both(self) -> SyncWanted:
        if (self.site is None) == (not self.all):
            raise ValueError("give either site or all")
        return self


class SyncRequestShown(_Shown):
    id: str
    client: str
    destinations: list[str]


class SyncShown(_Shown):
    requests: list[SyncRequestShown]


# -- one site for all examples: hub sends policies to paris, and takes orders from there

QUEUES = {
    "log": {"log_id": "6f9d3a52-5d0c-4b5b-9d0e-1f0c6d1d5a11", "head": 4711, "lowest": 4000, "slot": 3, "bytes": 9437184,
            "name": "LRQ_Send_LogEntries"},
    "sending": [
        {"destination": "paris", "client": "policy", "acknowledged": 4711, "needs_snapshot": False, "over_cap": False}
    ],
    "receiving": [
        {"name": "LRQ_Recv_orders_paris", "client": "orders", "remote": "paris", "head": 120, "tail": 118, "waiting": 2,
         "waiting_bytes": 2048, "full": False, "session": "log", "seq": 930,
         "consumers": [{"name": "ledger", "detached": False, "position": 118, "behind": 2, "tries": 0}]}
    ],
    "consumers": [{"client": "orders", "name": "ledger", "detached": False, "idle_seconds": 0.2}],
    "providers": [{"client": "policy", "owner": "policy-app", "idle_seconds": 1.4}],
    "requests": [],
    "dead_letters": [{"client": "orders", "consumer": "ledger", "letters": 1}],
}  # fmt: skip
SESSIONS = {
    "sessions": [
        {"role": "source", "remote": "paris", "client": "policy", "connection": "REPLICATING", "state": "IN_LOG_ENTRY_SYNC",
         "type": "LOG_ENTRY", "status": "ONGOING", "snapshot": "COMPLETED", "base": 4000,
         "request": "0b9c1a30-7a3b-4e0b-8f2c-6a1d3f7a9b55", "forced": False, "completed_at": 1790000012.5, "sent": 4711,
         "acknowledged": 4710, "applied": 4710, "remaining": 1, "consistent": None, "stall": "", "age_seconds": 0.4,
         "unacknowledged_seconds": 0.1}
    ]
}  # fmt: skip
ENTRIES = {
    "name": "LRQ_Recv_orders_paris", "after": 118,
    "entries": [
        {"position": 119, "client": "orders", "seq": 929, "index": 0, "request": None, "kind": "log_entry",
         "message_id": "paris/929/0", "destinations": None, "headers": {"kind": "order"}, "bytes": 11, "cut": False,
         "text": "{\"order\":7}", "base64": None}
    ],
}  # fmt: skip
SYNC_WANTED = {"site": "paris", "client": "policy"}
SYNC = {"requests": [{"id": "0b9c1a30-7a3b-4e0b-8f2c-6a1d3f7a9b55", "client": "policy", "destinations": ["paris"]}]}
