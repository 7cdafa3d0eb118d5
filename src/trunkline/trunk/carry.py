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
    again. Those who were in the stream go on without a break while the others are let in (H13). So nothing is skipped, and
    nothing already passed on comes twice.
 4. Positions move in whole batches, and a batch is whole transactions.
 5. A taker that is full (a window of bytes waits for it) holds the window upstream closed, unless that would hold up others:
    then it leaves the stream (it *lags*) with what it has queued, and comes back when that is gone. Whoever is far behind
    the live stream is fed from one merged catch-up with a smaller window, until it is near (H14).
 6. Only the origin may say RESET, when a position is not of its log (other log id, or the mark does not fit), and GAP, when
    it has trimmed what is wanted. A subscription with such a want is not opened; the destination forgets its positions, or
    puts the loss on record, and everybody subscribes again. Never a skip, never silence.
 7. Acknowledgements (durable positions) go the reverse way, hop by hop, and are said again from time to time.
 8. Every message may be lost: subscriptions are repeated after silence, windows and acknowledgements are cumulative.
 9. Entries are fenced by log id and mark, never by an incarnation: another leader with the same log is no news (H21).

Who takes here is kept in `children`, from whom this site takes in `upstream`; `handover` says how parents are changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trunkline.core.ids import START, Position
from trunkline.trunk.acks import Acknowledgements
from trunkline.trunk.asks import Acknowledged, Append, Deliver, Effect
from trunkline.trunk.children import Children
from trunkline.trunk.desk import Desk
from trunkline.trunk.handover import Handover
from trunkline.trunk.log import Applied, Chunk
from trunkline.trunk.messages import (
    Ack,
    Awaited,
    Batch,
    Gap,
    Lane,
    Reset,
    Send,
    Stop,
    Stopped,
    Subscribe,
    Taken,
    TrunkMessage,
    Vector,
)  # fmt: skip
from trunkline.trunk.streams import Lanes
from trunkline.trunk.taker import Taker
from trunkline.trunk.upstream import Upstream
from trunkline.trunk.view import view_of
from trunkline.trunk.wants import Opened, is_held

# About what a busy stamper's round brings: each read costs the same beside its entries, so a round is not cut in two.
READ_LIMIT = 2000
# No path is longer: a message that went so far goes round in circles.
MAX_HOPS = 64


