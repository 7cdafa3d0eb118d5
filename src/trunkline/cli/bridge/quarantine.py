"""`trunkline bridge quarantine`: bundles that could not be applied, and what becomes of them."""

from __future__ import annotations

from typing import Annotated

import typer

from trunkline.cli.bridge import lines
from trunkline.cli.bridge.place import asked
from trunkline.cli.kv import shown
from trunkline.cli.options import JsonOption
from trunkline.cli.queues.drop import YesOption, confirm
from trunkline.cli.queues.place import ConfigOption, DsnOption, TokenOption, UrlOption

app = typer.Typer(no_args_is_help=True, help="Bundles that were set aside: refused on arrival, or failed at every try.")
IdArgument = Annotated[
    int, typer.Argument(metavar="ID", min=1, max=2**63 - 1, help="As `trunkline bridge quarantine ls` has it.")
]
LAST = 2**63 - 1


@app.callback()
def _group() -> None: ...


@app.command("ls")
def ls(
    site: Annotated[str | None, typer.Option(help="Only of this site.", show_default="all")] = None,
    settled: Annotated[bool, typer.Option("--all", help="Also those that are dealt with.")] = False,
    before: Annotated[int, typer.Option(min=1, max=LAST, help="Only ids below this.", show_default=False)] = LAST,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Bundles at most, the newest first.")] = 50,
    config: ConfigOption = None, dsn: DsnOption = None, url: UrlOption = None, token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """What is in quarantine, and why.

    Example: [bold]trunkline bridge quarantine ls --site paris[/]
    """
    found = asked(config, dsn, url, token).quarantine(site, settled, before, limit)
    if as_json:
        shown.print_json(found)
        return
    for part in lines.quarantine(found):
        part.print()


@app.command("show")
def show(
    id: IdArgument,
    most: Annotated[int, typer.Option("--bytes", min=0, max=65_536, help="Of the payload at most.")] = 1_024,
    config: ConfigOption = None, dsn: DsnOption = None, url: UrlOption = None, token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """One bundle with its headers, its payload, what is wrong with it, and what may be done.

    Example: [bold]trunkline bridge quarantine show 7[/]
    """
    found = asked(config, dsn, url, token).quarantined(id, most)
    if as_json:
        shown.print_json(found)
        return
    for part in lines.quarantined(found):
        part.print()


@app.command("retry")
def retry(
    id: IdArgument,
    config: ConfigOption = None, dsn: DsnOption = None, url: UrlOption = None, token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Gives a bundle to the database workers once more. For deltas and hybrids there is `trunkline bridge resync` instead.

    Example: [bold]trunkline bridge quarantine retry 7[/]
    """
    found = asked(config, dsn, url, token).retry(id)
    shown.print_json(found) if as_json else typer.echo(f"bundle {id} goes back to the database workers")


@app.command("drop")
def drop(
    id: IdArgument,
    config: ConfigOption = None, dsn: DsnOption = None, url: UrlOption = None, token: TokenOption = None,
    yes: YesOption = False, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Gives a bundle up: it stays to be looked at, and counts as dealt with.

    Example: [bold]trunkline bridge quarantine drop 7[/]
    """
    confirm("drop", f"give up bundle {id}?", yes, as_json)
    found = asked(config, dsn, url, token).drop(id)
    shown.print_json(found) if as_json else typer.echo(f"bundle {id} is given up")
