"""A fleet of carriers joined over any graph: messages with delay, in order per link and channel; loss; held sinks."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from trunkline.core.ids import Position
from trunkline.trunk import asks
from trunkline.trunk.carry import Carrier
from trunkline.trunk.handover import Handover
from trunkline.trunk.log import Entry, Log, Sink
from trunkline.trunk.memory import MemoryLog, MemorySink, Message
from trunkline.trunk.messages import CODEC, Batch, TrunkMessage, travels_in_stream
from trunkline.trunk.streams import Lanes
from trunkline.trunk.wants import open_subscription, proven

TICK = 0.1
Links = Iterable[tuple[str, str]]


class Ends(Protocol):
    """The durable ends of one site."""

    @property
    def log(self) -> Log: ...

    @property
    def sink(self) -> Sink: ...

    def commit(self, messages: list[Message]) -> Position: ...

    def received(self, origin: str) -> list[Entry]:
        """Everything that came of that origin, in order."""


@dataclass
class InMemory:
    site: str
    log: MemoryLog = field(init=False)
    sink: MemorySink = field(default_factory=MemorySink)

    def __post_init__(self) -> None:
        self.log = MemoryLog(f"log-{self.site}")

    def commit(self, messages: list[Message]) -> Position:
        return self.log.commit(messages, self.log.head().seq + 1000)

    def received(self, origin: str) -> list[Entry]:
        return self.sink.received.get(origin, [])


class Fleet:
    def __init__(
        self,
        links: Links,
        *,
        handover: Handover = Handover.EXACT,
        delay: float = 0.0,
        ends: Callable[[str], Ends] = InMemory,
        incapable: frozenset[str] = frozenset(),
        lanes: Lanes | None = None,
    ) -> None:
        self.now = 0.0
        self.lanes = lanes or Lanes()
        self.delay, self.handover, self.incapable = delay, handover, incapable
        self.links = {frozenset(link): None for link in links}
        sites = list(dict.fromkeys(site for link in self.links for site in sorted(link)))
        self.ends = {site: ends(site) for site in sites}
        self.carriers = {site: self._carrier(site) for site in sites}
        self.parents: dict[str, dict[str, str]] = {site: {} for site in sites}
        self.held: dict[str, list[asks.Append]] = {}
        self.lose: Callable[[str, str, TrunkMessage], bool] = lambda sender, to, message: False
        self.crossed: Counter[tuple[str, str, str, int]] = Counter()
        """(from, to, origin, seq) → how often it crossed that link."""
        self.sent: list[tuple[float, str, str, TrunkMessage]] = []
        self.accepted: list[tuple[str, str, str]] = []
        self.delivered: list[tuple[str, str, bytes]] = []
        self.acknowledged: dict[tuple[str, str], dict[str, Position]] = {}
        self._due: list[tuple[float, int, str, str, TrunkMessage, int]] = []
        self._number = 0
        self._sessions: dict[frozenset[str], int] = dict.fromkeys(self.links, 0)
        for link in self.links:
            self._raise(link)
        self.route()
        self.run(3.0)

    def _carrier(self, site: str, generation: int = 1) -> Carrier:
        log = self.ends[site].log
        return Carrier(site, generation, log.log_id, log.head(), self.handover, self.lanes)

    # -- the graph

    def _raise(self, link: frozenset[str]) -> None:
        for a, b in (sorted(link), sorted(link, reverse=True)):
            self.do(a, self.carriers[a].link_up(b, b not in self.incapable))

    def cut(self, a: str, b: str) -> None:
        link = frozenset((a, b))
        del self.links[link]
        self._sessions[link] += 1
        self.do(a, self.carriers[a].link_down(b))
        self.do(b, self.carriers[b].link_down(a))

    def join(self, a: str, b: str) -> None:
        link = frozenset((a, b))
        self.links[link] = None
        self._sessions.setdefault(link, 0)
        self._raise(link)

    def replace(self, site: str, generation: int) -> None:
        """Another leader of that site begins with the same durable ends."""
        for link in [link for link in self.links if site in link]:
            self._sessions[link] += 1
            for other in link - {site}:
                self.do(other, self.carriers[other].link_down(site))
        self.carriers[site], self.parents[site] = self._carrier(site, generation), {}
        for link in [link for link in self.links if site in link]:
            self._raise(link)
        self.route()

    def route(self, gently: bool = False) -> None:
        """Shortest paths, first neighbour first: what a topology that has settled would say."""
        for origin in self.carriers:
            nearer, distance, queue = {origin: origin}, {origin: 0}, deque([origin])
            while queue:
                at = queue.popleft()
                for link in self.links:
                    for other in link - {at} if at in link else ():
                        if other not in distance:
                            distance[other], nearer[other] = distance[at] + 1, at
                            queue.append(other)
            for site in self.carriers:
                via = nearer.get(site) if site != origin else None
                if site != origin and self.parents[site].get(origin) != via:
                    self.move(site, origin, via, gently)

    def move(self, site: str, origin: str, via: str | None, gently: bool = True) -> None:
        if via is None:
            self.parents[site].pop(origin, None)
        else:
            self.parents[site][origin] = via
        self.do(site, self.carriers[site].move(origin, via, gently, self.now))

    # -- a site's host

    def do(self, site: str, effects: list[asks.Effect]) -> None:
        for effect in effects:
            self._perform(site, effect)

    def _perform(self, site: str, effect: asks.Effect) -> None:
        carrier, log, sink = self.carriers[site], self.ends[site].log, self.ends[site].sink
        match effect:
            case asks.Send():
                self._send(site, effect)
            case asks.Load(origin):
                self.do(site, carrier.loaded(origin, sink.applied(origin)))
            case asks.Open():
                self.do(site, carrier.opened(effect.child, effect.id, open_subscription(log, effect.wants), self.now))
            case asks.Read():
                chunk = log.read(effect.after, 1, effect.destinations)
                self.do(site, carrier.read(effect.child, effect.id, chunk, tuple(log.clients()), self.now))
            case asks.Append() if site in self.held:
                self.held[site].append(effect)
            case asks.Append():
                if sink.append(effect.origin, effect.log_id, effect.entries, effect.upto, effect.clients):
                    self.do(site, carrier.loaded(effect.origin, sink.applied(effect.origin)))
                else:
                    self.do(site, carrier.appended(effect, self.now))
            case asks.ResetSink(origin, log_id):
                sink.reset(origin, log_id)
                self.do(site, carrier.loaded(origin, sink.applied(origin)))
            case asks.Lost():
                sink.lost(effect.origin, effect.log_id, effect.upto, effect.clients)
                self.do(site, carrier.loaded(effect.origin, sink.applied(effect.origin)))
            case asks.Acknowledged():
                self.acknowledged[site, effect.destination] = proven(log, effect.clients)
            case asks.Accepted():
                self.accepted.append((site, effect.origin, effect.site))
                self.parents[site][effect.origin] = effect.site
            case asks.Deliver():
                self.delivered.append((site, effect.source, effect.body))

    def _send(self, site: str, send: asks.Send) -> None:
        message = CODEC.decode(CODEC.encode(send.message))
        self.sent.append((self.now, site, send.site, message))
        if self.lose(site, send.site, message):
            return
        self._number += 1
        session = self._sessions[frozenset((site, send.site))]
        when = self.now + self.delay * (1.0 if travels_in_stream(message) else 0.9)
        heapq.heappush(self._due, (when, self._number, site, send.site, message, session))

    # -- time

    def settle(self) -> None:
        """Everything that is due by now arrives."""
        while self._due and self._due[0][0] <= self.now:
            _, _, sender, to, message, session = heapq.heappop(self._due)
            if frozenset((sender, to)) not in self.links or self._sessions[frozenset((sender, to))] != session:
                continue
            if isinstance(message, Batch):
                self.crossed.update((sender, to, message.origin, e.seq) for e in message.entries)
            self.do(to, self.carriers[to].receive(sender, message, self.now))

    def run(self, seconds: float, step: float = TICK) -> None:
        end = self.now + seconds
        while self.now < end:
            until = self.now + step
            while self._due and self._due[0][0] <= until:
                self.now = max(self.now, self._due[0][0])
                self.settle()
            self.now = until
            for site, carrier in self.carriers.items():
                self.do(site, carrier.tick(self.now))
            self.settle()

    def commit(self, origin: str, *destinations: str, payload: bytes = b"x", client: str = "policy") -> None:
        head = self.ends[origin].commit([(client, destinations, {}, payload)])
        self.do(origin, self.carriers[origin].set_head(head, self.now))
        self.settle()

    def hold(self, site: str) -> None:
        self.held[site] = []

    def release(self, site: str) -> None:
        for work in self.held.pop(site):
            self.do(site, [work])
        self.settle()

    # -- looking

    def got(self, site: str, origin: str) -> list[int]:
        return [e.seq for e in self.ends[site].received(origin)]

    def twice(self) -> dict[tuple[str, str, str, int], int]:
        """What crossed a link in one direction more than once."""
        return {key: number for key, number in self.crossed.items() if number > 1}

    def messages(self, kind: type[TrunkMessage], since: float = 0.0) -> list[tuple[str, str, TrunkMessage]]:
        return [(a, b, m) for at, a, b, m in self.sent if isinstance(m, kind) and at >= since]


def random_links(random: Random, sites: int, degree: float) -> list[tuple[str, str]]:
    names = [f"s{n}" for n in range(sites)]
    links = {(names[random.randrange(n)], names[n]) for n in range(1, sites)}
    for a in range(sites):
        for b in range(a + 1, sites):
            if random.random() < degree / sites:
                links.add((names[a], names[b]))
    return sorted(links)
