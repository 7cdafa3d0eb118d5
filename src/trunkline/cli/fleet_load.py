"""`trunkline fleet-load`: the status of a fleet that does not exist, for tests, for measuring, and for sizing."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from trunkline.cli.options import JsonOption
from trunkline.core.errors import Invalid

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from trunkline.bridge.load import Made, Scale
    from trunkline.cli.fleet_sinks import Sink

INTERRUPTED = 130
SETTLE_SECONDS = 0.1
SETTLE_BUNDLES = 500
SHOW_SECONDS = 0.25


class Topics(StrEnum):
    PER_SITE = "per-site"
    SHARED = "shared"


@dataclass
class Sent:
    """What has been written so far."""

    bundles: int = 0
    messages: int = 0
    rows: int = 0
    changed: int = 0
    bytes: int = 0
    sites: int = 0
    turns: int = 0
    seconds: float = 0.0

    def add(self, made: Made) -> None:
        self.bundles += 1
        self.messages += len(made.messages)
        self.rows += made.rows
        self.changed += made.changed
        self.bytes += made.bytes


def fleet_load(
    sites: Annotated[int, typer.Option(min=1, max=100_000, help="How many sites.")] = 100,
    clusters: Annotated[int, typer.Option(min=1, max=10_000, help="Clusters of each site.")] = 300,
    policies: Annotated[int, typer.Option(min=0, max=1_000, help="Policies of each site, each on all its clusters.")] = 50,
    rate: Annotated[str, typer.Option(metavar="N/s", help="Bundles of all sites together: 100/s, 6000/m, or max.")] = "100/s",
    to: Annotated[str | None, typer.Option(metavar="kafka://HOST:PORT", help="Write to Kafka.")] = None,
    to_queues: Annotated[str | None, typer.Option(metavar="DSN", help="Write to the receive queues of this hub.")] = None,
    types: Annotated[str, typer.Option(help="fleet, demo, or names of bundle types, with commas.")] = "fleet",
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 90s, 2m, 1h.")] = "60s",
    turns: Annotated[int, typer.Option(min=0, help="End when every site has had so many turns; 0: when the time is over.")] = 0,
    changed: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the rows that change from turn to turn.")] = 0.01,
    growth: Annotated[int, typer.Option(min=0, max=1_000, help="Clusters that each turn adds to a site.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same fleet.")] = 1,
    topics: Annotated[Topics, typer.Option(help="On Kafka: a topic for each site, or one for all.")] = Topics.PER_SITE,
    topic: Annotated[str, typer.Option(help="On Kafka: the topic's name, or what precedes .<site>.")] = "status",
    client: Annotated[str, typer.Option(help="On queues: the client whose entries are status bundles.")] = "status",
    count_only: Annotated[bool, typer.Option("--count-only", help="Write nothing; say how much it would be.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Writes status bundles like those of a real fleet, to Kafka or to a hub's queues.

    Each site takes turns: first it sends all it has, then what a share of changed rows makes of it. Ctrl-C ends it early:
    what was begun is written, and summed up.

    Example: [bold]trunkline fleet-load --sites 1000 --clusters 300 --policies 50 --rate 100/s --to kafka://localhost:9092[/]

    How large is that? [bold]trunkline fleet-load --sites 1000 --rate 100/s --count-only[/]
    """
    from trunkline.bridge.load import Scale
    from trunkline.bridge.shipped import SHIPPED
    from trunkline.cli.duration import seconds

    scale = Scale(sites, clusters, policies, _types(types), changed, growth, seed).check(SHIPPED)
    speed, limit = _per_second(rate), seconds(duration)
    if count_only:
        return _tell_size(scale, speed, as_json)
    sink = _sink(to, to_queues, topics, topic, client)
    try:
        sink.open([scale.site(number) for number in range(sites)])
        sent, interrupted = _run(scale, sink, speed, limit, turns)
    finally:
        sink.close()
    _tell(sent, scale, interrupted, as_json)
    raise typer.Exit(INTERRUPTED if interrupted else 0)


