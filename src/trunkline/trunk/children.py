"""The downstream side of a carrier: who takes which origin here, and what they are handed.

A child's subscription is a taker; so is this site itself. Takers of the own origin are fed from the log, all others from
this site's streams (`streams`). A child that changes its subscription *proposes* the next one and goes on being served
under the present one until the new set is effective (H13); one that comes without a present one begins with what it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trunkline.core.ids import START, Position
from trunkline.trunk.asks import Append, Load, Open, Read
from trunkline.trunk.desk import Desk
from trunkline.trunk.log import Applied, Chunk, Entry, messages_in
from trunkline.trunk.messages import Batch, Gap, Lane, Reset, Stop, Stopped, Subscribe
from trunkline.trunk.taker import Piece, Proposal, Taker
from trunkline.trunk.wants import Opened

SIGN_SECONDS = 1.0


@dataclass
class Children:
    desk: Desk
    log_id: str
    head: Position = START
    own: dict[str, Taker | None] = field(default_factory=dict)
    takers: dict[str, dict[tuple[str, Lane], Taker]] = field(default_factory=dict)
    dropped: list[tuple[str, Taker]] = field(default_factory=list)
    """Gone since the streams last looked."""

    def know(self, origin: str) -> None:
        if origin not in self.own and origin != self.desk.site:
            self.own[origin] = None
            self.desk.ask(Load(origin))

    def loaded(self, origin: str, applied: Applied) -> None:
        self.own[origin] = Taker(self.desk.site, 0, {self.desk.site: applied}, log_id=applied.log_id)
        self.desk.touch([origin])

    def of(self, origin: str, without: str | None) -> list[Taker]:
        """Everybody who takes the origin here and can be fed; never the neighbour it is taken from."""
        own = self.own.get(origin)
        children = (t for (site, _), t in self.takers.get(origin, {}).items() if site != without)
        return [t for t in (*([own] if own is not None else []), *children) if not t.lagging]

    def all(self) -> Iterator[tuple[str, Taker]]:
        for origin, takers in self.takers.items():
            for taker in takers.values():
                yield origin, taker

    def find(self, origin: str, child: str, id: int) -> Taker | None:
        """The taker that has this subscription, or proposes it."""
        for lane in Lane:
            taker = self.takers.get(origin, {}).get((child, lane))
            if taker is not None and id in (taker.id, taker.proposal.id if taker.proposal else taker.id):
                return taker
        return None

    # -- what children say

    def on_subscribe(self, peer: str, message: Subscribe) -> None:
        wants = {site: want for site, want in message.wants.items() if site != self.desk.site}
        present = self.takers.get(message.origin, {}).get((peer, message.lane))
        if present is not None and self._goes_on(present, message):
            present.proposal = Proposal(message.id, wants, frozenset(message.kept))
            wants = present.newcomers()
        else:
            self.drop(message.origin, peer, message.lane)
            taker = Taker(peer, message.id, wants, message.lane, fed=message.lane)
            self.takers.setdefault(message.origin, {})[peer, message.lane] = taker
        if message.origin == self.desk.site:
            self.desk.ask(Open(peer, message.id, wants))
        else:
            self.desk.touch([message.origin])

    @staticmethod
    def _goes_on(present: Taker, message: Subscribe) -> bool:
        return message.continues == present.id and present.cursor is not None and not present.lagging

    def on_stop(self, peer: str, message: Stop) -> None:
        taker = self.find(message.origin, peer, message.id)
        if taker is not None:
            upto = taker.sent.seq if taker.sent is not None else 0
            self.desk.send(peer, Stopped(message.id, message.origin, upto))
            self.drop(message.origin, peer, taker.lane)

    def drop(self, origin: str, peer: str, lane: Lane) -> None:
        taker = self.takers.get(origin, {}).pop((peer, lane), None)
        if taker is not None:
            self.dropped.append((origin, taker))
            self.desk.touch([origin])

    def refuse(self, origin: str, destination: str, taker: Taker, message: Reset | Gap) -> None:
        """What the origin said about a destination behind that child is passed on; what asked for it is over."""
        self.desk.send(taker.site, message)
        if taker.proposal is not None and destination in taker.newcomers():
            taker.proposal = None
            self.desk.touch([origin])
        else:
            self.drop(origin, taker.site, taker.lane)

    # -- the own log's answers

    def opened(self, child: str, id: int, opened: Opened, now: float) -> None:
        taker = self.find(self.desk.site, child, id)
        if taker is None or (taker.proposal is not None and taker.proposal.id != id):
            return
        if opened.reset or opened.gaps:
            self._refuse_opening(taker, id, opened)
            return
        if taker.proposal is not None:
            taker.turn(opened.start)
        else:
            taker.log_id, taker.clients = self.log_id, opened.clients
            taker.begin(opened.start)
            self._say(self.desk.site, taker, taker.sign_of_life(now))
        self.pump(self.desk.site, taker, now)

    def _refuse_opening(self, taker: Taker, id: int, opened: Opened) -> None:
        for site in opened.reset:
            self.desk.send(taker.site, Reset(id, self.desk.site, self.log_id, site))
        for site, clients in opened.gaps.items():
            self.desk.send(taker.site, Gap(id, self.desk.site, self.log_id, site, opened.lowest, clients))
        taker.proposal = None

    def read(self, child: str, id: int, chunk: Chunk, clients: tuple[str, ...], now: float) -> None:
        for lane in Lane:
            taker = self.takers.get(self.desk.site, {}).get((child, lane))
            if taker is None or taker.cursor is None or taker.reading != id:
                continue
            taker.busy, taker.reading = False, 0
            if taker.id == id:  # else it turned meanwhile, and wants something else read
                if chunk.upto.seq <= taker.cursor.seq < self.head.seq:
                    self.desk.ask(Open(child, id, taker.standing()))  # it was trimmed under it
                    return
                taker.offer(self.log_id, taker.cursor.seq, chunk.entries, chunk.upto, clients)
            self.pump(self.desk.site, taker, now)

    def grown(self, head: Position, now: float) -> None:
        if head.seq > self.head.seq:
            self.head = head
            for taker in self.takers.get(self.desk.site, {}).values():
                self.pump(self.desk.site, taker, now)

    # -- handing on

    def pump(self, origin: str, taker: Taker, now: float) -> None:
        if taker.site == self.desk.site:
            self.pump_own(origin, taker, now)
            return
        while (piece := taker.next_piece(now)) is not None:
            self._say(origin, taker, piece)
        if origin == self.desk.site:
            self._read_on(taker)

    def pump_own(self, origin: str, own: Taker, now: float) -> None:
        """One append at a time, of all that is queued; a position alone moves only from time to time, but a client that nobody
        here knows is made known at once."""
        if own.busy or own.cursor is None or own.sent is None:
            return
        due = own.sent.seq < own.cursor.seq and (own.queued or now - own.sent_at >= SIGN_SECONDS)
        if not due and not own.meets_strangers():
            return
        entries: list[Entry] = []
        while (piece := own.next_piece(now)) is not None:
            entries += piece.entries
        own.sign_of_life(now)
        own.busy = True
        own.introduced.update(own.clients)
        self.desk.ask(Append(origin, own.log_id, tuple(entries), own.sent, own.clients, own.wants[self.desk.site]))

    def say_signs(self, now: float) -> None:
        for origin, taker in self.all():
            if taker.sent is not None and now - taker.sent_at >= SIGN_SECONDS:
                self._say(origin, taker, taker.sign_of_life(now))

    def pass_on(self, origin: str, taker: Taker, now: float) -> None:
        """A sign of life goes on at once: if every relay added its own second, an origin that has nothing for a site far away
        would seem to stand still there."""
        ahead = taker.sent is not None and taker.cursor is not None and taker.sent.seq < taker.cursor.seq
        if ahead and taker.site != self.desk.site:
            self._say(origin, taker, taker.sign_of_life(now))

    def _read_on(self, taker: Taker) -> None:
        if taker.cursor is None or taker.busy or taker.queued or taker.unconfirmed >= taker.window or not taker.wants:
            return
        if taker.cursor.seq < self.head.seq:
            taker.busy, taker.reading = True, taker.id
            self.desk.ask(Read(taker.site, taker.id, taker.cursor.seq, frozenset(taker.wants), taker.at_once))

    def _say(self, origin: str, taker: Taker, piece: Piece | None) -> None:
        if piece is None:
            return
        self.desk.count(taker.site, origin, _SENT[taker.lane, origin == self.desk.site], messages_in(piece.entries))
        batch = Batch(
            piece.id, origin, piece.log_id, piece.prev, piece.entries, piece.upto, piece.clients, piece.opens, piece.after
        )
        self.desk.send(taker.site, batch)


_SENT = {
    (Lane.LIVE, True): "sent",
    (Lane.LIVE, False): "relayed",
    (Lane.CATCH_UP, True): "sent_catch_up",
    (Lane.CATCH_UP, False): "relayed_catch_up",
}
