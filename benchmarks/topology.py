"""Who takes whose records from whom: copies per record, moves after a loss, the cost of a recomputation, the speed of a link.

Copies are counted at the sites: entries received over all links, over the entries that were for the site. Graphs of up to five
sites are real processes over TLS and Postgres; the random one of twelve, the cut, the death and the universes are simulated in
virtual time. A recomputation is one site that hears one neighbour less, up to the rows that follow. The link is two carriers
(three in a chain) with their logs in memory, and every message is encoded and decoded; all of them share one core.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import median

from harness import Result, Size, growth, run, seconds
from nodes import Nodes, until
from trunkline.core.ids import ALL_SITES, START
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.node.sim.graphrun import GraphRun
from trunkline.node.sim.graphs import graph
from trunkline.node.sim.history import Fault
from trunkline.node.sim.many import Tally, cores, verdicts
from trunkline.topology.effects import Effect, Move
from trunkline.topology.links import LinkRow
from trunkline.topology.neighbours import Neighbour
from trunkline.topology.topology import Topology
from trunkline.trunk import asks
from trunkline.trunk.carry import READ_LIMIT, Carrier
from trunkline.trunk.memory import MemoryLog, MemorySink
from trunkline.trunk.messages import CODEC
from trunkline.trunk.wants import open_subscription

REAL = ("chain:3", "chain:5", "ring:3", "ring:4", "ring:5", "star:5", "mesh:3", "mesh:4", "mesh:5", "house")
RECORDS = 300
WATCHED_SECONDS = 5.0
NEIGHBOURS = 7
ENTRIES = 200_000
MOVES = ("forced", "voluntary", "watchdog")


# -- copies


def _written(nodes: Nodes, writers: Sequence[str], name: str, count: int) -> float:
    """Every writer writes for all; returns the most copies per record that a site received."""
    before = {site: nodes.counted(site, "received") for site in nodes.sites}
    had = {(s, o): nodes.arrived(s, o) for s in nodes.sites for o in writers if s != o}
    for writer in writers:
        nodes.write(writer, [f"{name} {n}".encode() for n in range(count)])
    until(lambda: all(nodes.arrived(s, o) >= n + count for (s, o), n in had.items()), f"{name}: everything arrived")
    due = {site: count * sum(site != writer for writer in writers) for site in nodes.sites}
    return max((nodes.counted(s, "received") - before[s]) / due[s] for s in nodes.sites if due[s])


def real_copies(graphs: Sequence[str], records: int) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as name, EmbeddedPostgres(Path(name) / "postgres") as server:
        for text in graphs:
            label = text.replace(":", "")
            with Nodes(Path(name) / label, server, graph(text).links, label).running() as nodes:
                one = _written(nodes, nodes.sites[:1], "one", records)
                everybody = _written(nodes, nodes.sites, "all", records)
                yield Result(f"copies_{label}_one", round(one, 3), "copies per record, one site writes", 1.0, most=True)
                yield Result(f"copies_{label}_all", round(everybody, 3), "copies per record, all write", 1.0, most=True)
                if text == "star:5":
                    yield from _addressed(nodes, records)
            print(f"{text}: {one:.3f} and {everybody:.3f} copies per record", flush=True)


def _addressed(nodes: Nodes, records: int) -> Iterator[Result]:
    """Leaf b writes for two other leaves: each entry crosses the hub's link once."""
    before = {site: nodes.counted(site, "received") for site in nodes.sites}
    had = nodes.arrived("d", "b")
    nodes.write("b", [b"addressed"] * records, "c", "d")
    until(lambda: nodes.arrived("d", "b") >= had + records, "addressed entries arrived")
    gained = {site: (nodes.counted(site, "received") - before[site]) / records for site in nodes.sites}
    yield Result("addressed_at_relay", gained["a"], "copies at the relay, of entries for two sites behind it", 1.0, most=True)
    yield Result("addressed_elsewhere", gained["e"], "copies at a site they are not for", 0.0, most=True)


