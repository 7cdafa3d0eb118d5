"""The upstream side of a carrier: from whom this site takes each origin, under which subscription, for which takers.

Per origin there is one stream per lane. A stream has at most one *successor*: the subscription that replaces it once the
parent says that it is effective; until then the present one goes on. *Rivals* are streams of the same origin at other
neighbours, of which one may take over (`handover`).

 S1. A taker is in one stream; its destinations are in the wants of that stream only.
 S2. A new subscription is not sent while one is unanswered: what changed meanwhile is in the one after it.
 S3. A destination is *kept* when it has exactly what the stream takes it to have; the parent goes on for it without a break
     and says in `after` up to where. If that is not where this stream stands, something was lost on the way.
 S4. Takers far behind the others are fed from the catch-up; it ends, exactly, when it is near, and they join the live ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from trunkline.core.ids import Position
from trunkline.trunk.log import Applied
from trunkline.trunk.messages import Batch, Lane
from trunkline.trunk.taker import Proposal, Taker
from trunkline.trunk.wants import joins, lifted, lowest_of


@dataclass(frozen=True)
class Lanes:
    """Entries behind the live stream. Nearer than `near` a taker costs the live ones little; beyond `far` it is not worth
    making them wait. The distance between the two is what the live stream may advance while a taker changes lanes."""

    near: int = 256
    far: int = 1024


SILENCE_SECONDS = 4.0

Flow = tuple[str, Lane]


@dataclass(eq=False)
class Stream:
    """What this site takes of one origin, from whom. Id 0: from a peer that sends everything unasked."""

    origin: str
    lane: Lane
    parent: str
    id: int
    wants: dict[str, Applied]
    takers: list[Taker]
    heard: float
    kept: tuple[str, ...] = ()
    proposals: dict[Taker, Proposal] = field(default_factory=dict)
    successor: Stream | None = None
    stopping: float | None = None
    stops: int = 0
    unanswered: int = 0
    refused: bool = False
    any: bool = False
    log_id: str = ""
    cursor: Position | None = None
    clients: tuple[str, ...] = ()
    taken: int = -1
    said_at: float = 0.0
    looked_at: float = 0.0
    holds_up: bool = False
    held_up: float = 0.0

    @property
    def patience(self) -> float:
        """How long its silence is borne. The answer to a subscription comes from the origin, over as many links as there are:
        whoever asked in vain waits twice as long the next time."""
        return SILENCE_SECONDS * (1 << min(self.unanswered, 2))

    def serves(self, takers: list[Taker]) -> bool:
        """True when the takers' destinations are those of this stream, and all of them can be in it as it stands."""
        wants = together(takers)
        if self.cursor is None:
            return wants == self.wants
        return wants.keys() == self.wants.keys() and all(self._fits(s, w) for s, w in wants.items())

    def keeps(self, takers: list[Taker]) -> tuple[str, ...]:
        """Destinations that are being fed by this stream, and only by it."""
        fed = {s for t in takers if t in self.takers for s in t.wants if t.proposal is None or s in t.proposal.kept}
        unfed = {s for t in takers if t not in self.takers for s in t.standing()}
        return tuple(s for s, w in together(takers).items() if s in fed - unfed and self._fits(s, w))

    def _fits(self, site: str, want: Applied) -> bool:
        asked = self.wants.get(site)
        return asked is not None and self.cursor is not None and joins(want, asked, self.cursor, self.clients)

    def adopt(self, takers: list[Taker]) -> None:
        """These fit: they go on, or begin, where the stream stands; what lies between is not for them."""
        self.takers = takers
        for taker in takers:
            taker.fed = self.lane
            if self.cursor is None:
                continue
            if taker.cursor is None:
                taker.log_id, taker.clients = self.log_id, self.clients
            taker.start_at(self.cursor)
            if taker.proposal is not None:
                taker.turn(self.cursor)

    def continues(self, batch: Batch) -> bool:
        if not self.id:
            return batch.prev <= (self.cursor.seq if self.cursor is not None else self.lowest())
        return batch.opens if self.cursor is None else batch.prev == self.cursor.seq

    def lowest(self) -> int:
        return min((t.lowest() for t in self.takers), default=0)

    def replaces(self, old: Stream) -> None:
        """As its successor, now effective: the kept destinations have what the old stream brought."""
        at = old.cursor
        if at is not None:
            lift = {s: lifted(self.wants[s], at, old.clients, old.log_id) for s in self.kept if s in self.wants}
            self.wants = {**self.wants, **lift}

    def open_at(self, start: int) -> None:
        for taker in self.takers:
            taker.fed = self.lane
            running, proposal = taker.cursor is not None, self.proposals.get(taker)
            taker.start_at(Position(start, 0))
            if running and proposal is not None and taker.proposal is proposal:
                taker.turn(Position(start, 0))
        self.proposals = {}

    def forget(self, gone: Taker) -> None:
        self.takers = [t for t in self.takers if t is not gone]
        if self.successor is not None:
            self.successor.forget(gone)


def divided(takers: Iterable[Taker], live: Stream | None, catch_up: Stream | None, far: int) -> dict[Lane, list[Taker]]:
    """Which lane feeds whom. Whoever is in a running catch-up stays there until it ends."""
    lanes: dict[Lane, list[Taker]] = {lane: [] for lane in Lane}
    takers = list(takers)
    front = max([t.lowest() for t in takers], default=0)
    if live is not None and live.cursor is not None:
        front = max(front, live.cursor.seq)
    for taker in takers:
        stays = catch_up is not None and taker.fed is Lane.CATCH_UP and taker.cursor is not None
        lanes[Lane.CATCH_UP if stays or front - taker.lowest() > far else Lane.LIVE].append(taker)
    return lanes


def lowest_want(wants: dict[str, Applied]) -> Applied:
    return min(wants.values(), key=lowest_of)


def together(takers: Iterable[Taker]) -> dict[str, Applied]:
    """The wants of all takers; a destination that two of them claim counts with what it has least."""
    wants: dict[str, Applied] = {}
    for taker in takers:
        for site, want in taker.standing().items():
            wants[site] = _least(wants[site], want) if site in wants else want
    return wants


def _least(a: Applied, b: Applied) -> Applied:
    if a.log_id != b.log_id:
        return a if not a.clients else b
    least = {c: min(a.clients[c], b.clients[c]) for c in a.clients if c in b.clients}
    return Applied(a.log_id, least, tuple(c for c in a.held if c in b.held))
