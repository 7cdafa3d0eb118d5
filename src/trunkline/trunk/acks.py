"""Acknowledgements on their way to the origin: the newest per destination, told for a whole subtree at once (H24).

A newer generation of a destination replaces whatever an older one said; within one generation and log, positions only grow
(H12). What goes up per origin is a vector: the least that everybody in step has, and as exceptions those who are not in step
or are waited for. So any number of destinations that keep up cost one small message.

 A1. A vector never says more of a destination than what it acknowledged.
 A2. Who stays where it is while others move is soon an exception: it holds back what is said of nobody else (H22).
 A3. The members of a vector go with it when they changed, when the parent is a new one, and every REPEAT_SECONDS; a receiver
     that does not know the members of a version waits for that.
 A4. Vectors go on heartbeats; for destinations somebody waits for, every AWAITED_SECONDS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

from trunkline.core.ids import START, Position
from trunkline.trunk.messages import Ack, Vector

HEARTBEAT_SECONDS = 1.0
AWAITED_SECONDS = 0.1
REPEAT_SECONDS = 5.0
# Entries behind the furthest within which destinations are in step: what is said of one may be so much less than it has.
STEP = 1000
# Who has not moved for so long, and is not where the furthest is, does not keep up.
STILL_SECONDS = 3.0

Clients = Mapping[str, Position]


@dataclass
class _Said:
    """What the parent was last told of one origin and log."""

    version: int = 0
    members: dict[str, int] = field(default_factory=dict)
    of: dict[str, Clients] = field(default_factory=dict)
    """What it was told of each."""
    at: dict[str, Clients] = field(default_factory=dict)
    """Where each was when we last looked."""
    kept_up: dict[str, float] = field(default_factory=dict)
    """When each was last seen to move, or to be where the furthest is."""
    full_at: float = -REPEAT_SECONDS

    def look(self, acks: Mapping[str, Ack], now: float) -> None:
        top = max(map(_height, acks.values()))
        self.kept_up.update({d: now for d, a in acks.items() if self.at.get(d) != a.clients or _height(a) == top})
        self.at = {d: a.clients for d, a in acks.items()}


@dataclass
class Acknowledgements:
    site: str
    log_id: str
    _known: dict[str, dict[str, Ack]] = field(default_factory=dict)
    _own: dict[str, None] = field(default_factory=dict)
    _said: dict[tuple[str, str], _Said] = field(default_factory=dict)
    _heard: dict[tuple[str, str, str], tuple[int, dict[str, int]]] = field(default_factory=dict)
    _awaited: dict[tuple[str, str], float] = field(default_factory=dict)
    _now: set[str] = field(default_factory=set)
    _beat_at: float = 0.0
    _quick_at: float = 0.0

    # -- what comes in

    def note(self, ack: Ack) -> None:
        if not ack.clients or (ack.origin == self.site and ack.log_id != self.log_id):
            return
        known = self._known.setdefault(ack.origin, {})
        if ack.destination not in known or not _older(ack, known[ack.destination]):
            known[ack.destination] = ack
            if ack.origin == self.site:
                self._own[ack.destination] = None

    def hear(self, child: str, vector: Vector) -> None:
        key = (child, vector.origin, vector.log_id)
        if vector.members is not None:
            self._heard[key] = (vector.version, vector.members)
        version, members = self._heard.get(key, (-1, {}))
        if version != vector.version:
            return
        for destination, generation in members.items():
            if destination != self.site:
                clients = vector.exceptions.get(destination, vector.least)
                self.note(Ack(vector.origin, vector.log_id, destination, generation, clients))

    def wait_for(self, origin: str, destinations: Iterable[str], until: float) -> None:
        self._awaited.update({(origin, destination): until for destination in destinations})

    def say_again(self, origin: str) -> None:
        """The origin is taken under a new subscription: whoever serves it must hear all of it, now."""
        self._now.add(origin)
        for (said_of, _), said in self._said.items():
            if said_of == origin:
                said.full_at = -REPEAT_SECONDS

    def forget(self, child: str) -> None:
        for key in [k for k in self._heard if k[0] == child]:
            del self._heard[key]

    # -- what goes out

    def own(self) -> list[Ack]:
        """News about the own log."""
        due, self._own = self._own, {}
        return [self._known[self.site][destination] for destination in due]

    def due(self, now: float, present: Callable[[str], Set[str]]) -> list[Vector]:
        """Vectors of other origins; `present` are the destinations behind and including this site."""
        beat, quick = now >= self._beat_at, now >= self._quick_at
        if beat:
            self._beat_at = now + HEARTBEAT_SECONDS
        if quick:
            self._quick_at = now + AWAITED_SECONDS
            self._awaited = {key: until for key, until in self._awaited.items() if until > now}
        waited = {origin for origin, _ in self._awaited} if quick else set()
        origins = [o for o in self._known if o != self.site and (beat or o in waited or o in self._now)]
        self._now.clear()
        return [vector for origin in origins for vector in self._vectors(origin, present(origin), now)]

    def one_by_one(self, vector: Vector) -> list[Ack]:
        """For a peer that knows no vectors."""
        return [ack for ack in self._known[vector.origin].values() if ack.log_id == vector.log_id]

    def _vectors(self, origin: str, present: Set[str], now: float) -> Iterable[Vector]:
        logs: dict[str, dict[str, Ack]] = {}
        for destination, ack in self._known[origin].items():
            if destination in present:
                logs.setdefault(ack.log_id, {})[destination] = ack
        for log_id, acks in logs.items():
            said = self._said.setdefault((origin, log_id), _Said())
            vector = self._vector(origin, log_id, acks, said, now)
            if vector is not None:
                yield vector

    def _vector(self, origin: str, log_id: str, acks: Mapping[str, Ack], said: _Said, now: float) -> Vector | None:
        members = {destination: ack.generation for destination, ack in acks.items()}
        changed = members != said.members
        full = changed or now - said.full_at >= REPEAT_SECONDS
        said.look(acks, now)
        if not full and all(said.of.get(d) == ack.clients for d, ack in acks.items()):
            return None
        step = _in_step(acks, {d for d, at in said.kept_up.items() if now - at < STILL_SECONDS})
        least = _least([acks[d].clients for d in step])
        apart = [d for d, a in acks.items() if a.clients != least and self._stands_out(origin, a, d in step, least)]
        exceptions = {d: acks[d].clients for d in apart}
        of: dict[str, Clients] = {d: exceptions.get(d, least) for d in acks}
        if not full and of == said.of:
            return None
        said.members, said.version = members, said.version + changed
        said.full_at = now if full else said.full_at
        said.of = of
        return Vector(origin, log_id, said.version, least, exceptions, members if full else None)

    def _stands_out(self, origin: str, ack: Ack, in_step: bool, least: Clients) -> bool:
        return not in_step or ack.clients.keys() != least.keys() or (origin, ack.destination) in self._awaited


def _older(ack: Ack, known: Ack) -> bool:
    if ack.generation != known.generation:
        return ack.generation < known.generation
    return ack.log_id == known.log_id and any(ack.clients.get(c, START).seq < p.seq for c, p in known.clients.items())


def _height(ack: Ack) -> int:
    """One client that a destination holds is enough to keep it from being in step with the others."""
    return min(p.seq for p in ack.clients.values())


def _in_step(acks: Mapping[str, Ack], moving: Set[str]) -> set[str]:
    """Those who keep up and are near the furthest; when nobody does, the furthest themselves."""
    top = max(map(_height, acks.values()))
    return {d for d in moving if d in acks and top - _height(acks[d]) <= STEP} or {d for d in acks if _height(acks[d]) == top}


def _least(all_of: list[dict[str, Position]]) -> dict[str, Position]:
    common = set.intersection(*(set(clients) for clients in all_of))
    return {client: min(clients[client] for clients in all_of) for client in sorted(common)}
