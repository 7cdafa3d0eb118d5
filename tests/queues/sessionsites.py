"""Sites with both halves of their sessions, as a leader hosts them: what it asks for is done a little later, and its answer
comes later still. A leader that is lost takes all that with it; the tables stay.

The carrier of log entries is a model: whatever a session in state log lacks comes to it, a few entries at a time, while there
is a way and both leaders are there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from sessionlink import Link, Time
from sessiontables import Record, SinkTables, SourceTables

from trunkline.queues.kinds import Kind
from trunkline.queues.messages import SessionMessage, for_source
from trunkline.queues.sessionasks import (
    AskSnapshot,
    BeginSnapshot,
    Delivered,
    FinishSnapshot,
    ReadChunk,
    Reload,
    Say,
    SinkEffect,
    SourceEffect,
    StoreChunk,
    Supersede,
    UseLog,
)
from trunkline.queues.sessionrows import SessionRow
from trunkline.queues.sessions_sink import SinkSessions
from trunkline.queues.sessions_source import SourceSessions

POLL_SECONDS = 0.2
CARRIED_AT_ONCE = 3
EPOCH = 1_000_000.0


@dataclass
class World:
    time: Time = field(default_factory=Time)
    random: Random = field(default_factory=lambda: Random(1))
    sites: dict[str, Site] = field(default_factory=dict)
    incarnations: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    latency: Callable[[], float] = lambda: 0.002
    """Of a host's deed, and of its answer."""

    def __post_init__(self) -> None:
        self.link = Link(self.time)

    def site(self, name: str) -> Site:
        site = self.sites[name] = Site(self, name)
        self.link.receivers[name] = site.receive
        site.lead()
        return site

    def way(self, a: str, b: str, there: bool) -> None:
        change = self.link.cut.discard if there else self.link.cut.add
        change(frozenset((a, b)))
        for site, other in ((a, b), (b, a)):
            self.sites[site].reachable(other, there)

    def run(self, seconds: float) -> None:
        self.time.run(seconds)


