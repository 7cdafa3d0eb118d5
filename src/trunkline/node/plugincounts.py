"""What the plugins that run here were given and what became of it, for whoever looks at them one by one."""

from __future__ import annotations

from trunkline.core.clock import Clock
from trunkline.routes.local.counts import ReceiverStatus, SenderStatus
from trunkline.routes.local.runner import LocalRunner
from trunkline.routes.outcome import Outcome
from trunkline.routes.plugins_shown import Counts, PluginId
from trunkline.routes.registry import Kind
from trunkline.routes.shared import PluginKey

LOOK_SECONDS = 0.5
"""All are asked for together: a list of them needs one look, and not one for each."""


class PluginCounts:
    def __init__(self, runner: LocalRunner, clock: Clock) -> None:
        self._runner, self._clock = runner, clock
        self._looked_at = float("-inf")
        self._found: dict[PluginId, Counts] = {}

    def __call__(self, plugin: PluginId) -> Counts:
        now = self._clock.monotonic()
        if now - self._looked_at > LOOK_SECONDS:
            self._looked_at, self._found = now, self._look()
        return self._found.get(plugin, {})

    def _look(self) -> dict[PluginId, Counts]:
        receivers = {_id(Kind.RECEIVER, one.key): _received(one) for one in self._runner.receivers()}
        return receivers | {_id(Kind.SENDER, one.key): _sent(one) for one in self._runner.senders()}


def _id(kind: Kind, key: PluginKey) -> PluginId:
    return PluginId(kind, key.tenant, key.plugin, key.name, key.hash)


def _received(one: ReceiverStatus) -> Counts:
    acked = one.done.get(Outcome.ACKED, 0)
    return {"success": acked, "error": sum(one.done.values()) - acked, "last": one.last}


def _sent(one: SenderStatus) -> Counts:
    return {"success": one.counts.sent, "error": one.counts.undelivered, "last": one.counts.last}
