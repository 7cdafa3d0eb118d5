"""`trunkline trunk status`: what was carried over each link and of each origin, once or as it goes on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.duration import seconds
from trunkline.cli.kv import shown
from trunkline.cli.kv.options import TokenOption, UrlOption
from trunkline.cli.options import JsonOption

if TYPE_CHECKING:
    from rich.console import Group

app = typer.Typer(no_args_is_help=True, help="Records on their way between sites.")
Seen = dict[str, Any]
Lines = list[tuple[str, ...]]
UNKNOWN = "–"
SECONDS = 2.0
LINK_COLUMNS = ("link", "received", "duplicate", "stray", "catch-up")
TOTALS = ("sent", "relayed", "in", "out")
RATES = ("recv/s", "sent/s", "in/s", "out/s")  # instead of the totals, so that it fits into a terminal
ORIGIN_COLUMNS = ("origin", "from", "lane", "cursor", "head", "lag", "received", "duplicate", "catch-up")
_COUNTED = ("received", "duplicate", "stray", "catch_up")
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@app.callback()
def _group() -> None: ...


@app.command("status")
def status(
    url: UrlOption = None, token: TokenOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, with rates, until Ctrl-C.")] = False,
    every: Annotated[str, typer.Option(help="How often to look, with --watch (0.5s, 2s, 1m).")] = f"{SECONDS:.0f}s",
    duration: Annotated[str | None, typer.Option(help="Stop to watch after this long.", show_default="Ctrl-C")] = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """What was carried over each link, and how far this site is with each origin's records.

    With --json and --watch, one JSON document per line.

    Example: [bold]trunkline trunk status --watch --every 1s[/]
    """
    from trunkline.cli.leaders import leader

    where = leader(url, token).url
    if not watch:
        seen = _ask(where, token)
        shown.print_json(seen) if as_json else _print(tables(seen, None))
        return
    try:
        _watch(lambda: _ask(where, token), seconds(every), seconds(duration) if duration else None, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _ask(url: str, token: str | None) -> Seen:
    from trunkline.cli.kv.client import Client

    with Client(url, token) as client:
        return client.ask("GET", "/v1/trunk")


# -- one look, and the look before it


@dataclass(frozen=True)
class Tables:
    links: Lines
    origins: Lines
    remarks: list[str]
    with_rates: bool

    @property
    def link_columns(self) -> tuple[str, ...]:
        return (*LINK_COLUMNS, *(RATES if self.with_rates else TOTALS))

    @property
    def origin_columns(self) -> tuple[str, ...]:
        return (*ORIGIN_COLUMNS, *(RATES[:1] if self.with_rates else ()))


@dataclass(frozen=True)
class Before:
    """An earlier look, and how long ago it was."""

    seen: Seen
    seconds: float

    def link(self, site: str) -> dict[str, int]:
        return dict(self.seen["links"].get(site, {}))

    def cursor(self, stream: Seen) -> int:
        """Of the same stream; one that is new begins its rate anew."""
        same = (s["cursor"] for s in self.seen["streams"] if (s["origin"], s["lane"]) == (stream["origin"], stream["lane"]))
        return int(next(same, None) or stream["cursor"] or 0)

    def rate(self, now: int, before: int) -> float:
        """A counter that went back began anew, at another leader or on another connection."""
        return (now - before if now >= before else now) / self.seconds


def tables(seen: Seen, before: Before | None) -> Tables:
    links = [_link(site, link, before) for site, link in sorted(seen["links"].items())]
    streams = sorted(seen["streams"], key=lambda stream: (stream["origin"], stream["lane"]))
    return Tables(links, [_origin(stream, before) for stream in streams], _remarks(seen), before is not None)


def _link(site: str, link: dict[str, int], before: Before | None) -> tuple[str, ...]:
    name = site if "received_bytes" in link else f"{site} (down)"
    cells = (name, *(str(link.get(what, 0)) for what in _COUNTED))
    if before is None:
        totals = (str(link.get("sent", 0)), str(link.get("relayed", 0)))
        return (*cells, *totals, size(link.get("received_bytes", 0)), size(link.get("sent_bytes", 0)))
    earlier = before.link(site)

    def rate(*counted: str) -> float:
        return sum(before.rate(link.get(what, 0), earlier.get(what, 0)) for what in counted)

    entries = (f"{rate('received', 'catch_up'):.1f}", f"{rate('sent', 'relayed', 'sent_catch_up', 'relayed_catch_up'):.1f}")
    return (*cells, *entries, size(rate("received_bytes")), size(rate("sent_bytes")))


def _origin(stream: Seen, before: Before | None) -> tuple[str, ...]:
    numbers = [UNKNOWN if stream.get(w) is None else str(stream[w]) for w in ("cursor", "head", "lag")]
    counted = [str(stream[what]) for what in ("received", "duplicate", "catch_up")]
    cells = (stream["origin"], stream["from"], stream["lane"], *numbers, *counted)
    return cells if before is None else (*cells, f"{before.rate(stream['cursor'] or 0, before.cursor(stream)):.1f}")


def _remarks(seen: Seen) -> list[str]:
    lagging = [child for child in seen["children"] if child["lagging"]]
    lines = [f"{c['site']} is too slow for {c['origin']}'s records: {size(c['queued'])} wait for it" for c in lagging]
    return lines if seen["leads"] else [*lines, f"this node does not lead {seen['site']}: it carries nothing"]


def size(count: float) -> str:
    unit, name = next(((unit, name) for unit, name in _UNITS if count >= unit), (1, "B"))
    return f"{count:.0f} B" if unit == 1 else f"{count / unit:.1f} {name}"


# -- for programs, for a terminal, and for lines


def _print(tables: Tables) -> None:
    shown.print_table(tables.link_columns, tables.links)
    typer.echo("")
    shown.print_table(tables.origin_columns, tables.origins)
    for line in tables.remarks:
        typer.echo(f"\n{line}")


def _watch(ask: Callable[[], Seen], every: float, limit: float | None, as_json: bool) -> None:
    seen_again = looks(ask, every, limit)
    if as_json:
        for seen, _ in seen_again:
            typer.echo(json.dumps(seen, ensure_ascii=False))
            sys.stdout.flush()
    elif sys.stdout.isatty():
        _live(seen_again)
    else:
        for seen, before in seen_again:
            _print(tables(seen, before))
            typer.echo("")
            sys.stdout.flush()


def looks(ask: Callable[[], Seen], every: float, limit: float | None) -> Iterator[tuple[Seen, Before | None]]:
    """`limit` counts from the first answer: how long a node takes to answer is not the watcher's time."""
    seen, at = ask(), time.monotonic()
    yield seen, None
    until = None if limit is None else at + limit
    while until is None or time.monotonic() + every <= until:
        time.sleep(every)
        before, then = seen, at
        seen, at = ask(), time.monotonic()
        yield seen, Before(before, max(at - then, 1e-3))


def _live(seen_again: Iterator[tuple[Seen, Before | None]]) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        for seen, before in seen_again:
            live.update(_screen(seen, tables(seen, before)), refresh=True)


def _screen(seen: Seen, tables: Tables) -> Group:
    from rich.console import Group
    from rich.table import Column, Table
    from rich.text import Text

    def framed(title: str, columns: tuple[str, ...], lines: Lines) -> Table:
        names = [
            Column(name, no_wrap=True, justify="left" if name in ("link", "origin", "from", "lane") else "right")
            for name in columns
        ]
        table = Table(
            *names, title=title, title_justify="left", box=None, padding=(0, 1), pad_edge=False, collapse_padding=True
        )
        for line in lines:
            table.add_row(*map(Text, line))
        return table

    return Group(
        framed(f"{seen['site']}, head {seen['head']}: links. Ctrl-C ends.", tables.link_columns, tables.links),
        framed("origins", tables.origin_columns, tables.origins),
        *(Text(line, style="yellow") for line in tables.remarks),
    )
