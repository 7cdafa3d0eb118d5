"""Queues over the API: what each answer has, that its description says so, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest
from pydantic import BaseModel

from filled_queues import QUEUE, copy_of, do, fill, session
from memory_node import MemoryNode, bearing, client_over, is_problem, token
from memory_queues import MemoryQueues
from trunkline.api import queuesmodels as models
from trunkline.api.queuesmetrics import queues_metrics
from trunkline.core.config import QueuesConfig, Role
from trunkline.core.errors import Retryable
from trunkline.queues.operating import Operating
from trunkline.queues.statuses import write_statuses

LOOKS: dict[str, type[BaseModel]] = {
    "/v1/queues": models.QueuesShown,
    "/v1/queues/status": models.SessionsShown,
    f"/v1/queues/{QUEUE}/entries": models.EntriesShown,
}

EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    models.QueuesShown: models.QUEUES,
    models.SessionsShown: models.SESSIONS,
    models.EntriesShown: models.ENTRIES,
    models.SyncShown: models.SYNC,
}


@pytest.fixture(scope="module")
def filled(make_databases: Callable[..., str]) -> str:
    dsn = fill(make_databases("queues"))
    do(dsn, "INSERT INTO queues.provider (client, owner) VALUES ('policy', 'app')")
    return dsn


@pytest.fixture
def dsn(filled: str) -> Iterator[str]:
    """To be changed."""
    with copy_of(filled) as found:
        yield found


def api_over(dsn: str) -> httpx.AsyncClient:
    view = Operating(lambda: psycopg.connect(dsn), QueuesConfig(queue_entries=2))
    return client_over(MemoryNode(queues=view))


@pytest.fixture
async def hub(filled: str) -> AsyncIterator[httpx.AsyncClient]:
    """For tests that change nothing."""
    async with api_over(filled) as client:
        yield client


async def got(client: httpx.AsyncClient, path: str, **params: Any) -> dict[str, Any]:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_every_answer_is_what_its_description_promises(dsn: str) -> None:
    async with api_over(dsn) as client:
        await client.post("/v1/queues/sync", json={"site": "lyon"})
        for path, model in LOOKS.items():
            found = await got(client, path)
            assert model.model_validate(found).model_dump() == found


async def test_the_description_names_the_models_and_its_examples_fit_them(client: httpx.AsyncClient) -> None:
    paths = (await got(client, "/openapi.json"))["paths"]
    described = {path.replace(QUEUE, "{name}"): (model, "get") for path, model in LOOKS.items()}
    for path, (model, method) in (described | {"/v1/queues/sync": (models.SyncShown, "post")}).items():
        content = paths[path][method]["responses"]["200"]["content"]["application/json"]
        assert content["schema"] == {"$ref": f"#/components/schemas/{model.__name__}"}
        example = EXAMPLES[model]
        assert model.model_validate(example).model_dump() == example
        assert content["example"] == model.model_validate(example).model_dump(exclude_none=True)
    body = paths["/v1/queues/sync"]["post"]["requestBody"]["content"]["application/json"]
    assert models.SyncWanted.model_validate(body["example"]).client == "policy"


async def test_a_queue_has_its_readers_and_is_full_at_its_limit(hub: httpx.AsyncClient) -> None:
    (queue,) = (await got(hub, "/v1/queues"))["receiving"]
    assert (queue["name"], queue["head"], queue["tail"], queue["waiting"], queue["full"]) == (QUEUE, 4, 2, 2, True)
    assert queue["consumers"] == [{"name": "ledger", "detached": False, "position": 2, "behind": 2, "tries": 0}]


async def test_a_look_into_a_queue_can_be_narrowed(hub: httpx.AsyncClient) -> None:
    found = await got(hub, f"/v1/queues/{QUEUE}/entries", after=0, limit=1, bytes=3)
    assert [(e["position"], e["text"], e["cut"]) for e in found["entries"]] == [(1, '{"o', True)]


@pytest.mark.parametrize("name", ["atlantis", "a%00b", "%ED%A0%80", "ключ", "..%2F", "x" * 300])
async def test_an_unknown_queue_is_a_404_that_names_the_known_ones(hub: httpx.AsyncClient, name: str) -> None:
    answer = await hub.get(f"/v1/queues/{name}/entries")
    assert is_problem(answer, 404, "no-such-queue" if "%2F" not in name else "not-found")
    if "%2F" not in name:
        assert answer.json()["next"] == f"name one of: LRQ_Send_LogEntries, {QUEUE}"


@pytest.mark.parametrize("params", [{"limit": 0}, {"limit": 101}, {"after": -1}, {"after": 2**63}, {"bytes": 65_537}])
async def test_what_is_beyond_all_bounds_is_refused(hub: httpx.AsyncClient, params: dict[str, int]) -> None:
    assert is_problem(await hub.get(f"/v1/queues/{QUEUE}/entries", params=params), 400, "invalid")


async def test_a_snapshot_is_asked_for_once(dsn: str) -> None:
    async with api_over(dsn) as client:
        for body in ({"site": "lyon"}, {"site": "lyon", "client": "policy"}):
            answer = await client.post("/v1/queues/sync", json=body)
            assert answer.status_code == 200, answer.text
        of_all = await client.post("/v1/queues/sync", json={"all": True})
    assert models.SyncShown.model_validate(answer.json()).requests[0].destinations == ["lyon"]
    assert of_all.json()["requests"] == [answer.json()["requests"][0] | {"destinations": ["lyon", "paris"]}]
    asked = do(dsn, "SELECT id::text, destinations, forced FROM queues.request")
    assert asked == [(answer.json()["requests"][0]["id"], ["lyon", "paris"], True)]


@pytest.mark.parametrize(
    "body",
    [{}, {"site": "lyon", "all": True}, {"site": "lyon", "more": 1}, {"site": 3}, {"site": "atlantis"}, {"site": "a\x00"},
     {"site": "lyon", "client": "orders"}, {"site": "lyon", "client": "\x00"}],
)  # fmt: skip
async def test_a_snapshot_that_cannot_be_asked_for_is_refused(hub: httpx.AsyncClient, filled: str, body: Any) -> None:
    assert is_problem(await hub.post("/v1/queues/sync", json=body), 400, "invalid")
    assert do(filled, "SELECT FROM queues.request") == []


async def test_only_an_admin_may_ask_for_a_snapshot() -> None:
    view = MemoryQueues()
    tokens = (token("reader"), token("writer", Role.WRITE), token("boss", Role.ADMIN))
    async with client_over(MemoryNode(queues=view), tokens=tokens) as client:
        for who, status in (("reader", 403), ("writer", 403), ("boss", 200)):
            answer = await client.post("/v1/queues/sync", json={"all": True}, headers=bearing(who))
            assert answer.status_code == status
        assert (await client.get("/v1/queues", headers=bearing("reader"))).status_code == 200
    assert view.asked == [("sync", None, None)]


async def test_a_database_that_is_away_is_unavailable() -> None:
    view = Operating(lambda: psycopg.connect("host=127.0.0.1 port=1 dbname=x"), QueuesConfig())
    async with client_over(MemoryNode(queues=view)) as client:
        for path in LOOKS:
            assert is_problem(await client.get(path), 503, "unavailable")


# -- numbers


def samples(view: dict[str, Any]) -> dict[str, float]:
    return {
        f"{sample.name.removeprefix('trunkline_queues_')}{dict(sorted(sample.labels.items()))}": sample.value
        for family in queues_metrics(view)
        for sample in family.samples
    }


async def test_sessions_queues_consumers_and_letters_are_numbers(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        write_statuses(conn, [session(stall="no way to site paris"), session(role="sink", client="orders", remaining=None)])
    do(dsn, "UPDATE queues.stamp SET stamped_at = now() - interval '90 seconds'")
    do(dsn, "INSERT INTO queues.needs_snapshot VALUES ('lyon', 'policy', true)")
    found = samples(Operating(lambda: psycopg.connect(dsn), QueuesConfig(queue_entries=2)).numbers())
    source = {"client": "policy", "remote": "paris", "role": "source"}
    sink = {"client": "orders", "remote": "paris", "role": "sink"}
    assert 90 <= found.pop(f"unacknowledged_seconds{source}") < 150
    assert f"unacknowledged_seconds{sink}" not in found
    assert f"lag_entries{sink}" not in found
    queue, ledger = {"queue": QUEUE}, {"client": "orders", "consumer": "ledger"}
    for name, number in {
        "log_head{}": 6, "log_lowest{}": 0, "open_requests{}": 0, f"lag_entries{source}": 2, f"stalled{source}": 1,
        f"stalled{sink}": 0, f"in_snapshot{source}": 0, f"waiting_entries{queue}": 2, f"waiting_bytes{queue}": 612,
        f"full{queue}": 1, f"detached{ledger}": 0, f"needs_snapshot{ {'client': 'policy', 'destination': 'lyon'} }": 1,
        f"needs_snapshot{ {'client': 'policy', 'destination': 'paris'} }": 0,
    }.items():  # fmt: skip
        assert found[name] == number, name


async def test_the_numbers_are_those_of_the_node_s_view(client: httpx.AsyncClient) -> None:
    lines = (await client.get("/metrics")).text.splitlines()
    for line in (
        'trunkline_queues_lag_entries{client="policy",remote="paris",role="source"} 1.0',
        'trunkline_queues_dead_letters{client="orders",consumer="ledger"} 1.0',
        'trunkline_queues_in_snapshot{client="policy",remote="paris",role="source"} 0.0',
        'trunkline_view_answers{view="queues"} 1.0',
    ):
        assert line in lines


async def test_a_view_that_fails_takes_only_its_own_numbers_away() -> None:
    class Away(MemoryQueues):
        def numbers(self) -> dict[str, Any]:
            raise Retryable("database of the queues", "it does not answer", "ask again")

    async with client_over(MemoryNode(queues=Away())) as client:
        text = (await client.get("/metrics")).text
    assert 'trunkline_view_answers{view="queues"} 0.0' in text
    assert 'trunkline_view_answers{view="trunk"} 1.0' in text
    assert "trunkline_queues_" not in text
