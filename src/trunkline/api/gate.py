"""The gate: who asks, may they, and not too often. It stands before the first byte of a body is read.

1. Without tokens, a page of another site is refused (`foreign`).
2. With tokens, whoever has none of ours is refused with 401, except at the probes. Failed attempts have a small bucket per
   address; when it is empty they get 429. A right token always passes: guessing 256 random bits is hopeless, and neighbours
   behind one address must not lock each other out.
3. Each token, or without tokens each address, has its bucket; probes have their own, so that work cannot make a node look dead.
4. The endpoint's row in `access` says which role it needs, and whether a token bound to a tenant may use it; `reach` says how
   far such a token reaches, and whether a tenant lets its events in without any.
"""

from __future__ import annotations

import math

from starlette.types import ASGIApp, Receive, Scope, Send

from trunkline.api.access import LIVENESS, PROBES
from trunkline.api.foreign import foreign
from trunkline.api.problem import FORBIDDEN, FOREIGN, NO_TOKEN, TOO_MANY, Refused
from trunkline.api.reach import Known, check_reach, is_open
from trunkline.api.tokens import LOCAL, Caller, Keyring, bearer
from trunkline.api.visit import Visit, visit_of
from trunkline.core.bucket import Buckets, Rate
from trunkline.core.clock import Clock

FAILURES = Rate(per_second=1.0, burst=10.0)
_ASK_FOR_TOKEN = {"WWW-Authenticate": 'Bearer realm="trunkline"'}
_WRONG_TOKEN = {"WWW-Authenticate": 'Bearer realm="trunkline", error="invalid_token"'}


def request_rate(per_second: float) -> Rate:
    return Rate(per_second, max(1.0, 2 * per_second))


class Gate:
    def __init__(self, app: ASGIApp, keyring: Keyring, rate: Rate, clock: Clock, tenants: Known) -> None:
        self._app, self._keyring, self._clock, self._tenants = app, keyring, clock, tenants
        self._requests, self._failures = Buckets(rate), Buckets(FAILURES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visit = visit_of(scope)
        if visit.route != LIVENESS:
            self._admit(visit, scope)
        await self._app(scope, receive, send)

    def _admit(self, visit: Visit, scope: Scope) -> None:
        visit.caller = self._identify(visit, scope) if self._keyring else _local(visit, scope)
        who = f"token:{visit.caller.name}" if visit.caller and visit.caller.name else f"address:{visit.address}"
        self._pace(self._requests, f"probe:{visit.address}" if visit.route in PROBES else who, visit.asked)
        _authorise(visit, self._tenants)

    def _identify(self, visit: Visit, scope: Scope) -> Caller | None:
        token = bearer(scope["headers"])
        caller = self._keyring.caller(token) if token else None
        guarded = visit.access.role is not None and not is_open(visit, self._tenants)
        if caller is None and (token or guarded):
            self._pace(self._failures, visit.address, visit.asked)
        if caller is None and guarded:
            why, headers = ("the token is none of this API's", _WRONG_TOKEN) if token else ("there is no token", _ASK_FOR_TOKEN)
            raise Refused(NO_TOKEN, visit.asked, why, "send the header `Authorization: Bearer <token>`", headers)
        return caller

    def _pace(self, buckets: Buckets, who: str, asked: str) -> None:
        seconds = math.ceil(buckets.wait(who, self._clock.monotonic()))
        if seconds:
            why = f"more than {buckets.rate.per_second:g} per second"
            raise Refused(TOO_MANY, asked, why, f"wait {seconds} s", {"Retry-After": str(seconds)})


def _local(visit: Visit, scope: Scope) -> Caller:
    if why := foreign(scope["headers"]):
        raise Refused(FOREIGN, visit.asked, why, "ask http://localhost, or configure tokens")
    return LOCAL


def _authorise(visit: Visit, tenants: Known) -> None:
    caller, access = visit.caller, visit.access
    if access.role is None or caller is None or is_open(visit, tenants):
        return
    if not caller.may(access.role):
        why = f"it needs the role {access.role}, and the token {caller.name!r} has {caller.role}"
        raise Refused(FORBIDDEN, visit.asked, why, f"use a token with the role {access.role}")
    if caller.tenant is not None and not access.tenants:
        why = f"it shows every tenant, and the token {caller.name!r} is bound to {caller.tenant!r}"
        raise Refused(FORBIDDEN, visit.asked, why, "use a token without a tenant")
    if visit.tenant is not None:
        check_reach(visit, visit.tenant, tenants, access.changes)
