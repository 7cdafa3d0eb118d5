"""Reading the store over the API: areas, keys, dumps, hashes, signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Response
from fastapi import Query as Parameter

from trunkline.api.endpoints import json_response
from trunkline.api.openapi import GUARDED, errors, json_answer
from trunkline.api.storequery import (
    MOST_FILTERS,
    MOST_ON_PAGE,
    PAGE,
    After,
    AreaName,
    KeyName,
    Limit,
    Values,
    checked_key,
    page,
    unknown_area,
    wanted,
)
from trunkline.api.storereasons import not_there
from trunkline.api.storeview import Query, StoreView
from trunkline.api.threads import Threads
from trunkline.api.view import NodeView
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps

Wanted = Annotated[Query, Depends(wanted)]

VALUE = {"version": 3, "originator": "paris/node-1", "ttl_ms": 29841, "ttl_version": 0, "hash": "91f0c3d2a4b5e677", "bytes": 2}
_FULL = VALUE | {"text": "on"}
_PAGE = {"area": "fleet", "values": {"app/lamp": _FULL}, "next": None}
_SUMMARY = {
    "keys": 12, "bytes": 1108, "own": 2, "peers": 2, "idle": 0, "syncing": 0, "initialized": 2, "pending": 0, "blocked": 0,
    "synced": True, "watches": 0, "counters": {"updated_key_vals": 12, "expired_key_vals": 0},
}  # fmt: skip
_HASH = {"version": 3, "originator": "paris/node-1", "hash": "91f0c3d2a4b5e677", "ttl_version": 0}
_READS = errors(*GUARDED, 400, 404)
_PAGES = f"""A page has at most {PAGE} keys unless `limit` says otherwise, and about 4 MiB of values; `next` is what the next
page has as `after`, or null. Keys come in the order of their names; those that are about to end are left out."""


class Asking:
    """Asks the node's store in a thread; an area the node is not in is a 404 that names those it is in."""

    def __init__(self, view: NodeView, threads: Threads) -> None:
        self._view, self.threads = view, threads

    async def answer(self, area: str, ask: Callable[[StoreView], Any]) -> Response:
        return json_response(await self.threads.run(lambda: dumps(self.known(area, ask))))

    def known(self, area: str, ask: Callable[[StoreView], Any]) -> Any:
        store = self._view.store
        try:
            return ask(store)
        except Invalid:
            known = sorted(store.areas())
            if area in known:
                raise
            raise unknown_area(area, known) from None


def offer_store_reads(app: FastAPI, asking: Asking) -> None:
    _offer_areas(app, asking)
    _offer_summary(app, asking)
    _offer_keys(app, asking)
    _offer_digests(app, asking)


def _offer_areas(app: FastAPI, asking: Asking) -> None:
    @app.get(
        "/v1/store",
        summary="The areas of the replicated store that this node is in",
        responses=json_answer({"areas": {"fleet": _SUMMARY}}) | errors(*GUARDED),
    )
    async def areas() -> Response:
        return await asking.answer("", lambda store: {"areas": store.areas()})

    @app.get(
        "/v1/store/*",
        summary="The keys of several areas, or of all",
        description="`area` names them; without, it is all this node is in. Each area comes with its first page: its `next` is "
        "for `GET /v1/store/{area}`.",
        responses=json_answer({"areas": {"fleet": _PAGE}}) | _READS,
    )
    async def several(
        query: Wanted,
        area: Annotated[list[str], Parameter(default_factory=list, max_length=MOST_FILTERS, description="may be repeated")],
        values: Values = True,
        limit: Limit = PAGE,
    ) -> Response:
        def dump(store: StoreView) -> dict[str, Any]:
            known = sorted(store.areas())
            if unknown := [name for name in area if name not in known]:
                raise unknown_area(unknown[0], known)
            return {"areas": {name: page(store, name, query, values, "", limit) for name in area or known}}

        return await asking.answer("", dump)


def _offer_summary(app: FastAPI, asking: Asking) -> None:
    @app.get(
        "/v1/store/{area}/summary", summary="How large an area is, and its counters", responses=json_answer(_SUMMARY) | _READS
    )
    async def summary(area: AreaName) -> Response:
        def found(store: StoreView) -> Any:
            areas = store.areas()
            if area not in areas:
                raise unknown_area(area, sorted(areas))
            return areas[area]

        return await asking.answer(area, found)


def _offer_keys(app: FastAPI, asking: Asking) -> None:
    @app.get(
        "/v1/store/{area}",
        summary="The keys of an area and their values",
        description=_PAGES,
        responses=json_answer(_PAGE) | _READS,
    )
    async def dump(area: AreaName, query: Wanted, values: Values = True, after: After = "", limit: Limit = PAGE) -> Response:
        return await asking.answer(area, lambda store: page(store, area, query, values, after, limit))

    @app.get(
        "/v1/store/{area}/keys/{key:key}",
        summary="One key",
        description="`text` holds the bytes if they are UTF-8, otherwise `base64` does.",
        responses=json_answer({"key": "app/lamp", **_FULL}) | _READS,
    )
    async def get(area: AreaName, key: KeyName) -> Response:
        def found(store: StoreView) -> dict[str, Any]:
            value = store.get(area, checked_key(key))
            if value is None:
                raise not_there(key, area)
            return {"key": key, **value}

        return await asking.answer(area, found)

    @app.get(
        "/v1/store/{area}/own",
        summary="The keys that this node keeps alive",
        responses=json_answer(
            {"area": "fleet", "keys": {"app/lamp": {"keep": "persist", "version": 3, "ttl_ms": 30000, "bytes": 2}}}
        )
        | _READS,
    )
    async def own(area: AreaName) -> Response:
        return await asking.answer(area, lambda store: {"area": area, "keys": store.own(area)})


def _offer_digests(app: FastAPI, asking: Asking) -> None:
    @app.get(
        "/v1/store/{area}/hashes",
        summary="What tells the values of two nodes apart, without the values",
        description="The hash covers key, version, originator and bytes, and not the ttl.",
        responses=json_answer({"area": "fleet", "hashes": {"app/lamp": _HASH}, "next": None}) | _READS,
    )
    async def hashes(area: AreaName, query: Wanted, after: After = "", limit: Limit = MOST_ON_PAGE) -> Response:
        def found(store: StoreView) -> dict[str, Any]:
            one = page(store, area, query, False, after, limit)
            hashes = {key: {name: shown[name] for name in _HASH} for key, shown in one["values"].items()}
            return {"area": area, "hashes": hashes, "next": one["next"]}

        return await asking.answer(area, found)

    @app.get(
        "/v1/store/{area}/signature",
        summary="One number over all keys and values",
        description="The same at every node that has the same keys with the same values, whatever their ttl.",
        responses=json_answer({"area": "fleet", "signature": "5d0c1f0b2ae3c497"}) | _READS,
    )
    async def signature(area: AreaName, query: Wanted) -> Response:
        return await asking.answer(area, lambda store: {"area": area, "signature": store.signature(area, query)})
