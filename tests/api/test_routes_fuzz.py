"""Whatever the description of the routing table's endpoints allows, and what it does not: no answer with 5xx, all as described.

Schemathesis makes the requests out of the OpenAPI document. The API runs over a real table in memory with one tenant and some
routes, so that what is asked for is sometimes there. A node that runs no route answers events with 503, which is described.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import (
    response_schema_conformance,
    status_code_conformance,
)

from memory_routes import RoutedInstance, routed, simple
from trunkline.api.app import create_app
from trunkline.core.config import ApiConfig
from trunkline.routes.keys import Tenant

MINE = "/orgs/|/routes|/tenants|/fragments|/senders|/receivers|/filters|/plugins|/deadletters"
EXAMPLES, MANY = 100, 5_000
AWAY = "runs no routes", "keeps none"
NAMES = {"org": "myorg", "app": "myapp", "id": "r1", "name": "f1", "kind": "filter"}


@contextmanager
def beside() -> Iterator[RoutedInstance]:
    """A table on an event loop in a thread of its own."""
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[RoutedInstance] = []

    async def live() -> None:
        async with routed() as at:
            await at.operating.tenancy.put(Tenant("myorg", "myapp"), {})
            await at.operating.routes.add(Tenant("myorg", "myapp"), simple(), "r1")
            await at.operating.fragments.put(Tenant("myorg", "myapp"), {"plugin": "debug"}, "f1")
            found.append(at)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(live(),), name="table")
    thread.start()
    try:
        assert ready.wait(60)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@pytest.fixture
def app() -> Iterator[Any]:
    with beside() as at:
        yield create_app(at.node, ApiConfig(requests_per_second=1e9))


def asks(app: Any, examples: int) -> None:
    schema = schemathesis.openapi.from_dict(app.openapi()).include(path_regex=MINE)
    schema.app = app
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 40
    for operation in operations:
        _ask(operation, max(2, examples // len(operations)))


def _ask(operation: Any, examples: int) -> None:
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(), named=st.sampled_from([True, True, False]))
    def ask(case: Any, named: bool) -> None:
        if named:
            case.path_parameters = {
                **(case.path_parameters or {}),
                **{k: v for k, v in NAMES.items() if k in case.path_parameters},
            }
        answer = case.call(base_url="http://localhost")
        text = answer.text
        assert answer.status_code < 500 or any(words in text for words in AWAY), (operation.label, case, text)
        case.validate_response(answer, checks=(status_code_conformance, response_schema_conformance))

    ask()


def test_no_request_about_routes_finds_a_defect_and_answers_are_as_described(app: Any) -> None:
    asks(app, EXAMPLES)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_requests_about_routes_find_no_defect(app: Any) -> None:
    asks(app, MANY)
