"""What the API answers about a hub's bridge, and what it takes, as its description shows it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _Shown(BaseModel):
    model_config = ConfigDict(extra="forbid")


class BridgeSummary(_Shown):
    sites: int = Field(description="that were heard")
    active: int
    silent: int = Field(description="unheard for too long; their rows are hidden")
    waiting: int = Field(description="bundles in the inbox; counted up to 100,000")
    waiting_bytes: int
    parked: int = Field(description="of these: wait for their base or for a resync")
    oldest_seconds: float | None = Field(description="how long the oldest of them waits")
    quarantined: int = Field(description="bundles in quarantine that nobody has dealt with")
    resyncs: int = Field(description="resyncs that are wanted")
    running: bool = Field(description="whether a bridge holds the lease")
    owner: str = Field(description="which process")


class NoteShown(_Shown):
    site: str
    type: str = Field(description="empty: it is about the whole site")
    kind: str = Field(description="silent, refused, waiting, quarantined or resync")
    words: str = Field(description="what is the matter, for people")


class NextShown(_Shown):
    version: str = Field(description="<incarnation>.<generation>, like all versions here")
    mode: str
    parked: bool = Field(description="it waits for its base, or is held")
    held: bool = Field(description="one before it is lost: it waits for a resync")
    base: str | None = Field(description="the type it depends on")
    needs: str | None = Field(description="the version of the base it was made for; incarnation 0: of any run")
    has: str | None = Field(description="the version of the base that is applied")
    waiting_seconds: float


class AsideShown(_Shown):
    id: int = Field(description="of the newest one")
    entries: int
    reason: str
    age_seconds: float
    version: str | None
    mode: str


class WishShown(_Shown):
    holds: str | None = Field(description="the type whose bundles wait for it")
    reason: str
    asks: int = Field(description="how often the site was asked")
    age_seconds: float
    asked_seconds: float | None = Field(description="how long ago it was asked last")


class TypeStatusShown(_Shown):
    type: str = Field(description="empty: of messages that are no bundles")
    version: str | None = Field(description="that is applied")
    value: int | None = Field(description="what dependents name it by")
    event_time: str | None = Field(description="when the site sent it")
    age_seconds: float | None = Field(description="since it was applied")
    lag_seconds: float | None = Field(description="since the site sent it")
    waiting: int = Field(description="bundles in the inbox")
    next: NextShown | None = Field(description="the first of them")
    quarantined: AsideShown | None
    resync: WishShown | None
    chunks: int = Field(description="parts of bundles that are not whole yet")


class SiteStatusShown(_Shown):
    site: str
    transport: str = Field(description="kafka or queues; empty where all was refused")
    state: str = Field(description="active or silent; of one site also refused: nothing of it was ever taken in")
    first_seen: str
    last_seen: str = Field(description="by the times that its bundles carry")
    silence_seconds: float = Field(description="since then")
    state_seconds: float = Field(description="how long it is in its state")
    staleness_seconds: float | None = Field(description="age of the newest that is applied, by the time the site sent it")
    types: list[TypeStatusShown]


class BridgeShown(_Shown):
    summary: BridgeSummary
    notes: list[NoteShown] = Field(description="on sites that somebody should look at, the worst few of each kind")
    sites: list[SiteStatusShown]
    next: str | None = Field(description="ask for sites after this one; none: these are all")


class CountersShown(_Shown):
    received: int
    conflated: int = Field(description="replaced by a newer one before they were applied")
    rejected: int = Field(description="no bundle of their sender")
    stale: int = Field(description="not newer than what was applied")
    applied: int
    quarantined: int
    discarded: int = Field(description="made for a base that is gone, or made up for by a resync")
    joined: int = Field(description="parts that became one bundle with another")
    expired: int = Field(description="parts whose rest never came")
    rows_received: int
    rows_written: int = Field(description="inserted, changed or deleted")


class SiteShown(SiteStatusShown):
    counters: CountersShown
    notes: list[NoteShown]


class OffsetShown(_Shown):
    transport: str = Field(description="queues or kafka")
    reader_group: str
    source: str = Field(description="the queue, or <topic>@<partition>")
    next: int = Field(description="the position that is read next")
    age_seconds: float


class OffsetsShown(_Shown):
    offsets: list[OffsetShown]


class TypeShown(_Shown):
    type: str
    priority: int = Field(description="smaller goes first inside a site")
    mode: str
    depends_on: str | None
    match: str | None = Field(description="exact or at_least")
    tables: list[str]
    group: str


class TypesShown(_Shown):
    types: list[TypeShown]


class QuarantineRow(_Shown):
    id: int
    site: str
    type: str = Field(description="empty where there was no telling")
    mode: str
    version: str | None
    reason: str
    queue: str = Field(description="where it came from; <topic>@<partition> for Kafka")
    position: int
    state: str = Field(description="open, cleared, retried or dropped")
    quarantined_at: str
    age_seconds: float
    bytes: int


class QuarantineShown(_Shown):
    quarantine: list[QuarantineRow]


class QuarantinedShown(QuarantineRow):
    settled_at: str | None
    headers: dict[str, str]
    cut: bool = Field(description="whether this is only the beginning of the payload")
    text: str | None
    base64: str | None = Field(description="where it is not text")
    next_steps: list[str] = Field(description="what may be done about it")


class SettledShown(_Shown):
    id: int
    state: str


class ResyncWanted(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    site: str
    type: str | None = Field(default=None, description="left out: every type that the site sends")


class ResyncShown(_Shown):
    site: str
    types: list[str]


class ForgottenShown(_Shown):
    site: str
    deleted: dict[str, int] = Field(description="table → rows that are gone")


# -- one site for all examples: a compliance bundle of paris waits for its base

TYPE: dict[str, Any] = {
    "type": "complete-compliance", "version": "12.2", "value": 2, "event_time": "2030-01-01T00:00:00+00:00",
    "age_seconds": 31.0, "lag_seconds": 32.5, "waiting": 1,
    "next": {"version": "12.3", "mode": "complete", "parked": True, "held": False, "base": "clusters-per-policy",
             "needs": "12.6", "has": "12.5", "waiting_seconds": 4.0},
    "quarantined": {"id": 7, "entries": 1, "reason": "data of complete-compliance: it is not a list", "age_seconds": 60.0,
                    "version": "12.1", "mode": "complete"},
    "resync": {"holds": "compliance-delta", "reason": "a delta was quarantined", "asks": 2, "age_seconds": 80.0,
               "asked_seconds": 20.0},
    "chunks": 0,
}  # fmt: skip
NOTES = [
    {"site": "paris", "type": "complete-compliance", "kind": "waiting",
     "words": "complete-compliance 12.3 waits: it was made for clusters-per-policy 12.6, but 12.5 is applied; it goes on when "
              "that comes"}
]  # fmt: skip
_SITE: dict[str, Any] = {
    "site": "paris", "transport": "queues", "state": "active", "first_seen": "2030-01-01T00:00:00+00:00",
    "last_seen": "2030-01-02T00:00:00+00:00", "silence_seconds": 1.5, "state_seconds": 86400.0, "staleness_seconds": 32.5,
    "types": [TYPE],
}  # fmt: skip
STATUS: dict[str, Any] = {
    "summary": {"sites": 1, "active": 1, "silent": 0, "waiting": 1, "waiting_bytes": 512, "parked": 1, "oldest_seconds": 4.0,
                "quarantined": 1, "resyncs": 1, "running": True, "owner": "hub/pipeline-4711"},
    "notes": NOTES, "sites": [_SITE], "next": None,
}  # fmt: skip
COUNTERS = {
    "received": 120, "conflated": 40, "rejected": 0, "stale": 1, "applied": 76, "quarantined": 1, "discarded": 0, "joined": 0,
    "expired": 1, "rows_received": 4000, "rows_written": 320,
}  # fmt: skip
SITE: dict[str, Any] = _SITE | {"counters": COUNTERS, "notes": NOTES}
OFFSETS: dict[str, Any] = {
    "offsets": [
        {"transport": "queues", "reader_group": "bridge", "source": "LRQ_Recv_status_paris", "next": 121, "age_seconds": 0.3}
    ]
}
TYPES: dict[str, Any] = {
    "types": [
        {"type": "complete-compliance", "priority": 6, "mode": "complete", "depends_on": "clusters-per-policy",
         "match": "exact", "tables": ["fleet.compliance"], "group": ""}
    ]
}  # fmt: skip
_ROW: dict[str, Any] = {
    "id": 7, "site": "paris", "type": "complete-compliance", "mode": "complete", "version": "12.1",
    "reason": "data of complete-compliance: it is not a list", "queue": "LRQ_Recv_status_paris", "position": 119,
    "state": "open", "quarantined_at": "2030-01-02T00:00:00+00:00", "age_seconds": 60.0, "bytes": 4,
}  # fmt: skip
QUARANTINE: dict[str, Any] = {"quarantine": [_ROW]}
QUARANTINED: dict[str, Any] = _ROW | {
    "settled_at": None, "headers": {"ce_type": "complete-compliance"}, "cut": False, "text": "null", "base64": None,
    "next_steps": ["once its cause is gone, try it again: trunkline bridge quarantine retry 7"],
}  # fmt: skip
RETRIED: dict[str, Any] = {"id": 7, "state": "retried"}
DROPPED: dict[str, Any] = {"id": 7, "state": "dropped"}
RESYNC_WANTED = {"site": "paris", "type": "clusters-per-policy"}
RESYNC: dict[str, Any] = {"site": "paris", "types": ["clusters-per-policy"]}
FORGOTTEN: dict[str, Any] = {"site": "paris", "deleted": {"bridge.ledger": 4, "fleet.compliance": 1500}}
