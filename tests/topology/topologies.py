"""Topology cores joined in virtual time: link rows are flooded, messages and answers take a while, links come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, pairwise
from random import Random

from trunkline.topology.effects import Effect, Move, Publish, PublishRows, TakeFromAny, Tell
from trunkline.topology.links import HOP, LinkRow
from trunkline.topology.messages import Progress, Told
from trunkline.topology.neighbours import Neighbour
from trunkline.topology.rows import Row
from trunkline.topology.settings import Settings
from trunkline.topology.topology import Topology

HOUSE = ("ab", "ac", "bc", "bd", "ce", "de")
QUIET = 70.0
"""Longer than any damping and hold-down."""


def mesh(sites: str) -> tuple[str, ...]:
    return tuple(a + b for i, a in enumerate(sites) for b in sites[i + 1 :])


def random_links(random: Random, sites: str, degree: int) -> tuple[str, ...]:
    """Connected, and with about so many links per site."""
    links = {a + b for a, b in pairwise(sites)}
    while len(links) < len(sites) * degree // 2:
        links.add("".join(sorted(random.sample(sites, 2))))
    return tuple(sorted(links))


def rows_of(**hears: str) -> dict[str, LinkRow]:
    return {site: LinkRow(1, tuple(others.split())) for site, others in hears.items()}


def path(source: str, *sites: str, cost: int | None = None) -> Row:
    """A row as its subscriber tells it: through these sites to the source."""
    whole = (*sites, source)
    return Row(source, whole[0], whole, cost or len(whole))


class Lone:
    """One core whose every wish is granted at once; what it asked for is kept."""

    def __init__(self, links: Mapping[str, LinkRow], settings: Settings | None = None, site: str = "x") -> None:
        self.core, self.now = Topology(site, settings, lambda: 0.0), 100.0
        self.cursors: dict[str, int] = {}
        self.withheld: set[str] = set()
        self.accepts = True
        self.effects: list[Effect] = []
        self.take(self.core.begin(1, links, self.now))

    def take(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self.effects.append(effect)
            if self.accepts and isinstance(effect, Move) and effect.via is not None:
                self.take(self.core.subscribed(effect.origin, effect.via, self.now))

    def up(self, *sites: str, incarnation: int = 1, hears: bool = True, capable: bool = True) -> None:
        for site in sites:
            self.take(self.core.link_up(Neighbour(site, incarnation, hears, capable), self.now))

    def down(self, site: str) -> None:
        self.take(self.core.link_down(site, self.now))

    def told(self, site: str, *rows: Row, gone: str = "") -> None:
        self.take(self.core.told(site, Told(rows, tuple(gone.split())), self.now))

    def progress(self, site: str, heads: dict[str, int] | None = None, **cursors: int) -> None:
        self.take(self.core.progress(site, Progress(cursors, heads or {}), self.now))

    def links(self, **hears: str) -> None:
        self.take(self.core.set_links(rows_of(**hears), self.now))

    def wait(self, seconds: float = 0.1) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, max(self.core.due, self.now + 0.001))
            self.take(self.core.tick(self.now, self.cursors, 0, self.withheld))

    def since(self) -> list[Effect]:
        """What was asked for since this was last called; but no progress, and no rows for people."""
        news, self.effects = self.effects, []
        return [
            e for e in news if not isinstance(e, PublishRows) and not (isinstance(e, Tell) and isinstance(e.message, Progress))
        ]

    def moves(self) -> list[Effect]:
        return [e for e in self.since() if isinstance(e, Move | TakeFromAny)]

    def vias(self) -> dict[str, str]:
        return {origin: row.via for origin, row in sorted(self.core.rows.items())}


@dataclass
class Site:
    core: Topology
    incarnation: int
    stored: dict[str, tuple[int, LinkRow]] = field(default_factory=dict)
    writes: int = 0
    cursors: dict[str, int] = field(default_factory=dict)
    head: int = 0
    withheld: set[str] = field(default_factory=set)
    published: tuple[Row, ...] | None = None
    ticks_at: float = float("inf")


class Fleet:
    def __init__(self, links: Iterable[str] = (), settings: Settings | None = None, seed: int = 1, **own: Settings) -> None:
        self.now, self.random = 0.0, Random(seed)
        self.settings, self.own = settings or Settings(), own
        self.sites: dict[str, Site] = {}
        self.links: dict[frozenset[str], int] = {}
        self.one_way: set[tuple[str, str]] = set()
        self.log: list[tuple[float, str, Effect]] = []
        self.store_works = True
        self.violations: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._lives: Counter[str] = Counter()
        self._last: dict[tuple[str, str], float] = {}
        for link in links:
            self.connect(link)

    # -- time

    def at(self, time: float, event: Callable[[], None]) -> None:
        heappush(self._events, (time, next(self._number), event))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heappop(self._events)
            event()
        self.now = end

    # -- the world

    def start(self, name: str) -> None:
        self._lives[name] += 1
        core = Topology(name, self.own.get(name, self.settings), self.random.random)
        self.sites[name] = site = Site(core, self._lives[name])
        self.do(name, core.begin(site.incarnation, {}, self.now))

    def connect(self, link: str) -> None:
        for name in link:
            if name not in self.sites:
                self.start(name)
        self.links[frozenset(link)] = next(self._number)
        for here, there in (tuple(link), tuple(reversed(link))):
            neighbour = Neighbour(there, self.sites[there].incarnation, hears=(here, there) not in self.one_way)
            self.do(here, self.sites[here].core.link_up(neighbour, self.now))
            for site in list(self.sites[here].stored):
                self.flood(here, site, (there,))

    def follow(self, link: str) -> None:
        """The first takes from the second, which takes nothing from the first."""
        self.one_way.add((link[1], link[0]))
        self.connect(link)

    def cut(self, link: str, detection: float = 0.0) -> None:
        if self.links.pop(frozenset(link), None) is None:
            return
        for here, there in (tuple(link), tuple(reversed(link))):
            self.at(self.now + self.random.random() * detection, lambda h=here, t=there: self._detect(h, t))  # type: ignore[misc]

    def _detect(self, here: str, there: str) -> None:
        if here in self.sites and frozenset((here, there)) not in self.links:
            self.do(here, self.sites[here].core.link_down(there, self.now))

    def kill(self, name: str, detection: float = 0.0) -> None:
        del self.sites[name]
        for link in [pair for pair in self.links if name in pair]:
            self.cut("".join(sorted(link)), detection)

    # -- what cores ask for

    def do(self, name: str, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self.log.append((self.now, name, effect))
            self._perform(name, effect)
        if (site := self.sites.get(name)) is not None:
            self.violations += site.core.check()
            self._tick_when_due(name, site)

    def _perform(self, name: str, effect: Effect) -> None:
        site = self.sites[name]
        match effect:
            case Publish(row):
                site.writes += 1
                site.stored[name] = row.version(site.writes), row
                self.flood(name, name, self.neighbours(name))
            case Tell(to, message):
                self.send(name, to, lambda: self.do(to, self._hand_over(to, name, message)))
            case Move(origin, via, _) if via is not None:
                self.send(name, via, lambda: self.send(via, name, lambda: self.accept(name, origin, via)))
            case PublishRows(rows):
                site.published = rows
            case Move() | TakeFromAny():
                pass

    def _hand_over(self, to: str, name: str, message: Told | Progress) -> list[Effect]:
        core = self.sites[to].core
        if isinstance(message, Told):
            return core.told(name, message, self.now)
        return core.progress(name, message, self.now)

    def accept(self, name: str, origin: str, via: str) -> None:
        self.do(name, self.sites[name].core.subscribed(origin, via, self.now))

    def send(self, a: str, b: str, arrival: Callable[[], None]) -> None:
        """In order; lost with the link."""
        link = self.links.get(frozenset((a, b)))
        if link is None:
            return
        due = max(self.now + 0.005 + 0.01 * self.random.random(), self._last.get((a, b), 0.0))
        self._last[a, b] = due
        self.at(due, lambda: arrival() if self.links.get(frozenset((a, b))) == link else None)

    def flood(self, name: str, site: str, to: Iterable[str]) -> None:
        if self.store_works:
            version, row = self.sites[name].stored[site]
            for other in to:
                self.send(name, other, lambda o=other: self._stored(o, name, site, version, row))  # type: ignore[misc]

    def _stored(self, name: str, sender: str, site: str, version: int, row: LinkRow) -> None:
        here = self.sites[name]
        if version > here.stored.get(site, (0, row))[0]:
            here.stored[site] = version, row
            self.flood(name, site, [n for n in self.neighbours(name) if n != sender])
            if site != name:
                self.do(name, here.core.set_links({site: row}, self.now))

    def _tick(self, name: str, site: Site) -> None:
        if self.sites.get(name) is site and self.now >= site.ticks_at:
            site.ticks_at = float("inf")
            self.do(name, site.core.tick(self.now, site.cursors, site.head, site.withheld))

    def _tick_when_due(self, name: str, site: Site) -> None:
        due = max(site.core.due, self.now + 0.001)
        if due < site.ticks_at:
            site.ticks_at = due
            self.at(due, lambda: self._tick(name, site))

    # -- looking

    def neighbours(self, name: str) -> list[str]:
        return [next(iter(pair - {name})) for pair in self.links if name in pair]

    def rows(self) -> set[str]:
        """As the table shows them: subscriber, source, via, depth."""
        return {f"{s}{row.source}{row.via}{row.depth}" for s, site in self.sites.items() for row in site.core.rows.values()}

    def moves(self, since: float = 0.0) -> list[tuple[str, Move]]:
        return [(name, e) for at, name, e in self.log if at >= since and isinstance(e, Move)]

    def costs(self, start: str) -> Mapping[str, int]:
        """Of every site that can be reached, over the links there are and by the policy of each site."""
        found: dict[str, int] = {}
        heap = [(0, start)]
        while heap:
            cost, u = heappop(heap)
            if u not in found:
                found[u] = cost
                policy = self.own.get(u, self.settings)
                heard = [v for v in self.neighbours(u) if (u, v) not in self.one_way]
                for v in heard if u == start or not policy.no_relay else ():
                    heappush(heap, (cost + policy.costs.get(v, HOP), v))
        return found

    def wrong(self) -> list[str]:
        """Rows that are not what the links there are ask for, and parents that go in a circle."""
        found = list(self.violations)
        for name, site in self.sites.items():
            wanted = {o: cost for o, cost in self.costs(name).items() if o != name}
            have = {o: row.cost for o, row in site.core.rows.items()}
            if wanted != have:
                found.append(f"{name}: {have} instead of {wanted}")
            found += [f"{name}: {o} goes in a circle" for o in site.core.rows if not self._arrives(name, o)]
        return found

    def _arrives(self, name: str, origin: str) -> bool:
        for _ in self.sites:
            row = self.sites[name].core.rows.get(origin) if name in self.sites else None
            if row is None:
                return False
            if row.via == origin:
                return True
            name = row.via
        return False
