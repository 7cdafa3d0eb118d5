"""The tenants as this instance knows them: who may do what with their routes, and how many events they may have.

1. `known` is read by whoever must not wait (the API's gate), from any thread: it is replaced as a whole.
2. A delta of a tenant makes every instance read it anew, so a new quota counts everywhere at once; what was missed is found by
   `run`, which reads all of them now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NoReturn

import structlog

from trunkline.core.errors import Retryable
from trunkline.routes.keys import HOUSE, Tenant
from trunkline.routes.quota import Quota
from trunkline.routes.quotas import Quotas
from trunkline.routes.storage.base import Storage, TenantConfig
from trunkline.routes.sync.base import Delta

LOOK_SECONDS = 30.0

log = structlog.get_logger(__name__)


class Tenants:
    def __init__(self, storage: Storage, quotas: Quotas, random: Callable[[], float]) -> None:
        self._storage, self._quotas, self._random = storage, quotas, random
        self.known: Mapping[Tenant, TenantConfig] = {HOUSE: TenantConfig(HOUSE)}

    async def load(self) -> None:
        """All of them, as they are stored."""
        found = {config.tenant: config for config in await self._storage.tenants()}
        for tenant in self.known.keys() - found.keys():
            await self.look(tenant)  # it may be newer than the list
        newest = {at: max(config, self.known.get(at, config), key=_age) for at, config in found.items()}
        for config in newest.values():
            self._count(config)
        self.known = {**self.known, **newest}

    async def on_delta(self, delta: Delta) -> None:
        await self.look(delta.tenant)

    async def look(self, tenant: Tenant) -> TenantConfig | None:
        """Reads one of them anew; the house is always there."""
        found = await self._storage.tenant(tenant)
        if found is None:
            self._quotas.forget(tenant)
            found = TenantConfig(HOUSE) if tenant == HOUSE else None
        else:
            self._count(found)
        others = {at: config for at, config in self.known.items() if at != tenant}
        self.known = others if found is None else {**others, tenant: found}
        return found

    async def run(self, every: float = LOOK_SECONDS) -> NoReturn:
        """`every`: seconds between two looks, give or take a tenth."""
        while True:
            await asyncio.sleep(every * (0.9 + 0.2 * self._random()))
            try:
                await self.load()
            except Retryable as error:
                log.warning("the tenants were not read", why=error.why, next_step=error.next_step)

    def _count(self, config: TenantConfig) -> None:
        self._quotas.change(config.tenant, Quota(config.events_per_second, config.modified))


def _age(config: TenantConfig) -> float:
    return config.modified
