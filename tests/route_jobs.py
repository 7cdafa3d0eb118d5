"""A site whose pipeline runs routes on Spark: its table, its jobs, and what a test wants to know of them."""

from __future__ import annotations

import itertools
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from trunkline.core.clock import SystemClock
from trunkline.core.config import FEW_EVENTS, ProcessConfig, SparkConfig
from trunkline.pipeline.jobs.loaded import LoadedRoute
from trunkline.pipeline.jobs.outcomes import RouteCount, TaskCounts
from trunkline.pipeline.jobs.routing import PipelineRouting
from trunkline.pipeline.session import Spark
from trunkline.routes.keys import HOUSE, RouteKey
from trunkline.routes.manager import RoutingTableManager, Status
from waiting import eventually

PARTS = ("queues", "bridge", "routes", "pipeline")
T = TypeVar("T")


class RouteJobs:
    """Routes are those of the house. `start` and `stop` alternate: each start is another instance. If nothing is said of
    `few_events`, every second one routes in tasks only."""

    _few = itertools.cycle((0, FEW_EVENTS))

    def __init__(self, spark: Spark, dsn: str, folder: Path, few_events: int | None = None, **config: Any) -> None:
        few = next(self._few) if few_events is None else few_events
        self.spark, self.dsn, self.folder = spark, dsn, folder
        self.config = ProcessConfig(site="hub", database=dsn, spark=SparkConfig(few_events=few), **config)
        self.counts: dict[str, RouteCount] = {}
        self.events = 0
        self._routing: PipelineRouting | None = None

    def start(self) -> RouteJobs:
        self._routing = PipelineRouting(self.config, self.spark, self.folder, SystemClock(), self._hear)
        self._routing.start()
        eventually(lambda: self.routing.manager is not None, 30)
        return self

    def stop(self) -> None:
        routing, self._routing = self._routing, None
        if routing is not None:
            routing.stop()

    def __enter__(self) -> RouteJobs:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def routing(self) -> PipelineRouting:
        assert self._routing is not None, "it is not started"
        return self._routing

    @property
    def manager(self) -> RoutingTableManager:
        assert self.routing.manager is not None, "it has not started yet"
        return self.routing.manager

    def put(self, id: str, receiver: dict[str, Any], sender: dict[str, Any], *chain: dict[str, Any], **more: Any) -> Status:
        """Adds or updates a route; it counts from the next batch on when this returns."""
        body = {"receiver": receiver, "sender": sender, "filterChain": list(chain), **more}
        self._do(self.manager.add(HOUSE, body, id))
        status = self.manager.status(RouteKey(HOUSE, id))
        assert not status.reason, status.reason
        return status

    def remove(self, id: str) -> None:
        self._do(self.manager.remove(RouteKey(HOUSE, id)))

    def running(self, *plugins: str) -> bool:
        """Whether a job of each of these plugins runs here and has looked at its source."""
        runner = self.routing.runner
        jobs = runner.jobs if runner is not None else {}
        return all(any(group.plugin == plugin and job.looked for group, job in jobs.items()) for plugin in plugins)

    def until_running(self, *plugins: str) -> None:
        eventually(lambda: self.running(*plugins), 60, self.failing)

    def failing(self) -> list[str]:
        runner = self.routing.runner
        return [job.failing for job in runner.jobs.values()] if runner is not None else []

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            return conn.execute(query.encode(), values).fetchall()

    def count(self, id: str) -> RouteCount:
        """What all batches made of events of this route, by this object."""
        return self.counts.get(id, RouteCount())

    def _hear(self, told: TaskCounts, routes: dict[str, LoadedRoute]) -> None:
        self.events += told.events
        for hash, count in told.routes.items():
            self.counts.setdefault(routes[hash].member.key.id, RouteCount()).add(count)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.routing.run(work)
