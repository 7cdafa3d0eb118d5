"""One simulated universe: hosts and links, a history that is done to them, and the check that everything came right.

The sites run the same `SiteCore` as real nodes. While faults rage the sites write; then the faults end, and within a bounded
time every check must hold. After that everybody writes once more, undisturbed: now nothing may cross a link twice.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from random import Random

from trunkline.core.errors import TrunklineError
from trunkline.core.ids import ALL_SITES
from trunkline.net.simhost import WALL_START, Outlet, Process
from trunkline.net.simnet import Note, SimNet
from trunkline.node.sim.database import Database, LeaseRow
from trunkline.node.sim.faults import kind_of
from trunkline.node.sim.fitting import check_event
from trunkline.node.sim.history import Change, Event, Fault, History, Read, Write
from trunkline.node.sim.ledger import Ledger
from trunkline.node.sim.setup import Setup
from trunkline.node.sim.site import SimSite
from trunkline.node.sim.storenode import StoreNode
from trunkline.node.sim.witness import Crossing, Failure, Witness
from trunkline.store.area import Area
from trunkline.trunk.memory import MemoryLog, Message

CALM = 20.0
CONVERGE_SECONDS = 60.0
STEADY_TRIES = 4

Check = Callable[["Universe"], Iterator[Failure]]
MakeProcess = Callable[["Universe", str, Outlet, float], Process]


@dataclass(frozen=True)
class Scenario:
    """Something that can be simulated."""

    name: str
    about: str
    setup: Callable[[Random], Setup]
    boot: MakeProcess
    faults: tuple[str, ...]
    draw: Callable[[Random, Setup, float], list[Event]]
    """What the applications do, drawn from the seed."""
    checks: tuple[Check, ...]
    steady: bool = True
    """Whether in the end entries are counted on the links."""
    loss: float = 0.02
    seconds: float = CONVERGE_SECONDS
    """From the end of the faults until all must be right."""
    calm: float = CALM
    """When the faults are over."""
    rest: float = 1.5
    """Seconds of quiet before entries are counted."""


@dataclass(frozen=True)
class Verdict:
    seed: int
    converged: bool
    seconds: float
    entries: int
    frames: int
    fingerprint: str
    failures: tuple[Failure, ...]

    @property
    def failed_checks(self) -> tuple[str, ...]:
        return tuple(sorted({failure.check for failure in self.failures}))


class Universe:
    def __init__(
        self, scenario: Scenario, seed: int, loss: float = 0.0, observer: Callable[[Note], None] | None = None
    ) -> None:
        self.scenario, self.seed = scenario, seed
        self.setup = setup_of(scenario, seed)
        self.net = SimNet(seed, loss)
        self.net.observer = observer
        self.net.on_error = self._defect
        self.witness = Witness(on_failure=lambda failure: self.net.note("broken", failure.check, text=failure.what))
        self.database_clock_error = 0.0
        self.ledger = Ledger(self.net.hosts)
        self.databases = {site: self._database(site) for site in self.setup.sites}
        self.sites: dict[str, SimSite] = {}
        self.store_nodes: dict[str, StoreNode] = {}
        self.stores: dict[str, Area] = {}
        self.watch: Callable[[SimSite], None] | None = None
        """Called after everything that happens to a site."""
        for host in self.setup.hosts:
            self.net.add(host, partial(self._boot, host), host.partition("/")[0])
        for n, pair in enumerate(pair for pair in self.setup.links if pair not in self.setup.later):
            self.net.at(n * self.setup.stagger, self.net.wires.connect, *pair)

    def _database(self, site: str) -> Database:
        lease = LeaseRow(lambda: WALL_START + self.net.now + self.database_clock_error)
        return Database(site, MemoryLog(f"log-{site}"), lease, self.witness)

    def _boot(self, host: str, outlet: Outlet, now: float) -> Process:
        process = self.scenario.boot(self, host, outlet, now)
        if isinstance(process, SimSite):
            self.sites[host], self.stores[host] = process, process.store
            process.after = self._after
        if isinstance(process, StoreNode):
            self.store_nodes[host], self.stores[host] = process, process.store
        return process

    def _after(self, site: SimSite) -> None:
        if self.watch is not None:
            self.watch(site)

    def _defect(self, host: str, error: Exception) -> None:
        said = str(error) if isinstance(error, TrunklineError) else repr(error)
        self.witness.saw("defect", f"{host}: {type(error).__name__}: {said}")

    # -- what is done to it

    def do(self, event: Event) -> None:
        match event:
            case Fault():
                self._strike(event)
            case Write():
                payloads = enumerate(event.messages)
                self.write(event.site, [(c, d, {}, f"{event.at}/{n}".encode()) for n, (c, d) in payloads], str(event))
            case Change():
                self._ask(event.node, "change", f"{event.verb} {event.what}", lambda node: partial(node.change, event))
            case Read():
                self._ask(event.node, "read", str(event.most), lambda node: partial(node.read, event.most))

    def _strike(self, fault: Fault) -> None:
        self.net.note("fault", fault.subject, text=str(fault).partition(" ")[2])
        end = kind_of(fault).begin(self.net, fault)
        if end is not None and fault.seconds:
            self.net.at(fault.end, self._relieve, fault, end)

    def _relieve(self, fault: Fault, end: Callable[[], None]) -> None:
        self.net.note("over", fault.subject, text=fault.kind)
        end()

    def write(self, site: str, messages: Sequence[Message], salt: str) -> None:
        """An application's transaction, committed in the site's database whether or not a node runs."""
        mark = int.from_bytes(hashlib.blake2b(f"{self.seed} {salt}".encode(), digest_size=7).digest()) + 1
        self.databases[site].unstamped.append((messages, mark))
        self.net.note("write", site, text=" ".join(f"{c}>{','.join(d)}" for c, d, _, _ in messages))

    def _ask(self, name: str, kind: str, text: str, step: Callable[[StoreNode], Callable[[float], None]]) -> None:
        """A client of the node, if that runs."""
        host = self.net.hosts[name]
        if host.awake():
            self.net.note(kind, name, text=text)
            self.net.call(host, step(self.store_nodes[name]), host.clock.monotonic())

    def live_through(self, events: Sequence[Event]) -> None:
        """All of it, then the end of all faults; or up to what may never happen."""
        for event in events:
            self.net.at(event.at, self.do, event)
        self.net.run(max([self.scenario.calm, *(event.end for event in events)]), done=self.broken)
        if self.broken():
            return
        self.net.wires.loss = 0.0
        self.net.note("calm", "")
        for host in self.setup.hosts:
            self.net.restart(host)
        self.ledger.hold(self.stores, self.scenario.seconds)

    # -- what must be true in the end

    def wrong(self) -> Iterator[Failure]:
        return chain.from_iterable(check(self) for check in self.scenario.checks)

    def right(self) -> bool:
        return next(self.wrong(), None) is None

    def broken(self) -> bool:
        return bool(self.witness.failures)

    def settle(self, seconds: float | None = None) -> Verdict:
        begun = self.net.now
        self._until_right(seconds or self.scenario.seconds)
        took = round(self.net.now - begun, 3)
        if self.scenario.steady and not self.broken():
            self._go_on_undisturbed()
        failures = tuple(self.witness.failures)
        entries = sum(d.log.head().seq for d in self.databases.values())
        return Verdict(self.seed, not failures, took, entries, self.net.wires.frames, self.net.fingerprint(), failures)

    def _until_right(self, seconds: float) -> None:
        """What is still wrong in the end is a failure, unless something worse was seen before."""
        if self.broken() or self.net.run(self.net.now + seconds, done=lambda: self.broken() or self.right()):
            return
        for failure in tuple(self.wrong()):
            self.witness.saw(failure.check, failure.what)

    def _go_on_undisturbed(self) -> None:
        for _ in range(STEADY_TRIES):
            self.net.run(self.net.now + self.scenario.rest)
            before = self._changes_of_path()
            crossings = self._write_once_more()
            if self.broken():
                return
            if before == self._changes_of_path():
                self._count(crossings)
                return
        self.witness.saw("G3-link", "the paths of entries keep changing although nothing happens")

    def _write_once_more(self) -> Counter[Crossing]:
        """What crossed which link until it had arrived."""
        crossings = self.witness.crossings = Counter()
        for site in self.setup.sites:
            self.write(site, [("status", (ALL_SITES,), {}, b"steady")], f"steady {self.net.now}")
        self._until_right(CONVERGE_SECONDS)
        self.witness.crossings = None
        return crossings

    def _count(self, crossings: Counter[Crossing]) -> None:
        copies: Counter[tuple[str, int]] = Counter()
        for (a, b, origin, seq), count in crossings.items():
            copies[origin, seq] += count
            if count > 1:
                self.witness.saw("G3-link", f"entry {seq} of {origin} crossed the link of {a} and {b} {count} times")
        for (origin, seq), count in copies.items():
            takers = sum(origin in reached for reached in self.setup.reach.values())
            if count != takers:
                self.witness.saw("copies", f"entry {seq} of {origin} was sent {count} times to {takers} sites")

    def _changes_of_path(self) -> int:
        carriers = [site.core.carrier for site in self.sites.values()]
        counters = [c.counters for c in carriers if c is not None]
        return sum(n for counter in counters for (_, what), n in counter.items() if what in ("subscribed", "hole"))


# -- whole runs


def setup_of(scenario: Scenario, seed: int) -> Setup:
    return scenario.setup(Random(f"{seed} setup"))


def run_history(scenario: Scenario, history: History, observer: Callable[[Note], None] | None = None) -> Verdict:
    universe = Universe(scenario, history.seed, history.loss, observer)
    for event in history.events:
        check_event(event, universe.setup, frozenset(universe.store_nodes))
    universe.live_through(history.events)
    return universe.settle()
