"""`trunkline pipeline`: the Spark driver of a site."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from trunkline.cli.options import ConfigOption
from trunkline.core.config import load_config

app = typer.Typer(no_args_is_help=True, help="The data pipeline on Spark: a site's routes and, at a hub, the status bridge.")


@app.command()
def run(
    file: ConfigOption,
    master: Annotated[str, typer.Option(help="Spark's master, before spark.master of the file.", metavar="ADDRESS")] = "",
    fast_start: Annotated[bool, typer.Option("--fast-start", help="Starts sooner and runs slower: for trying out.")] = False,
) -> None:
    """Runs a site's routes on Spark and, if its file has `bridge:`, the status bridge, until it is told to stop. 0: it did.

    Example: [bold]trunkline pipeline run --config hub.yaml --master spark://hub:7077[/]
    """
    from trunkline.pipeline.run import run_pipeline

    config = load_config(file)
    spark = config.spark.model_copy(update={"master": master}) if master else config.spark
    raise typer.Exit(run_pipeline(config.model_copy(update={"spark": spark}), fast_start))


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
