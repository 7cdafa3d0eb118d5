"""Python source for what runs once per event.

A path, a template or a pattern becomes straight code over local names, without a call per segment or leaf: several times as
fast as closures that call each other. Only keys and indexes are written into the source, as Python's own literals; all other
values are handed in. So routes of one shape share their compiled code, and nothing of a configuration runs as code.

Events hold JSON as a parser gives it: dict, list, str, int, float, bool and None themselves, no subclasses of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import orjson

from trunkline.core.jsoncodec import dumps
from trunkline.routes.equality import same
from trunkline.routes.event import Event
from trunkline.routes.pathtext import Path, Segment, Selector
from trunkline.routes.plugin import Filter

_ROOTS: Mapping[Path, str] = {
    Path("payload"): "event.payload",
    Path("metadata"): "event.metadata",
    Path("trace", ("id",)): "event.source.trace_id or None",
    Path("tenant", ("orgId",)): "event.source.tenant.org",
    Path("tenant", ("appId",)): "event.source.tenant.app",
    Path("timestamp"): "str(round(event.source.at * 1000))",
}

_FUNCTION = """\
def make({values}):
    def run({argument}):
        {lines}
        return {result}
    return run
"""

_FILTER = """\
def make({values}):
    def run(batch, faults):
        out = []
        append = out.append
        for event in batch:
            {lines}
            {last}
        return out
    return run
"""


def as_text(value: Any) -> str:
    if type(value) is str:
        return value
    return str(value) if type(value) is int else dumps(value).decode()


def pick(value: Any, key: str, wanted: tuple[Any, ...]) -> Any:
    """The first element that is a map with one of the wanted values at its key."""
    found = place(value, key, wanted)
    return None if found is None else value[found]


def place(value: Any, key: str, wanted: tuple[Any, ...]) -> int | None:
    if type(value) is not list:
        return None
    fits = (n for n, e in enumerate(value) if type(e) is dict and any(same(e.get(key), w) for w in wanted))
    return next(fits, None)


def wanted_of(selector: Selector) -> tuple[Any, ...]:
    """The text itself, and the number or boolean that it spells."""
    try:
        spelled = orjson.loads(selector.value)
    except orjson.JSONDecodeError:
        return (selector.value,)
    return (selector.value, spelled) if isinstance(spelled, int | float) else (selector.value,)


class Code:
    """A function in the making: the names it reads, in order, and the values it is given."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._values: list[object] = []
        self._names: dict[Path, str] = {}
        self._maps: dict[Path, str] = {}
        self._locals = 0

    def local(self) -> str:
        """A name that nothing else uses."""
        self._locals += 1
        return f"w{self._locals}"

    def value(self, value: object) -> str:
        """A name for what is not written into the source."""
        self._values.append(value)
        return f"c{len(self._values) - 1}"

    def read(self, path: Path) -> str:
        """A name for what the path reads; what several paths have in common is read once."""
        if path not in self._names:
            expression = _ROOTS.get(path) or self._step(path.parent, path.segments[-1])
            self._names[path] = name = f"v{len(self._names)}"
            self._lines.append(f"{name} = {expression}")
        return self._names[path]

    def text(self, path: Path) -> str:
        """An expression for what the path reads, as a part of an f-string: Python writes whole numbers as JSON does."""
        name = self.read(path)
        return f"{name} if type({name}) is str or type({name}) is int else as_text({name})"

    def _step(self, path: Path, segment: Segment) -> str:
        if isinstance(segment, str):
            return f"{self._map(path)}.get({segment!r})"
        inner = self.read(path)
        if isinstance(segment, int):
            return f"{inner}[{segment}] if type({inner}) is list and len({inner}) > {segment} else None"
        return f"pick({inner}, {segment.key!r}, {self.value(wanted_of(segment))})"

    def _map(self, path: Path) -> str:
        """A name for what the path reads if that is a map, and for an empty one if not."""
        if path not in self._maps:
            inner = self.read(path)
            self._maps[path] = name = f"m{len(self._maps)}"
            self._lines.append(f"{name} = {inner} if type({inner}) is dict else nothing")
        return self._maps[path]

    def equals(self, expression: str, constant: Any) -> str:
        """Whether it is the same JSON value as a constant that is no map and no array."""
        if constant is None or isinstance(constant, bool):
            return f"{expression} is {constant}"
        if constant in (0, 1):
            return f"same({expression}, {self.value(constant)})"
        return f"{expression} == {self.value(constant)}"

    def function(self, result: str, argument: str = "event") -> Callable[[Any], Any]:
        lines = "\n        ".join(self._lines)
        source = _FUNCTION.format(values=self._arguments(), argument=argument, lines=lines, result=result)
        made: Callable[[Any], Any] = self._made(source)
        return made

    def filter(self, last: str) -> Filter:
        """`last`: what is done for each event; it may `append` to what goes on."""
        lines = "\n            ".join(self._lines)
        made: Filter = self._made(_FILTER.format(values=self._arguments(), lines=lines, last=last))
        return made

    def _arguments(self) -> str:
        return ", ".join(f"c{n}" for n in range(len(self._values)))

    def _made(self, source: str) -> Any:
        return _compiled(source)(*self._values)


@lru_cache(maxsize=4096)
def _compiled(source: str) -> Callable[..., Any]:
    names: dict[str, Any] = {"Event": Event, "as_text": as_text, "pick": pick, "same": same, "nothing": {}}
    exec(source, names)  # noqa: S102 - our own source: of a route it holds keys and indexes only, as literals
    make: Callable[..., Any] = names["make"]
    return make
