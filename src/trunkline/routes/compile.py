"""A route becomes plain Python closures once, when it is added; every runner calls the same ones.

All that is wrong with its plugins is found here, and comes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from trunkline.core.errors import Invalid
from trunkline.core.mistakes import Location, Mistake, Mistakes, key_text
from trunkline.core.reasons import Source
from trunkline.routes.chain import Chain, ErrorPolicy, Step
from trunkline.routes.event import Event
from trunkline.routes.fields import templates_of
from trunkline.routes.model import Part, ReadRoute
from trunkline.routes.paths import unknown_constants
from trunkline.routes.plugin import Around, Message, SenderPlugin
from trunkline.routes.registry import Kind, Registry, registry
from trunkline.routes.route import DeliveryMode, FilterUse, PluginUse, Route

T = TypeVar("T")
Wrong = tuple[Location, Mistake]

NOWHERE = Around()


@dataclass(frozen=True)
class CompiledRoute:
    """`message`: what an event that left the chain becomes for the sender."""

    config: Route
    chain: Chain
    message: Message

    @property
    def id(self) -> str:
        return self.config.id

    def run(self, batch: list[Event]) -> list[Any]:
        """What this route makes of the batch for its sender, in its order. Where nobody keeps dead letters: raises `Invalid` if
        a filter cannot process one of the events, unless such events are to be dropped there."""
        ran = self.chain.run(batch)
        for fault in ran.faults:
            if fault.policy is not ErrorPolicy.DROP:
                step = "send an event that it can process, or let it drop such events (onError: drop)"
                raise Invalid(f"route {self.id}: {fault.step}", fault.reason, step)
        return [self.message(event) for event in ran.out]


def compile_route(route: Route, around: Around = NOWHERE, plugins: Registry | None = None) -> CompiledRoute:
    """`around.constants` are the names templates may use beside payload and metadata, such as {site}."""
    compiled, wrong = _attempt(route, around, plugins or registry())
    if compiled is None:
        raise Mistakes(f"route {route.id}", [mistake for _, mistake in wrong], "mend these plugins")
    return compiled


def compile_written(
    one: ReadRoute, source: Source, around: Around = NOWHERE, plugins: Registry | None = None
) -> tuple[CompiledRoute | None, list[Mistake]]:
    """The same for a route that was read from there: each mistake says where it is written."""
    compiled, wrong = _attempt(one.route, around, plugins or registry())
    return compiled, [Part(source, one.at, None).placed(location, mistake) for location, mistake in wrong]


def _attempt(route: Route, around: Around, plugins: Registry) -> tuple[CompiledRoute | None, list[Wrong]]:
    work = _Compiling(plugins, around)
    work.check(("receiver",), Kind.RECEIVER, route.receiver)
    steps = [work.filter(n, use) for n, use in enumerate(route.filter_chain)]
    message = work.sender(route.sender)
    work.check_delivery(route)
    if work.wrong or message is None:
        return None, work.wrong
    return CompiledRoute(route, Chain([step for step in steps if step]), message), []


class _Compiling:
    """Goes on after a mistake, so that all are found."""

    def __init__(self, plugins: Registry, around: Around) -> None:
        self._plugins, self._around = plugins, around
        self.wrong: list[Wrong] = []

    def filter(self, n: int, use: FilterUse) -> Step | None:
        place = ("filterChain", n)
        plugin = self._plugins.filter(use.plugin)
        if not self.check(place, Kind.FILTER, use) or plugin is None:
            return None
        made = self._made(place, lambda: plugin.compile(use.config, self._around))
        name = f"{key_text(place)} {use.plugin}" + (f" ({use.name})" if use.name else "")
        return Step(name, made, use.on_error) if made else None

    def sender(self, use: PluginUse) -> Message | None:
        plugin = self._plugins.sender(use.plugin)
        if not self.check(("sender",), Kind.SENDER, use) or plugin is None:
            return None
        return self._made(("sender",), lambda: plugin.message(use.config, self._around))

    def check_delivery(self, route: Route) -> None:
        plugin = self._plugins.sender(route.sender.plugin)
        if route.delivery_mode is DeliveryMode.EFFECTIVELY_ONCE and plugin is not None and not plugin.once:
            can = ", ".join(name for name in self._plugins.names(Kind.SENDER) if _sends_once(self._plugins.sender(name)))
            reason = f"the sender {plugin.name} cannot send a message effectively once"
            self._say(("deliveryMode",), reason, f"take at_least_once, or one of these senders: {can or 'none'}")

    def check(self, place: Location, kind: Kind, use: PluginUse) -> bool:
        """Whether it can be compiled at all."""
        before, plugin = len(self.wrong), self._plugins.find(kind, use.plugin)
        if use.config is None and use.fragment_name:
            self._say((*place, "fragmentName"), f"fragment {use.fragment_name} is not filled in", "fill it in before")
        elif plugin is None:
            self._say((*place, "plugin"), *self._plugins.unknown(kind, use.plugin))
        elif not isinstance(use.config, plugin.config):
            self._say((*place, "config"), f"it was not read for the {kind} {use.plugin}", "read the route with a RouteReader")
        else:
            self._check_constants(place, use.config)
        return len(self.wrong) == before

    def _check_constants(self, place: Location, config: BaseModel) -> None:
        for where, tree in templates_of(config, key_text(place)):
            for found in unknown_constants({where: tree}, self._around.constants):
                key, _, reason = found.partition(": ")
                self.wrong.append(((*place, "config"), Mistake("", None, key, reason)))

    def _made(self, place: Location, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except Invalid as error:
            self._say((*place, "config"), f"{error.what}: {error.why}", error.next_step)
        return None

    def _say(self, location: Location, reason: str, next_step: str) -> None:
        self.wrong.append((location, Mistake("", None, key_text(location), reason, next_step)))


def _sends_once(plugin: SenderPlugin[Any] | None) -> bool:
    return plugin is not None and plugin.once
