"""Which routes have how much to do: those that run here as this instance counts them, those on Spark as pipelines write them.

A route of a pipeline may have a row of each: what waits in its outbox is sent by nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from trunkline.routes.counted import COUNTED, GroupSum, RouteSum, SparkCounts
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.live import LiveRoute
from trunkline.routes.local.counts import RouteCounts
from trunkline.routes.manager import RoutingTableManager
from trunkline.routes.shown import shown_key
from trunkline.routes.tenancy import Tenancy

NODE, SPARK = "node", "spark"

CountsOf = Callable[[LiveRoute], RouteCounts | None]
"""What a live route did at this instance; none: it does not run here."""


def none_counted(route: LiveRoute) -> RouteCounts | None:
    return None


class Busy:
    """`spark`: none where no database is."""

    def __init__(
        self, manager: RoutingTableManager, tenancy: Tenancy, counts: CountsOf, spark: SparkCounts | None,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._manager, self._tenancy, self._counts, self._spark, self._now = manager, tenancy, counts, spark, now

    async def top(self, tenant: Tenant | None, most: int) -> dict[str, Any]:
        """Of all tenants, or of one: those that received most first. Groups are of all tenants, and shown only with all."""
        if tenant is not None:
            await self._tenancy.check(tenant)
        there = await self._spark.routes(tenant, most) if self._spark is not None else {}
        groups = await self._spark.groups() if self._spark is not None and tenant is None else []
        rows = [*self._on_spark(there), *self._here(tenant, there)]
        rows.sort(key=lambda row: (-row["received"], row["tenant"]["orgId"], row["tenant"]["appId"], row["id"]))
        return {
            "instance": self._manager.instance,
            "at": self._now(),
            "routes": rows[:most],
            "groups": [_group(one) for one in groups],
        }

    def _on_spark(self, found: dict[RouteKey, RouteSum]) -> Iterator[dict[str, Any]]:
        """Those that are live."""
        for key, numbers in found.items():
            route = self._manager.route(key)
            if route is not None:
                yield _row(route, key, SPARK, numbers)

    def _here(self, tenant: Tenant | None, on_spark: dict[RouteKey, RouteSum]) -> Iterator[dict[str, Any]]:
        for route in self._manager.live():
            key, counts = route.config.key, self._counts(route)
            if tenant in (None, key.tenant) and counts is not None and (key not in on_spark or counts != RouteCounts()):
                yield _row(route, key, NODE, counts)


def _row(route: LiveRoute, key: RouteKey, runner: str, numbers: RouteSum | RouteCounts) -> dict[str, Any]:
    ends = route.compiled.config
    return {
        **shown_key(key),
        "runner": runner,
        "receiver": ends.receiver.plugin,
        "sender": ends.sender.plugin,
        **{name: getattr(numbers, name) for name in COUNTED},
        "seconds": numbers.seconds,
    }


def _group(one: GroupSum) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(one)
    return {**shown, "instance": one.instance or None}
