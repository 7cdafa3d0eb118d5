"""`trunkline pipeline`: the Spark driver of a hub."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from trunkline.cli.options import ConfigOption
from trunkline.core.config import load_config

app = typer.Typer(no_args_is_help=True, help="The data pipeline on Spark: at a hub, the status bridge.")


@app.command()
def run(
    file: ConfigOption,
    fast_start: Annotated[bool, typer.Option("--fast-start", help="Starts sooner and runs slower: for trying out.")] = False,
) -> None:
    """Runs the status bridge of a hub on Spark until it is told to stop.

    Example: [bold]trunkline pipeline run --config hub.yaml[/]
    """
    from trunkline.pipeline.run import run_pipeline

    raise typer.Exit(run_pipeline(load_config(file), fast_start))


@app.command()
def prepare() -> None:
    """Makes what lets Spark start some seconds sooner, once per installation; nothing to do when it is there.

    Example: [bold]trunkline pipeline prepare[/]
    """
    from trunkline.pipeline.prepare import prepare

    console = Console(stderr=True)
    with console.status("a trial run of Spark, to keep its classes in a shared archive (about 25 s) …"):
        made = prepare()
    console.print("Spark's class archive is made" if made else "Spark's class archive is there already")
