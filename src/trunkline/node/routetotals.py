"""What routes did since this node started, by their plugins: also those that have ended.

Labels are names of plugins: few, however many routes there are and were. A route that ends still finishes what it has, so its
counts are looked at for a while before they are added to those of all that ended.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

import msgspec

from trunkline.core.clock import Clock
from trunkline.routes.live import LiveRoute
from trunkline.routes.local.counts import RouteCounts
from trunkline.routes.local.runner import LocalRunner

COUNTED = ("received", "sent", "dropped", "dead", "kept", "failed")
FINISH_SECONDS = 60.0
"""Longer than a route takes to end."""

Plugins = tuple[str, str]
"""Receiver and sender."""


class _Ending(msgspec.Struct, frozen=True):
    since: float
    plugins: Plugins
    counts: RouteCounts


class CountingRunner:
    """The runner that the manager is given."""

    def __init__(self, runner: LocalRunner, clock: Clock) -> None:
        self._runner, self._clock = runner, clock
        self._ending: deque[_Ending] = deque()
        self._ended: dict[Plugins, Counter[str]] = {}

    async def start(self, route: LiveRoute) -> None:
        await self._runner.start(route)

    async def replace(self, old: LiveRoute, new: LiveRoute) -> None:
        counts = self._runner.counts(old)
        await self._runner.replace(old, new)
        self._ends(old, counts)

    async def stop(self, route: LiveRoute) -> None:
        counts = self._runner.counts(route)
        try:
            await self._runner.stop(route)
        finally:
            self._ends(route, counts)

    def totals(self, live: Iterable[LiveRoute]) -> dict[Plugins, Counter[str]]:
        found = {plugins: counts.copy() for plugins, counts in self._ended.items()}
        for one in self._ending:
            _add(found, one.plugins, one.counts)
        for route in live:
            _add(found, _plugins(route), self._runner.counts(route))
        return found

    def _ends(self, route: LiveRoute, counts: RouteCounts | None) -> None:
        now = self._clock.monotonic()
        if counts is not None:
            self._ending.append(_Ending(now, _plugins(route), counts))
        while self._ending and now - self._ending[0].since > FINISH_SECONDS:
            one = self._ending.popleft()
            _add(self._ended, one.plugins, one.counts)


def _plugins(route: LiveRoute) -> Plugins:
    config = route.compiled.config
    return config.receiver.plugin, config.sender.plugin


def _add(totals: dict[Plugins, Counter[str]], plugins: Plugins, counts: RouteCounts | None) -> None:
    total = totals.setdefault(plugins, Counter())
    if counts is not None:
        total.update({name: getattr(counts, name) for name in COUNTED})
