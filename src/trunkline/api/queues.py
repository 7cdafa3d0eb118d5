"""A site's queues under /v1/queues: what they hold, how each session is, and a snapshot when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response

from trunkline.api import queuesmodels as shown
from trunkline.api.endpoints import as_json, json_response
from trunkline.api.openapi import GUARDED, errors, example_answer
from trunkline.api.problem import NO_QUEUE, Refused
from trunkline.api.storebodies import body_of, read_body
from trunkline.api.threads import Threads
from trunkline.api.view import NodeView
from trunkline.queues.inspect import NoSuchQueue

MOST_ENTRIES, MOST_BYTES = 100, 65_536
LAST_POSITION = 2**63 - 1

QueueName = Annotated[str, Path(description="as /v1/queues names it", examples=["LRQ_Recv_orders_paris"])]
After = Annotated[
    int | None, Query(ge=0, le=LAST_POSITION, description="only what is behind this position; left out: what waits to be read")
]
Limit = Annotated[int, Query(ge=1, le=MOST_ENTRIES, description="entries at most")]
Bytes = Annotated[int, Query(ge=0, le=MOST_BYTES, description="of each payload at most")]


def offer_queues(app: FastAPI, view: NodeView, threads: Threads) -> None:
    _offer_looks(app, view, threads)
    _offer_entries(app, view, threads)
    _offer_sync(app, view, threads)


def _offer_looks(app: FastAPI, view: NodeView, threads: Threads) -> None:
    @app.get(
        "/v1/queues",
        summary="The log, the receive queues and who reads them, snapshots and dead letters",
        response_model=shown.QueuesShown,
        responses=example_answer(shown.QUEUES) | errors(*GUARDED),
    )
    async def queues() -> Response:
        return json_response(await threads.run(lambda: as_json(view.queues.listing)))

    @app.get(
        "/v1/queues/status",
        summary="How each session of this site is, as source and as destination, and why it stands still",
        description="As the site's leader last wrote it; `age_seconds` says when.",
        response_model=shown.SessionsShown,
        responses=example_answer(shown.SESSIONS) | errors(*GUARDED),
    )
    async def status() -> Response:
        return json_response(await threads.run(lambda: as_json(view.queues.status)))


def _offer_entries(app: FastAPI, view: NodeView, threads: Threads) -> None:
    @app.get(
        "/v1/queues/{name}/entries",
        summary="Look into a queue; nothing is taken out",
        response_model=shown.EntriesShown,
        responses=example_answer(shown.ENTRIES) | errors(*GUARDED, 400, 404),
    )
    async def entries(name: QueueName, after: After = None, limit: Limit = 20, bytes: Bytes = 1024) -> Response:
        def look() -> dict[str, Any]:
            return _found(lambda: view.queues.entries(name, after, limit, bytes))

        return json_response(await threads.run(as_json, look))


def _offer_sync(app: FastAPI, view: NodeView, threads: Threads) -> None:
    @app.post(
        "/v1/queues/sync",
        summary="Have a site, or all, brought up by a snapshot",
        description="Once, whatever restarts meanwhile: the answer's requests are durable. One that waits to begin is joined.",
        response_model=shown.SyncShown,
        responses=example_answer(shown.SYNC) | errors(*GUARDED, 400, 413),
        openapi_extra=body_of(shown.SyncWanted, shown.SYNC_WANTED),
    )
    async def sync(request: Request) -> Response:
        wanted = read_body(shown.SyncWanted, await request.body())
        return json_response(await threads.run(lambda: as_json(view.queues.sync, wanted.site, wanted.client)))


def _found(look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return look()
    except NoSuchQueue as error:
        raise Refused(NO_QUEUE, error.what, error.why, error.next_step) from None
