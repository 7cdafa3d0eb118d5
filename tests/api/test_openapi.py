"""The API's description is whole: every endpoint says what it answers and how it refuses, and each has its row of access."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from memory_node import MemoryNode, bearing, client_over, token
from trunkline.api.access import ACCESS
from trunkline.api.app import create_app
from trunkline.api.problem import KINDS, Problem


@pytest.fixture
async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    return dict((await client.get("/openapi.json")).json())


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


async def test_every_endpoint_documents_its_errors_as_problem_details(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        answers = operation["responses"]
        assert "default" in answers, name
        for status, answer in answers.items():
            if status == "default" or (int(status) >= 400 and (name, status) != ("GET /readyz", "503")):
                schema = answer["content"]["application/problem+json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}, (name, status)


async def test_no_endpoint_promises_the_frameworks_own_errors(document: dict[str, Any]) -> None:
    assert all("422" not in operation["responses"] for _, operation in operations(document))
    assert not {"HTTPValidationError", "ValidationError"} & set(document["components"]["schemas"])


async def test_the_guarded_endpoints_say_that_they_may_refuse(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        if name not in ("GET /livez", "GET /readyz"):
            assert {"401", "403", "429", "500", "503"} <= set(operation["responses"]), name
    assert {"400", "413"} <= set(document["paths"]["/v1/event"]["post"]["responses"])


async def test_every_endpoint_has_a_summary_and_shows_its_answer(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        assert operation["summary"][0].isupper(), name
        for content in operation["responses"]["200"]["content"].values():
            assert "example" in content or "$ref" in content["schema"], name


async def test_what_a_problem_is_is_described(document: dict[str, Any]) -> None:
    assert set(document["components"]["schemas"]["Problem"]["properties"]) == set(Problem.model_fields)


async def test_the_event_is_described(document: dict[str, Any]) -> None:
    assert document["paths"]["/v1/event"]["post"]["requestBody"]["content"]["application/json"]["example"]


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            value = list(value.values())
        for inner in value if isinstance(value, list) else ():
            yield from references(inner)

    found = set(references(document))
    assert found
    assert found <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


async def test_tokens_are_described_where_there_are_some(document: dict[str, Any]) -> None:
    assert "securitySchemes" not in document["components"]
    async with client_over(MemoryNode(), tokens=(token("ops"),)) as client:
        guarded = (await client.get("/openapi.json", headers=bearing("ops"))).json()
    secured = {name for name, operation in operations(guarded) if operation.get("security") == [{"token": []}]}
    assert secured == {name for name, _ in operations(guarded)} - {"GET /livez", "GET /readyz"}


def test_every_endpoint_has_its_row_of_access_and_every_row_an_endpoint() -> None:
    routes = [route for route in create_app(MemoryNode()).routes if isinstance(route, Route)]
    offered = {(method, route.path_format) for route in routes for method in (route.methods or ()) if method != "HEAD"}
    assert offered == set(ACCESS)


def test_kinds_of_problems_are_told_apart_by_their_names() -> None:
    assert len({kind.slug for kind in KINDS}) == len(KINDS)
    assert all(kind.urn == f"urn:trunkline:problem:{kind.slug}" for kind in KINDS)
