"""`trunkline dev`: real services on this machine, for trying out.

Standard output of `up` has lines for a shell and nothing else, so that `eval "$(trunkline dev up)"` works; what is for people
goes to standard error.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.options import JsonOption

if TYPE_CHECKING:
    from trunkline.cli.dev.place import Standing

app = typer.Typer(no_args_is_help=True, help="Kafka, Redis and Postgres on this machine, for trying out.")

NAMES = ("kafka", "redis", "postgres")
LOG_LINES = 12
Names = Annotated[list[str] | None, typer.Argument(help="kafka, redis, postgres; none: all.", metavar="kafka|redis|postgres")]
FolderOption = Annotated[Path, typer.Option("--folder", help="Where they live.", file_okay=False)]
DEFAULT = Path(".trunkline")
_COLOURS = {"running": "green", "absent": "dim", "stopped": "dim", "starting": "yellow"}


@app.callback()
def _group() -> None: ...


@app.command()
def up(names: Names = None, folder: FolderOption = DEFAULT, as_json: JsonOption = False) -> None:
    """Starts services that run on until `down`, and prints how to reach them; 1 if one did not start.

    Example: [bold]eval "$(trunkline dev up kafka postgres)"[/]
    """
    from rich.console import Console

    from trunkline.cli.dev.place import Place

    chosen, place = _chosen(names), Place(folder)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    standings: list[Standing] = []

    def tell(standing: Standing) -> None:
        standings.append(standing)
        _say_how_it_started(console, standing)

    with _terminated_like_interrupted(), console.status(f"starting {', '.join(chosen)} …"):
        place.up(chosen, tell, lambda text: console.print(f"  {text}", markup=False))
    _print_up(place.folder, standings, as_json)
    raise typer.Exit(0 if all(s.state == "running" for s in standings) else 1)


@app.command()
def down(
    names: Names = None,
    folder: FolderOption = DEFAULT,
    keep: Annotated[bool, typer.Option("--keep", help="Keep what they stored, for the next `up`.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stops services and removes what they stored.

    Example: [bold]trunkline dev down --keep[/]
    """
    from trunkline.cli.dev.place import Place

    chosen, place = _chosen(names), Place(folder)
    standings: list[Standing] = []

    def tell(standing: Standing) -> None:
        standings.append(standing)
        if not as_json:
            typer.echo(
                f"{standing.name}: stopped" + (f"; its data stay in {place.of(standing.name)}" if keep else ", nothing is left")
            )

    place.down(chosen, keep, tell, lambda text: typer.echo(text, err=True))
    if as_json:
        _print_json(place.folder, standings)
    elif not standings:
        typer.echo(f"nothing to stop in {place.folder}")


@app.command()
def status(names: Names = None, folder: FolderOption = DEFAULT, as_json: JsonOption = False) -> None:
    """How the services are; 1 if one that was asked for, or was brought up, does not run.

    Example: [bold]trunkline dev status[/]
    """
    from trunkline.cli.dev.place import Place

    place = Place(folder)
    standings = [place.standing(name) for name in _chosen(names)]
    if as_json:
        _print_json(place.folder, standings)
    else:
        _print_table(standings)
    asked = [s for s in standings if names or s.state != "absent"]
    raise typer.Exit(0 if asked and all(s.state == "running" for s in asked) else 1)


def _chosen(names: list[str] | None) -> list[str]:
    from trunkline.core.errors import Invalid

    for name in names or ():
        if name not in NAMES:
            raise Invalid(f"service {name!r}", "there is no such service", f"write one of: {', '.join(NAMES)}")
    return [name for name in NAMES if not names or name in names]


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say_how_it_started(console: Any, standing: Standing) -> None:
    name = f"{standing.name:<9}"
    if standing.state == "running":
        when = f"in {standing.seconds:.1f} s" if standing.news else "already"
        console.print(f"{name} [green]running[/] {when}, process {standing.pid}")
        return
    console.print(f"{name} [red]{standing.state}[/]: ", end="")
    console.print(standing.reason, markup=False)
    if standing.log and Path(standing.log).exists():
        for line in Path(standing.log).read_text(errors="replace").splitlines()[-LOG_LINES:]:
            console.print(f"  | {line}", markup=False)
        console.print(f"  the whole log: {standing.log}", markup=False)


def _print_up(folder: Path, standings: list[Standing], as_json: bool) -> None:
    if as_json:
        _print_json(folder, standings)
        return
    for standing in standings:
        if standing.state == "running":
            typer.echo(_export(standing))
    if folder.exists():
        other = "" if folder == DEFAULT.absolute() else f" --folder {shlex.quote(str(folder))}"
        typer.echo(f"logs and data are in {folder}; stop with: trunkline dev down{other}", err=True)


def _export(standing: Standing) -> str:
    from trunkline.cli.dev.services import KINDS

    return f"export {KINDS[standing.name].variable}={shlex.quote(standing.address)}"


def _print_table(standings: list[Standing]) -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    table = Table("service", "state", Column("address", overflow="fold"), "process", "reason")
    for s in standings:
        state = Text(s.state, style=_COLOURS.get(s.state, "red"))
        table.add_row(s.name, state, Text(s.address if s.pid else ""), str(s.pid or ""), Text(s.reason))
    Console().print(table)


def _print_json(folder: Path, standings: list[Standing]) -> None:
    import json
    from dataclasses import asdict

    from trunkline.cli.dev.services import KINDS

    rows = [{**asdict(s), "variable": KINDS[s.name].variable} for s in standings]
    typer.echo(json.dumps({"folder": str(folder), "services": rows}, indent=2))


if __name__ == "__main__":
    app()
