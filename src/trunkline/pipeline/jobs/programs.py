"""Routes that differ only in which events they take run as one program.

P1  The match index has decided what such routes differ in: matches that it says in full (`needs`) are not asked again.
P2  Routes of one tenant and one shape whose other filters, sender and delivery mode are equal share a program. All their events
    go through its filters together, each once, however many of the routes take it.
P3  A route with a filter that is not pure shares its program with nobody: what it remembers, counts or logs is its own.
    Events of the residual are for no program: nobody has looked at what they hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakSet, WeakValueDictionary

from trunkline.routes.canonical import content_hash
from trunkline.routes.chain import Chain
from trunkline.routes.compile import CompiledRoute
from trunkline.routes.event import Event, Source
from trunkline.routes.needs import Needs, said_in_full
from trunkline.routes.plugin import Message
from trunkline.routes.registry import Registry
from trunkline.routes.route import PluginUse

R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Program:
    """`message`: what becomes of an event that left the chain. `own`: it is one route's alone."""

    chain: Chain
    message: Message
    own: bool = False


class Programs:
    """Those that some route has."""

    def __init__(self, plugins: Registry) -> None:
        self._plugins = plugins
        self._shared: WeakValueDictionary[str, Program] = WeakValueDictionary()
        self._own: WeakSet[Program] = WeakSet()

    def __len__(self) -> int:
        return len(self._shared) + len(self._own)

    def of(self, compiled: CompiledRoute, needs: Needs) -> Program:
        route, steps = compiled.config, compiled.chain.steps
        if not all(map(self._pure, route.filter_chain)):
            own = Program(compiled.chain, compiled.message, own=True)
            self._own.add(own)
            return own
        decided = said_in_full(route.filter_chain, needs)
        left = [None if n in decided else use for n, use in enumerate(route.filter_chain)]
        tenant, shape = str(route.key.tenant), list(map(str, needs))
        name = content_hash([tenant, shape, left, route.sender, route.delivery_mode])
        program = self._shared.get(name)
        if program is None:
            chain = Chain([step for n, step in enumerate(steps) if n not in decided])
            program = self._shared[name] = Program(chain, compiled.message)
        return program

    def _pure(self, use: PluginUse) -> bool:
        plugin = self._plugins.filter(use.plugin)
        return plugin is not None and plugin.pure and not plugin.stateful


class Takers(Generic[R]):
    """Events in their order, each with the routes that take it. Those of one event come one after the other."""

    __slots__ = ("events", "routes")

    def __init__(self, event: Event, route: R) -> None:
        self.events: list[Event] = [event]
        self.routes: list[tuple[R, ...]] = [(route,)]

    def add(self, event: Event, route: R) -> None:
        if self.events[-1] is event:
            self.routes[-1] += (route,)
        else:
            self.events.append(event)
            self.routes.append((route,))

    def by_route(self) -> dict[R, list[Event]]:
        found: dict[R, list[Event]] = {}
        for event, routes in zip(self.events, self.routes, strict=True):
            for route in routes:
                found.setdefault(route, []).append(event)
        return found

    def by_source(self) -> dict[Source, tuple[R, ...]]:
        return {event.source: routes for event, routes in zip(self.events, self.routes, strict=True)}