# -- input


def _types(text: str) -> tuple[str, ...]:
    from trunkline.bridge import demotypes, fleettypes

    groups = {"fleet": fleettypes.FLEET_TYPES, "demo": demotypes.DEMO_TYPES}
    names: list[str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        names += [declared.name for declared in groups[word]] if word in groups else [word]
    if not names:
        raise Invalid("--types", "it names no type", "write fleet, demo, or names of bundle types, with commas")
    return tuple(dict.fromkeys(names))


def _per_second(text: str) -> float | None:
    """None: as fast as it goes."""
    if text.strip() == "max":
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/([smh]))?", text.strip())
    if not found or float(found[1]) <= 0:
        raise Invalid(f"rate {text!r}", "it is not a positive number per time", "write it as 100/s, 6000/m or max")
    return float(found[1]) / {None: 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def _sink(to: str | None, to_queues: str | None, topics: Topics, topic: str, client: str) -> Sink:
    from trunkline.cli.fleet_sinks import KafkaSink, QueueSink

    if (to is None) == (to_queues is None):
        why = "it is not said where to" if to is None else "it is said twice where to"
        raise Invalid("fleet-load", why, "give either --to kafka://HOST:PORT or --to-queues DSN, or --count-only")
    if to_queues is not None:
        return QueueSink(to_queues, client)
    assert to is not None
    found = re.fullmatch(r"kafka://([^/]+:\d+)/?", to)
    if not found:
        raise Invalid(f"destination {to!r}", "it is not kafka://HOST:PORT", "write it like kafka://localhost:9092")
    return KafkaSink(found[1], topic, topics is Topics.SHARED)


# -- the work


def _run(scale: Scale, sink: Sink, speed: float | None, limit: float, turns: int) -> tuple[Sent, bool]:
    from trunkline.cli.demo.interrupt import Interrupted, Patience

    sent, patience, began = Sent(), Patience(), time.monotonic()
    interrupted = False
    with patience.listening(), _progress() as progress:
        task = progress.add_task("load", total=None if speed is None else speed * limit, more="")
        pace = _Pace(patience, sink, sent, began, speed, progress, task)
        try:
            for site, made in _bundles(scale, sent, turns):
                if not pace.until_due(limit):
                    break
                sink.send(site, made.messages)
                sent.add(made)
        except Interrupted:
            interrupted = True
        sink.flush()
    sent.seconds = time.monotonic() - began
    return sent, interrupted


def _bundles(scale: Scale, sent: Sent, turns: int) -> Iterator[tuple[str, Made]]:
    """Turn after turn of all sites; a site is made when it is first needed."""
    from trunkline.bridge.load import SiteLoad
    from trunkline.bridge.shipped import SHIPPED

    incarnation = int(time.time())
    loads: list[SiteLoad] = []
    while turns == 0 or sent.turns < turns:
        for number in range(scale.sites):
            if number == len(loads):
                loads.append(SiteLoad(scale, number, SHIPPED, incarnation))
                sent.sites += 1
            for made in loads[number].turn(time.time()):
                yield loads[number].name, made
        sent.turns += 1


class _Pace:
    """Waits for the moment of the next bundle; meanwhile what has come together is written, and shown."""

    def __init__(
        self, patience: Any, sink: Sink, sent: Sent, began: float, speed: float | None, progress: Progress, task: TaskID
    ) -> None:
        self._patience, self._sink, self._sent, self._began, self._speed = patience, sink, sent, began, speed
        self._progress, self._task = progress, task
        self._settled = self._shown = began
        self._unsettled = 0

    def until_due(self, limit: float) -> bool:
        """False: the time is over."""
        while True:
            now = time.monotonic()
            if now - self._began >= limit:
                return False
            self._between(now)
            ahead = self._began + self._sent.bundles / self._speed - now if self._speed else 0.0
            self._patience.pause(max(0.0, min(ahead, SETTLE_SECONDS)))
            if ahead <= SETTLE_SECONDS:
                self._unsettled += 1
                return True

    def _between(self, now: float) -> None:
        if now - self._settled >= SETTLE_SECONDS or self._unsettled >= SETTLE_BUNDLES:
            self._sink.settle()
            self._settled, self._unsettled = now, 0
        if now - self._shown >= SHOW_SECONDS:
            self._shown = now
            took = now - self._began
            more = f"{self._sent.rows / took:,.0f} rows/s  {self._sent.bytes / took / 1e6:.2f} MB/s"
            self._progress.update(self._task, completed=self._sent.bundles, more=more)


# -- output


def _progress() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("bundles  {task.fields[more]}"),
        TimeElapsedColumn(), console=Console(stderr=True), transient=True,
    )  # fmt: skip


