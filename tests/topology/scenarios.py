"""Fleets in virtual time for the numbered scenarios: links in the order written, real sequence numbers, everything counted.

Fleet("ab bc")      two-way links, in the order in which they come up
Fleet("b>a c>b")    b follows a, c follows b: the follower takes records and gives none
rows("(B,A,A,1)")   rows as the scenarios write them: subscriber, source, via, depth
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from trunkline.core.ids import ALL_SITES
from trunkline.net.channels import Channel
from trunkline.net.simhost import Outlet, Process
from trunkline.net.simnet import Note
from trunkline.net.simwires import DELAY, Ends
from trunkline.node.sim.catalogue import CATALOGUE
from trunkline.node.sim.checks import entries_delivered
from trunkline.node.sim.pathchecks import tables_of
from trunkline.node.sim.rowwatch import RowChange, RowWatch
from trunkline.node.sim.setup import Setup
from trunkline.node.sim.site import SimSite, SiteSettings
from trunkline.node.sim.trace import message_of
from trunkline.node.sim.universe import Universe
from trunkline.node.sitecore import Effect, Frame, HostWork
from trunkline.topology.messages import Told
from trunkline.topology.settings import Settings
from trunkline.trunk import asks
from trunkline.trunk.carry import Carrier
from trunkline.trunk.messages import Batch, Subscribe

Row4 = tuple[str, str, str, int]
ROUND_TRIP = 2 * DELAY[1]
STAGGER = 0.6
CLIENT = "status"
PRODUCTION = SiteSettings(topology=Settings())


def rows(text: str) -> set[Row4]:
    found = re.findall(r"\((\w),(\w),(\w),(\d)\)", text.lower())
    return {(subscriber, source, via, int(depth)) for subscriber, source, via, depth in found}


def direct(*pairs: str) -> set[Row4]:
    """The rows of depth 1 of two-way links."""
    return {(x, y, y, 1) for pair in pairs for x, y in (pair, pair[::-1])}


def _setup(text: str) -> Setup:
    words = [(word[0], word[-1], ">" in word) for word in text.split()]
    return Setup(
        tuple((a, b) for a, b, _ in words), frozenset((a, b) for a, b, one_way in words if one_way), stagger=STAGGER
    )  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """A frame at the moment its site hands it to the link."""

    at: float
    site: str
    to: str
    channel: Channel
    body: bytes

    @cached_property
    def message(self) -> Any:
        return message_of(self.channel, self.body)


class WatchedSite(SimSite):
    fleet: Fleet

    def _send(self, frame: Frame) -> None:
        if self.fleet.sends(self, frame):
            super()._send(frame)

    def message(self, peer: str, channel: Channel, body: bytes, now: float) -> None:
        if not self.fleet.swallows(self.host, peer, channel, body):
            super().message(peer, channel, body, now)

    def durable(self, work: HostWork) -> Callable[[float], list[Effect]]:
        answer = super().durable(work)
        if isinstance(work, asks.Append) and work.entries:
            self.fleet.stored[self.host, work.origin].append(self.fleet.now)
        return answer

    def stamp_now(self) -> None:
        if self.database.unstamped and not self._stamping:
            self._stamping = True
            self._ask_stamp()


MakeSite = Callable[..., Process]


class Fleet:
    def __init__(
        self,
        links: str,
        later: str = "",
        seed: int = 1,
        settings: SiteSettings = PRODUCTION,
        makes: Mapping[str, MakeSite] | None = None,
    ) -> None:
        self.settings, self._makes = settings, makes or {}
        self.sent: list[Sent] = []
        self.ups: list[Note] = []
        self.downs: list[Note] = []
        self._heard: dict[str, list[tuple[float, frozenset[str]]]] = defaultdict(list)
        self.changes: list[RowChange] = []
        self.silent_channels: set[Channel] = set()
        self.deaf: set[tuple[str, str]] = set()
        """(site, origin): batches of that origin do not reach that site."""
        self.hidden: dict[str, set[str]] = {}
        """Site → keys: what the store tells of these does not reach that site."""
        setup = replace(_setup(f"{links} {later}"), later=frozenset(_setup(later).links))
        scenario = replace(CATALOGUE["mesh"], setup=lambda random: setup, boot=self._boot)
        self._writes = 0
        self.universe = Universe(scenario, seed)
        self.net, self.witness = self.universe.net, self.universe.witness
        self._row_watch = RowWatch(lambda: self.net.now, self.witness, self.changes.append)
        self.universe.watch = self._look
        self.net.observer = self._note
        self.witness.crossings = Counter()
        self.stored: dict[tuple[str, str], list[float]] = defaultdict(list)
        """(site, origin) → when records became durable."""

    def _boot(self, universe: Universe, host: str, outlet: Outlet, now: float) -> Process:
        make = self._makes.get(host, WatchedSite)
        site = make(host, universe.databases, outlet, now, universe.setup, self.settings)
        if isinstance(site, WatchedSite):
            site.fleet = self
        return site

    def _look(self, site: SimSite) -> None:
        self._row_watch.look(site)
        row = site.core.link_row(site.host)
        heard = frozenset(row.hears) if row is not None else frozenset()
        said = self._heard[site.host]
        if heard != (said[-1][1] if said else frozenset()):
            said.append((self.now, heard))

    def _note(self, note: Note) -> None:
        if note.kind in ("link", "unlink"):
            (self.ups if note.kind == "link" else self.downs).append(note)

    # -- what its sites send and hear

    def sends(self, site: SimSite, frame: Frame) -> bool:
        self.sent.append(Sent(self.net.now, site.host, frame.peer.site, frame.channel, frame.body))
        return frame.channel not in self.silent_channels

    def swallows(self, site: str, peer: str, channel: Channel, body: bytes) -> bool:
        if channel is Channel.STORE and site in self.hidden:
            message = message_of(channel, body)
            return not self.hidden[site].isdisjoint(getattr(message, "values", ()))
        if channel is not Channel.TRUNK or not self.deaf:
            return False
        message = message_of(channel, body)
        return isinstance(message, Batch) and (site, message.origin) in self.deaf

    # -- time

    @property
    def now(self) -> float:
        return self.net.now

    def run(self, seconds: float) -> None:
        self.net.run(self.net.now + seconds)

    def until(self, holds: Callable[[], object], seconds: float = 30.0, why: Callable[[], object] = lambda: "") -> float:
        """Runs until it holds, asking a hundred times a second; returns how long that took."""
        begun = self.now
        while not holds():
            assert self.now < begun + seconds, f"it did not come to hold within {seconds} s: {why()}"
            self.run(0.01)
        return self.now - begun

    def settle(self, expected: set[Row4] | None = None, seconds: float = 30.0) -> Fleet:
        """Until the table is as expected, and then stays so for a while."""
        self.until(lambda: expected is None or self.table() == expected, seconds, lambda: self.difference(expected))
        self.run(3.0)
        assert expected is None or self.table() == expected, self.difference(expected)
        return self

    def up(self, expected: set[Row4]) -> Fleet:
        self.run(STAGGER * len(self.universe.setup.links))
        return self.settle(expected)

    # -- links and processes

    def connect(self, pair: str) -> None:
        self.net.wires.connect(pair[0], pair[1])

    def close(self, pair: str) -> None:
        """The connection ends at both ends at once, and none is made until `reopen`."""
        a, b = pair
        self.net.wires.leave(a, b, "closed")
        self.net.wires.leave(b, a, "closed")
        self.net.wires.cut(_ways(pair))

    def reopen(self, pair: str) -> None:
        self.mend(pair)

    def linked(self, pair: str) -> bool:
        return all(self.net.wires.linked(*way) for way in _ways(pair))

    def cut(self, pair: str) -> None:
        """Nothing gets through any more; both ends find out by the silence."""
        self.net.wires.cut(_ways(pair))

    def mend(self, pair: str) -> None:
        self.net.wires.mend(_ways(pair))

    def mute(self, pair: str) -> None:
        """The connection stays open and swallows everything."""
        self.net.wires.mute(_ways(pair))

    def slow(self, pair: str, seconds: float) -> None:
        for way in _ways(pair):
            self.net.wires.delays[way] = seconds

    def kill(self, site: str, told: bool = True) -> None:
        self.net.crash(site, told)

    # -- records

    def write(self, site: str, count: int = 1, payload: bytes = b"x", at_once: int = 100) -> None:
        """Records for everybody, in transactions of at most `at_once`, stamped without waiting for a tick."""
        while count > 0:
            some = min(count, at_once)
            self._writes += 1
            self.universe.write(site, [(CLIENT, (ALL_SITES,), {}, payload)] * some, f"write {self._writes}")
            count -= some
        host = self.net.hosts[site]
        if isinstance(host.process, WatchedSite) and host.awake():
            self.net.call(host, host.process.stamp_now)

    def write_steadily(self, site: str, per_second: int, seconds: float, every: float = 0.005) -> None:
        some = round(per_second * every)
        for n in range(round(seconds / every)):
            self.net.at(self.now + n * every, self.write, site, some)

    def written(self, origin: str) -> int:
        database = self.universe.databases[origin]
        return database.log.head().seq + sum(len(messages) for messages, _ in database.unstamped)

    def has(self, site: str, origin: str) -> list[int]:
        """Of an origin's records those that are durable at a site, in order of arrival."""
        return [e.seq for e in self.universe.databases[site].sink.received.get(origin, ())]

    def has_all(self, site: str, origin: str) -> bool:
        return self.has(site, origin) == list(range(1, self.written(origin) + 1))

    def delivered(self) -> bool:
        return next(entries_delivered(self.universe), None) is None

    def longest_stall(self, site: str, origin: str, since: float, until: float | None = None) -> float:
        """The longest time without a new record of a steady writer."""
        end = self.now if until is None else until
        times = [since, *(t for t in self.stored[site, origin] if since <= t <= end), end]
        return max(b - a for a, b in pairwise(times))

    # -- looking

    def carrier(self, site: str) -> Carrier:
        carrier = self.universe.sites[site].core.carrier
        assert carrier is not None
        return carrier

    def table(self) -> set[Row4]:
        tables = tables_of(self.universe).items()
        return {(site, row.source, row.via, row.depth) for site, found in tables for row in found.values()}

    def rows_of(self, site: str) -> set[Row4]:
        return {row for row in self.table() if row[0] == site}

    def difference(self, expected: set[Row4] | None) -> str:
        table, wanted = self.table(), expected or set()
        return f"missing {sorted(wanted - table)}, too many {sorted(table - wanted)}"

    def moves(self, *kinds: str) -> int:
        """How often an origin was taken from another neighbour than before, by everybody."""
        counted = kinds or ("forced", "voluntary", "watchdog")
        return sum(site.core.topology.counts[kind] for site in self.universe.sites.values() for kind in counted)

    def said(self, site: str, *kinds: type, since: float = 0.0) -> list[Any]:
        return [s.message for s in self.sent if s.site == site and s.at >= since and isinstance(s.message, kinds)]

    def subscribed(self, site: str, since: float = 0.0) -> list[tuple[str, str]]:
        """(origin, parent) of every subscription that a site asked for, in order."""
        asked = ((s.to, s.message) for s in self.sent if s.site == site and s.at >= since and s.channel is not Channel.STORE)
        return [(m.origin, to) for to, m in asked if isinstance(m, Subscribe)]

    def told_rows(self, site: str, since: float = 0.0) -> list[Told]:
        return self.said(site, Told, since=since)

    def told_at(self, site: str, source: str, since: float = 0.0) -> float:
        """When a site first told a row for that source."""
        told = [s for s in self.sent if s.site == site and s.at >= since and isinstance(s.message, Told)]
        return min(s.at for s in told if source in [row.source for row in s.message.rows])

    def link_published(self, site: str, other: str, since: float = 0.0, without: bool = False) -> list[float]:
        """When a site's link row began to name another one; `without`: when it ceased to."""
        said = [(0.0, frozenset[str]()), *self._heard[site]]
        turns = [(at, other in before, other in after) for (_, before), (at, after) in pairwise(said)]
        return [at for at, before, after in turns if at >= since and (before, after) == (without, not without)]

    def counted(self, what: str) -> int:
        return sum(self.counted_at(site, what) for site in self.universe.sites)

    def counted_at(self, site: str, what: str) -> int:
        return sum(n for (_, kind), n in self.carrier(site).counters.items() if kind == what)

    def batches(self, to: str, origin: str, since: float = 0.0) -> list[Sent]:
        frames = (s for s in self.sent if s.to == to and s.at >= since and s.channel is Channel.TRUNK)
        return [s for s in frames if isinstance(s.message, Batch) and s.message.origin == origin]

    def crossed(self, to: str, origin: str, since: float = 0.0) -> Counter[int]:
        """Of an origin's records how often each was sent to a site, by whomever."""
        return Counter(entry.seq for s in self.batches(to, origin, since) for entry in s.message.entries)

    # -- what every scenario requires

    def assert_all_well(self, exact: bool = True) -> None:
        """0 lost, 0 duplicate, and in steady state one copy per record and site; `exact`: so far, too."""
        self.until(self.delivered, 30.0, lambda: next(entries_delivered(self.universe), None))
        if exact:
            assert (self.counted("duplicate"), self.counted("stray")) == (0, 0)
        begun, heads = self.now, {site: self.written(site) for site in self.universe.setup.sites}
        for site in self.universe.setup.sites:
            self.write(site, 10)
        self.run(0.5)
        self.until(self.delivered, 30.0, lambda: next(entries_delivered(self.universe), None))
        self.run(1.0)
        for site, reached in self.universe.setup.reach.items():
            for origin in reached:
                new = range(heads[origin] + 1, self.written(origin) + 1)
                assert self.crossed(site, origin, begun) == Counter(new), (site, origin)
            assert not self.crossed(site, site), f"{site} was sent its own records"
        assert self.witness.failures == []


def _ways(pair: str) -> tuple[Ends, Ends]:
    return (pair[0], pair[-1]), (pair[-1], pair[0])
