"""The command line: composes the processes out of the packages below."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from trunkline import __version__
from trunkline.cli import ca, config, node, pipeline, sim, token
from trunkline.core.config import LogConfig
from trunkline.core.errors import Invalid, TrunklineError
from trunkline.core.logs import configure_logs

app = typer.Typer(
    name="trunkline",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Keeps a fleet of sites in step.\n\nTry it: [bold]trunkline demo --for 60s[/]",
)
for part in (node, pipeline, config, ca, token, sim):
    app.add_typer(part.app, name=part.__name__.rpartition(".")[2])


def seconds(text: str) -> float:
    """Seconds of '90s', '2m', '1h' or a bare number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if not found or float(found[1]) <= 0:
        raise Invalid(f"duration {text!r}", "it is not a positive number with s, m or h", "write it as 90s, 2m or 1h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


@app.command()
def demo(
    sites: Annotated[int, typer.Option(help="How many sites, the hub and the relay among them.")] = 4,
    for_: Annotated[str | None, typer.Option("--for", help="Stop after this long (60s, 2m) and compare; else Ctrl-C.")] = None,
    chaos: Annotated[bool, typer.Option("--chaos", help="kill -9 relay, pipeline and a leaf during the run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as one JSON document on standard output.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Keep everything (logs, data) in this folder.", file_okay=False)] = None,
) -> None:
    """A fleet on this machine: real Postgres servers, TLS links, Spark at the hub.

    Example: [bold]trunkline demo --sites 4 --for 60s --chaos[/]
    """
    from trunkline.cli.demo.run import run_demo

    raise typer.Exit(run_demo(sites, seconds(for_) if for_ else None, chaos, as_json, keep))


@app.command(name="demo-application", hidden=True)
def demo_application(
    site: Annotated[str, typer.Option()],
    hub: Annotated[str, typer.Option()],
    database: Annotated[str, typer.Option()],
    node_file: Annotated[Path, typer.Option()],
    pace: Annotated[float, typer.Option()],
    policy_site: Annotated[list[str], typer.Option()],
) -> None:
    """The demo's application at one site."""
    from trunkline.cli.demo.application import run_application

    run_application(site, hub, database, node_file, tuple(policy_site), pace)


@app.command()
def version() -> None:
    """Prints the version."""
    Console().print(__version__)


def main() -> None:
    configure_logs(LogConfig())
    try:
        app()
    except* TrunklineError as group:
        for error in group.exceptions:
            if isinstance(error, TrunklineError):
                Console(stderr=True, soft_wrap=True, highlight=False).print(
                    f"[red bold]error:[/] {escape(f'{error.what}: {error.why}')}\n  next: {escape(error.next_step)}"
                )
        sys.exit(2)


if __name__ == "__main__":
    main()
