"""`trunkline bridge`: how the status of every site is, why something is not there yet, and what an operator may do about it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

import click
import typer

from trunkline.cli import options
from trunkline.cli.bridge import lines
from trunkline.cli.bridge.place import asked
from trunkline.cli.bridge.quarantine import app as quarantine
from trunkline.cli.duration import seconds
from trunkline.cli.kv import shown
from trunkline.cli.options import JsonOption
from trunkline.cli.queues.drop import YesOption, confirm
from trunkline.cli.queues.lines import Part
from trunkline.cli.queues.place import ConfigOption, DsnOption, TokenOption, UrlOption

app = typer.Typer(
    no_args_is_help=True,
    help="""A hub's status bridge: what of every site is applied, what waits and why.

Say whose: by the hub's database ([bold]--config hub.yaml[/], [bold]--dsn[/], DATABASE_URL), or by the API of one of its nodes
([bold]--url[/], TRUNKLINE_API_URL).""",
)
app.add_typer(quarantine, name="quarantine")
SiteArgument = Annotated[str, typer.Argument(metavar="SITE")]
TypeOption = Annotated[str | None, typer.Option("--type", help="Only this bundle type.", show_default="all")]
Seen = dict[str, Any]


@app.callback()
def _group() -> None: ...


@app.command("status")
def status(
    site: Annotated[str | None, typer.Argument(metavar="SITE", show_default="all sites")] = None,
    type_: TypeOption = None,
    config: ConfigOption = None, dsn: DsnOption = None, url: UrlOption = None, token: TokenOption = None,
    after: Annotated[str, typer.Option(metavar="SITE", help="Only sites with names after this.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Sites at most.")] = 100,
    offsets: Annotated[bool, typer.Option("--offsets", help="Instead: where each queue and topic is read on.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again until Ctrl-C.")] = False,
    every: Annotated[str, typer.Option(help="How often to look, with --watch (0.5s, 2s, 1m).")] = "2s",
    duration: Annotated[str | None, typer.Option(help="Stop to watch after this long.", show_default="Ctrl-C")] = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """What is applied of each site and type, how old it is, what waits or was set aside, and why.

    [bold]age[/] is since it was applied, [bold]lag[/] since the site sent it. With --json and --watch, one JSON document per
    line.

    Example: [bold]trunkline bridge status paris --config hub.yaml[/]
    """
    place = asked(config, dsn, url, token)
    looks: tuple[Callable[[], Seen], Callable[[Seen], Iterator[Part]]]
    if offsets:
        looks = place.offsets, lines.offsets
    elif site is not None:
        looks = lambda: place.site(site, type_), lines.site
    else:
        looks = lambda: place.status(type_, after, limit), lines.status
    if not watch:
        _show(looks[0](), looks[1], as_json)
        return
    try:
        _watch(*looks, seconds(every), seconds(duration) if duration else None, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@app.command("resync")
def resync(
    site: SiteArgument,
    type_: TypeOption = None,
    config: ConfigOption = None, dsn: DsnOption = None, url: UrlOption = None, token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Asks a site to send all it has anew, again and again until it has come.

    Example: [bold]trunkline bridge resync paris --type managed-clusters[/]
    """
    found = asked(config, dsn, url, token).resync(site, type_)
    if as_json:
        shown.print_json(found)
        return
    typer.echo(f"{found['site']} is asked for all of {', '.join(found['types'])}")
    typer.echo(f"see how it goes: trunkline bridge status {found['site']}")


@app.command("forget")
def forget(
    site: SiteArgument,
    force: Annotated[bool, typer.Option("--force", help="Even though bundles of it came within the last minute.")] = False,
    config: ConfigOption = None, dsn: DsnOption = None, url: UrlOption = None, token: TokenOption = None,
    yes: YesOption = False, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Deletes everything the hub has of a site that will not come back. Should it come back, it begins anew.

    Example: [bold]trunkline bridge forget lyon[/]
    """
    confirm("forget", f"delete all status of {site} for good?", yes, as_json)
    _show(asked(config, dsn, url, token).forget(site, force), lines.forgotten, as_json)


@app.command("types")
def types(
    config: ConfigOption = None, dsn: DsnOption = None, url: UrlOption = None, token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Which bundle types there are: in the order in which those of a site are applied, with what they depend on.

    Example: [bold]trunkline bridge types --config hub.yaml[/]
    """
    _show(asked(config, dsn, url, token).types(), lines.types, as_json)


@app.command("run")
def run(
    file: options.ConfigOption,
    fast_start: Annotated[bool, typer.Option("--fast-start", help="Starts sooner and runs slower: for trying out.")] = False,
) -> None:
    """Runs the bridge of a hub on Spark, and no routes, until it is told to stop: a Spark driver of its own.

    Example: [bold]trunkline bridge run --config hub.yaml[/]
    """
    from trunkline.core.config import load_config
    from trunkline.pipeline.run import run_pipeline

    raise typer.Exit(run_pipeline(load_config(file), fast_start, routes=False))


def _show(found: Seen, told: Callable[[Seen], Iterable[Part]], as_json: bool) -> None:
    if as_json:
        shown.print_json(found)
        return
    for part in told(found):
        part.print()


def _watch(
    look: Callable[[], Seen], told: Callable[[Seen], Iterable[Part]], every: float, limit: float | None, as_json: bool
) -> None:
    from trunkline.cli.trunk import looks

    for found, _ in looks(look, every, limit):
        if as_json:
            typer.echo(json.dumps(found, ensure_ascii=False))
        else:
            click.clear()
            _show(found, told, as_json)
            typer.echo("")
        sys.stdout.flush()
