"""`trunkline node`: builds the node of a site, puts its API before it, and stops both when told.

The API is there first and goes first: it answers while the node still waits for its database, and finishes what was asked
before the node comes to rest.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from trunkline.cli.options import ConfigOption
from trunkline.core.address import as_dialled
from trunkline.core.config import ProcessConfig, load_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

    from trunkline.db.lease import Terms
    from trunkline.node.node import Node

app = typer.Typer(no_args_is_help=True, help="The node of a site: store, topology, trunk, queues, API.")


@app.callback()
def _group() -> None: ...


@app.command("run")
def run(file: ConfigOption) -> None:
    """Runs a site's node until it is told to stop: 0 after a clean stop, 1 after one that was cut short.

    Example: [bold]trunkline node run --config site.yaml[/]
    """
    run_node(load_config(file))


def run_node(config: ProcessConfig, terms: Terms | None = None) -> None:
    """For a process of its own: the limit of its stop watches until the process is gone."""
    from trunkline.core.collector import patient_collector
    from trunkline.core.errors import TrunklineError
    from trunkline.core.logs import configure_logs

    configure_logs(config.log)
    patient_collector()
    try:
        asyncio.run(_run(config, terms))
    except BaseExceptionGroup as group:
        found = group
        while isinstance(found.exceptions[0], BaseExceptionGroup):
            found = found.exceptions[0]
        if isinstance(found.exceptions[0], TrunklineError):
            raise found.exceptions[0] from None
        raise


@contextmanager
def _uncollected() -> Iterator[None]:
    """What is imported here stays for ever: no collection looks for garbage in it, now or later.

    What comes afterwards is mostly entries on their way, which are never part of a cycle: it is looked through less often.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


async def _run(config: ProcessConfig, terms: Terms | None) -> None:
    with _uncollected():
        from trunkline.api.app import create_app
        from trunkline.api.server import serve
        from trunkline.api.tracing import tracing
        from trunkline.db.lease import LEADER_TERMS
        from trunkline.node.node import Node
        from trunkline.node.stopping import Stopping

    stopping = Stopping(config.stop_seconds)
    stopping.on_signals()
    node = Node(config, terms or LEADER_TERMS)
    no_more_requests = asyncio.Event()

    async def answer(rest: FastAPI, tell: Whereabouts) -> None:
        try:
            with stopping.waits_for("requests of the API"):
                await serve(rest, config.api.listen, tell.api, stopping.asked)
        finally:
            no_more_requests.set()

    with tracing(config.otlp, "trunkline-node", str(node.identity)) as tracer, whereabouts(config, node) as tell:
        rest = create_app(node, config.api, tracer)
        async with asyncio.TaskGroup() as group:
            group.create_task(answer(rest, tell), name="api")
            group.create_task(node.run(no_more_requests, tell.links, stopping), name="node")


class Whereabouts:
    """Says in the runtime folder where this node listens, as soon as it listens on both, and in the store where its API is."""

    def __init__(self, config: ProcessConfig, node: Node) -> None:
        self._file, self._node, self._api = config.runtime / "node.json", node, ""
        self._advertised = config.link.advertise

    def api(self, address: str) -> None:
        self._api = address
        self._node.api_listens(as_dialled(address, self._advertised))
        self.links()

    def links(self) -> None:
        if not self._api or not self._node.address:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps({"pid": os.getpid(), "link": self._node.address, "api": self._api}))
        draft.replace(self._file)

    def gone(self) -> None:
        self._file.unlink(missing_ok=True)


@contextmanager
def whereabouts(config: ProcessConfig, node: Node) -> Iterator[Whereabouts]:
    tell = Whereabouts(config, node)
    try:
        yield tell
    finally:
        tell.gone()