def _tell(sent: Sent, scale: Scale, interrupted: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"scale": asdict(scale), **asdict(sent), "interrupted": interrupted}, indent=2))
        return
    took = sent.seconds or 1.0
    typer.echo(
        f"{'stopped early: ' if interrupted else ''}{sent.bundles:,} bundles of {sent.sites:,} sites in {sent.seconds:.1f} s"
    )
    typer.echo(f"  {sent.bundles / took:,.1f} bundles/s, {sent.rows / took:,.0f} rows/s, {sent.bytes / took / 1e6:.2f} MB/s")
    typer.echo(f"  {sent.rows:,} rows, of which {sent.changed:,} are new or changed; every site had {sent.turns} whole turns")


def _tell_size(scale: Scale, speed: float | None, as_json: bool) -> None:
    size = _size(scale, speed)
    if as_json:
        typer.echo(json.dumps(size, indent=2))
        return
    out = Console(highlight=False, soft_wrap=True)
    first, later, rest = size["first_turn"], size["later_turn"], size["per_second"]
    out.print(f"{scale.sites:,} sites, each of {scale.clusters:,} clusters and {scale.policies:,} policies")
    for name, turn in (("first turn", first), ("later turn", later)):
        out.print(
            f"  {name} of a site: {turn['bundles']} bundles, {turn['rows']:,} rows ({turn['changed']:,} new or changed), "
            f"{turn['bytes'] / 1e6:.2f} MB"
        )
    out.print(f"  the hub then holds about {size['rows_held']:,} rows")
    if rest is None:
        out.print("  at rate max: as fast as it goes")
        return
    out.print(f"  at {speed:g} bundles/s: a turn of every site in {size['turn_seconds']:,.0f} s, and in each second")
    for when, part in (("", "later"), ("while all send for the first time: ", "first")):
        read, written, megabytes = rest[f"{part}_rows"], rest[f"{part}_changed"], rest[f"{part}_bytes"] / 1e6
        out.print(f"    {when}{read:,.0f} rows read, {written:,.0f} rows written, {megabytes:.2f} MB")


def _size(scale: Scale, speed: float | None) -> dict[str, Any]:
    from trunkline.bridge.load import estimate
    from trunkline.bridge.shipped import SHIPPED

    found = estimate(scale, SHIPPED)
    first, later = found.first, found.later
    often = {"later": (later, speed / later.bundles), "first": (first, speed / first.bundles)} if speed else {}
    per_second = {
        f"{name}_{what}": getattr(turn, what) * times
        for name, (turn, times) in often.items()
        for what in ("rows", "changed", "bytes")
    }
    return {
        "scale": asdict(scale),
        "first_turn": asdict(first),
        "later_turn": asdict(later),
        "rows_held": first.changed * scale.sites,
        "turn_seconds": scale.sites * later.bundles / speed if speed else None,
        "per_second": {"bundles": speed, **per_second} if speed else None,
    }
