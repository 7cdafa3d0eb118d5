"""Real nodes with real links and databases in one event loop of this process, so that a test can look into them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from sitefleet import Fleet

from trunkline.core.config import ProcessConfig
from trunkline.core.ids import NodeId
from trunkline.net.link import Link
from trunkline.node.node import Node
from waiting import eventually


class Nodes:
    def __init__(self, folder: Path) -> None:
        self.plan = Fleet(folder)
        self.at: dict[str, Node] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nodes", daemon=True)
        self._thread.start()
        self._stops: dict[str, asyncio.Event] = {}
        self._runs: dict[str, Future[None]] = {}

    def add(self, site: str, names: Sequence[str], dsn: str, links: Sequence[str] = (), **store: Any) -> None:
        self.plan.add(site, names, dsn, links)
        for planned in self.plan.nodes[-len(names) :]:
            planned.config["store"] = store

    def start(self) -> None:
        """Returns when each of them listens."""
        listen = [self._start(str(planned.id), ProcessConfig.model_validate(planned.config)) for planned in self.plan.nodes]
        for event in listen:
            assert event.wait(60)

    def _start(self, name: str, config: ProcessConfig) -> threading.Event:
        listens = threading.Event()
        node = self.at[name] = Node(config)
        stop = self._stops[name] = asyncio.Event()
        self._runs[name] = asyncio.run_coroutine_threadsafe(node.run(stop, listens.set), self._loop)
        return listens

    def on_loop(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(20)

    def wait_ready(self) -> None:
        for name in self.at:
            eventually(lambda name=name: self.is_ready(name), why=lambda name=name: self.checks(name))

    def checks(self, name: str) -> dict[str, tuple[bool, str]]:
        return {check.name: (check.ok, check.reason) for check in self.at[name].checks()}

    def is_ready(self, name: str) -> bool:
        if self._runs[name].done():
            self._runs[name].result()
        return all(ok for ok, _ in self.checks(name).values())

    def links(self, name: str) -> set[str]:
        return set(self.at[name].status()["links"])

    def link(self, one: str, other: str) -> Link:
        found = self.at[one]._peers.endpoint.links()[NodeId.parse(other)]
        assert isinstance(found, Link)
        return found

    def stop(self, *names: str) -> None:
        for name in names:
            self._loop.call_soon_threadsafe(self._stops[name].set)
        for name in names:
            try:
                self._runs[name].result(30)
            except TimeoutError:
                raise AssertionError(f"{name} does not stop: {self._waiting()}") from None

    def _waiting(self) -> list[str]:
        """What the tasks of all nodes wait for."""
        return [f"{task.get_name()}: {task.get_stack()[-1:]}" for task in asyncio.all_tasks(self._loop)]

    def close(self) -> None:
        self.stop(*self.at)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()
