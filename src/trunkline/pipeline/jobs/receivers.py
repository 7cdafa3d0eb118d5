"""The receivers of a group at one revision: all that the process which plans has to know of its routes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trunkline.core.jsoncodec import dumps
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.pipeline.jobs.stored import Connection, Member, changes, goes_on
from trunkline.routes.keys import Tenant
from trunkline.routes.local.opening import key_of, name_of
from trunkline.routes.registry import Registry, registry
from trunkline.routes.route import PluginUse
from trunkline.routes.secrets import TenantSecrets
from trunkline.routes.shared import End


@dataclass(frozen=True)
class Receiver:
    """`name`: the same everywhere, and always. `config`: of its plugin, secrets followed."""

    name: str
    tenant: Tenant
    config: Any


Receivers = Mapping[str, Receiver]
"""By their names."""


class ReceiverReader:
    """Receivers as routes have them written; each that is equal is read once."""

    def __init__(self, settings: JobSettings, plugins: Registry | None = None) -> None:
        self._secrets, self._plugins = settings.secrets, plugins or registry()
        self._read: dict[tuple[Tenant, bytes], Receiver] = {}

    def of(self, member: Member) -> Receiver:
        tenant, written = member.key.tenant, member.body["receiver"]
        mark = (tenant, dumps(written))
        receiver = self._read.get(mark)
        if receiver is None:
            receiver = self._read[mark] = self._parsed(tenant, written)
        return receiver

    def _parsed(self, tenant: Tenant, written: Mapping[str, Any]) -> Receiver:
        plugin = self._plugins.receiver(written["plugin"])
        assert plugin is not None, "the table checked it"
        config = plugin.config.model_validate(written.get("config") or {})
        use = PluginUse(plugin=written["plugin"], name=written.get("name") or "", config=config)
        name = name_of(key_of(End.RECEIVER, tenant, use))
        return Receiver(name, tenant, TenantSecrets(tenant, self._secrets).resolved(config))


class ReceiverTable:
    def __init__(self, settings: JobSettings, plugins: Registry | None = None) -> None:
        self._group, self._reader = settings.group, ReceiverReader(settings, plugins)
        self._revision = 0
        self._names: dict[str, str] = {}
        self._users: Counter[str] = Counter()
        self._found: dict[str, Receiver] = {}

    def at(self, conn: Connection, revision: int) -> Receivers:
        if revision != self._revision and not goes_on(conn, self._group, self._revision, revision):
            self._revision = 0
            self._names.clear()
            self._users.clear()
            self._found.clear()
        if revision > self._revision:
            came, went = changes(conn, self._group, self._revision, revision)
            for hash in went:
                self._leave(hash)
            for member in came:
                self._join(member)
            self._revision = revision
        return self._found

    def _join(self, member: Member) -> None:
        self._leave(member.hash)
        receiver = self._reader.of(member)
        self._names[member.hash] = receiver.name
        self._users[receiver.name] += 1
        self._found[receiver.name] = receiver

    def _leave(self, hash: str) -> None:
        name = self._names.pop(hash, None)
        if name is None:
            return
        self._users[name] -= 1
        if not self._users[name]:
            del self._users[name], self._found[name]
