"""This site's subscriptions: where it takes each origin, for whom, and how that is changed. The theory is in `streams`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trunkline.trunk.asks import Accepted
from trunkline.trunk.children import Children
from trunkline.trunk.desk import Desk
from trunkline.trunk.handover import Handover
from trunkline.trunk.log import Applied
from trunkline.trunk.messages import Lane, Stop, Subscribe, SubscribeAll
from trunkline.trunk.streams import Flow, Lanes, Stream, divided, together
from trunkline.trunk.taker import Taker


@dataclass
class Subscriptions:
    desk: Desk
    children: Children
    handover: Handover = Handover.EXACT
    lanes: Lanes = field(default_factory=Lanes)
    parents: dict[str, str] = field(default_factory=dict)
    streams: dict[Flow, Stream] = field(default_factory=dict)
    rivals: dict[str, dict[str, Stream]] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    """Origins with a new subscription: the new parent must hear all acknowledgements."""
    _gentle: set[str] = field(default_factory=set)
    _announced: dict[str, str | None] = field(default_factory=dict)
    """Origin → the parent that was reported as accepted."""

    # -- topology decides

    def move(self, origin: str, via: str | None, gently: bool, now: float) -> None:
        self._announced[origin] = None
        if origin == self.desk.site:
            return
        if via is None:
            self.parents.pop(origin, None)
        else:
            self.parents[origin] = via
            self.children.know(origin)
        (self._gentle.add if gently else self._gentle.discard)(origin)
        self._end_rivals(origin, but=via)
        live = self.streams.get((origin, Lane.LIVE))
        if live is not None and live.parent == via and live.cursor is not None:
            self._accept(live)
        self.consider(origin, now)

    def take_from_any(self, origin: str, sites: Sequence[str], now: float) -> None:
        self._announced.setdefault(origin, None)
        self.children.know(origin)
        present = self.streams.get((origin, Lane.LIVE))
        for site in sites:
            asked = self.rivals.get(origin, {}).get(site) is not None or (present is not None and present.parent == site)
            if not asked:
                self._challenge(origin, site, True, now)

    def link_up(self, site: str) -> None:
        if not self.desk.links[site]:
            positions = {o: t.standing()[self.desk.site] for o, t in self.children.own.items() if t is not None}
            self.desk.send(site, SubscribeAll(positions))
        self.desk.touch(o for o, p in self.parents.items() if p == site)

    def link_down(self, site: str) -> None:
        for origin in [o for o, rivals in self.rivals.items() if site in rivals]:
            del self.rivals[origin][site]
        for flow in [f for f, s in self.streams.items() if s.parent == site]:
            del self.streams[flow]
            self.desk.touch([flow[0]])
        for origin, accepted in self._announced.items():
            if accepted == site:
                self._announced[origin] = None

    # -- keeping streams right

    def consider(self, origin: str, now: float) -> None:
        """Keeps the present subscriptions where they still serve everybody, else subscribes anew."""
        if origin == self.desk.site:
            return
        parent = self.parents.get(origin)
        for lane, takers in self._divided(origin, parent).items():
            stream = self.streams.get((origin, lane))
            if stream is not None and stream.parent != parent and not self._handed_over(stream, parent, now):
                continue
            self._consider_lane((origin, lane), parent, takers, now)

    def _divided(self, origin: str, parent: str | None) -> dict[Lane, list[Taker]]:
        takers = self.children.of(origin, parent)
        if parent is not None and not self.desk.links.get(parent, True):
            return {Lane.LIVE: takers, Lane.CATCH_UP: []}
        live, catch_up = (self.streams.get((origin, lane)) for lane in Lane)
        return divided(takers, live, catch_up, self.lanes.far)

    def _consider_lane(self, flow: Flow, parent: str | None, takers: list[Taker], now: float) -> None:
        stream = self.streams.get(flow)
        if parent is None or parent not in self.desk.links or (stream is not None and stream.stopping is not None):
            return
        if not takers:
            self._leave(flow)
        elif stream is None or stream.refused:
            self._subscribe(flow, takers, now)
        elif stream.successor is not None:
            return
        elif stream.serves(takers):
            stream.adopt(takers)
        elif stream.cursor is not None:
            self._subscribe(flow, takers, now)

    def _handed_over(self, stream: Stream, parent: str | None, now: float) -> bool:
        """True when the old parent's stream is over, at once or because it was stopped; False: wait for that."""
        flow = (stream.origin, stream.lane)
        gently = stream.origin in self._gentle and parent in self.desk.links and stream.cursor is not None
        if not gently or parent is None:
            self._leave(flow)
        elif self.handover is Handover.SEAMLESS and stream.lane is Lane.LIVE and stream.id:
            if parent not in self.rivals.get(stream.origin, {}):
                self._challenge(stream.origin, parent, False, now)
        else:
            self._stop(stream, now)
        return flow not in self.streams

    def _stop(self, stream: Stream, now: float) -> None:
        """Ends it exactly: STOPPED says where; unasked streams just end."""
        if not stream.id:
            del self.streams[stream.origin, stream.lane]
        elif stream.stopping is None:
            self._say_stop(stream, now)

    def _say_stop(self, stream: Stream, now: float) -> None:
        stream.stopping, stream.stops = now, stream.stops + 1
        newest = stream.successor if stream.successor is not None else stream
        self.desk.send(stream.parent, Stop(newest.id, stream.origin))

    def _subscribe(self, flow: Flow, takers: list[Taker], now: float, anew: bool = False) -> None:
        origin, lane = flow
        parent, old, wants = self.parents[origin], self.streams.get(flow), together(takers)
        kept = old.keeps(takers) if old is not None and old.parent == parent and not anew else ()
        stream = self._ask(origin, lane, parent, takers, wants, old.id if old is not None and kept else 0, kept, now)
        stream.unanswered = old.unanswered if old is not None and old.parent == parent else 0
        if old is not None and kept and stream.id:
            old.successor = stream
        else:
            self.streams[flow] = stream
        if lane is Lane.LIVE:
            self.rivals.get(origin, {}).pop(parent, None)  # the parent has only this one now

    def _ask(
        self, origin: str, lane: Lane, parent: str, takers: list[Taker], wants: dict[str, Applied],
        continues: int, kept: tuple[str, ...], now: float,
    ) -> Stream:  # fmt: skip
        proposals = {t: t.proposal for t in takers if t.proposal is not None}
        id = self.desk.next_id() if self.desk.links.get(parent, True) else 0
        stream = Stream(origin, lane, parent, id, wants, takers, now, kept, proposals, looked_at=now)
        if id:
            self.desk.send(parent, Subscribe(id, origin, wants, lane, continues, kept))
        self.desk.count(parent, origin, "subscribed")
        self.fresh.add(origin)
        return stream

    def _leave(self, flow: Flow) -> None:
        stream = self.streams.pop(flow, None)
        if stream is not None and stream.id:
            newest = stream.successor if stream.successor is not None else stream
            self.desk.send(stream.parent, Stop(newest.id, stream.origin))

    # -- rivals, and what all streams of an origin have in common

    def _accept(self, stream: Stream) -> None:
        origin, parent = stream.origin, stream.parent
        if origin in self._announced and self._announced[origin] != parent and self.parents.get(origin) == parent:
            self._announced[origin] = parent
            self.desk.ask(Accepted(origin, parent))

    def _challenge(self, origin: str, site: str, any: bool, now: float) -> None:
        takers = self.children.of(origin, site)
        wants = together(takers)
        if wants and self.desk.links.get(site):
            stream = self._ask(origin, Lane.LIVE, site, takers, wants, 0, (), now)
            stream.any, stream.proposals = any, {}
            self.rivals.setdefault(origin, {})[site] = stream

    def _end_rivals(self, origin: str, but: str | None = None, only: str | None = None) -> None:
        rivals = self.rivals.get(origin, {})
        for site in [s for s in rivals if s != but and only in (None, s)]:
            self.desk.send(site, Stop(rivals.pop(site).id, origin))

    def _all(self, origin: str) -> Iterator[Stream]:
        yield from (self.streams[origin, lane] for lane in Lane if (origin, lane) in self.streams)
        yield from self.rivals.get(origin, {}).values()

    def _forget(self, origin: str, taker: Taker) -> None:
        for stream in self._all(origin):
            stream.forget(taker)

    def forget_dropped(self) -> None:
        while self.children.dropped:
            self._forget(*self.children.dropped.pop())
