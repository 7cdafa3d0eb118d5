"""The quotas of all tenants at one instance: whoever brings events waits here until they may pass.

1. Events of one tenant pass in the order in which they came; tenants never wait for each other.
2. Without a quota nobody waits and nobody asks.
3. While the bucket cannot be asked, events with a quota wait: too many never pass.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.core.errors import Retryable
from trunkline.routes.keys import Tenant
from trunkline.routes.quota import Limiter, Quota
from trunkline.routes.quota_buckets import Buckets

log = structlog.get_logger(__name__)


class Quotas:
    def __init__(self, buckets: Buckets, clock: Clock, random: Callable[[], float]) -> None:
        self._buckets, self._clock, self._random = buckets, clock, random
        self._gates: dict[Tenant, _Gate] = {}

    def change(self, tenant: Tenant, quota: Quota) -> None:
        """The tenant's quota as the storage has it; what is older than what counts already changes nothing."""
        gate = self._gates.get(tenant)
        if gate is not None:
            gate.change(quota)
        elif quota.per_second is not None:
            backoff = Backoff(0.05, 1.0, self._random)
            self._gates[tenant] = _Gate(tenant, quota, self._buckets, self._clock, backoff)

    def forget(self, tenant: Tenant) -> None:
        """The tenant is gone."""
        if (gate := self._gates.pop(tenant, None)) is not None:
            gate.change(Quota(None, float("inf")))

    async def enter(self, tenant: Tenant, count: int, seconds: float) -> int:
        """Waits until so many events of the tenant may pass, but no longer than so many seconds; gives how many may."""
        gate = self._gates.get(tenant)
        return count if gate is None else await gate.enter(count, seconds)


class _Gate:
    def __init__(self, tenant: Tenant, quota: Quota, buckets: Buckets, clock: Clock, backoff: Backoff) -> None:
        self._tenant, self._buckets, self._clock, self._backoff = tenant, buckets, clock, backoff
        self._limiter = Limiter(quota)
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    def change(self, quota: Quota) -> None:
        if self._limiter.change(quota):
            self._changed.set()

    async def enter(self, count: int, seconds: float) -> int:
        passed = 0 if self._waiting else self._limiter.take(count, self._clock.monotonic())
        return passed if passed == count else passed + await self._wait(count - passed, seconds)

    async def _wait(self, count: int, seconds: float) -> int:
        deadline = self._clock.monotonic() + seconds
        self._waiting += count
        try:
            if not await self._has_turn(seconds):
                return 0
            try:
                return await self._pass(count, deadline)
            finally:
                self._turn.release()
        finally:
            self._waiting -= count

    async def _has_turn(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._turn.acquire()
        except TimeoutError:
            return False

    async def _pass(self, count: int, deadline: float) -> int:
        passed = 0
        while True:
            now = self._clock.monotonic()
            passed += self._limiter.take(count - passed, now)
            if passed == count or now >= deadline:
                return passed
            wanted = self._limiter.ask(self._waiting - passed, now)
            if wanted is not None:
                await self._visit(wanted)
            else:
                await self._pause(min(self._limiter.due(now), deadline - now))

    async def _visit(self, wanted: int) -> None:
        try:
            lot = await self._buckets.take(self._tenant, self._limiter.quota, wanted)
        except Retryable as error:
            if not self._backoff.failures:
                log.warning("a quota cannot be asked for; its events wait", tenant=str(self._tenant), reason=str(error))
            self._limiter.failed(self._backoff.after_failure(), self._clock.monotonic())
        else:
            self._backoff.success()
            self._limiter.answered(lot, self._clock.monotonic())

    async def _pause(self, seconds: float) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
