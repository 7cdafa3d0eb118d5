"""Routes in this process's memory, for tests and for nodes that need none tomorrow: nothing survives the process (S5).

Everything between two awaits is one step of the event loop, so a change is whole (S2) and a scan one moment (S4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from trunkline.core.clock import Clock, SystemClock
from trunkline.core.jsoncodec import dumps, loads
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.storage.base import (
    NONE_KNOWN,
    REMEMBER,
    Body,
    Change,
    Fragment,
    Listed,
    NoSuchTenant,
    Put,
    RouteConfig,
    Scan,
    TenantConfig,
)
from trunkline.routes.storage.written import Written, check_tenant, conflict, fragment_text, has_routes, write_down


class MemoryStorage:
    """Several instances of one process may share it. `kept`: configurations by their hash."""

    def __init__(self, clock: Clock | None = None, remember: float = REMEMBER) -> None:
        self._clock, self._remember = clock or SystemClock(), remember
        self._revision = 0
        self._routes: dict[RouteKey, RouteConfig] = {}
        self._removed: dict[RouteKey, tuple[int, float]] = {}
        self.kept: dict[str, Body] = {}
        self._uses: Counter[str] = Counter()
        self._tenants: dict[Tenant, TenantConfig] = {}
        self._fragments: dict[tuple[Tenant, str], Fragment] = {}

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """What it holds stays: another instance may still use it."""

    async def read(self, keys: Sequence[RouteKey], known: Mapping[str, Body] = NONE_KNOWN) -> dict[RouteKey, RouteConfig]:
        return {key: self._routes[key] for key in keys if key in self._routes}

    async def bodies(self, hashes: Sequence[str]) -> dict[str, Body]:
        return {hash: self.kept[hash] for hash in hashes if hash in self.kept}

    async def of_tenant(self, tenant: Tenant, after: str = "", most: int | None = None) -> list[RouteConfig]:
        keys = sorted(key for key in self._routes if key.tenant == tenant and key.id > after)
        return [self._routes[key] for key in keys[:most]]

    async def scan(self) -> Scan:
        told = {key: revision for key, (revision, _) in self._removed.items()}
        since = self._clock.wall() - self._remember
        self._removed = {key: (revision, at) for key, (revision, at) in self._removed.items() if at > since}
        listed = [Listed(key, route.hash, route.revision) for key, route in self._routes.items()]
        return Scan(self._revision, listed, told)

    async def newer(self, revision: int) -> Scan:
        listed = [Listed(key, route.hash, route.revision) for key, route in self._routes.items() if route.revision > revision]
        return Scan(self._revision, listed, {key: gone for key, (gone, _) in self._removed.items() if gone > revision})

    async def change(self, changes: Sequence[Change]) -> dict[RouteKey, RouteConfig]:
        written = write_down(changes)
        for tenant in written.tenants:
            if tenant not in self._tenants:
                raise NoSuchTenant(tenant)
        for change in changes:
            found = self._routes.get(change.key)
            revision = found.revision if found else 0
            if change.expect is not None and change.expect != revision:
                raise conflict(change.key, change.expect, revision)
        moving = [at for at, change in enumerate(changes) if self._moves(change, written.notes[at])]
        if moving:
            self._apply(written, moving)
        return {change.key: self._routes[change.key] for change in changes if isinstance(change, Put)}

    def _moves(self, change: Change, notes: str) -> bool:
        found = self._routes.get(change.key)
        if found is None or not isinstance(change, Put):
            return (found is None) == isinstance(change, Put)
        return found.hash != change.hash or dumps(found.notes) != notes.encode()

    def _apply(self, written: Written, moving: list[int]) -> None:
        self._revision += 1
        now = self._clock.wall()
        for at in moving:
            change = written.changes[at]
            before = self._routes.pop(change.key, None)
            if isinstance(change, Put):
                self._put(change, written, loads(written.notes[at]), before.created if before else now, now)
            else:
                self._removed[change.key] = (self._revision, now)
            if before:
                self._leave(before.hash)

    def _put(self, put: Put, written: Written, notes: Body, created: float, now: float) -> None:
        self._uses[put.hash] += 1
        if put.hash not in self.kept:
            self.kept[put.hash] = loads(written.bodies[put.hash])
        body = self.kept[put.hash]
        self._routes[put.key] = RouteConfig(put.key, put.hash, body, notes, self._revision, created, now)
        self._removed.pop(put.key, None)

    def _leave(self, hash: str) -> None:
        self._uses[hash] -= 1
        if not self._uses[hash]:
            del self._uses[hash], self.kept[hash]

    async def tenants(self) -> list[TenantConfig]:
        return [self._tenants[tenant] for tenant in sorted(self._tenants)]

    async def tenant(self, tenant: Tenant) -> TenantConfig | None:
        return self._tenants.get(tenant)

    async def put_tenant(self, config: TenantConfig) -> TenantConfig:
        check_tenant(config)
        kept = msgspec.structs.replace(config, modified=self._clock.wall())
        self._tenants[config.tenant] = kept
        return kept

    async def remove_tenant(self, tenant: Tenant) -> bool:
        if routes := sum(key.tenant == tenant for key in self._routes):
            raise has_routes(tenant, routes)
        self._fragments = {at: fragment for at, fragment in self._fragments.items() if fragment.tenant != tenant}
        return self._tenants.pop(tenant, None) is not None

    async def fragments(self, tenant: Tenant) -> list[Fragment]:
        return [self._fragments[at] for at in sorted(self._fragments) if at[0] == tenant]

    async def fragment(self, tenant: Tenant, name: str) -> Fragment | None:
        return self._fragments.get((tenant, name))

    async def put_fragment(self, fragment: Fragment) -> Fragment:
        kept = msgspec.structs.replace(fragment, body=loads(fragment_text(fragment)), modified=self._clock.wall())
        self._fragments[kept.tenant, kept.name] = kept
        return kept

    async def remove_fragment(self, tenant: Tenant, name: str) -> bool:
        return self._fragments.pop((tenant, name), None) is not None
