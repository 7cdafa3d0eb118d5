"""`trunkline demo`, and the hidden command its applications run as."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.duration import seconds
from trunkline.cli.options import JsonOption


def demo(
    sites: Annotated[int, typer.Option(help="How many sites, the hub and the relay among them.")] = 4,
    for_: Annotated[str | None, typer.Option("--for", help="Stop after this long (60s, 2m) and compare; else Ctrl-C.")] = None,
    chaos: Annotated[bool, typer.Option("--chaos", help="kill -9 relay, pipeline and a leaf during the run.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="Also a Kafka broker at the hub, and a route out of a topic.")] = False,
    as_json: JsonOption = False,
    keep: Annotated[Path | None, typer.Option(help="Keep everything (logs, data) in this folder.", file_okay=False)] = None,
) -> None:
    """A fleet on this machine: real Postgres servers, TLS links, Spark at the hub. 0: the hub equals every site, else 1.

    Example: [bold]trunkline demo --sites 4 --for 60s --chaos[/]
    """
    from trunkline.cli.demo.run import run_demo

    raise typer.Exit(run_demo(sites, seconds(for_) if for_ else None, chaos, kafka, as_json, keep))


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


def demo_orders(
    site: Annotated[str, typer.Option()],
    database: Annotated[str, typer.Option()],
    brokers: Annotated[str, typer.Option()],
    pace: Annotated[float, typer.Option()],
) -> None:
    """The demo's application that writes to Kafka."""
    from trunkline.cli.demo.orders import run_orders

    run_orders(site, database, brokers, pace)
