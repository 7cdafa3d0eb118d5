"""Events that are given by hand: to one route, or to whatever route's receiver hears them; and what became of them.

G1  An event that every route has taken, dropped or kept as a dead letter is done. Anything else raises: `NotDelivered`
    (it was nacked), `NotDone` (its time was over), `QuotaUsedUp`. It may have been sent all the same: at least once.
G2  Who injects into a route that does not run here is told why; nobody hears of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from trunkline.core.errors import Retryable, Terminal
from trunkline.routes.changing import Changing
from trunkline.routes.ends import Took, Watch
from trunkline.routes.event import Event
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.live import LiveRoute
from trunkline.routes.manager import RoutingTableManager
from trunkline.routes.outcome import Done, Outcome
from trunkline.routes.tenancy import Tenancy


class Injects(Protocol):
    async def inject(self, route: LiveRoute, event: Event, seconds: float, watch: Watch | None = None) -> Done: ...


class Heard(Protocol):
    """`done`: none if nobody hears what is posted there."""

    @property
    def done(self) -> Done | None: ...

    @property
    def took(self) -> Sequence[Took]: ...


class Posts(Protocol):
    async def post(self, tenant: Tenant, method: str, path: str, event: Event) -> Heard: ...


class NotLive(Terminal):
    """The route does not run at this instance."""


class NobodyHears(Terminal):
    """There is no http receiver for it."""


class NotDelivered(Terminal):
    """The event was nacked."""


class NotDone(Terminal):
    """Nobody knows yet what becomes of the event."""


class QuotaUsedUp(Terminal):
    """The tenant has had as many events as it may."""


class Taken(msgspec.Struct):
    """A watch that writes down what it hears."""

    all: list[Took] = []

    def took(self, took: Took) -> None:
        self.all.append(took)


class Eventing:
    """`seconds`: how long an event that is injected may take."""

    def __init__(
        self, manager: RoutingTableManager, tenancy: Tenancy, routes: Changing, runner: Injects | None, hooks: Posts | None,
        seconds: float,
    ) -> None:  # fmt: skip
        self._manager, self._tenancy, self._routes = manager, tenancy, routes
        self._runner, self._hooks, self._seconds = runner, hooks, seconds

    async def inject(self, key: RouteKey, event: Event) -> dict[str, Any]:
        """Into this route alone."""
        await self._routes.stored(key)
        live, watch = self._live(key), Taken()
        done = await self._runs().inject(live, event, self._seconds, watch)
        _check(f"event for route {key}", key.tenant, done)
        return _shown(event, done, watch.all or [Took(key.id)], key.id)

    async def post(self, tenant: Tenant, method: str, path: str, event: Event) -> dict[str, Any]:
        """To all http receivers of the tenant that hear this path."""
        await self._tenancy.check(tenant)
        if self._hooks is None:
            raise self._not_here()
        heard = await self._hooks.post(tenant, method, path, event)
        if heard.done is None:
            what, step = f"{method} {path or '/'}", "add a route with an http receiver for this path and method"
            raise NobodyHears(what, f"no http receiver of {tenant} hears it at this node", step)
        _check(f"event for {tenant}", tenant, heard.done)
        return _shown(event, heard.done, heard.took)

    def _live(self, key: RouteKey) -> LiveRoute:
        live = self._manager.route(key)
        if live is None:
            reason = self._manager.status(key).reason or "this instance has not taken it yet"
            raise NotLive(f"route {key}", f"it does not run here: {reason}", "see GET /v1/routes/status")
        return live

    def _runs(self) -> Injects:
        if self._runner is None:
            raise self._not_here()
        return self._runner

    def _not_here(self) -> Retryable:
        return Retryable("event", f"instance {self._manager.instance} runs no routes", "ask a node of the site")


def _check(what: str, tenant: Tenant, done: Done) -> None:
    if done.outcome is Outcome.ACKED:
        return
    if done.outcome is Outcome.TIMED_OUT:
        raise NotDone(what, done.reason or "it was not done in time", "it may still be sent; see that its destination answers")
    if done.reason == f"the quota of {tenant} is used up":
        raise QuotaUsedUp(what, done.reason, "send fewer, or let an admin raise the quota")
    raise NotDelivered(what, done.reason or "it was nacked", "mend what the reason names, and send it again")


def _shown(event: Event, done: Done, took: Sequence[Took], route: str = "") -> dict[str, Any]:
    named = {"routeId": route} if route else {}
    return {**named, "tx.traceId": event.source.trace_id, "outcome": done.outcome.value, "routes": [_took(one) for one in took]}


def _took(one: Took) -> dict[str, Any]:
    found = {"dead_letter": one.letters, "kept": one.kept, "sent": one.sent}
    outcome = next((name for name, there in found.items() if there), "dropped")
    return {"id": one.route, "outcome": outcome, "sent": one.sent, "kept": one.kept, "letters": list(one.letters)}
