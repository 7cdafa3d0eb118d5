"""The addresses of EARS: `/ears/v1/…` is the same as `/v1/…` wherever EARS has that address."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = "/ears"
_WHOLE = frozenset(f"/v1/{name}" for name in ("routes", "tenants", "senders", "receivers", "filters", "fragments"))
_BELOW = "/v1/orgs/"


class EarsAddresses:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        ours = path[len(PREFIX) :] if path.startswith(PREFIX + "/") else ""
        if ours in _WHOLE or ours.startswith(_BELOW):
            scope = {**scope, "path": ours, "raw_path": scope.get("raw_path", b"").removeprefix(PREFIX.encode())}
        await self._app(scope, receive, send)