def simulated_copies(text: str) -> Iterator[Result]:
    """The steady part of a run counts every entry on every wire; more than one copy is a failure of it."""
    name = f"copies_{text.replace(':', '')}_sim_failures"
    for who, count in (("one", 1), ("all", None)):
        run = GraphRun(text, 1)
        assert run.come_up()
        verdict = run.live((), run.setup.sites[:count])
        failed = sum(failure.check in ("copies", "G3-link") for failure in verdict.failures)
        assert verdict.converged or failed, verdict.failures
        yield Result(f"{name}_{who}", failed, f"entries that came more than once, {who} writing", 0, most=True)


# -- losses


def after(text: str, kind: str, subject: str, name: str) -> Iterator[Result]:
    run = GraphRun(text, 1)
    assert run.come_up()
    net = run.universe.net
    gone = subject if "<" not in subject else ""
    lived = {site: site.core.topology.counts.copy() for site in run.universe.sites.values()}
    begun = net.now
    run.universe.do(Fault(net.now, kind, subject, 60.0))
    net.run(net.now + WATCHED_SECONDS)
    counts = [(s.core.topology.counts - lived[s]) for s in run.universe.sites.values() if s.host != gone and s in lived]
    moves = sum(count[manner] for count in counts for manner in MOVES)
    last = max((change.at + run.begun - begun for change in run.changes), default=0.0)
    goal = 2 if name == "cut_mesh5" else None
    yield Result(f"moves_after_{name}", moves, f"subscriptions moved, {text}, {kind} {subject}", goal, most=True)
    yield Result(f"settled_after_{name}_s", round(last, 3), "virtual s from the fault to the last change of a row")


# -- recomputing


class Lone:
    """One site among many; every subscription is accepted at once."""

    def __init__(self, sites: int) -> None:
        random, names = Random(1), [f"s{n}" for n in range(sites)]
        hears: dict[str, set[str]] = {name: {names[n - 1]} for n, name in enumerate(names)}
        while sum(map(len, hears.values())) < sites * NEIGHBOURS:
            a, b = random.sample(names, 2)
            hears[a].add(b)
            hears[b].add(a)
        self.hears, self.now = hears, 0.0
        self.core = Topology("x", random=random.random)
        self.take(self.core.begin(1, {s: LinkRow(1, tuple(sorted(o))) for s, o in hears.items()}, self.now))
        for site in sorted(random.sample(names, NEIGHBOURS)):
            self.take(self.core.link_up(Neighbour(site, 1), self.now))
        self.wait(2.0)
        assert len(self.core.rows) == sites

    def take(self, effects: Sequence[Effect]) -> None:
        waiting = deque(effects)
        while waiting:
            effect = waiting.popleft()
            if isinstance(effect, Move) and effect.via is not None:
                waiting.extend(self.core.subscribed(effect.origin, effect.via, self.now))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.05
            self.take(self.core.tick(self.now, {}, 0, ()))

    def recompute(self, site: str) -> float:
        self.wait(1.0)
        kept = tuple(sorted(self.hears[site]))[1:]

        def work() -> None:
            self.take(self.core.set_links({site: LinkRow(1, kept)}, self.now))
            self.wait(0.05)

        return seconds(work)


def recompute_ms(sites: int) -> float:
    lone = Lone(sites)
    others = [s for s in sorted(lone.hears) if len(lone.hears[s]) > 3 and s not in {n.site for n in lone.core.neighbours()}]
    return median(lone.recompute(site) for site in others[:20]) * 1000


# -- a link


