"""A route becomes plain Python closures once, when it is added; every runner calls the same ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from trunkline.core.errors import Invalid
from trunkline.routes.event import Event, Outgoing
from trunkline.routes.filters import BatchFilter, compile_match, compile_transform
from trunkline.routes.model import Filter, MatchFilter, Route, TransformFilter
from trunkline.routes.paths import unknown_constants
from trunkline.routes.sender import Send, compile_queue

NO_CONSTANTS: Mapping[str, str] = MappingProxyType({})

_COMPILERS: Mapping[type[Filter], Callable[[Any, Mapping[str, str]], BatchFilter]] = {
    MatchFilter: compile_match,
    TransformFilter: compile_transform,
}


@dataclass(frozen=True)
class CompiledRoute:
    config: Route
    filters: tuple[BatchFilter, ...]
    send: Send

    @property
    def id(self) -> str:
        return self.config.id

    def run(self, batch: list[Event]) -> list[Outgoing]:
        """What this route makes of the batch, in its order."""
        for apply in self.filters:
            if not batch:
                break
            batch = apply(batch)
        return [self.send(event) for event in batch]


def compile_route(route: Route, constants: Mapping[str, str] = NO_CONSTANTS) -> CompiledRoute:
    """`constants` are the names templates may use beside payload and metadata, such as {site}."""
    wrong = _unresolved(route, constants)
    if wrong:
        raise Invalid(f"route {route.id}", "; ".join(wrong), "mend these templates")
    filters = tuple(_COMPILERS[type(plugin)](plugin.config, constants) for plugin in route.filter_chain)
    return CompiledRoute(route, filters, compile_queue(route.id, route.sender.config, constants))


def _unresolved(route: Route, constants: Mapping[str, str]) -> list[str]:
    sender = route.sender.config
    trees: dict[str, Any] = {
        f"filterChain[{n}].{name}": getattr(plugin.config, name)
        for n, plugin in enumerate(route.filter_chain)
        if isinstance(plugin, TransformFilter)
        for name in ("transformation", "metadata")
    }
    trees |= {"sender.headers": sender.headers, "sender.destinations": sender.destinations}
    return unknown_constants(trees, constants)
