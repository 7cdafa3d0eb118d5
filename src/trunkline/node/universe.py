"""One simulated universe: a few sites, a history of faults drawn from a seed, and the check that everything came right.

The sites run the same `SiteCore` as real nodes, over the simulated network, with log and sink in memory as their disks.
While faults rage the sites write; then the faults end, and within a bounded time all stores must be equal, every entry must be
at each of its destinations exactly once and in order, and every origin must know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations

from trunkline.core.ids import ALL_SITES, START, NodeId, Position
from trunkline.net.channels import Channel
from trunkline.net.simnet import Outlet, SimNet
from trunkline.node.sitecore import Effect, Frame, HostWork, SiteCore
from trunkline.trunk import asks
from trunkline.trunk.memory import MemoryLog, MemorySink, Message
from trunkline.trunk.wants import open_subscription, proven

NODE = "node-1"
FAULT_SECONDS = 20.0
CONVERGE_SECONDS = 60.0
CHAIN = (("leaf", "relay"), ("relay", "hub"))


@dataclass
class Disk:
    """What a site keeps when its process dies."""

    log: MemoryLog
    sink: MemorySink = field(default_factory=MemorySink)
    epoch: int = 0
    acknowledged: dict[str, dict[str, Position]] = field(default_factory=dict)


class SimSite:
    """A node's host work over memory: every durable step takes a while on the simulated disk."""

    def __init__(self, name: str, disk: Disk, outlet: Outlet, now: float) -> None:
        self.name, self.disk, self.outlet = name, disk, outlet
        disk.epoch += 1
        self.core = SiteCore(NodeId(name, NODE), (name,), sync_seconds=5.0)
        self._do(self.core.lead(disk.epoch, disk.log.log_id, disk.log.head(), now))

    def link_up(self, peer: str, now: float) -> None:
        self._do(self.core.link_up(NodeId(peer, NODE), True, now))

    def link_down(self, peer: str, now: float) -> None:
        self._do(self.core.link_down(NodeId(peer, NODE), now))

    def message(self, peer: str, channel: Channel, body: bytes, now: float) -> None:
        self._do(self.core.message(NodeId(peer, NODE), channel, body, now))

    def tick(self, now: float) -> None:
        self._do(self.core.tick(now))

    def commit(self, messages: Sequence[Message], mark: int, now: float) -> None:
        self._do(self.core.set_head(self.disk.log.commit(messages, mark), now))

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Frame):
                self.outlet.send(effect.peer.site, effect.channel, effect.body)
            else:
                self.outlet.disk(partial(self._work, effect))

    def _work(self, work: HostWork, now: float) -> None:
        self._do(self._host_work(work, now))

    def _host_work(self, work: HostWork, now: float) -> list[Effect]:
        disk = self.disk
        match work:
            case asks.Load(origin):
                return self.core.loaded(origin, disk.sink.applied(origin))
            case asks.Open():
                return self.core.opened(work, open_subscription(disk.log, work.wants), now)
            case asks.Read():
                chunk = disk.log.read(work.after, 20, work.destinations)
                return self.core.read(work, chunk, tuple(disk.log.clients()), now)
            case asks.Append():
                disk.sink.append(work.origin, work.log_id, work.entries, work.upto, work.clients)
                return self.core.appended(work, now)
            case asks.ResetSink(origin, log_id):
                disk.sink.reset(origin, log_id)
                return self.core.loaded(origin, disk.sink.applied(origin))
            case asks.Acknowledged():
                disk.acknowledged[work.destination] = proven(disk.log, work.clients)
        return []


@dataclass(frozen=True)
class Verdict:
    seed: int
    converged: bool
    seconds: float
    entries: int
    frames: int
    fingerprint: str
    reasons: tuple[str, ...]


