"""Models of what outlives a leader: a site's log and its snapshot requests, its sessions and its receive queues."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trunkline.core.ids import ALL_SITES, START, Position
from trunkline.queues.kinds import Kind
from trunkline.queues.messages import RECORDS
from trunkline.queues.negotiation import Facts
from trunkline.queues.sessionasks import BeginSnapshot, FinishSnapshot, StoreChunk, UseLog
from trunkline.queues.sessionrows import RequestRow, SessionRow


@dataclass
class Request:
    row: RequestRow
    number: int
    destinations: tuple[str, ...]
    reason: str
    incarnation: int = 0
    over: str = ""
    delivered: set[str] = field(default_factory=set)
    payloads: list[bytes] = field(default_factory=list)


@dataclass
class SourceTables:
    """Requests behave as in the database: an id is of one base for ever, and a newer one takes its destinations away."""

    site: str
    log_id: str = "log-1"
    lowest: Position = START
    entries: list[tuple[int, str, frozenset[str]]] = field(default_factory=list)
    requests: dict[str, Request] = field(default_factory=dict)
    chunks: dict[tuple[str, int], bytes] = field(default_factory=dict)
    providers: dict[str, list[bytes]] = field(default_factory=dict)
    """Client → the payloads its provider gives, one per chunk."""
    broken: bool = False
    """Providers fail, instead of giving anything."""
    held: bool = False
    """Providers do nothing."""
    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    acknowledged: dict[tuple[str, str], Position] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def commit(self, client: str, *destinations: str) -> int:
        self.entries.append((len(self.entries) + 1, client, frozenset(destinations)))
        return len(self.entries)

    def at(self, seq: int) -> Position:
        return Position(seq, 7_000 + seq) if seq else START

    @property
    def head(self) -> Position:
        return self.at(len(self.entries))

    def for_site(self, site: str, client: str) -> list[int]:
        return [seq for seq, of, to in self.entries if of == client and to & {site, ALL_SITES}]

    def trim(self, seq: int) -> None:
        """Nothing after the base of an open request goes (H18)."""
        bases = [r.row.base.seq for r in self.requests.values() if not r.over and r.row.state != "wanted"]
        self.lowest = self.at(max(self.lowest.seq, min([seq, len(self.entries), *bases])))

    def facts(self, sites: Sequence[str]) -> Facts:
        keys = [(site, client) for site in sites for client in sorted({c for _, c, _ in self.entries})]
        last = {key: max(self.for_site(*key), default=0) for key in keys}
        trimmed = {key: max((s for s in self.for_site(*key) if s <= self.lowest.seq), default=0) for key in keys}
        behind = {
            key: sum(1 for s in self.for_site(*key) if s > self.acknowledged[key].seq)
            for key in keys
            if key in self.acknowledged
        }
        return Facts(
            self.head, self.lowest, trimmed, {k: v for k, v in last.items() if v}, (), dict(self.acknowledged), {}, behind
        )

    # -- requests

    def rows(self) -> list[RequestRow]:
        def row(r: Request) -> RequestRow:
            return replace(r.row, waiting=tuple(d for d in r.destinations if d not in r.delivered))

        return [row(r) for r in self.requests.values() if not r.over]

    def ask(self, client: str, destinations: Sequence[str], reason: str, forced: bool = False) -> str:
        mine = [r for r in self.requests.values() if r.row.client == client and not r.over]
        found = next((r for r in mine if r.row.state == "wanted"), None)
        if found is None:
            number = next(self._numbers)
            found = Request(RequestRow(f"r{number}", client, ()), number, (), reason)
            self.requests[found.row.id] = found
        found.destinations = tuple(sorted({*found.destinations, *destinations}))
        found.row = replace(found.row, forced=found.row.forced or forced)
        for other in mine:
            if other is not found:
                other.destinations = tuple(d for d in other.destinations if d not in destinations)
                self._settle(other)
        return found.row.id

    def deliver(self, id: str, destination: str) -> None:
        request = self.requests[id]
        if not request.over and destination in request.destinations:
            request.delivered.add(destination)
            self._settle(request)

    def _settle(self, request: Request) -> None:
        if not set(request.destinations) - request.delivered:
            self.end(request, "done" if request.delivered else "superseded")

    def end(self, request: Request, how: str) -> None:
        request.over = how
        for key in [key for key in self.chunks if key[0] == request.row.id]:
            del self.chunks[key]

    def expire(self, incarnation: int) -> None:
        """The exported snapshot went with its leader."""
        for request in list(self.requests.values()):
            if request.row.state == "ready" and not request.over and request.incarnation != incarnation:
                self.end(request, "failed")
                self.ask(request.row.client, request.destinations, request.reason, request.row.forced)

    def export(self, incarnation: int) -> None:
        for request in self.requests.values():
            if request.row.state == "wanted" and not request.over and request.row.client in self.providers:
                request.row, request.incarnation = replace(request.row, state="ready", base=self.head), incarnation

    def provide(self) -> None:
        """One step of every provider: it takes a request up, or gives one chunk of it, or ends it."""
        for request in self.requests.values():
            row = request.row
            if self.held or request.over or row.state not in ("ready", "providing"):
                continue
            if self.broken:
                self.end(request, "failed")
            elif row.state == "ready":
                self.calls.append((row.client, request.destinations))
                request.payloads = [b"%s of %s" % (p, row.id.encode()) for p in self.providers[row.client]]
                request.row = replace(row, state="providing" if request.payloads else "complete")
            else:
                self.chunks[row.id, row.chunks] = RECORDS.encode([({}, request.payloads[row.chunks])])
                done = row.chunks + 1 == len(request.payloads)
                request.row = replace(row, chunks=row.chunks + 1, state="complete" if done else "providing")


@dataclass(frozen=True)
class Record:
    kind: Kind
    seq: int = 0
    request: str = ""
    payload: bytes = b""
    lost: tuple[int, int] | None = None


@dataclass
class SinkTables:
    rows: dict[tuple[str, str], SessionRow] = field(default_factory=dict)
    queues: dict[tuple[str, str], list[Record]] = field(default_factory=dict)

    def of(self, origin: str) -> list[SessionRow]:
        return [row for row in self.rows.values() if row.origin == origin]

    def queue(self, origin: str, client: str) -> list[Record]:
        return self.queues.setdefault((origin, client), [])

    def note(self, origin: str, client: str, reason: str, log_id: str) -> None:
        """To be negotiated: `first` and `reset` without a position, `gap` with the one it has."""
        fresh = SessionRow(origin, client, log_id, reason=reason)
        row = replace(self.rows[origin, client], state="new", reason=reason) if reason == "gap" else fresh
        self.rows[origin, client] = row

    def write(self, work: UseLog | BeginSnapshot | StoreChunk | FinishSnapshot) -> bool:
        """Whether it fitted the table; one that was done before fits."""
        row, queue = self.rows[work.origin, work.client], self.queue(work.origin, work.client)
        after, record, fits = self._step(row, work)
        if after is not row:
            self.rows[work.origin, work.client] = after
            queue += record
        return fits

    def _step(
        self, row: SessionRow, work: UseLog | BeginSnapshot | StoreChunk | FinishSnapshot
    ) -> tuple[SessionRow, list[Record], bool]:
        match work:
            case UseLog() if row.log_id == work.log_id and row.state != "log":
                lost = [Record(Kind.LOST, lost=work.lost)] if work.lost else []
                return replace(row, state="log", position=work.position), lost, True
            case BeginSnapshot() if row.log_id == work.log_id and row.request != work.request:
                begun = replace(row, state="snapshot", request=work.request, base=work.base, forced=work.forced, chunk=0)
                return replace(begun, completed_at=None), [Record(Kind.START, work.base.seq, work.request)], True
            case StoreChunk() if (row.state, row.request, row.chunk) == ("snapshot", work.request, work.chunk):
                records = [Record(Kind.SNAPSHOT, row.base.seq, work.request, payload) for _, payload in work.records]
                return replace(row, chunk=row.chunk + 1), records, True
            case FinishSnapshot() if row.state == "snapshot" and row.request == work.request:
                finished = replace(row, state="log", position=row.base, completed_at=1.0)
                return finished, [Record(Kind.LAST, row.base.seq, work.request)], True
            case UseLog():
                return row, [], row.log_id == work.log_id
            case BeginSnapshot():
                return row, [], row.request == work.request and row.state == "snapshot"
            case StoreChunk():
                return row, [], row.request == work.request and row.state == "snapshot" and row.chunk > work.chunk
            case FinishSnapshot():
                return row, [], row.request == work.request and row.state == "log"
