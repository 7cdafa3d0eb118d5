"""The routing table at a pipeline before any group runs there.

Its routes are known, and nothing of them is waited for: a start that waits can be given up, and what was given up when a
pipeline came up would be missing when its group begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from trunkline.core.clock import ManualClock, SystemClock
from trunkline.core.config import ProcessConfig
from trunkline.db.migrate import migrate
from trunkline.pipeline.jobs.routing import PipelineRouting
from trunkline.pipeline.jobs.runner import Here, SparkRunner
from trunkline.pipeline.session import Spark
from trunkline.routes.keys import HOUSE, RouteKey
from trunkline.routes.live import LiveRoute
from trunkline.routes.making import making_at
from trunkline.routes.plugin import Around
from trunkline.routes.registry import registry
from trunkline.routes.storage.base import RouteConfig
from trunkline.routes.workshop import Workshop
from waiting import eventually

NOT_ASKED = cast(Spark, None)
"""Spark hears only of groups that run."""


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[SparkRunner]:
    here = Here("hub", "i1", "", {}, tmp_path, ManualClock(), lambda: 0.0)
    runner = SparkRunner(NOT_ASKED, here, lambda _: None)
    yield runner
    asyncio.run(runner.close())


def at_once(work: Coroutine[Any, Any, None]) -> None:
    with pytest.raises(StopIteration):
        work.send(None)


def route(id: str, to: str) -> LiveRoute:
    making = making_at(Workshop(registry(), Around({"site": "hub"}), dict), "")
    receiver = {"plugin": "kafka", "config": {"brokers": "broker:9092", "topic": "in"}}
    body = {"receiver": receiver, "sender": {"plugin": "debug", "name": to}}
    config = RouteConfig(RouteKey(HOUSE, id), making.hash(HOUSE, body), body, {}, 1, 0.0, 0.0)
    return LiveRoute(config.hash, config, making.compile(config))


def test_routes_start_are_replaced_and_stop_at_once(runner: SparkRunner) -> None:
    first, second = route("r", "first"), route("r", "second")
    at_once(runner.start(first))
    assert [str(group) for group in runner.groups] == ["kafka at broker:9092"]
    at_once(runner.replace(first, second))
    at_once(runner.start(route("s", "third")))
    at_once(runner.stop(second))
    assert len(runner.groups) == 1
    at_once(runner.stop(route("s", "third")))
    assert len(runner.groups) == 0


def test_a_table_that_cannot_start_is_tried_again_until_somebody_has_mended_what_it_lacks(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    dsn = make_database("queues")
    routing = PipelineRouting(ProcessConfig(site="hub", database=dsn), NOT_ASKED, tmp_path, SystemClock(), lambda _: None)
    with ExitStack() as stack, capture_logs() as lines:
        stack.callback(routing.stop)
        routing.start()
        eventually(lambda: lines, 30)
        assert "its tables are not there" in lines[0]["reason"]
        migrate(dsn, "routes")
        eventually(lambda: routing.manager is not None, 30, lambda: lines)
