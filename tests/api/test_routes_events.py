"""Events for routes over the API: what each outcome is answered with, whatever runs the routes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from memory_node import is_problem
from memory_routes import CountingRunner, RoutedInstance, T, routed, simple, with_tenant
from trunkline.api import routesmodels as models
from trunkline.routes.ends import Took, Watch
from trunkline.routes.event import Event
from trunkline.routes.keys import Tenant
from trunkline.routes.live import LiveRoute
from trunkline.routes.outcome import Done, Outcome

ACKED = Done("", Outcome.ACKED)
QUOTA = "the quota of myorg/myapp is used up"


@dataclass
class Posted:
    done: Done | None
    took: tuple[Took, ...] = ()


@dataclass
class OneOutcome(CountingRunner):
    """Runs chains, and what comes out has one outcome."""

    done: Done = ACKED
    letters: tuple[str, ...] = ()
    events: list[Event] = field(default_factory=list)
    posted: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    async def inject(self, route: LiveRoute, event: Event, seconds: float, watch: Watch | None = None) -> Done:
        self.events.append(event)
        out = route.compiled.chain.run([event]).out
        if out and watch is not None:
            watch.took(Took(route.config.key.id, len(out), 0, self.letters))
        return self.done

    async def post(self, tenant: Tenant, method: str, path: str, event: Event) -> Posted:
        self.posted.append((method, path))
        self.events.append(event)
        return Posted(self.done, (Took("a", 1), Took("b", 0, 2))) if path in ("", "/x/y") else Posted(None)


@pytest.fixture
def runner() -> OneOutcome:
    return OneOutcome()


@pytest.fixture
async def at(runner: OneOutcome) -> AsyncIterator[RoutedInstance]:
    async with routed(runner=runner, hooks=runner, injects=runner) as at:
        yield at


@pytest.fixture
async def client(at: RoutedInstance) -> AsyncIterator[httpx.AsyncClient]:
    chain = [{"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": "alarm"}}}]
    async with at.client() as client:
        await with_tenant(client)
        await client.put(f"{T}/routes/r", json=simple(filterChain=chain))
        yield client


async def test_an_event_that_is_done_says_what_the_route_made_of_it(client: httpx.AsyncClient, runner: OneOutcome) -> None:
    headers = {"X-Kind": "test", "X-Request-Id": "ab" * 16, "Authorization": "Bearer x", "X-Trunkline-Tenant": "elsewhere"}
    answer = await client.post(f"/ears{T}/routes/r/event", json={"kind": "alarm"}, headers=headers)
    models.EventAnswer.model_validate(answer.json())
    item = answer.json()["item"]
    assert (answer.status_code, item["routeId"], item["tx.traceId"], item["outcome"]) == (200, "r", "ab" * 16, "acked")
    assert item["routes"] == [{"id": "r", "outcome": "sent", "sent": 1, "kept": 0, "letters": []}]
    (event,) = runner.events
    assert (event.payload, event.metadata["x-kind"], event.source.tenant) == (
        {"kind": "alarm"},
        "test",
        Tenant("myorg", "myapp"),
    )
    assert event.metadata["x-trunkline-tenant"] == "myorg/myapp"
    assert "authorization" not in event.metadata


async def test_what_filters_drop_and_what_becomes_a_dead_letter_is_done_too(
    client: httpx.AsyncClient, runner: OneOutcome
) -> None:
    dropped = (await client.post(f"{T}/routes/r/event", json={})).json()["item"]
    assert dropped["routes"][0]["outcome"] == "dropped"
    runner.letters = ("the sender refused it",)
    dead = (await client.post(f"{T}/routes/r/event", json={"kind": "alarm"})).json()["item"]
    assert (dead["routes"][0]["outcome"], dead["routes"][0]["letters"]) == ("dead_letter", ["the sender refused it"])


@pytest.mark.parametrize(
    ("done", "status", "slug"),
    [
        (Done("", Outcome.NACKED, "the broker said no"), 502, "not-delivered"),
        (Done("", Outcome.TIMED_OUT, "not done within 5 s"), 504, "not-done-in-time"),
        (Done("", Outcome.NACKED, QUOTA), 429, "quota-exhausted"),
    ],
)
async def test_s34_an_event_that_is_not_done_is_never_a_200(
    client: httpx.AsyncClient, runner: OneOutcome, done: Done, status: int, slug: str
) -> None:
    runner.done = done
    for path in ("routes/r/event", "event", "event/x/y"):
        answer = await client.post(f"{T}/{path}", json={"kind": "alarm"})
        assert is_problem(answer, status, slug), answer.text
        assert done.reason in answer.json()["detail"]


@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "DELETE"])
async def test_events_go_to_the_receivers_that_hear_the_path(
    client: httpx.AsyncClient, runner: OneOutcome, method: str
) -> None:
    body: dict[str, Any] = {"json": [1]} if method in ("POST", "PUT") else {}
    for end, path in (("", ""), ("/x/y", "/x/y")):
        answer = await client.request(method, f"{T}/event{end}", **body)
        assert answer.status_code == 200, answer.text
        models.EventAnswer.model_validate(answer.json())
        assert [(one["id"], one["outcome"]) for one in answer.json()["item"]["routes"]] == [("a", "sent"), ("b", "kept")]
        assert runner.posted[-1] == (method, path)
        assert runner.events[-1].payload == ([1] if body else None)
    assert is_problem(await client.request(method, f"{T}/event/nobody", **body), 404, "no-receiver")


async def test_an_event_that_is_no_json_is_a_400(client: httpx.AsyncClient, runner: OneOutcome) -> None:
    for content in (b"{", b"", b"[" * 2000):
        assert is_problem(await client.post(f"{T}/routes/r/event", content=content), 400, "invalid")
    assert is_problem(await client.post(f"{T}/event", content=b"{"), 400, "invalid")
    assert runner.events == []
