"""One named graph with events of one's own: its rows as the links come up, every change of them, and the verdict.

Times count from when the links are up and the table stands. Sites write all the while, so the verdict says something about
records, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from trunkline.core.errors import Invalid
from trunkline.net.simnet import Note
from trunkline.node.sim.catalogue import CATALOGUE, draw_writes
from trunkline.node.sim.faults import kind_of
from trunkline.node.sim.fitting import check_event
from trunkline.node.sim.graphs import graph
from trunkline.node.sim.history import Event, Fault, in_order, parse_event
from trunkline.node.sim.pathchecks import paths_right, tables_of
from trunkline.node.sim.rowwatch import RowChange, RowWatch
from trunkline.node.sim.setup import Setup
from trunkline.node.sim.universe import Universe, Verdict
from trunkline.topology.rows import Row

UP_SECONDS = 30.0  # for the table to stand once the last link was dialled
AFTERWARDS = 2.0
MOVES = ("first", "forced", "voluntary", "watchdog")

Tables = Mapping[str, Mapping[str, Row]]


def parse_events(text: str) -> tuple[Event, ...]:
    """`2 cut a<>b for 3; 6 crash c for 2`"""
    return in_order(_with_end(parse_event(line.strip())) for line in text.split(";") if line.strip())


def _with_end(event: Event) -> Event:
    if isinstance(event, Fault) and kind_of(event).seconds is not None and not event.seconds:
        raise Invalid(f"event {event}", "it has no end", f"write how long it lasts: {event} for 3")
    return event


@dataclass
class GraphRun:
    """Drive it by `come_up`, then `live`."""

    name: str
    seed: int
    on_change: Callable[[RowChange], None] = lambda change: None
    on_event: Callable[[float, str], None] = lambda at, text: None

    def __post_init__(self) -> None:
        setup = graph(self.name, self.seed)
        self.universe = Universe(replace(CATALOGUE["topology"], setup=lambda random: setup), self.seed)
        self.changes: list[RowChange] = []
        self.begun = 0.0

    @property
    def setup(self) -> Setup:
        return self.universe.setup

    def tables(self) -> Tables:
        return {site: dict(rows) for site, rows in sorted(tables_of(self.universe).items())}

    def moves(self) -> Counter[str]:
        """Since the sites were last started."""
        counts = [site.core.topology.counts for site in self.universe.sites.values()]
        return Counter({kind: sum(count[kind] for count in counts) for kind in MOVES})

    def come_up(self) -> bool:
        """The links in order; False when the table does not stand then."""
        net, setup = self.universe.net, self.setup
        net.run(setup.stagger * len(setup.links))
        stands = net.run(net.now + UP_SECONDS, done=lambda: next(paths_right(self.universe), None) is None)
        self.begun = round(net.now, 3)
        self._watch()
        return stands

    def _watch(self) -> None:
        watch = RowWatch(lambda: self.universe.net.now - self.begun, self.universe.witness, self._changed)
        watch.begin(self.universe.sites.values())
        self.universe.watch = watch.look
        self.universe.net.observer = self._noted

    def _changed(self, change: RowChange) -> None:
        self.changes.append(change)
        self.on_change(change)

    def _noted(self, note: Note) -> None:
        if note.kind in ("fault", "over"):
            self.on_event(note.at - self.begun, note.text if note.kind == "fault" else f"end of {note.text} {note.who}")

    def live(self, events: Sequence[Event], writers: Sequence[str] | None = None) -> Verdict:
        for event in events:
            check_event(event, self.setup, ())
        end = max([event.end for event in events], default=0.0) + AFTERWARDS
        writes = draw_writes(Random(f"{self.seed} writes"), self.setup, end, 5 * len(self.setup.sites), writers)
        self.universe.live_through(self._later([*events, *writes]))
        return self.universe.settle()

    def _later(self, events: Iterable[Event]) -> tuple[Event, ...]:
        return in_order(replace(event, at=round(event.at + self.begun, 3)) for event in events)
