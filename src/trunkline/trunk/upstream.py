"""What comes in on this site's streams: batches, their ends, refusals; and what time does to streams."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from trunkline.core.ids import Position
from trunkline.trunk.asks import Lost, ResetSink
from trunkline.trunk.handover import HANDOVER_SECONDS, STOPS, fit_to_take_over, takes_over
from trunkline.trunk.log import messages_in
from trunkline.trunk.messages import Batch, Gap, Lane, Reset, Stop, Stopped, SubscribeAll, Taken
from trunkline.trunk.streams import SILENCE_SECONDS, Stream, lowest_want, together
from trunkline.trunk.subscriptions import Subscriptions
from trunkline.trunk.window import is_withheld, made_to_lag, say_taken


@dataclass
class Upstream(Subscriptions):
    # -- batches

    def on_batch(self, peer: str, batch: Batch, now: float) -> None:
        stream = self._find(peer, batch.origin, batch.id)
        self._count(peer, batch, stream)
        if stream is None:
            if batch.id:
                self.desk.send(peer, Stop(batch.id, batch.origin))
            return
        stream.heard = now
        if stream is self.rivals.get(batch.origin, {}).get(peer):
            self._on_rival(stream, batch, now)
            return
        present = self.streams[stream.origin, stream.lane]
        if present is not stream and not self._succeeded(present, stream, batch, now):
            return
        self._take(stream, batch, now)

    def _find(self, peer: str, origin: str, id: int) -> Stream | None:
        present = (self.streams.get((origin, lane)) for lane in Lane)
        known = [s for s in present if s is not None]
        known += [s.successor for s in known if s.successor is not None]
        known += self.rivals.get(origin, {}).values()
        return next((s for s in known if (s.parent, s.id) == (peer, id)), None)

    def _count(self, peer: str, batch: Batch, stream: Stream | None) -> None:
        number = messages_in(batch.entries)
        lane = stream.lane if stream is not None else Lane.LIVE
        self.desk.count(peer, batch.origin, "received" if lane is Lane.LIVE else "catch_up", number)
        self.desk.count(peer, batch.origin, "bytes", sum([len(e.payload) for e in batch.entries]))
        if stream is None:
            self.desk.count(peer, batch.origin, "stray" if batch.id else "duplicate", number)

    def _succeeded(self, old: Stream, new: Stream, batch: Batch, now: float) -> bool:
        """The first batch of a successor: what was sent before it under the old subscription must be here (S3)."""
        if not batch.opens:
            return False
        flow = (old.origin, old.lane)
        if batch.after >= 0 and (old.cursor is None or old.cursor.seq != batch.after):
            self._hole(old, now)
            return False
        new.replaces(old)
        new.stopping, new.stops = old.stopping, old.stops
        self.streams[flow] = new
        return True

    def _take(self, stream: Stream, batch: Batch, now: float) -> None:
        if not stream.continues(batch):
            if stream.cursor is None or batch.upto.seq > stream.cursor.seq:
                self._hole(stream, now)
            return
        opens = stream.cursor is None
        if opens:
            stream.unanswered = 0
            stream.open_at(batch.prev)
            self.desk.touch([batch.origin])
        stream.log_id, stream.cursor, stream.clients = batch.log_id, batch.upto, batch.clients
        self._hand_out(stream, batch, now)
        if opens:
            self._accept(stream)
        self._merge(stream.origin, now)

    def _hole(self, stream: Stream, now: float) -> None:
        self.desk.count(stream.parent, stream.origin, "hole")
        self._again(stream, now)

    def _again(self, stream: Stream, now: float) -> None:
        """Subscribes anew at the positions everybody has reached."""
        flow = (stream.origin, stream.lane)
        parent = self.parents.get(stream.origin)
        takers = self._divided(stream.origin, parent)
        if parent is None or parent not in self.desk.links or not takers[stream.lane]:
            self._leave(flow)
            return
        if not self.desk.links[parent]:
            self.desk.send(parent, SubscribeAll({stream.origin: lowest_want(together(takers[stream.lane]))}))
        self._subscribe(flow, takers[stream.lane], now, anew=True)

    def _hand_out(self, stream: Stream, batch: Batch, now: float) -> None:
        wanted, floor = 0, min((t.cursor.seq for t in stream.takers if t.cursor is not None), default=0)
        for taker in list(stream.takers):
            wanted += taker.offer(batch.log_id, batch.prev, batch.entries, batch.upto, batch.clients)
            self.children.pump(batch.origin, taker, now)
            if not batch.entries:
                self.children.pass_on(batch.origin, taker, now)
        if not wanted:
            self.desk.count(stream.parent, batch.origin, "duplicate", messages_in(batch.entries))
        elif batch.entries[0].seq <= floor:
            again = messages_in([e for e in batch.entries if e.seq <= floor])
            self.desk.count(stream.parent, batch.origin, "duplicate", again)
        self.open_window(stream, now)

    def _merge(self, origin: str, now: float) -> None:
        """Ends a catch-up that is near the live stream, or has none to be behind of."""
        live, catch_up = (self.streams.get((origin, lane)) for lane in Lane)
        if catch_up is None or catch_up.cursor is None or catch_up.parent not in self.desk.links:
            return
        if live is None or (live.cursor is not None and live.cursor.seq - catch_up.cursor.seq <= self.lanes.near):
            self._stop(catch_up, now)

    # -- ends of streams

    def on_stopped(self, peer: str, message: Stopped, now: float) -> None:
        stream = self._find(peer, message.origin, message.id)
        for lane in Lane:
            present = self.streams.get((message.origin, lane))
            if present is not None and stream in (present, present.successor) and present.stopping is not None:
                self._ended(present, now)
                return

    def _ended(self, stream: Stream, now: float) -> None:
        del self.streams[stream.origin, stream.lane]
        for taker in stream.takers:
            taker.fed = Lane.LIVE
        self.consider(stream.origin, now)

    def on_refusal(self, peer: str, message: Reset | Gap) -> None:
        """The origin cannot serve a destination from where it stands: that one begins anew, behind a relay or here."""
        stream = self._find(peer, message.origin, message.id)
        if stream is None:
            return
        self.desk.count(peer, message.origin, "reset" if isinstance(message, Reset) else "gap")
        stream.refused = stream.cursor is None
        for present in self._all(message.origin):
            if present.successor is stream:
                present.successor = None
        self.desk.touch([message.origin])
        if message.destination == self.desk.site:
            self._begin_anew(message)
            return
        for taker in list(self.children.takers.get(message.origin, {}).values()):
            if message.destination in taker.standing():
                id = taker.proposal.id if taker.proposal is not None else taker.id
                self.children.refuse(message.origin, message.destination, taker, msgspec.structs.replace(message, id=id))
        self.forget_dropped()

    def forget_own(self, origin: str) -> bool:
        """Until it is loaded again this site takes nothing of the origin for itself; False: it is being loaded already."""
        own = self.children.own.get(origin)
        if own is None:
            return False
        self.children.own[origin] = None
        self._forget(origin, own)
        self.desk.touch([origin])
        return True

    def _begin_anew(self, message: Reset | Gap) -> None:
        if not self.forget_own(message.origin):
            return
        if isinstance(message, Reset):
            self.desk.ask(ResetSink(message.origin, message.log_id))
        else:
            self.desk.ask(Lost(message.origin, message.log_id, message.lowest, message.clients))

    # -- rivals

    def _on_rival(self, rival: Stream, batch: Batch, now: float) -> None:
        if not rival.continues(batch):
            self._end_rivals(rival.origin, only=rival.parent)
            self.desk.touch([rival.origin])
            return
        rival.log_id, rival.cursor, rival.clients = batch.log_id, batch.upto, batch.clients
        if not rival.any:
            self._accept(rival)
        if takes_over(rival, batch, self.reached(rival.origin)):
            self._take_over(rival, batch, now)
            return
        self.desk.count(rival.parent, rival.origin, "duplicate", messages_in(batch.entries))
        self.desk.send(rival.parent, Taken(rival.id, rival.origin, batch.upto.seq))

    def _take_over(self, rival: Stream, batch: Batch, now: float) -> None:
        origin = rival.origin
        self._end_rivals(origin, but=rival.parent)
        self.rivals.pop(origin)
        self._leave((origin, Lane.LIVE))
        self.streams[origin, Lane.LIVE] = rival
        self.parents[origin] = rival.parent
        if batch.opens:
            for taker in rival.takers:
                taker.start_at(Position(batch.prev, 0))
        fit_to_take_over(rival, batch.prev)
        self._hand_out(rival, batch, now)
        self._accept(rival)
        self.desk.touch([origin])

    # -- time

    def tick(self, now: float) -> None:
        for stream in list(self.streams.values()):
            if stream.stopping is not None and now - stream.stopping > HANDOVER_SECONDS:
                self._not_stopped(stream, now)
            elif now - stream.heard > stream.patience:
                self.desk.count(stream.parent, stream.origin, "silence")
                stream.unanswered += stream.cursor is None
                self._again(stream, now)
            elif stream.successor is not None and now - stream.successor.heard > SILENCE_SECONDS:
                stream.successor = None
                self.desk.touch([stream.origin])
        for rival in [r for rivals in self.rivals.values() for r in rivals.values() if now - r.heard > SILENCE_SECONDS]:
            self._end_rivals(rival.origin, only=rival.parent)
            self.desk.touch([rival.origin])
        for origin in [o for o, lane in self.streams if lane is Lane.CATCH_UP]:
            self._merge(origin, now)
        dirty, self.desk.dirty = self.desk.dirty, {}
        for origin in dirty:
            self.consider(origin, now)

    def _not_stopped(self, stream: Stream, now: float) -> None:
        if now - stream.heard <= HANDOVER_SECONDS and stream.stops < STOPS:
            self._say_stop(stream, now)
            return
        self.desk.count(stream.parent, stream.origin, "not_stopped")
        self._ended(stream, now)

    def open_windows(self, now: float) -> None:
        for stream in self.streams.values():
            self.open_window(stream, now)

    def open_window(self, stream: Stream, now: float) -> None:
        lagging = made_to_lag(stream, now) if stream.cursor is not None and stream.id else []
        for taker in lagging:
            taker.lagging = True
            self.desk.count(taker.site, stream.origin, "lagged")
            self._forget(stream.origin, taker)
            self.desk.touch([stream.origin])
        if not lagging:  # the parent hears first that they have left: what it sent them now would come a second time
            say_taken(self.desk, stream, now)

    # -- looking

    def reached(self, origin: str) -> int:
        """How far this site is with the origin's records, for itself and for those it hands them to."""
        own, live = self.children.own.get(origin), self.streams.get((origin, Lane.LIVE))
        at = own.lowest() if own is not None else 0
        return max(at, live.cursor.seq if live is not None and live.cursor is not None else 0)

    def serving(self, origin: str) -> str | None:
        """Whoever sends it now; during a hand-over that is still the former parent."""
        live = self.streams.get((origin, Lane.LIVE))
        return live.parent if live is not None else self.parents.get(origin)

    def withheld(self) -> set[str]:
        """Origins whose window upstream is held closed, because a taker here is full."""
        return {s.origin for s in self.streams.values() if is_withheld(s)}
