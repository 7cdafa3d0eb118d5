"""Carrying records between sites, without I/O: messages, answers and time go in, effects come out.

Theory of operation
-------------------
For every origin a site has one parent (topology decides). It *subscribes* there with its wants: for itself and for every site
that takes the origin through it, the position that destination has reached. The wants travel up to the origin, which checks
them against its log and sends every entry that some destination lacks: once per link, whatever the number of destinations
behind it. A relay hands each batch on to those of its children that want something of it, and keeps nothing.

 1. A batch is taken only from the present parent, under the present subscription id, and only when its `prev` is where the
    stream stands. Anything else is a stray or a hole; a hole is mended by subscribing again at the present positions.
 2. A stream begins at or before the lowest position its wants name; an entry is sent when a destination of it is behind it.
 3. A taker joins a running stream only if it has exactly what the stream takes it to have; otherwise the site subscribes
    again, with the positions everybody has reached by then. So nothing is skipped, and nothing already passed on comes twice.
 4. Positions move in whole batches, and a batch is whole transactions.
 5. A taker that is full (a window of bytes waits for it) holds the window upstream closed, unless that would hold up others:
    then it leaves the stream (it *lags*) with what it has queued, and comes back by a new subscription when that is gone.
 6. Only the origin may say RESET, when a position is not of its log (other log id, or the mark does not fit). A subscription
    with such a want is not opened at all; the destination forgets its positions and everybody subscribes again.
 7. Acknowledgements (durable positions) go the reverse way, hop by hop, and are said again from time to time.
 8. Every message may be lost: subscriptions are repeated after silence, windows and acknowledgements are cumulative.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trunkline.core.ids import START, Position
from trunkline.trunk.acks import Acknowledgements
from trunkline.trunk.asks import Acknowledged, Append, Effect, Load, Open, Read, ResetSink, Send
from trunkline.trunk.log import Applied, Chunk, Entry
from trunkline.trunk.messages import Ack, Batch, Reset, Stop, Subscribe, Taken, TrunkMessage
from trunkline.trunk.taker import WINDOW, Piece, Taker
from trunkline.trunk.wants import Opened, joins

SIGN_SECONDS = 1.0
SILENCE_SECONDS = 4.0
PATIENCE_SECONDS = 2.0
READ_LIMIT = 1000


@dataclass
class _Stream:
    """What this site takes of one origin, from whom."""

    parent: str
    id: int
    wants: dict[str, Applied]
    takers: list[Taker]
    heard: float
    log_id: str = ""
    cursor: Position | None = None
    clients: tuple[str, ...] = ()
    taken: int = -1
    moved_at: float = 0.0
    said_at: float = 0.0


@dataclass
class Carrier:
    site: str
    generation: int
    log_id: str
    head: Position = START
    counters: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(neighbour, what) → how many; the first day's counters of every link."""
    _links: set[str] = field(default_factory=set)
    _parents: dict[str, str] = field(default_factory=dict)
    _own: dict[str, Taker | None] = field(default_factory=dict)
    _children: dict[str, dict[str, Taker]] = field(default_factory=dict)
    _streams: dict[str, _Stream] = field(default_factory=dict)
    _acks: Acknowledgements = field(init=False)
    _dirty: dict[str, None] = field(default_factory=dict)
    _ids: int = 0
    _out: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._acks = Acknowledgements(self.site, self.log_id)

    # -- what happens around us

    def link_up(self, site: str) -> list[Effect]:
        self._links.add(site)
        self._touch(o for o, p in self._parents.items() if p == site)
        return self._effects()

    def link_down(self, site: str) -> list[Effect]:
        self._links.discard(site)
        for origin in list(self._children):
            self._drop(origin, site)
        for origin in [o for o, s in self._streams.items() if s.parent == site]:
            del self._streams[origin]
            self._touch([origin])
        return self._effects()

    def set_parents(self, parents: Mapping[str, str]) -> list[Effect]:
        changed = [o for o in {**self._parents, **parents} if self._parents.get(o) != parents.get(o)]
        self._parents = dict(parents)
        for origin in changed:
            if origin in parents and origin not in self._own:
                self._own[origin] = None
                self._out.append(Load(origin))
        self._touch(changed)
        return self._effects()

    def set_head(self, head: Position, now: float) -> list[Effect]:
        if head.seq > self.head.seq:
            self.head = head
            for taker in self._children.get(self.site, {}).values():
                self._pump(self.site, taker, now)
        return self._effects()

    def tick(self, now: float) -> list[Effect]:
        self._reconsider_silent(now)
        dirty, self._dirty = self._dirty, {}
        for origin in dirty:
            self._consider(origin, now)
        for origin, takers in self._children.items():
            for taker in takers.values():
                if taker.sent is not None and now - taker.sent_at >= SIGN_SECONDS:
                    self._say(origin, taker, taker.sign_of_life(now))
        for origin, own in self._own.items():
            if own is not None:
                self._pump_own(origin, own, now)
        for origin in self._streams:
            self._open_window(origin, now)
        self._send_acks(now)
        return self._effects()

    # -- answers of the host

    def loaded(self, origin: str, applied: Applied) -> list[Effect]:
        self._own[origin] = Taker(self.site, 0, {self.site: applied}, log_id=applied.log_id)
        self._acks.note(Ack(origin, applied.log_id, self.site, self.generation, applied.clients))
        self._touch([origin])
        return self._effects()

    def opened(self, child: str, id: int, opened: Opened, now: float) -> list[Effect]:
        taker = self._children.get(self.site, {}).get(child)
        if taker is None or taker.id != id:
            return self._effects()
        if opened.reset:
            for site in opened.reset:
                self._send(child, Reset(id, self.site, self.log_id, site))
            return self._effects()
        taker.log_id, taker.clients = self.log_id, opened.clients
        taker.begin(opened.start)
        self._say(self.site, taker, taker.sign_of_life(now))
        self._pump(self.site, taker, now)
        return self._effects()

    def read(self, child: str, id: int, chunk: Chunk, clients: tuple[str, ...], now: float) -> list[Effect]:
        taker = self._children.get(self.site, {}).get(child)
        if taker is not None and taker.id == id and taker.cursor is not None:
            taker.busy = False
            taker.offer(self.log_id, taker.cursor.seq, chunk.entries, chunk.upto, clients)
            self._pump(self.site, taker, now)
        return self._effects()

    def appended(self, done: Append, now: float) -> list[Effect]:
        """Durable: confirm, acknowledge, and go on with what came meanwhile."""
        positions = dict.fromkeys(done.clients, done.upto)
        self._acks.note(Ack(done.origin, done.log_id, self.site, self.generation, positions))
        own = self._own.get(done.origin)
        if own is not None and own.busy:
            own.busy = False
            own.confirm(done.upto.seq)
            self._after_progress(done.origin, own, now)
        return self._effects()

    # -- messages

    def receive(self, peer: str, message: TrunkMessage, now: float) -> list[Effect]:
        match message:
            case Subscribe():
                self._on_subscribe(peer, message)
            case Stop():
                self._on_stop(peer, message)
            case Batch():
                self._on_batch(peer, message, now)
            case Taken():
                self._on_taken(peer, message, now)
            case Ack():
                self._acks.note(message)
            case Reset():
                self._on_reset(peer, message)
        return self._effects()

    def _on_subscribe(self, peer: str, message: Subscribe) -> None:
        wants = {site: want for site, want in message.wants.items() if site != self.site}
        self._drop(message.origin, peer)
        self._children.setdefault(message.origin, {})[peer] = Taker(peer, message.id, wants)
        if message.origin == self.site:
            self._out.append(Open(peer, message.id, wants))
        else:
            self._touch([message.origin])

    def _on_stop(self, peer: str, message: Stop) -> None:
        taker = self._children.get(message.origin, {}).get(peer)
        if taker is not None and taker.id == message.id:
            self._drop(message.origin, peer)

    def _on_batch(self, peer: str, batch: Batch, now: float) -> None:
        self.counters[peer, "received"] += len(batch.entries)
        stream = self._streams.get(batch.origin)
        if stream is None or (stream.parent, stream.id) != (peer, batch.id):
            self.counters[peer, "stray"] += len(batch.entries)
            self._send(peer, Stop(batch.id, batch.origin))
            return
        stream.heard = now
        if not self._continues(stream, batch):
            if stream.cursor is None or batch.upto.seq > stream.cursor.seq:
                self.counters[peer, "hole"] += 1
                self._subscribe(batch.origin, now)
            return
        if batch.opens:
            for taker in stream.takers:
                taker.start_at(Position(batch.prev, 0))
        stream.log_id, stream.cursor, stream.clients = batch.log_id, batch.upto, batch.clients
        self._hand_out(stream, batch, now)

    @staticmethod
    def _continues(stream: _Stream, batch: Batch) -> bool:
        return batch.opens if stream.cursor is None else batch.prev == stream.cursor.seq

    def _hand_out(self, stream: _Stream, batch: Batch, now: float) -> None:
        wanted = 0
        for taker in list(stream.takers):
            wanted += taker.offer(batch.log_id, batch.prev, batch.entries, batch.upto, batch.clients)
            self._pump(batch.origin, taker, now)
        if batch.entries and not wanted:
            self.counters[stream.parent, "duplicate"] += len(batch.entries)
        self._open_window(batch.origin, now)

    def _on_taken(self, peer: str, message: Taken, now: float) -> None:
        taker = self._children.get(message.origin, {}).get(peer)
        if taker is not None and taker.id == message.id:
            taker.confirm(message.seq)
            self._after_progress(message.origin, taker, now)

    def _on_reset(self, peer: str, message: Reset) -> None:
        stream = self._streams.get(message.origin)
        if stream is None or (stream.parent, stream.id) != (peer, message.id):
            return
        self.counters[peer, "reset"] += 1
        if message.destination == self.site:
            self._own[message.origin] = None
            stream.takers = [t for t in stream.takers if t.site != self.site]
            self._out.append(ResetSink(message.origin, message.log_id))
            return
        for taker in [t for t in self._children.get(message.origin, {}).values() if message.destination in t.wants]:
            self._send(taker.site, Reset(taker.id, message.origin, message.log_id, message.destination))
            self._drop(message.origin, taker.site)

    # -- the stream upstream

    def _consider(self, origin: str, now: float) -> None:
        """Keeps the present subscription where it still serves everybody, else subscribes anew."""
        parent = self._parents.get(origin)
        stream = self._streams.get(origin)
        if stream is not None and stream.parent != parent:
            self._leave(origin)
            stream = None
        if origin == self.site or parent is None or parent not in self._links:
            return
        if stream is None or not self._serves(stream, self._takers(origin)):
            self._subscribe(origin, now)

    def _serves(self, stream: _Stream, takers: list[Taker]) -> bool:
        wants = _together(takers)
        if stream.cursor is None:
            fits = wants == stream.wants
        else:
            cursor, asked = stream.cursor, stream.wants
            fits = wants.keys() == asked.keys() and all(joins(w, asked[s], cursor, stream.clients) for s, w in wants.items())
        if fits:
            for taker in takers:
                if taker.cursor is None and stream.cursor is not None:
                    taker.log_id, taker.clients = stream.log_id, stream.clients
                    taker.begin(stream.cursor)
            stream.takers = takers
        return fits

    def _subscribe(self, origin: str, now: float) -> None:
        parent, takers = self._parents.get(origin), self._takers(origin)
        wants = _together(takers)
        if parent is None or not wants:
            self._leave(origin)
            return
        self._ids += 1
        self._streams[origin] = _Stream(parent, self._ids, wants, takers, now, moved_at=now)
        self._send(parent, Subscribe(self._ids, origin, wants))
        self.counters[parent, "subscribed"] += 1
        self._acks.say_again(origin)

    def _leave(self, origin: str) -> None:
        stream = self._streams.pop(origin, None)
        if stream is not None:
            self._send(stream.parent, Stop(stream.id, origin))

    def _takers(self, origin: str) -> list[Taker]:
        """Everybody who takes the origin here and is served by the stream; never the parent itself."""
        own = self._own.get(origin)
        children = (t for site, t in self._children.get(origin, {}).items() if site != self._parents.get(origin))
        return [t for t in (*([own] if own is not None else []), *children) if not t.lagging]

    def _reconsider_silent(self, now: float) -> None:
        for origin, stream in list(self._streams.items()):
            if now - stream.heard > SILENCE_SECONDS:
                self.counters[stream.parent, "silence"] += 1
                self._subscribe(origin, now)

    def _open_window(self, origin: str, now: float) -> None:
        """Lets the parent go on, or makes full takers leave, or says again how far the window is open."""
        stream = self._streams.get(origin)
        if stream is None or stream.cursor is None or not stream.takers:
            return
        full = [t for t in stream.takers if t.full()]
        if full and self._hold_others_up(stream, full, now):
            for taker in full:
                taker.lagging = True
                self.counters[taker.site, "lagged"] += 1
            stream.takers = [t for t in stream.takers if not t.lagging]
            self._touch([origin])
            full = []
        if not full and stream.taken < stream.cursor.seq:
            stream.taken, stream.moved_at = stream.cursor.seq, now
        elif stream.taken < 0 or now - stream.said_at < SIGN_SECONDS:
            return
        stream.said_at = now
        self._send(stream.parent, Taken(stream.id, origin, stream.taken))

    @staticmethod
    def _hold_others_up(stream: _Stream, full: list[Taker], now: float) -> bool:
        roomy = [t for t in stream.takers if t not in full]
        return any(t.took for t in roomy) or (bool(roomy) and now - stream.moved_at > PATIENCE_SECONDS)

    # -- takers

    def _pump(self, origin: str, taker: Taker, now: float) -> None:
        if taker.site == self.site:
            self._pump_own(origin, taker, now)
            return
        while (piece := taker.next_piece(now)) is not None:
            self._say(origin, taker, piece)
        if origin == self.site:
            self._read_on(taker)

    def _pump_own(self, origin: str, own: Taker, now: float) -> None:
        """One append at a time, of all that is queued; a position alone moves only from time to time."""
        if own.busy or own.cursor is None or own.sent is None or own.sent.seq >= own.cursor.seq:
            return
        if not own.queued and now - own.sent_at < SIGN_SECONDS:
            return
        entries: list[Entry] = []
        while (piece := own.next_piece(now)) is not None:
            entries += piece.entries
        own.sign_of_life(now)
        own.busy = True
        self._out.append(Append(origin, own.log_id, tuple(entries), own.sent, own.clients))

    def _read_on(self, taker: Taker) -> None:
        if taker.cursor is None or taker.busy or taker.queued or taker.unconfirmed >= WINDOW or not taker.wants:
            return
        if taker.cursor.seq < self.head.seq:
            taker.busy = True
            self._out.append(Read(taker.site, taker.id, taker.cursor.seq, frozenset(taker.wants)))

    def _after_progress(self, origin: str, taker: Taker, now: float) -> None:
        self._pump(origin, taker, now)
        if taker.lagging and taker.queued == 0:
            taker.lagging = False
            self._touch([origin])
        self._open_window(origin, now)

    def _say(self, origin: str, taker: Taker, piece: Piece | None) -> None:
        if piece is not None:
            self.counters[taker.site, "sent" if origin == self.site else "relayed"] += len(piece.entries)
            batch = Batch(taker.id, origin, piece.log_id, piece.prev, piece.entries, piece.upto, piece.clients, piece.opens)
            self._send(taker.site, batch)

    # -- acknowledgements

    def _send_acks(self, now: float) -> None:
        for ack in self._acks.due(now):
            if ack.origin == self.site:
                self._out.append(Acknowledged(ack.destination, ack.generation, ack.log_id, ack.clients))
            elif ack.origin in self._streams:
                self._send(self._streams[ack.origin].parent, ack)

    # -- small print

    def _touch(self, origins: Iterable[str]) -> None:
        self._dirty.update(dict.fromkeys(origins))

    def _drop(self, origin: str, child: str) -> None:
        taker = self._children.get(origin, {}).pop(child, None)
        if taker is None:
            return
        self._touch([origin])
        if origin in self._streams:
            stream = self._streams[origin]
            stream.takers = [t for t in stream.takers if t is not taker]

    def _send(self, site: str, message: TrunkMessage) -> None:
        if site in self._links:
            self._out.append(Send(site, message))

    def _effects(self) -> list[Effect]:
        out, self._out = self._out, []
        return out


def _together(takers: list[Taker]) -> dict[str, Applied]:
    """The wants of all takers; a destination that two of them claim counts with what it has least."""
    wants: dict[str, Applied] = {}
    for taker in takers:
        for site, want in taker.standing().items():
            wants[site] = _least(wants[site], want) if site in wants else want
    return wants


def _least(a: Applied, b: Applied) -> Applied:
    if a.log_id != b.log_id:
        return a if not a.clients else b
    return Applied(a.log_id, {c: min(a.clients[c], b.clients[c]) for c in a.clients if c in b.clients})