@dataclass
class Carrier:
    site: str
    generation: int
    log_id: str
    head: Position = START
    handover: Handover = Handover.EXACT
    lanes: Lanes = field(default_factory=Lanes)
    _desk: Desk = field(init=False)
    _children: Children = field(init=False)
    _upstream: Upstream = field(init=False)
    _acks: Acknowledgements = field(init=False)

    def __post_init__(self) -> None:
        self._desk = Desk(self.site)
        self._children = Children(self._desk, self.log_id, self.head)
        self._upstream = Upstream(self._desk, self._children, self.handover, self.lanes)
        self._acks = Acknowledgements(self.site, self.log_id)

    @property
    def counters(self) -> Counter[tuple[str, str]]:
        """(neighbour, what) → how many."""
        return self._desk.counters

    # -- what happens around us

    def link_up(self, site: str, capable: bool = True) -> list[Effect]:
        """`capable` False: it knows no subscriptions, and sends everything unasked."""
        self._desk.links[site] = capable
        self._upstream.link_up(site)
        return self._effects()

    def link_down(self, site: str) -> list[Effect]:
        self._desk.links.pop(site, None)
        for origin in list(self._children.takers):
            for lane in Lane:
                self._children.drop(origin, site, lane)
        self._upstream.link_down(site)
        self._acks.forget(site)
        return self._effects()

    def move(self, origin: str, via: str | None, gently: bool, now: float) -> list[Effect]:
        """Take this origin from that neighbour from now on; `Accepted` follows when it serves."""
        self._upstream.move(origin, via, gently, now)
        return self._effects()

    def take_from_any(self, origin: str, sites: Sequence[str], now: float) -> list[Effect]:
        """Ask all of these; the first that gets beyond what is here becomes the parent, and `Accepted` says which."""
        self._upstream.take_from_any(origin, sites, now)
        return self._effects()

    def set_head(self, head: Position, now: float) -> list[Effect]:
        self._children.grown(head, now)
        self.head = self._children.head
        return self._effects()

    def tick(self, now: float) -> list[Effect]:
        self._upstream.tick(now)
        self._children.say_signs(now)
        for origin, own in self._children.own.items():
            if own is not None:
                self._children.pump_own(origin, own, now)
        self._upstream.open_windows(now)
        self._send_acks(now)
        return self._effects()

    # -- answers of the host

    def loaded(self, origin: str, applied: Applied) -> list[Effect]:
        """What the sink has and holds; said again when that changed otherwise than by `appended`."""
        self._upstream.forget_own(origin)
        self._children.loaded(origin, applied)
        self._acks.note(Ack(origin, applied.log_id, self.site, self.generation, applied.clients))
        return self._effects()

    def opened(self, child: str, id: int, opened: Opened, now: float) -> list[Effect]:
        self._children.opened(child, id, opened, now)
        return self._effects()

    def read(self, child: str, id: int, chunk: Chunk, clients: tuple[str, ...], now: float) -> list[Effect]:
        self._children.read(child, id, chunk, clients, now)
        return self._effects()

    def appended(self, done: Append, now: float) -> list[Effect]:
        """Durable: confirm, acknowledge, and go on with what came meanwhile."""
        stood = done.since
        positions = {c: stood.clients.get(c, START) if is_held(stood, c) else done.upto for c in done.clients}
        self._acks.note(Ack(done.origin, done.log_id, self.site, self.generation, positions))
        own = self._children.own.get(done.origin)
        if own is not None and own.busy and own.wants[self.site] is done.since:
            own.busy = False
            own.confirm(own.id, done.upto.seq)
            self._after_progress(done.origin, own, now)
        return self._effects()

    # -- messages

    def receive(self, peer: str, message: TrunkMessage, now: float) -> list[Effect]:
        match message:
            case Batch():
                self._upstream.on_batch(peer, message, now)
            case Taken():
                self._on_taken(peer, message, now)
            case Subscribe():
                self._children.on_subscribe(peer, message)
            case Stop():
                self._children.on_stop(peer, message)
            case Stopped():
                self._upstream.on_stopped(peer, message, now)
            case Ack():
                self._acks.note(message)
            case Vector():
                self._acks.hear(peer, message)
            case Awaited():
                self._on_awaited(message, now)
            case Reset() | Gap():
                self._upstream.on_refusal(peer, message)
            case Send():
                self._on_send(message)
        return self._effects()

    def _on_taken(self, peer: str, message: Taken, now: float) -> None:
        for lane in Lane:
            taker = self._children.takers.get(message.origin, {}).get((peer, lane))
            if taker is not None and taker.knows(message.id):
                taker.confirm(message.id, message.seq)
                self._after_progress(message.origin, taker, now)

    def _after_progress(self, origin: str, taker: Taker, now: float) -> None:
        self._children.pump(origin, taker, now)
        if taker.lagging and taker.queued == 0:
            taker.lagging = False
            self._desk.touch([origin])
        for lane in Lane:
            stream = self._upstream.streams.get((origin, lane))
            if stream is not None:
                self._upstream.open_window(stream, now)

    # -- messages for one site

    def unicast(self, to: str, body: bytes, bulk: bool = False) -> list[Effect]:
        """At most once, and perhaps never: whoever sends it waits for an answer of the layer above.

        `bulk` travels with the records, so that signals do not wait for it.
        """
        self._on_send(Send(to, self.site, body, MAX_HOPS, bulk))
        return self._effects()

    def sent_towards(self, site: str) -> int | None:
        """How far the own log was sent to the neighbour that takes it for that site."""
        takers = self._children.takers.get(self.site, {}).values()
        return max((t.sent.seq for t in takers if site in t.wants and t.sent is not None), default=None)

    def reaches(self, site: str) -> bool:
        return self._way_to(site) is not None

    def _on_send(self, message: Send) -> None:
        if message.to == self.site:
            self._desk.ask(Deliver(message.source, message.body))
            return
        hop = self._way_to(message.to)
        if hop is None or message.hops <= 0:
            self.counters[message.to, "no_way"] += 1
            return
        self.counters[hop, "unicast"] += 1
        self._desk.send(hop, Send(message.to, message.source, message.body, message.hops - 1, message.bulk))

    def _way_to(self, site: str) -> str | None:
        """Itself; else where its records come from; else a child that takes records for it."""
        for hop in (site, self._upstream.parents.get(site)):
            if hop is not None and self._desk.links.get(hop):
                return hop
        return next((t.site for _, t in self._children.all() if site in t.wants and t.site in self._desk.links), None)

    # -- acknowledgements

    def awaits(self, destinations: Sequence[str], seconds: float, now: float) -> list[Effect]:
        """Somebody waits until these have the own log's entries: for so long their acknowledgements come more often."""
        self._on_awaited(Awaited(self.site, tuple(destinations), seconds), now)
        return self._effects()

    def _on_awaited(self, message: Awaited, now: float) -> None:
        self._acks.wait_for(message.origin, message.destinations, now + message.seconds)
        for taker in self._children.takers.get(message.origin, {}).values():
            behind = tuple(d for d in message.destinations if d in taker.wants)
            if behind:
                self._desk.send(taker.site, Awaited(message.origin, behind, message.seconds))

    def _send_acks(self, now: float) -> None:
        for origin in self._upstream.fresh:
            self._acks.say_again(origin)
        self._upstream.fresh.clear()
        for ack in self._acks.own():
            self._desk.ask(Acknowledged(ack.destination, ack.generation, ack.log_id, ack.clients))
        for vector in self._acks.due(now, self._behind):
            parent = self._upstream.serving(vector.origin)
            if parent is not None and self._desk.links.get(parent, True):
                self._desk.send(parent, vector)
            elif parent is not None:
                for ack in self._acks.one_by_one(vector):
                    self._desk.send(parent, ack)

    def _behind(self, origin: str) -> set[str]:
        return {self.site}.union(*(t.wants for t in self._children.takers.get(origin, {}).values()))

    # -- looking

    def cursors(self) -> dict[str, int]:
        """Origin → how far this site has its records, for itself and to hand on."""
        return {origin: self._upstream.reached(origin) for origin in self._children.own}

    def withheld(self) -> set[str]:
        return self._upstream.withheld()

    def view(self) -> dict[str, Any]:
        return view_of(self._desk, self._children, self._upstream)

    def _effects(self) -> list[Effect]:
        self._upstream.forget_dropped()
        return self._desk.effects()
