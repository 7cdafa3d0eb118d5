"""Whatever the description of the routing table's endpoints allows, and what it does not: no answer with 5xx, all as described.

Schemathesis makes the requests out of the OpenAPI document and its examples. The API runs over a real table in memory and a
real local runner, with one tenant and what it needs; whatever a request took away is there again before the next one. So every
operation does what it is there for at least once. Dead letters are kept by a database: without one it is 503, as described.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
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
from running_routes import here
from trunkline.api.app import create_app
from trunkline.core.config import ApiConfig
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.local.runner import LocalRunner
from trunkline.routes.quota_buckets import MemoryBuckets
from trunkline.routes.quotas import Quotas
from trunkline.routes.registry import registry

MINE = "/orgs/|/routes|/tenants|/fragments|/senders|/receivers|/filters|/plugins|/deadletters"
EXAMPLES, MANY = 100, 5_000
AWAY = "keeps none"
HOUSE, SPARE = Tenant("acme", "shop"), Tenant("acme", "spare")  # as in the examples
NAMES = {"org": HOUSE.org, "app": HOUSE.app, "id": "alarms", "kind": "filter", "path": "alarm"}
NAMED = {"fragments": "toHub", "filters": "match", "plugins": "match", "receivers": "debug", "senders": "debug"}
MATCH = {"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": "*"}}}
ROUTES = {
    "alarms": simple(filterChain=[{**MATCH, "name": "match"}]),
    **{
        method: simple(receiver={"plugin": "http", "config": {"method": method}}) for method in ("POST", "PUT", "GET", "DELETE")
    },
}


_numbers = count(1)


class Table:
    """`session`: of a change."""

    def __init__(self, at: RoutedInstance, loop: asyncio.AbstractEventLoop) -> None:
        self.at, self._loop, self.session = at, loop, ""

    def names(self, case: Any) -> dict[str, str]:
        """What is there, or is not if it is to be made."""
        path, names = case.operation.path, {**NAMES, "session": self.session}
        names["name"] = next((name for kind, name in NAMED.items() if f"/{kind}/" in path), "")
        if "/deadletters/" in path:
            names["id"] = "7"
        if path.endswith(("{app}", "/config")):
            names["app"] = {"POST": f"new{next(_numbers)}", "DELETE": SPARE.app}.get(case.method, HOUSE.app)
        return names

    def again(self) -> None:
        """As it was."""
        asyncio.run_coroutine_threadsafe(self.fill(), self._loop).result(60)

    async def fill(self) -> None:
        for tenant in (HOUSE, SPARE):
            await self.at.operating.tenancy.put(tenant, {})
        for id, body in ROUTES.items():
            await self.at.operating.routes.add(HOUSE, body, id)
        self.session = self.session or (await self.at.manager.reload([RouteKey(HOUSE, "alarms")])).session
        await self.at.operating.fragments.put(HOUSE, {"plugin": "debug"}, "toHub")


@contextmanager
def beside() -> Iterator[Table]:
    """A table on an event loop in a thread of its own."""
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[Table] = []

    async def live() -> None:
        place = here()
        runner = LocalRunner(place, registry(), {}, Quotas(MemoryBuckets(place.clock), place.clock, place.random))
        async with routed(runner=runner, injects=runner, hooks=runner.hooks, event_seconds=1.0) as at:
            table = Table(at, loop)
            await table.fill()
            runner.receive()
            found.append(table)
            ready.set()
            await stop.wait()
            await runner.rest()
        await runner.close()

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
def table() -> Iterator[Table]:
    with beside() as table:
        yield table


def asks(table: Table, examples: int) -> None:
    app = create_app(table.at.node, ApiConfig(requests_per_second=1e9))
    schema = schemathesis.openapi.from_dict(app.openapi()).include(path_regex=MINE)
    schema.app = app
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 40
    said = {operation.label: _ask(operation, table, max(2, examples // len(operations))) for operation in operations}
    never = {label: codes for label, codes in said.items() if not any(code < 300 or code == 503 for code in codes)}
    assert not never, f"these never did what they are there for: {never}"


def _ask(operation: Any, table: Table, examples: int) -> set[int]:
    """The statuses of all answers."""
    codes: set[int] = set()
    shown = operation.get_strategies_from_examples()

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=st.one_of(operation.as_strategy(), *shown), named=st.sampled_from([True, True, False]))
    def ask(case: Any, named: bool) -> None:
        table.again()
        codes.add(_answered(case, table, named))

    for strategy in shown or [operation.as_strategy()]:

        @settings(ask._hypothesis_internal_use_settings, max_examples=1)
        @given(case=strategy)
        def show(case: Any) -> None:
            table.again()
            codes.add(_answered(case, table, True))

        show()
    ask()
    return codes


def _answered(case: Any, table: Table, named: bool) -> int:
    if named:
        case.path_parameters = {key: table.names(case).get(key, value) for key, value in (case.path_parameters or {}).items()}
    answer = case.call(base_url="http://localhost")
    text = answer.text
    assert answer.status_code < 500 or AWAY in text, (case.operation.label, case, text)
    case.validate_response(answer, checks=(status_code_conformance, response_schema_conformance))
    return int(answer.status_code)


def test_no_request_about_routes_finds_a_defect_and_answers_are_as_described(table: Table) -> None:
    asks(table, EXAMPLES)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_requests_about_routes_find_no_defect(table: Table) -> None:
    asks(table, MANY)
