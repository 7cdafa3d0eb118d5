"""Writing to the store over the API: keys, ttls, and which peers a node has.

What is written to one key and not taken is a problem of status 409; of many, each has its reason in `refused`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI, Request, Response

from trunkline.api.openapi import GUARDED, errors, json_answer
from trunkline.api.problem import NOT_FOUND, Refused
from trunkline.api.storebodies import MOST_AT_ONCE, StoreKeys, StorePeer, StorePut, StorePuts, StoreTtls, body_of, read_body
from trunkline.api.storequery import AreaName, KeyName, checked_key
from trunkline.api.storereads import VALUE, Asking
from trunkline.api.storereasons import not_taken, not_there
from trunkline.api.storeview import Reasons, StoreView
from trunkline.core.ids import NodeId
from trunkline.store.values import Reason

_PUT = {"text": "on", "ttl_ms": 30000}
_STORED = VALUE | {"ttl_ms": 29999}
_MANY = {"taken": ["app/lamp"], "refused": {"node:lyon/node-1": "not_the_owner"}}
_PEER = {
    "state": "initialized", "seconds": 41.2, "flaps": 0, "failures": 0, "reason": "", "linked": True,
    "addresses": ["lyon.example.com:7400"], "pending": 0,
}  # fmt: skip
_WRITES = errors(*GUARDED, 400, 404, 409, 413)
_MANY_WRITES = errors(*GUARDED, 400, 404, 413)
_AT_ONCE = f"At most {MOST_AT_ONCE} keys at once. One that is refused leaves the others as they are."


def outcome(keys: Iterable[str], refused: Reasons) -> dict[str, Any]:
    return {"taken": sorted(key for key in keys if key not in refused), "refused": refused}


def offer_store_writes(app: FastAPI, asking: Asking) -> None:
    _offer_one(app, asking)
    _offer_many(app, asking)
    _offer_peers(app, asking)
    _offer_deleting_peers(app, asking)


def _offer_one(app: FastAPI, asking: Asking) -> None:
    @app.put(
        "/v1/store/{area}/keys/{key:key}",
        summary="Write one key",
        description="The answer shows what is stored now; null where the node writes it in a moment, with what else it keeps.",
        responses=json_answer({"key": "app/lamp", "stored": _STORED}) | _WRITES,
        openapi_extra=body_of(StorePut, _PUT),
    )
    async def put(area: AreaName, key: KeyName, request: Request) -> Response:
        wish = read_body(StorePut, await request.body()).put()

        def write(store: StoreView) -> dict[str, Any]:
            refused = store.put(area, {checked_key(key): wish})
            if key in refused:
                raise not_taken(key, refused[key])
            stored = store.get(area, key)
            return {"key": key, "stored": None if stored is None else {name: stored[name] for name in _STORED}}

        return await asking.answer(area, write)

    @app.delete(
        "/v1/store/{area}/keys/{key:key}",
        summary="Erase one key, everywhere",
        description="The key is kept away for a while from whoever still brings what was erased.",
        responses=json_answer({"key": "app/lamp", "erased": True}) | _WRITES,
    )
    async def erase(area: AreaName, key: KeyName) -> Response:
        def write(store: StoreView) -> dict[str, Any]:
            reason = store.erase(area, [checked_key(key)]).get(key)
            if reason is not None:
                raise not_there(key, area) if reason == Reason.NO_NEED_TO_UPDATE else not_taken(key, reason)
            return {"key": key, "erased": True}

        return await asking.answer(area, write)


def _offer_many(app: FastAPI, asking: Asking) -> None:
    @app.post(
        "/v1/store/{area}/keys",
        summary="Write many keys",
        description=_AT_ONCE,
        responses=json_answer(_MANY) | _MANY_WRITES,
        openapi_extra=body_of(StorePuts, {"values": {"app/lamp": _PUT, "node:lyon/node-1": {"text": "mine"}}}),
    )
    async def put_many(area: AreaName, request: Request) -> Response:
        values = read_body(StorePuts, await request.body()).values
        puts = {key: value.put() for key, value in values.items()}
        return await asking.answer(area, lambda store: outcome(puts, store.put(area, puts)))

    @app.post(
        "/v1/store/{area}/refresh",
        summary="Give keys a new time to live",
        description=f"{_AT_ONCE} null: for ever.",
        responses=json_answer({"taken": ["app/lamp"], "refused": {"app/none": "inconsistent"}}) | _MANY_WRITES,
        openapi_extra=body_of(StoreTtls, {"app/lamp": 60000, "app/none": 60000}),
    )
    async def refresh(area: AreaName, request: Request) -> Response:
        ttls = read_body(StoreTtls, await request.body()).root
        return await asking.answer(area, lambda store: outcome(ttls, store.refresh(area, ttls)))

    @app.post(
        "/v1/store/{area}/clear",
        summary="No longer keep keys alive",
        description="What is stored stays until its ttl ends. Only for keys that this very node keeps.",
        responses=json_answer({"taken": ["app/lamp"], "refused": {}}) | _MANY_WRITES,
        openapi_extra=body_of(StoreKeys, {"keys": ["app/lamp"]}),
    )
    async def clear(area: AreaName, request: Request) -> Response:
        keys = read_body(StoreKeys, await request.body()).keys
        return await asking.answer(area, lambda store: outcome(keys, store.clear(area, keys)))


def _offer_peers(app: FastAPI, asking: Asking) -> None:
    @app.get(
        "/v1/store/{area}/peers",
        summary="The nodes with which this one keeps an area in step",
        responses=json_answer({"area": "fleet", "peers": {"lyon/node-1": _PEER}}) | errors(*GUARDED, 400, 404),
    )
    async def peers(area: AreaName) -> Response:
        return await asking.answer(area, lambda store: {"area": area, "peers": store.peers(area)})

    @app.put(
        "/v1/store/{area}/peers/{site}/{node}",
        summary="Add a peer, or change its addresses",
        description="It is dialled from now on, until the node restarts or the peer is deleted.",
        responses=json_answer({"peer": "lyon/node-1", "addresses": ["lyon.example.com:7400"]}) | _MANY_WRITES,
        openapi_extra=body_of(StorePeer, {"addresses": ["lyon.example.com:7400"]}),
    )
    async def add_peer(area: AreaName, site: str, node: str, request: Request) -> Response:
        addresses = read_body(StorePeer, await request.body()).checked()
        name = str(NodeId.parse(f"{site}/{node}"))

        def add(store: StoreView) -> dict[str, Any]:
            store.add_peer(area, name, addresses)
            return {"peer": name, "addresses": addresses}

        return await asking.answer(area, add)


def _offer_deleting_peers(app: FastAPI, asking: Asking) -> None:
    @app.delete(
        "/v1/store/{area}/peers/{site}/{node}",
        summary="Delete a peer",
        description="It is no longer dialled. Where both sides have each other as peers, delete it at both.",
        responses=json_answer({"peer": "lyon/node-1", "deleted": True}) | errors(*GUARDED, 400, 404),
    )
    async def delete_peer(area: AreaName, site: str, node: str) -> Response:
        name = str(NodeId.parse(f"{site}/{node}"))

        def delete(store: StoreView) -> dict[str, Any]:
            if not store.delete_peer(area, name):
                raise Refused(NOT_FOUND, f"peer {name}", f"not in area {area}", f"see GET /v1/store/{area}/peers")
            return {"peer": name, "deleted": True}

        return await asking.answer(area, delete)
