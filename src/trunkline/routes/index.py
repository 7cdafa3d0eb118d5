"""The table's match index: one hash look-up per shape, however many routes there are.

A route whose first filters are matches can only take events that have certain values at certain paths (`needs`). The set of
these paths is its *shape*. All routes of one shape share a dictionary from their values to the routes that want them; all other
routes are the residual, which every event visits.

    X1  The index finds candidates, the compiled route decides: a candidate still runs its whole chain. So whatever the
        index leaves open (what is in an array, what "*" stands for) costs time, never correctness.
    X2  A route that is no candidate would have dropped the event: values that a match calls equal have equal keys.
    X3  The result is that of running every route over the whole batch, routes in table order and events in batch order.
    X4  A route joins and leaves in the time of its own size. At most MAX_SHAPES shapes are looked up: the rare ones wait in
        the residual. One that has become more than twice as common as the rarest takes its place; a free place is taken by
        the most common.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

from trunkline.core.errors import Invalid
from trunkline.routes.compile import NOWHERE, CompiledRoute, compile_route
from trunkline.routes.event import Event
from trunkline.routes.model import Route
from trunkline.routes.needs import Needs, key_reader, needs_of
from trunkline.routes.paths import Path
from trunkline.routes.plugin import Around

R = TypeVar("R", bound=Hashable)
Shape = tuple[Path, ...]

MAX_SHAPES = 32


class _Shaped(Generic[R]):
    """The routes of one shape. Where one route alone wants a key, a tuple holds it: a large table has a hundred thousand such
    keys, and no event's look-up finds theirs in a cache."""

    def __init__(self, shape: Shape) -> None:
        self.read: Callable[[Event], Any] = key_reader(shape)
        self.keys: dict[R, Hashable] = {}
        self.takers: dict[Hashable, tuple[R] | dict[R, None]] = {}

    def add(self, route: R, values: tuple[object, ...]) -> None:
        key = self.keys[route] = values[0] if len(values) == 1 else values
        others = self.takers.get(key)
        if isinstance(others, dict):
            others[route] = None
        else:
            self.takers[key] = (route,) if others is None else {others[0]: None, route: None}

    def discard(self, route: R) -> None:
        key = self.keys.pop(route)
        takers = self.takers[key]
        if isinstance(takers, dict) and len(takers) > 1:
            del takers[route]
        else:
            del self.takers[key]

    def __len__(self) -> int:
        return len(self.keys)


class MatchIndex(Generic[R]):
    """Of routes by any name."""

    def __init__(self, max_shapes: int = MAX_SHAPES) -> None:
        self._max = max_shapes
        self._shapes: dict[R, Shape] = {}
        self._found: dict[Shape, _Shaped[R]] = {}
        self._waiting: dict[Shape, _Shaped[R]] = {}
        self._open: dict[R, None] = {}

    def __len__(self) -> int:
        return len(self._shapes)

    def __contains__(self, route: object) -> bool:
        return route in self._shapes

    def add(self, route: R, needs: Needs) -> None:
        self.discard(route)
        shape = self._shapes[route] = tuple(needs)
        if shape:
            self._of(shape).add(route, tuple(needs.values()))
            self._promote(shape)
        else:
            self._open[route] = None

    def discard(self, route: R) -> None:
        shape = self._shapes.pop(route, None)
        if shape is None:
            return
        if not shape:
            del self._open[route]
            return
        shaped = self._of(shape)
        shaped.discard(route)
        if not shaped:
            self._forget(shape)

    def _of(self, shape: Shape) -> _Shaped[R]:
        known = self._found.get(shape, self._waiting.get(shape))
        if known is None:
            known = _Shaped[R](shape)
            (self._found if len(self._found) < self._max else self._waiting)[shape] = known
        return known

    def _promote(self, shape: Shape) -> None:
        if shape in self._waiting:
            rarest = min(self._found, key=lambda found: len(self._found[found]))
            if len(self._waiting[shape]) > 2 * len(self._found[rarest]):
                self._waiting[rarest] = self._found.pop(rarest)
                self._found[shape] = self._waiting.pop(shape)

    def _forget(self, shape: Shape) -> None:
        if self._found.pop(shape, None) is None:
            del self._waiting[shape]
        elif self._waiting:
            commonest = max(self._waiting, key=lambda waiting: len(self._waiting[waiting]))
            self._found[commonest] = self._waiting.pop(commonest)

    def candidates(self, event: Event) -> Iterator[R]:
        """The routes found by what the event holds; those of the residual come on top."""
        for shaped in self._found.values():
            yield from shaped.takers.get(shaped.read(event), ())

    def residual(self) -> Iterator[R]:
        return chain(self._open, *(shaped.keys for shaped in self._waiting.values()))

    def found(self, events: Sequence[Event]) -> Iterator[tuple[Event, Iterable[R]]]:
        """Events with the routes that they were found to have what is needed for. A route gets its events in their order, and
        those of one shape follow each other; routes of the residual are not among them."""
        for shaped in self._found.values():
            takers = list(map(shaped.takers.get, map(shaped.read, events)))
            yield from ((event, routes) for event, routes in zip(events, takers, strict=True) if routes is not None)

    def batches(self, events: list[Event]) -> dict[R, list[Event]]:
        """For each route that may take some of the events: those, in their order."""
        batches: dict[R, list[Event]] = dict.fromkeys(self.residual(), events)
        for event, routes in self.found(events):
            for route in routes:
                batches.setdefault(route, []).append(event)
        return batches


class RouteTable:
    """Static routes: compiled together or refused together. Events come from one receiver, so all routes see all."""

    def __init__(self, routes: Iterable[Route], around: Around = NOWHERE) -> None:
        self.routes = _compile_all(routes, around)
        self._index = MatchIndex[int]()
        for number, route in enumerate(self.routes):
            self._index.add(number, needs_of(route.config.filter_chain))

    def route(self, events: list[Event]) -> list[tuple[str, Any]]:
        """All messages that the table makes of the events, each with its route's id. Raises `Invalid` when a route
        refuses one of them."""
        batches = self._index.batches(events)
        running = [(self.routes[number], batches[number]) for number in sorted(batches)]
        return [(route.id, message) for route, batch in running for message in route.run(batch)]

    def candidates(self, event: Event) -> Iterator[int]:
        """Numbers of the indexed routes that may take the event; those of the residual come on top."""
        return self._index.candidates(event)


def _compile_all(routes: Iterable[Route], around: Around) -> tuple[CompiledRoute, ...]:
    compiled: dict[str, CompiledRoute] = {}
    wrong: list[str] = []
    for route in routes:
        if route.id in compiled:
            wrong.append(f"more than one route has the id {route.id}")
        try:
            compiled[route.id] = compile_route(route, around)
        except Invalid as error:
            wrong.append(f"{error.what}: {error.why}")
    if wrong:
        raise Invalid("routing table", "; ".join(wrong), "mend these routes")
    return tuple(compiled.values())
