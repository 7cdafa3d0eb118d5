"""An event out of a request: the body is its payload, the headers are its metadata.

What a token or a browser proves with is never metadata. With a token that is bound to a tenant, the metadata `TENANT` is that
tenant's name; a header that claims another one is refused. Everybody else may act for any tenant, and so may set it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trunkline.api.problem import FORBIDDEN, Refused
from trunkline.api.requestid import HEADER
from trunkline.api.tokens import Caller
from trunkline.core.depth import MAX_DEPTH, deeper_than
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads

TENANT = "x-trunkline-tenant"
_SECRET = frozenset({"authorization", "cookie", "proxy-authorization"})


def payload(body: bytes) -> Any:
    value = loads(body, "event")
    if deeper_than(MAX_DEPTH, value):
        raise Invalid("event", f"it is nested deeper than {MAX_DEPTH}", "make it flatter")
    return value


def metadata(headers: Iterable[tuple[str, str]], caller: Caller | None, request_id: str) -> dict[str, str]:
    pairs = [(name.lower(), value) for name, value in headers]
    found = {name: value for name, value in pairs if name not in _SECRET} | {HEADER: request_id}
    if caller is None or caller.tenant is None:
        return found
    if any(name == TENANT and value != caller.tenant for name, value in pairs):
        why = f"the header {TENANT} names another tenant than the token's"
        raise Refused(FORBIDDEN, "event", why, "leave that header out")
    return found | {TENANT: caller.tenant}
