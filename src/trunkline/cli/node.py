"""`trunkline node`: builds the node of a site, hands it to the API, and stops both when told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import typer

from trunkline.cli.options import ConfigOption
from trunkline.core.config import load_config

app = typer.Typer(no_args_is_help=True, help="The node of a site: store, topology, trunk, queues, API.")


@app.callback()
def _group() -> None: ...


@app.command("run")
def run(file: ConfigOption) -> None:
    """Runs a site's node until it is told to stop.

    Example: [bold]trunkline node run --config site.yaml[/]
    """
    asyncio.run(_run_node(file))


async def _run_node(path: Path) -> None:
    from trunkline.api.app import create_app
    from trunkline.api.server import serve
    from trunkline.node.node import Node

    config = load_config(path)
    node = Node(config)
    stop, started = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    where = config.runtime / "node.json"

    def tell(api: str) -> None:
        """Says in the runtime folder where this node listens."""
        draft = where.with_suffix(".draft")
        draft.write_text(json.dumps({"pid": os.getpid(), "link": node.address, "api": api}))
        draft.replace(where)

    async def run_node() -> None:
        try:
            await node.run(stop, started.set)
        finally:
            started.set()

    async def serve_api() -> None:
        await started.wait()
        if not stop.is_set():
            await serve(create_app(node), config.api.listen, tell, stop)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(run_node())
            group.create_task(serve_api())
    finally:
        where.unlink(missing_ok=True)
