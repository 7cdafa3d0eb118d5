"""The API's description as a page: plain HTML out of the OpenAPI document, without scripts and without anything from elsewhere.

The usual pages load their code from a public server: an edge site may not reach it, and what it sends would run with the
rights of whoever opened the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import FastAPI, Response

from trunkline.api.problem import KINDS
from trunkline.core.jsoncodec import dumps

_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#1c2430}
h2{font:600 1.1rem ui-monospace,monospace;margin:2rem 0 .2rem;border-top:1px solid #d5dbe3;padding-top:1rem}
b{display:inline-block;min-width:3.5rem;color:#0b5c8a}pre,code{font:.9rem ui-monospace,monospace;background:#f2f5f8}
pre{padding:.6rem;overflow-x:auto}td{padding:.1rem 1rem .1rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#dfe6ee;background:#12171d}pre,code{background:#1d252e}b{color:#7cc4ee}}"""
_CODE = re.compile(r"`([^`]+)`")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


def offer_docs(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(page(app.openapi()), media_type="text/html", headers={"Content-Security-Policy": _POLICY})


def page(document: dict[str, Any]) -> str:
    info = document["info"]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title><style>{_STYLE}</style>'
    title = f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
    link = '<p>For programs: <a href="/openapi.json">/openapi.json</a></p>'
    return "".join((head, title, _prose(info["description"]), link, *_operations(document), _problems()))


def _operations(document: dict[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"<h2><b>{method.upper()}</b> {escape(path)}</h2><p>{escape(operation['summary'])}.</p>"
            yield _prose(operation.get("description", ""))
            yield from _parameters(operation)
            yield f"<pre>{escape(_curl(method, path, operation))}</pre>"
            yield from _answers(operation)


def _prose(text: str) -> str:
    return "".join(_CODE.sub(r"<code>\1</code>", f"<p>{escape(part)}</p>") for part in text.split("\n\n") if part)


def _parameters(operation: dict[str, Any]) -> Iterator[str]:
    for parameter in operation.get("parameters", ()):
        need = "" if parameter.get("required") else ", may be left out"
        about = f": {parameter['description']}" if parameter.get("description") else ""
        yield _prose(f"`{parameter['name']}` in the {parameter['in']}{need}{about}")


def _curl(method: str, path: str, operation: dict[str, Any]) -> str:
    token = " -H @auth.txt" if operation.get("security") else ""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    data = f" -H 'Content-Type: application/json' -d '{dumps(body).decode()}'" if body is not None else ""
    verb = f" -X {method.upper()}" if method not in ("get", "post") else ""
    return f"curl{verb}{token}{data} http://localhost:PORT{path}"


def _answers(operation: dict[str, Any]) -> Iterator[str]:
    for answer in (answer for status, answer in operation["responses"].items() if status == "200"):
        for example in (content["example"] for content in answer["content"].values() if "example" in content):
            yield f"<pre>{escape(example if isinstance(example, str) else dumps(example).decode())}</pre>"
    refusals = [status for status in operation["responses"] if status not in ("200", "default")]
    yield f"<p>May refuse with {', '.join(refusals)}.</p>" if refusals else ""


def _problems() -> str:
    rows = "".join(f"<tr><td>{kind.status}<td><code>{kind.urn}</code><td>{escape(kind.title)}" for kind in KINDS)
    return f"<h2>Problems</h2><table>{rows}</table>"