class Universe:
    def __init__(self, seed: int, links: Sequence[tuple[str, str]] = CHAIN, loss: float = 0.02) -> None:
        self.seed = seed
        self.net = SimNet(seed, loss=loss)
        self.links = links
        self.names = sorted({name for pair in links for name in pair})
        self.sites: dict[str, SimSite] = {}
        self.disks: dict[str, Disk] = {}
        for name in self.names:
            self.disks[name] = Disk(MemoryLog(f"log-{name}"))
            self.net.add(name, partial(self._boot, name))
        for a, b in links:
            self.net.connect(a, b)

    def _boot(self, name: str, outlet: Outlet, now: float) -> SimSite:
        self.sites[name] = SimSite(name, self.disks[name], outlet, now)
        return self.sites[name]

    # -- what happens to it

    def write(self, name: str) -> None:
        """One transaction of one to three messages, to some or all of the other sites."""
        if not self.net.running(name):
            return
        random = self.net.random
        others = [n for n in self.names if n != name]
        messages: list[Message] = []
        for _ in range(random.randint(1, 3)):
            chosen = tuple(sorted(random.sample(others, random.randint(1, len(others)))))
            destinations = (ALL_SITES,) if random.random() < 0.1 else chosen
            messages.append((random.choice(("status", "policy")), destinations, {}, random.randbytes(8)))
        self.sites[name].commit(messages, random.getrandbits(62) + 1, self.net.now)

    def _fault(self) -> None:
        random, net = self.net.random, self.net
        name, pair = random.choice(self.names), random.choice(self.links)
        actions = (
            lambda: net.crash(name),
            lambda: net.restart(name),
            lambda: net.cut(*pair),
            lambda: net.mend(*pair),
            lambda: net.partition([name]),
            net.heal,
        )
        random.choice(actions)()

    def rage(self, seconds: float = FAULT_SECONDS) -> None:
        """Faults and writes at random moments, then the end of all faults."""
        random = self.net.random
        for _ in range(random.randint(3, 8)):
            self.net.after(random.uniform(0, seconds), self._fault)
        for _ in range(40):
            name = random.choice(self.names)
            self.net.after(random.uniform(0, seconds), partial(self.write, name))
        self.net.run(seconds)
        self.net.loss = 0.0
        self.net.heal()
        for name in self.names:
            self.net.restart(name)

    # -- what must be true in the end

    def wrong(self) -> list[str]:
        return [*self._stores_differ(), *self._entries_wrong(), *self._unacknowledged()]

    def _stores_differ(self) -> list[str]:
        stores = {n: {k: v.rank()[:3] for k, v in s.core.store.values.items()} for n, s in self.sites.items()}
        return [f"stores of {a} and {b} differ" for a, b in combinations(self.names, 2) if stores[a] != stores[b]]

    def _entries_wrong(self) -> list[str]:
        found = []
        for origin in self.names:
            log = self.disks[origin].log
            for site in self.names:
                if site == origin:
                    continue
                expected = [e.seq for e in log.read(0, log.head().seq + 1, {site}).entries]
                received = [e.seq for e in self.disks[site].sink.received.get(origin, [])]
                if received != expected:
                    found.append(f"{site} has {received} of {origin}, expected {expected}")
        return found

    def _unacknowledged(self) -> list[str]:
        found = []
        for origin in self.names:
            head = self.disks[origin].log.head()
            for site in self.names:
                known = self.disks[origin].acknowledged.get(site, {})
                if site != origin and min(known.values(), default=START) != head:
                    found.append(f"{origin} does not know that {site} has everything")
        return found

    def settle(self, seconds: float = CONVERGE_SECONDS) -> Verdict:
        begun = self.net.now
        converged = self.net.run(begun + seconds, done=lambda: not self.wrong())
        entries = sum(d.log.head().seq for d in self.disks.values())
        return Verdict(
            self.seed,
            converged,
            round(self.net.now - begun, 3),
            entries,
            self.net.frames,
            self.net.fingerprint(),
            () if converged else tuple(self.wrong()),
        )


def run_universe(seed: int, links: Sequence[tuple[str, str]] = CHAIN, loss: float = 0.02) -> Verdict:
    universe = Universe(seed, links, loss)
    universe.rage()
    return universe.settle()