class Site:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.source_tables, self.sink_tables = SourceTables(name), SinkTables()
        self.leads = False
        self.full: set[tuple[str, str]] = set()
        self.asked: list[AskSnapshot] = []
        self.superseded: list[str] = []
        self._lanes: dict[str, float] = {}
        self.poll()

    # -- leaders come and go

    def lead(self) -> None:
        incarnation = next(self.world.incarnations)
        tables = self.source_tables
        self.source = SourceSessions(self.name, incarnation, tables.log_id, EPOCH)
        self.sink = SinkSessions(self.name, incarnation, EPOCH)
        self.leads = True
        tables.expire(incarnation)
        for other in self.world.sites:
            if other != self.name:
                self.reachable(other, frozenset((self.name, other)) not in self.world.link.cut)
        self.do(self.sink.sessions(self.sink_tables.rows.values(), self.now))
        for origin, client in sorted(self.full):
            self.do(self.sink.full(origin, [client], self.now))

    def lose_lease(self) -> None:
        self.leads = False
        self.source.stop()

    def change_leader(self) -> None:
        self.lose_lease()
        self.lead()

    @property
    def now(self) -> float:
        return self.world.time.now

    def poll(self) -> None:
        self.world.time.after(POLL_SECONDS, self.poll)
        self.source_tables.provide()
        if not self.leads:
            return
        self.source_tables.export(self.source.incarnation)
        self.read_tables()
        self.do(self.source.tick(self.now))
        self.do(self.sink.tick(self.now))
        self.carry()

    def read_tables(self) -> None:
        others = [name for name in self.world.sites if name != self.name]
        self.source.facts(self.source_tables.facts(others), self.now)
        self.do(self.source.requests(self.source_tables.rows(), set(self.source_tables.providers), self.now))

    # -- hosting

    def receive(self, sender: str, message: SessionMessage) -> None:
        if self.leads:
            half = self.source if for_source(message) else self.sink
            self.do(half.receive(sender, message, self.now))

    def reachable(self, other: str, way: bool) -> None:
        if self.leads:
            self.do(self.source.reachable(other, way, self.now))
            self.do(self.sink.reachable(other, way, self.now))

    def do(self, effects: list[SinkEffect] | list[SourceEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Say):
                self.world.link.send(self.name, effect.to, effect.message)
            else:
                self._later(self._answered(effect))

    def _later(self, deed: Callable[[], Callable[[], list[SinkEffect] | list[SourceEffect]] | None]) -> None:
        """Done in the order it was asked for, and answered, unless the leader is lost before the one or the other."""
        incarnation = self.sink.incarnation

        def still() -> bool:
            return self.leads and self.sink.incarnation == incarnation

        def now() -> None:
            answer = deed() if still() else None
            if answer is not None:
                self._in_order("answers", lambda: self.do(answer()) if still() else None)

        self._in_order("deeds", now)

    def _in_order(self, lane: str, deed: Callable[[], None]) -> None:
        self._lanes[lane] = max(self._lanes.get(lane, 0.0), self.now + self.world.latency())
        self.world.time.after(self._lanes[lane] - self.now, deed)

    def _answered(
        self, effect: SinkEffect | SourceEffect
    ) -> Callable[[], Callable[[], list[SinkEffect] | list[SourceEffect]] | None]:
        def deed() -> Callable[[], list[SinkEffect] | list[SourceEffect]] | None:
            source, sink, tables = self.source, self.sink, self.source_tables
            match effect:
                case UseLog() | BeginSnapshot() | StoreChunk() | FinishSnapshot():
                    taken = self.sink_tables.write(effect)
                    answers = {UseLog: sink.using_log, BeginSnapshot: sink.begun, StoreChunk: sink.stored}
                    answer = answers.get(type(effect), sink.finished)
                    return lambda: answer(effect, taken, self.now)  # type: ignore[arg-type]
                case Reload(origin):
                    rows = self.sink_tables.of(origin)
                    return lambda: sink.sessions(rows, self.now)
                case AskSnapshot(client, destination, reason, forced):
                    self.asked.append(effect)
                    request = tables.ask(client, [destination], reason, forced)
                    return lambda: source.asked(effect, request, self.now)
                case ReadChunk(request, _, chunk):
                    body = tables.chunks.get((request, chunk))
                    return lambda: source.chunk(effect, body, self.now)
                case Delivered(request, destination):
                    tables.deliver(request, destination)
                case Supersede(request):
                    self.superseded.append(request)
            return None

        return deed

    # -- the carrier of entries, as far as sessions meet it

    def carry(self) -> None:
        for origin in self.world.sites.values():
            way = frozenset((self.name, origin.name)) not in self.world.link.cut
            if origin is not self and origin.leads and way:
                for client in sorted({client for _, client, _ in origin.source_tables.entries}):
                    self._carry(origin.source_tables, client)

    def _carry(self, origin: SourceTables, client: str) -> None:
        key, seqs = (origin.site, client), origin.for_site(self.name, client)
        row = self.sink_tables.rows.get(key)
        if not seqs and row is None:
            return
        reason = self._refusal(row, origin, seqs)
        if reason:
            self.sink_tables.note(origin.site, client, reason, origin.log_id)
            self.do(self.sink.sessions(self.sink_tables.of(origin.site), self.now))
        elif row is not None and row.state == "log" and key not in self.full:
            taken = [seq for seq in seqs if seq > row.position.seq][:CARRIED_AT_ONCE]
            self.sink_tables.queue(*key).extend(Record(Kind.LOG_ENTRY, seq) for seq in taken)
            self.sink_tables.rows[key] = row = replace(row, position=origin.at(taken[-1])) if taken else row
            origin.acknowledged[self.name, client] = row.position

    @staticmethod
    def _refusal(row: SessionRow | None, origin: SourceTables, seqs: list[int]) -> str:
        if row is None:
            return "first"
        if row.log_id != origin.log_id:
            return "reset"
        return "gap" if row.state == "log" and any(row.position.seq < s <= origin.lowest.seq for s in seqs) else ""

    # -- what tests ask

    def queue(self, origin: str, client: str = "pol") -> list[Record]:
        return self.sink_tables.queue(origin, client)

    def kinds(self, origin: str, client: str = "pol") -> list[Kind]:
        return [record.kind for record in self.queue(origin, client)]

    def seqs(self, origin: str, client: str = "pol") -> list[int]:
        return [record.seq for record in self.queue(origin, client) if record.kind is Kind.LOG_ENTRY]

    def state(self, origin: str, client: str = "pol") -> str:
        row = self.sink_tables.rows.get((origin, client))
        return row.state if row is not None else ""


def check_queue(sink: Site, source: Site, client: str = "pol") -> None:
    """A queue is snapshots, each begun with its START and newer than the one before, of which only the last of a run is
    whole; LAST only after all of it; log entries only from its base on, none left out, none twice."""
    tables, position, request, given = source.source_tables, None, "", 0
    newest = 0
    for record in sink.queue(source.name, client):
        match record.kind:
            case Kind.START:
                assert tables.requests[record.request].number > newest, "an older request begins after a newer one"
                newest, request, given, position = tables.requests[record.request].number, record.request, 0, None
            case Kind.SNAPSHOT:
                assert record.request == request, "data of another request"
                assert record.payload == tables.requests[request].payloads[given], "out of order"
                given += 1
            case Kind.LAST:
                assert record.request == request, "the end of another request"
                assert given == len(tables.requests[request].payloads), "it is not whole"
                position, request = tables.requests[record.request].row.base.seq, ""
            case Kind.LOG_ENTRY:
                assert position is not None or (not request and client not in tables.providers), "a log entry before LAST"
                due = next(seq for seq in tables.for_site(sink.name, client) if seq > (position or 0))
                assert record.seq == due, "left out, or twice"
                position = record.seq
            case Kind.LOST:
                assert record.lost is not None
                kept = [seq for seq in tables.for_site(sink.name, client) if (position or 0) < seq < record.lost[0]]
                assert kept == [], "not lost, and not there"
                assert record.lost[0] > (position or 0), "it is there"
                position = max(seq for seq in tables.for_site(sink.name, client) if seq <= record.lost[1])


def is_complete(sink: Site, source: Site, client: str = "pol") -> bool:
    due = source.source_tables.for_site(sink.name, client)
    row = sink.sink_tables.rows.get((source.name, client))
    return not due or (row is not None and row.state == "log" and row.position.seq >= due[-1])
