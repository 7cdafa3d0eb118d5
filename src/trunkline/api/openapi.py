"""The API's description: what each endpoint answers, and its errors, which are problem details everywhere."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from trunkline.api.access import ACCESS
from trunkline.api.problem import KINDS, MEDIA_TYPE, Problem
from trunkline.api.storebodies import body_schemas
from trunkline.core.config import Role

Responses = dict[int | str, dict[str, Any]]

JSON_BODY = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {}, "example": {"kind": "alarm", "level": 3}}}}
}
_PROBLEM = {"$ref": "#/components/schemas/Problem"}
GUARDED = (401, 403, 429, 500, 503)  # what may happen at every endpoint but the probes
_ABOUT = """Put events in, see what the node does, what its queues hold and how every site's status is, and read, write and
watch the replicated store.

Errors are problem details (RFC 9457): `type` is for programs, `detail` and `next` are for people, and `instance` names the
request by the id that the node's log carries too (`X-Request-Id`; send your own or take ours).

Without configured tokens the API listens on loopback only. With tokens, send the header `Authorization: Bearer <token>`; the
examples have that line in a file `auth.txt`, since others can read a program's arguments."""


def errors(*codes: int) -> Responses:
    return {code: _documented(code) for code in sorted(codes)} | {"default": _problem("Any other error")}


def _documented(code: int) -> dict[str, Any]:
    kinds = [kind for kind in KINDS if kind.status == code]
    examples = {kind.slug: {"value": {"type": kind.urn, "title": kind.title, "status": code}} for kind in kinds}
    return _problem("; or: ".join(kind.title for kind in kinds), examples)


def _problem(description: str, examples: dict[str, Any] | None = None) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": _PROBLEM} | ({"examples": examples} if examples else {})
    return {"description": description, "content": {MEDIA_TYPE: content}}


def example_answer(example: dict[str, Any]) -> Responses:
    """For an endpoint with a model of its answer."""
    return {200: {"content": {"application/json": {"example": example}}}}


def json_answer(example: dict[str, Any]) -> Responses:
    return {200: {"content": {"application/json": {"schema": {"type": "object"}, "example": example}}}}


def text_answer(example: str) -> Responses:
    return {200: {"content": {"text/plain": {"schema": {"type": "string"}, "example": example}}}}


def lines_answer(example: str) -> Responses:
    """One JSON document per line, as they come."""
    return {200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}, "example": example}}}}


def describe(app: FastAPI, guarded: bool) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas |= body_schemas() | problem_schemas()
        if guarded:
            _demand_tokens(document)
        app.openapi_schema = document
    return app.openapi_schema


def problem_schemas() -> dict[str, Any]:
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**problem.pop("$defs"), "Problem": problem}


def _demand_tokens(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            access = ACCESS[method.upper(), path]
            if access.role is not None:
                operation["security"] = [{"token": []}]
                operation["description"] = f"{operation.get('description', '')}\n\n{_needs(access.role)}".strip()


def _needs(role: Role) -> str:
    return f"Needs a token with the role `{role}`."
