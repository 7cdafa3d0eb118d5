"""Two sites with a real node each, in one event loop of this process, and a link between them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import yaml

from trunkline.core.config import ProcessConfig
from trunkline.core.errors import Retryable
from trunkline.core.ids import NodeId
from trunkline.db.embedded import free_port
from trunkline.net.authority import issue, make_ca
from trunkline.node.node import Node
from waiting import eventually


class TwoSites:
    """`dsn`: by site, the first one is linked with the second. `files`: their configurations, for commands."""

    def __init__(self, folder: Path, dsn: dict[str, str], **more: Any) -> None:
        self.folder, self._seed = folder, f"127.0.0.1:{free_port()}"
        self.nodes: dict[str, Node] = {}
        self.files: dict[str, Path] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nodes", daemon=True)
        self._runs: dict[str, Future[None]] = {}
        self._stops: dict[str, asyncio.Event] = {}
        make_ca(folder / "ca", "two sites")
        first = next(iter(dsn))
        self._configs = {site: self._config(site, dsn[site], [] if site == first else [first]) | more for site in dsn}

    def _config(self, site: str, dsn: str, links: list[str]) -> dict[str, Any]:
        place = self.folder / site
        issue(self.folder / "ca", place / "tls", NodeId(site, "n1"))
        tls = {what: str(place / "tls" / f"{what}.pem") for what in ("certificate", "key")}
        listen = "127.0.0.1:0" if links else self._seed
        config = {
            "site": site, "node": "n1", "database": dsn, "runtime": str(place),
            "tls": {"ca": str(self.folder / "ca" / "ca.pem"), **tls},
            "link": {"listen": listen, "seeds": [self._seed], "links": links},
        }  # fmt: skip
        self.files[site] = place / "site.yaml"
        self.files[site].write_text(yaml.safe_dump(config))
        return config

    @contextmanager
    def running(self) -> Iterator[None]:
        """They know each other, and are ready."""
        self._thread.start()
        try:
            self._start()
            eventually(self._are_ready, 90, self._checks)
            eventually(self._know_each_other, 90, self._checks)
            yield
        finally:
            self._stop()

    def _start(self) -> None:
        for site, config in self._configs.items():
            self.nodes[site] = Node(ProcessConfig.model_validate(config))
            self._stops[site] = asyncio.Event()
            running = self.nodes[site].run(self._stops[site], lambda: None)
            self._runs[site] = asyncio.run_coroutine_threadsafe(running, self._loop)

    def _stop(self) -> None:
        for stop in self._stops.values():
            self._loop.call_soon_threadsafe(stop.set)
        for run in self._runs.values():
            run.result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    def _are_ready(self) -> bool:
        for run in self._runs.values():
            if run.done():
                run.result()
        try:
            return all(check.ok for node in self.nodes.values() for check in node.checks())
        except Retryable:  # its run has not begun, or something holds it up
            return False

    def _know_each_other(self) -> bool:
        return all(self._known(config["database"]) >= self._configs.keys() for config in self._configs.values())

    @staticmethod
    def _known(dsn: str) -> set[str]:
        with psycopg.connect(dsn) as conn:
            return {name for (name,) in conn.execute("SELECT name FROM queues.site")}

    def _checks(self) -> list[str]:
        try:
            found = [(site, check) for site, node in self.nodes.items() for check in node.checks()]
        except Retryable as error:
            return [str(error)]
        return [f"{site} {check.name}: {check.reason}" for site, check in found if not check.ok]
