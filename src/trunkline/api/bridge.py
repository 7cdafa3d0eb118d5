"""A hub's status bridge under /v1/bridge: how each site's status is and why, what was set aside, and what to do about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response

from trunkline.api import bridgemodels as shown
from trunkline.api.endpoints import as_json, json_response
from trunkline.api.openapi import GUARDED, errors, example_answer
from trunkline.api.problem import NO_BRIDGE, NO_STATUS, Kind, Refused
from trunkline.api.storebodies import body_of, read_body
from trunkline.api.threads import Threads
from trunkline.api.view import NodeView
from trunkline.bridge.inspect import NoSuchBundle, NoSuchSite
from trunkline.bridge.operating import NoBridge
from trunkline.core.errors import TrunklineError

MOST_SITES, MOST_BUNDLES, MOST_BYTES = 1_000, 1_000, 65_536
LAST_ID = 2**63 - 1
_GUARDED = (*GUARDED, 400, 404)
Answered = Callable[[Callable[[], dict[str, Any]]], Awaitable[Response]]

SiteName = Annotated[str, Path(description="as /v1/bridge/status names it", examples=["paris"])]
TypeName = Annotated[str | None, Query(description="only this bundle type")]
BundleId = Annotated[int, Path(ge=1, le=LAST_ID, description="as /v1/bridge/quarantine has it", examples=[7])]
After = Annotated[str, Query(description="only sites whose names come after this", max_length=200)]
Sites = Annotated[int, Query(ge=1, le=MOST_SITES, description="sites at most")]
OfSite = Annotated[str | None, Query(description="only of this site")]
Settled = Annotated[bool, Query(description="also those that are dealt with")]
Before = Annotated[int, Query(ge=1, le=LAST_ID, description="only ids below this")]
Bundles = Annotated[int, Query(ge=1, le=MOST_BUNDLES, description="bundles at most, the newest first")]
Bytes = Annotated[int, Query(ge=0, le=MOST_BYTES, description="of the payload at most")]
Force = Annotated[bool, Query(description="even though bundles of it came within the last minute")]

_KINDS: tuple[tuple[type[TrunklineError], Kind], ...] = (
    (NoBridge, NO_BRIDGE), (NoSuchSite, NO_STATUS), (NoSuchBundle, NO_STATUS),
)  # fmt: skip


def offer_bridge(app: FastAPI, view: NodeView, threads: Threads) -> None:
    async def answered(ask: Callable[[], dict[str, Any]]) -> Response:
        return json_response(await threads.run(as_json, lambda: _found(ask)))

    _offer_looks(app, view, answered)
    _offer_sites(app, view, answered)
    _offer_quarantine(app, view, answered)
    _offer_settling(app, view, answered)
    _offer_resync(app, view, answered)


def _found(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return ask()
    except (NoBridge, NoSuchSite, NoSuchBundle) as error:
        kind = next(kind for type_, kind in _KINDS if isinstance(error, type_))
        raise Refused(kind, error.what, error.why, error.next_step) from None


def _offer_looks(app: FastAPI, view: NodeView, answered: Answered) -> None:
    @app.get(
        "/v1/bridge/status",
        summary="What is applied of each site and type, what waits, and why",
        description="Sites in the order of their names, in pages; the summary and the notes are of all.",
        response_model=shown.BridgeShown,
        responses=example_answer(shown.STATUS) | errors(*_GUARDED),
    )
    async def status(type: TypeName = None, after: After = "", limit: Sites = 100) -> Response:
        return await answered(lambda: view.bridge.status(type, after, limit))

    @app.get(
        "/v1/bridge/types",
        summary="Which bundle types there are",
        response_model=shown.TypesShown,
        responses=example_answer(shown.TYPES) | errors(*_GUARDED),
    )
    async def types() -> Response:
        return await answered(lambda: view.bridge.types())

    @app.get(
        "/v1/bridge/offsets",
        summary="Where each queue and topic is read on",
        response_model=shown.OffsetsShown,
        responses=example_answer(shown.OFFSETS) | errors(*_GUARDED),
    )
    async def offsets() -> Response:
        return await answered(lambda: view.bridge.offsets())


def _offer_sites(app: FastAPI, view: NodeView, answered: Answered) -> None:
    @app.get(
        "/v1/bridge/sites/{site}",
        summary="All about the status of one site",
        response_model=shown.SiteShown,
        responses=example_answer(shown.SITE) | errors(*_GUARDED),
    )
    async def site(site: SiteName, type: TypeName = None) -> Response:
        return await answered(lambda: view.bridge.site(site, type))

    @app.delete(
        "/v1/bridge/sites/{site}",
        summary="Delete everything the hub has of a site that will not come back",
        description="In one transaction. Should the site come back, it begins anew.",
        response_model=shown.ForgottenShown,
        responses=example_answer(shown.FORGOTTEN) | errors(*_GUARDED),
    )
    async def forget(site: SiteName, force: Force = False) -> Response:
        return await answered(lambda: view.bridge.forget(site, force))


def _offer_quarantine(app: FastAPI, view: NodeView, answered: Answered) -> None:
    @app.get(
        "/v1/bridge/quarantine",
        summary="Bundles that were set aside, and why",
        response_model=shown.QuarantineShown,
        responses=example_answer(shown.QUARANTINE) | errors(*_GUARDED),
    )
    async def quarantine(
        site: OfSite = None, settled: Settled = False, before: Before = LAST_ID, limit: Bundles = 50
    ) -> Response:
        return await answered(lambda: view.bridge.quarantine(site, settled, before, limit))

    @app.get(
        "/v1/bridge/quarantine/{id}",
        summary="One of them, with headers and payload",
        response_model=shown.QuarantinedShown,
        responses=example_answer(shown.QUARANTINED) | errors(*_GUARDED),
    )
    async def quarantined(id: BundleId, bytes: Bytes = 1024) -> Response:
        return await answered(lambda: view.bridge.quarantined(id, bytes))


def _offer_settling(app: FastAPI, view: NodeView, answered: Answered) -> None:
    @app.post(
        "/v1/bridge/quarantine/{id}",
        summary="Try it again",
        description="It goes back to the database workers. Deltas and hybrids are refused: a resync makes up for them.",
        response_model=shown.SettledShown,
        responses=example_answer(shown.RETRIED) | errors(*_GUARDED),
    )
    async def retry(id: BundleId) -> Response:
        return await answered(lambda: view.bridge.retry(id))

    @app.delete(
        "/v1/bridge/quarantine/{id}",
        summary="Give it up",
        description="It stays to be looked at, and counts as dealt with.",
        response_model=shown.SettledShown,
        responses=example_answer(shown.DROPPED) | errors(*_GUARDED),
    )
    async def drop(id: BundleId) -> Response:
        return await answered(lambda: view.bridge.drop(id))


def _offer_resync(app: FastAPI, view: NodeView, answered: Answered) -> None:
    @app.post(
        "/v1/bridge/resync",
        summary="Ask a site to send all it has anew",
        description="It is asked again and again until it has come, whatever restarts meanwhile.",
        response_model=shown.ResyncShown,
        responses=example_answer(shown.RESYNC) | errors(*_GUARDED, 413),
        openapi_extra=body_of(shown.ResyncWanted, shown.RESYNC_WANTED),
    )
    async def resync(request: Request) -> Response:
        wanted = read_body(shown.ResyncWanted, await request.body())
        return await answered(lambda: view.bridge.resync(wanted.site, wanted.type))
