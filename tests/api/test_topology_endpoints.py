"""Paths and carried records over the API: what each answer has, and that its description says so."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from memory_node import MemoryNode, client_over, is_problem
from memory_paths import AGE, PATHS, MemoryPaths
from trunkline.api import topologymodels as models
from trunkline.core.errors import Retryable

ANSWERS: dict[str, type[BaseModel]] = {
    "/v1/topology": models.TopologyShown,
    "/v1/topology/table": models.TableShown,
    "/v1/topology/why/lyon": models.WhyShown,
    "/v1/trunk": models.TrunkShown,
}
TEMPLATES = {path.replace("/lyon", "/{site}"): model for path, model in ANSWERS.items()}


async def got(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("path", ANSWERS)
@pytest.mark.parametrize("leads", [True, False])
async def test_every_answer_is_what_its_description_promises(path: str, leads: bool) -> None:
    async with client_over(MemoryNode(paths=MemoryPaths(leads=leads))) as client:
        found = await got(client, path)
    model = ANSWERS[path]
    assert model.model_validate(found).model_dump(by_alias=True) == found


async def test_the_description_names_the_models_and_its_examples_fit_them(client: httpx.AsyncClient) -> None:
    paths = (await got(client, "/openapi.json"))["paths"]
    for template, model in TEMPLATES.items():
        content = paths[template]["get"]["responses"]["200"]["content"]["application/json"]
        assert content["schema"] == {"$ref": f"#/components/schemas/{model.__name__}"}
        assert model.model_validate(content["example"]).model_dump(by_alias=True) == content["example"]


async def test_topology_has_neighbours_rows_and_moves(client: httpx.AsyncClient) -> None:
    found = await got(client, "/v1/topology")
    assert (found["site"], found["leads"], found["incarnation"]) == ("paris", True, 17)
    assert [neighbour["site"] for neighbour in found["neighbours"]] == ["hub", "rome"]
    assert [(row["source"], row["via"], row["depth"], row["cost"], row["path"]) for row in found["rows"]] == [
        ("hub", "hub", 1, 1, ["hub"]),
        ("lyon", "hub", 2, 3, ["hub", "lyon"]),
        ("rome", "rome", 1, 1, ["rome"]),
    ]
    assert found["moves"] == {"first": 3, "forced": 2, "voluntary": 1, "watchdog": 0}


async def test_the_table_says_who_published_and_who_did_not(client: httpx.AsyncClient) -> None:
    found = await got(client, "/v1/topology/table")
    assert (found["sites"], found["missing"]) == (["hub", "lyon", "paris"], ["rome"])
    assert {row["subscriber"] for row in found["rows"]} == {"hub", "lyon", "paris"}
    assert [row["flags"] for row in found["rows"] if (row["subscriber"], row["source"]) == ("lyon", "rome")] == [["stale"]]


async def test_why_has_the_choice_the_reason_and_every_candidate(client: httpx.AsyncClient) -> None:
    found = await got(client, "/v1/topology/why/lyon")
    assert (found["row"]["via"], found["manner"], found["since_seconds"]) == ("hub", "forced", AGE)
    assert found["reason"] == "hub is the nearest way"
    assert [(one["via"], one["chosen"], one["cursor"]) for one in found["candidates"]] == [
        ("hub", True, 4711),
        ("rome", False, None),
    ]


@pytest.mark.parametrize("site", ["atlantis", "a b", "ключ", "%2E%2E", "x" * 300])
async def test_an_unknown_site_is_a_404_that_names_the_known_ones(client: httpx.AsyncClient, site: str) -> None:
    answer = await client.get(f"/v1/topology/why/{site}")
    assert is_problem(answer, 404, "no-such-site")
    assert answer.json()["detail"].endswith(": nobody told of it here")
    assert answer.json()["next"] == "name one of those that are known: hub, lyon, rome"


async def test_a_site_takes_its_own_records_from_nobody(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/topology/why/paris")
    assert is_problem(answer, 404, "no-such-site")
    assert answer.json()["detail"] == "site 'paris': it is this site itself, which takes its own records from nobody"


async def test_of_many_known_sites_some_are_named() -> None:
    paths = MemoryPaths(missing=tuple(f"site-{n:03}" for n in range(100)))
    async with client_over(MemoryNode(paths=paths)) as client:
        answer = await client.get("/v1/topology/why/atlantis")
    assert answer.json()["next"].endswith("site-016 and 83 more")


async def test_a_node_that_knows_nobody_says_so() -> None:
    class Alone(MemoryPaths):
        def topology_table(self) -> dict[str, Any]:
            return {"rows": [], "sites": ["paris"], "missing": []}

    async with client_over(MemoryNode(paths=Alone())) as client:
        answer = await client.get("/v1/topology/why/lyons")
    assert answer.json()["next"] == "name one of those that are known: none yet: see that its links are up"


async def test_trunk_counts_per_link_per_origin_and_for_whom(client: httpx.AsyncClient) -> None:
    found = await got(client, "/v1/trunk")
    assert set(found["links"]) == {"hub", "rome"}
    assert {"received", "duplicate", "stray", "catch_up", "bytes", "sent", "relayed"} <= set(found["links"]["hub"])
    assert [(stream["origin"], stream["from"], stream["lag"]) for stream in found["streams"]] == [
        (path[-1], path[0], 0) for path in PATHS["paris"]
    ]
    assert [(child["site"], child["lagging"]) for child in found["children"]] == [("hub", False), ("rome", True)]


@pytest.mark.parametrize("path", ANSWERS)
async def test_a_node_that_cannot_say_is_unavailable(path: str) -> None:
    class Silent(MemoryPaths):
        def _neighbours(self) -> list[str]:
            raise Retryable("node", "it does not run", "ask again")

        def topology_table(self) -> dict[str, Any]:
            return {"rows": self._neighbours()}

    node = MemoryNode(paths=MemoryPaths())
    node.paths.__class__ = Silent
    async with client_over(node) as client:
        assert is_problem(await client.get(path), 503, "unavailable")
