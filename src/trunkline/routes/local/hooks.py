"""What is posted to the node's API, and the receivers that hear it.

A hook with a path hears what is posted there; one without hears everything of its tenant and method. All that hear an event
get it, and it is done when it is done with all of them: the first failure is the outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from trunkline.routes.ends import Give, Took
from trunkline.routes.event import Event
from trunkline.routes.keys import Tenant
from trunkline.routes.outcome import Done, Outcome


class Posted(msgspec.Struct, frozen=True):
    """`done`: none if nobody hears what is posted there. `took`: what each route made of it."""

    done: Done | None
    took: tuple[Took, ...] = ()


@dataclass(frozen=True, eq=False)
class _Hook:
    method: str
    path: str
    give: Give
    seconds: float

    def hears(self, method: str, path: str) -> bool:
        return self.method == method and self.path in ("", path)


class Taken:
    """A watch that writes down what it hears."""

    def __init__(self) -> None:
        self.all: list[Took] = []

    def took(self, took: Took) -> None:
        self.all.append(took)


class Hooks:
    """The `PostHooks` of one instance."""

    def __init__(self) -> None:
        self._hooks: dict[Tenant, dict[_Hook, None]] = {}

    def add(self, tenant: Tenant, method: str, path: str, give: Give, seconds: float) -> Callable[[], None]:
        hook, hooks = _Hook(method.upper(), path, give, seconds), self._hooks.setdefault(tenant, {})
        hooks[hook] = None

        def remove() -> None:
            hooks.pop(hook, None)
            if not hooks and self._hooks.get(tenant) is hooks:
                del self._hooks[tenant]

        return remove

    async def post(self, tenant: Tenant, method: str, path: str, event: Event) -> Posted:
        """`path`: of the request, empty if the event names none."""
        hears = [hook for hook in self._hooks.get(tenant, ()) if hook.hears(method.upper(), path)]
        watch = Taken()
        answers = await asyncio.gather(*[self._give(hook, event, watch) for hook in hears])
        failed = (done for done in answers if done.outcome is not Outcome.ACKED)
        return Posted(next(failed, answers[0] if answers else None), tuple(watch.all))

    async def _give(self, hook: _Hook, event: Event, watch: Taken) -> Done:
        return (await (await hook.give([event], hook.seconds, watch)))[0]
