"""Is it alive, is it ready, and its numbers.

/livez is answered by the event loop itself, before every limit. /readyz asks the node, in threads of its own. Who has no
token sees which checks are well, and not why, where the API has tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel, Field

from trunkline.api.metrics import ViewCollector
from trunkline.api.openapi import GUARDED, Responses, errors, example_answer, text_answer
from trunkline.api.threads import Threads
from trunkline.api.tokens import Caller
from trunkline.api.tracing import SPANS
from trunkline.api.view import NodeView
from trunkline.api.visit import visit_of
from trunkline.core.errors import TrunklineError
from trunkline.core.health import Check

PROBE_THREADS = 2
_READY = {"ready": True, "checks": [{"name": "database", "ok": True, "reason": "answers"}]}
_METRICS_EXAMPLE = 'trunkline_ready 1.0\ntrunkline_check{name="database"} 1.0\n'


class Live(BaseModel):
    live: bool


class CheckReport(BaseModel):
    name: str = Field(examples=["database"])
    ok: bool
    reason: str | None = Field(default=None, examples=["no answer since 4 s"], description="left out without a token")


class Readiness(BaseModel):
    ready: bool = Field(description="whether each check is ok")
    checks: list[CheckReport]


_NOT_READY: Responses = {503: {"model": Readiness, "description": "At least one check is not ok"}}


def checks_of(view: NodeView) -> Sequence[Check]:
    try:
        return view.checks()
    except TrunklineError as error:
        return [Check("node", False, f"{error.what}: {error.why}")]
    except TimeoutError:
        return [Check("node", False, "it does not answer")]


def readiness(checks: Sequence[Check], caller: Caller | None) -> Readiness:
    trusted = caller is not None and caller.tenant is None
    reports = [CheckReport(name=c.name, ok=c.ok, reason=c.reason if trusted else None) for c in checks]
    return Readiness(ready=all(check.ok for check in checks), checks=reports)


def offer_probes(app: FastAPI, view: NodeView) -> None:
    threads = Threads("api-probe", PROBE_THREADS)

    @app.get("/livez", summary="The process answers", response_model=Live, responses=example_answer({"live": True}) | errors())
    async def livez() -> Response:
        return Response(b'{"live":true}', media_type="application/json")

    @app.get(
        "/readyz",
        summary="The node does its work",
        response_model=Readiness,
        responses=example_answer(_READY) | _NOT_READY | errors(403, 429, 500),
    )
    async def readyz(request: Request) -> Response:
        report = readiness(await threads.run(checks_of, view), visit_of(request.scope).caller)
        body = report.model_dump_json(exclude_none=True)
        return Response(body, 200 if report.ready else 503, media_type="application/json")


def offer_metrics(app: FastAPI, view: NodeView, registry: CollectorRegistry, threads: Threads) -> None:
    registry.register(SPANS)
    views = {
        "status": view.status, "topology": view.topology, "trunk": view.trunk, "queues": lambda: view.queues.numbers(),
        "bridge": lambda: view.bridge.numbers(), "store": lambda: view.store.areas(),
        "routes": lambda: view.routing(),
    }  # fmt: skip
    registry.register(ViewCollector(views, lambda: checks_of(view)))

    @app.get(
        "/metrics",
        summary="Numbers for Prometheus",
        response_class=PlainTextResponse,
        responses=text_answer(_METRICS_EXAMPLE) | errors(*GUARDED),
    )
    async def metrics(request: Request) -> Response:
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(await threads.run(encode, registry), headers={"Content-Type": media_type})
