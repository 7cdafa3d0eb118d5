"""The node's REST API, as Markdown, out of its OpenAPI document and its table of access."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from trunkline.api.access import ACCESS
from trunkline.api.app import create_app
from trunkline.api.problem import KINDS
from trunkline.api.view import NodeView
from trunkline.core.config import ApiConfig, TokenConfig
from trunkline.core.secret import Secret

_NOBODY = SimpleNamespace(**dict.fromkeys(("inject", "status", "topology", "trunk", "store", "checks")))
_PLACES = {"area": "fleet", "key": "app/lamp", "site": "lyon", "node": "node-1", "name": "LRQ_Recv_orders_paris"}
_SOME_TOKEN = TokenConfig(name="reference", sha256=Secret("0" * 64))


def document() -> dict[str, Any]:
    """As an API with tokens gives it; no node is asked for anything."""
    return create_app(cast(NodeView, _NOBODY), ApiConfig(tokens=(_SOME_TOKEN,))).openapi()


def page() -> str:
    return "\n".join(line for path, method, operation in _operations() for line in _operation(path, method, operation))


def access() -> str:
    rows = [
        f"| `{method} {path}` | {f'`{row.role}`' if row.role else 'none'} | {'yes' if row.tenants else 'no'} |"
        for (method, path), row in ACCESS.items()
    ]
    return "\n".join(["| endpoint | role | a tenant's token |", "|---|---|---|", *rows])


def problems() -> str:
    rows = [f"| {kind.status} | `{kind.urn}` | {kind.title} |" for kind in KINDS]
    return "\n".join(["| status | `type` | `title` |", "|---|---|---|", *rows])


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            yield path, method.upper(), operation


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield from (f"## `{method} {path}`", "", f"{operation['summary']}.", "")
    if operation.get("description"):
        yield from (operation["description"], "")
    for parameter in operation.get("parameters", ()):
        need = "" if parameter.get("required") else "; may be left out"
        about = f": {parameter['description']}" if parameter.get("description") else ""
        yield from (f"- `{parameter['name']}` in the {parameter['in']}{need}{about}", "")
    yield from ("```sh", _curl(method, path, operation), "```", "")
    yield from _example(operation["responses"]["200"])
    refusals = [status for status in operation["responses"] if status not in ("200", "default")]
    if refusals:
        yield from (f"May refuse with {', '.join(refusals)}.", "")


def _curl(method: str, path: str, operation: dict[str, Any]) -> str:
    token = " -H @auth.txt" if operation.get("security") else ""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    data = f" -H 'Content-Type: application/json' -d '{json.dumps(body)}'" if body is not None else ""
    verb = f" -X {method}" if method not in ("GET", "POST") or (method == "POST" and body is None) else ""
    for name, example in (_PLACES | _places(operation)).items():
        path = path.replace(f"{{{name}}}", example)
    return f"curl{verb}{token}{data} 'http://127.0.0.1:8400{path}'"


def _places(operation: dict[str, Any]) -> dict[str, str]:
    """What the description gives as examples for parts of the address."""
    found = {one["name"]: one.get("schema", {}).get("examples", ()) for one in operation.get("parameters", ())}
    return {name: str(examples[0]) for name, examples in found.items() if examples}


def _example(answer: dict[str, Any]) -> Iterator[str]:
    for example in (content["example"] for content in answer["content"].values() if "example" in content):
        language, text = ("text", example.rstrip()) if isinstance(example, str) else ("json", json.dumps(example, indent=2))
        yield from (f"```{language}", text, "```", "")
