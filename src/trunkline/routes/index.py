"""The table's match index: one hash look-up per shape, however many routes there are.

A route whose first filter is an allow-match by pattern can only take events that have certain values at certain
paths. The set of these paths is its *shape*. All routes of one shape share a dictionary from the tuple of values to
the routes that want it; all other routes are the residual, which every event visits.

    X1  The index finds candidates, the compiled route decides: a candidate still runs its whole chain. So whatever the
        index leaves open (what is in an array, what "*" stands for) costs time, never correctness.
    X2  A route that is no candidate would have dropped the event: values that a pattern calls equal have equal keys.
    X3  The result is that of running every route over the whole batch, routes in table order and events in batch order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trunkline.core.errors import Invalid
from trunkline.routes.compile import NO_CONSTANTS, CompiledRoute, compile_route
from trunkline.routes.event import Event, Outgoing
from trunkline.routes.filters import ANYTHING
from trunkline.routes.model import MatchFilter, Route
from trunkline.routes.paths import Path, Read, event_path, reader

Key = tuple[object, ...]
Shape = tuple[Path, ...]

_NOT_A_SCALAR = object()


class RouteTable:
    """Static routes: compiled together or refused together. Events come from one receiver, so all routes see all."""

    def __init__(self, routes: Iterable[Route], constants: Mapping[str, str] = NO_CONSTANTS) -> None:
        self.routes = _compile_all(routes, constants)
        shapes: dict[Shape, defaultdict[Key, list[int]]] = {}
        self._residual: list[int] = []
        for number, route in enumerate(self.routes):
            leaves = _leaves_of(route.config)
            if leaves:
                shapes.setdefault(tuple(leaves), defaultdict(list))[tuple(leaves.values())].append(number)
            else:
                self._residual.append(number)
        self._shapes: list[tuple[list[Read], dict[Key, list[int]]]] = [
            ([reader(path) for path in shape], dict(takers)) for shape, takers in shapes.items()
        ]

    def route(self, events: list[Event]) -> list[Outgoing]:
        """All that the table makes of the events; raises `Invalid` when a route's sender refuses one of them."""
        batches: dict[int, list[Event]] = dict.fromkeys(self._residual, events)
        for event in events:
            for number in self.candidates(event):
                batches.setdefault(number, []).append(event)
        return [out for number in sorted(batches) for out in self.routes[number].run(batches[number])]

    def candidates(self, event: Event) -> Iterator[int]:
        """Numbers of the indexed routes that may take the event; those of the residual come on top."""
        for readers, takers in self._shapes:
            yield from takers.get(tuple([_key(read(event)) for read in readers]), ())


def _compile_all(routes: Iterable[Route], constants: Mapping[str, str]) -> tuple[CompiledRoute, ...]:
    compiled: dict[str, CompiledRoute] = {}
    wrong: list[str] = []
    for route in routes:
        if route.id in compiled:
            wrong.append(f"more than one route has the id {route.id}")
        try:
            compiled[route.id] = compile_route(route, constants)
        except Invalid as error:
            wrong.append(f"{error.what}: {error.why}")
    if wrong:
        raise Invalid("routing table", "; ".join(wrong), "mend these routes")
    return tuple(compiled.values())


def _leaves_of(route: Route) -> dict[Path, object]:
    """The paths this route's events must have, with the keys of their values; empty when the index cannot help."""
    first = route.filter_chain[0] if route.filter_chain else None
    if not isinstance(first, MatchFilter) or (first.config.mode, first.config.matcher) != ("allow", "pattern"):
        return {}
    found = dict(_leaves(first.config.pattern, event_path(first.config.path)))
    return {path: found[path] for path in sorted(found, key=str)}


def _leaves(pattern: Any, at: Path) -> Iterator[tuple[Path, object]]:
    if isinstance(pattern, dict):
        for key, value in pattern.items():
            yield from _leaves(value, at.below(key))
    elif pattern != ANYTHING:
        yield at, _key(pattern)


def _key(value: Any) -> object:
    """Hashable, and equal wherever a pattern calls two values equal (that 1 and true share a key is X1's matter)."""
    return value if isinstance(value, str | int | float) else _NOT_A_SCALAR