class Chain:
    """Carriers in a row: the first one's log, in memory, is wanted by all others."""

    def __init__(self, sites: Sequence[str], entries: int) -> None:
        self.sites, self.queue = sites, deque[tuple[str, str, bytes]]()
        self.logs = {site: MemoryLog(f"log-{site}") for site in sites}
        self.sinks = {site: MemorySink() for site in sites}
        payload = b"x" * 1024
        for first in range(0, entries, 100):
            self.logs[sites[0]].commit([("load", (ALL_SITES,), {}, payload)] * 100, mark=first + 1)
        self.carriers = {site: Carrier(site, 1, log.log_id, log.head()) for site, log in self.logs.items()}
        for n, site in enumerate(sites):
            for other in (*sites[max(0, n - 1) : n], *sites[n + 1 : n + 2]):
                self.do(site, self.carriers[site].link_up(other))
            if n:
                self.do(site, self.carriers[site].move(sites[0], sites[n - 1], False, 0.0))

    def do(self, site: str, effects: Sequence[asks.Effect]) -> None:
        carrier, log, sink = self.carriers[site], self.logs[site], self.sinks[site]
        for effect in effects:
            match effect:
                case asks.Send(to, message):
                    self.queue.append((site, to, CODEC.encode(message)))
                case asks.Load(origin):
                    self.do(site, carrier.loaded(origin, sink.applied(origin)))
                case asks.Open(child, number, wants):
                    self.do(site, carrier.opened(child, number, open_subscription(log, wants), self.now))
                case asks.Read(child, number, after, destinations):
                    chunk = log.read(after, READ_LIMIT, destinations)
                    self.do(site, carrier.read(child, number, chunk, tuple(log.clients()), self.now))
                case asks.Append():
                    sink.append(effect.origin, effect.log_id, effect.entries, effect.upto, effect.clients)
                    self.do(site, carrier.appended(effect, self.now))
                case _:
                    pass

    now = 0.0

    def carry(self) -> None:
        last, head = self.sinks[self.sites[-1]], self.logs[self.sites[0]].head().seq
        while last.applied(self.sites[0]).clients.get("load", START).seq < head:
            self.now += 0.05
            for site, carrier in self.carriers.items():
                self.do(site, carrier.tick(self.now))
            while self.queue:
                sender, to, body = self.queue.popleft()
                self.do(to, self.carriers[to].receive(sender, CODEC.decode(body), self.now))


def link_rate(sites: Sequence[str], entries: int) -> float:
    return entries / min(seconds(Chain(sites, entries).carry) for _ in range(3))


# -- universes


def universes(count: int) -> list[Result]:
    tally = Tally()
    with verdicts("topology", range(count), cores()) as found:
        for verdict in found:
            tally.add(verdict)
    kinds = [failure for verdict in tally.failures for failure in verdict.failures]
    named = {"lost": ("G4",), "duplicated": ("G3", "copies", "G3-link"), "loops": ("loops", "rows", "paths")}
    found_ = {name: sum(f.check in checks for f in kinds) for name, checks in named.items()}
    return [
        Result("universes", tally.seeds, "random graphs and histories of faults"),
        *(Result(f"{name}_in_universes", n, "failures", 0, most=True) for name, n in found_.items()),
        Result("failed_universes", len(tally.failures), "for any reason", 0, most=True),
        Result("universe_settled_s_max", round(tally.slowest, 2), "virtual s from the last fault"),
    ]


def speeds(entries: int) -> Iterator[Result]:
    times = {sites: recompute_ms(sites) for sites in (50, 200, 500, 1000)}
    for sites, taken in times.items():
        yield Result(f"recompute_ms_{sites}_sites", round(taken, 3), "ms", 5.0 if sites == 1000 else None, most=True)
    yield growth("recompute", times[500], times[1000])
    yield Result("link_entries_per_s", round(link_rate("ab", entries)), "entries/s of 1 KiB, both ends on one core", 100_000)
    yield Result("chain3_entries_per_s", round(link_rate("abc", entries)), "entries/s of 1 KiB, three sites on one core")


def measure(size: Size) -> list[Result]:
    full = size is Size.FULL
    fast = [*speeds(ENTRIES if full else ENTRIES // 10)]
    copies = [*real_copies(REAL if full else ("chain:3", "mesh:3"), RECORDS if full else 50)]
    most = max(r.value for r in copies if r.metric.startswith("copies"))
    return [
        Result("copies_per_record_max", most, "copies", 1.0, most=True),
        *copies,
        *simulated_copies("random:12"),
        *after("mesh:5", "cut", "a<>b", "cut_mesh5"),
        *after("mesh:5", "crash", "c", "death_mesh5"),
        *fast,
        *universes(2000 if full else 100),
    ]


if __name__ == "__main__":
    run("topology", measure)
