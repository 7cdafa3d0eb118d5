"""The command line: composes the processes out of the packages below.

Exit codes: 0 done, 1 done and the answer is no, 2 not done because something has to be changed first, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from trunkline import __version__
from trunkline.cli import ca, config, deadletters, doctor, node, pipeline, sim, token, topology, trunk
from trunkline.cli.bridge import command as bridge
from trunkline.cli.demo.command import demo, demo_application, demo_orders
from trunkline.cli.dev import command as dev
from trunkline.cli.fleet_load import fleet_load
from trunkline.cli.kv import command as kv
from trunkline.cli.options import JsonOption
from trunkline.cli.plugins import plugins
from trunkline.cli.queues import command as queues
from trunkline.cli.routes import command as routes
from trunkline.cli.trace import trace
from trunkline.core.config import LogConfig
from trunkline.core.errors import TrunklineError
from trunkline.core.logs import configure_logs

DEBUG = "--debug"
INTERRUPTED = 130

app = typer.Typer(
    name="trunkline",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Keeps a fleet of sites in step: nodes find each other, carry each payload once per link, and at the hub the newest
status of every site lands in one Postgres.

Begin with [bold]trunkline demo --for 60s[/]; for a site of your own with [bold]trunkline config init site[/].""",
    epilog="Ends with 0: done, 1: done and the answer is no, 2: something has to be changed first, 130: interrupted.",
)
_TRY, _RUN, _PREPARE, _PROVE = "Try it", "Run it", "Prepare it", "Prove it"
app.command("demo", rich_help_panel=_TRY)(demo)
app.command("doctor", rich_help_panel=_TRY)(doctor.doctor)
app.add_typer(dev.app, name="dev", rich_help_panel=_TRY)
app.add_typer(node.app, name="node", rich_help_panel=_RUN)
app.add_typer(pipeline.app, name="pipeline", rich_help_panel=_RUN)
app.add_typer(bridge.app, name="bridge", rich_help_panel=_RUN)
app.add_typer(kv.app, name="kv", rich_help_panel=_RUN)
app.add_typer(topology.app, name="topology", rich_help_panel=_RUN)
app.add_typer(trunk.app, name="trunk", rich_help_panel=_RUN)
app.add_typer(queues.app, name="queues", rich_help_panel=_RUN)
app.add_typer(routes.app, name="routes", rich_help_panel=_RUN)
app.command("plugins", rich_help_panel=_RUN)(plugins)
app.add_typer(deadletters.app, name="deadletters", rich_help_panel=_RUN)
app.command("trace", rich_help_panel=_RUN)(trace)
app.add_typer(config.app, name="config", rich_help_panel=_PREPARE)
app.add_typer(ca.app, name="ca", rich_help_panel=_PREPARE)
app.add_typer(token.app, name="token", rich_help_panel=_PREPARE)
app.add_typer(sim.app, name="sim", rich_help_panel=_PROVE)
app.command("fleet-load", rich_help_panel=_PROVE)(fleet_load)
app.command("demo-application", hidden=True)(demo_application)
app.command("demo-orders", hidden=True)(demo_orders)


@app.callback()
def _options(debug: Annotated[bool, typer.Option(DEBUG, help="On an error, also where in the code it arose.")] = False) -> None:
    """`main` reads it, for it is there when an error is."""


@app.command(rich_help_panel=_TRY)
def version(as_json: JsonOption = False) -> None:
    """Prints the version.

    Example: [bold]trunkline version[/]
    """
    typer.echo(json.dumps({"version": __version__}) if as_json else __version__)


def main() -> None:
    configure_logs(LogConfig())
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if DEBUG in sys.argv:
            traceback.print_exception(error)
        for found in _leaves(error):
            _tell(found)
        sys.exit(2)


def _leaves(error: Exception) -> list[Exception]:
    """Tasks fail in groups; people want to hear of what failed."""
    if not isinstance(error, ExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]


def _tell(error: Exception) -> None:
    if isinstance(error, TrunklineError):
        what, next_step = f"{error.what}: {error.why}", error.next_step
    else:
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({place.name}, line {place.lineno}): this is a defect"
        next_step = f"run it again with `trunkline {DEBUG} …` and report what it prints"
    Console(stderr=True, soft_wrap=True, highlight=False).print(
        f"[red bold]error:[/] {escape(what)}\n  next: {escape(next_step)}"
    )


if __name__ == "__main__":
    main()
