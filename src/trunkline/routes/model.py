"""Reads routes as people write them: everything wrong with them comes at once, each with its place.

W1  What can be said without running a route is said here: its own keys, its plugins, and their configurations.
W2  A key of a route that nobody knows is a warning; one that is only misspelt in its case, or that stands in a plugin's
    configuration, is a mistake: it was surely meant.
W3  Routes that share a configuration are checked and hashed once; each of the others costs only its id and notes.
"""

from __future__ import annotations

import dataclasses
import marshal
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from pydantic import BaseModel, ValidationError

from trunkline.core.collector import collector_at_rest
from trunkline.core.document import read_document
from trunkline.core.fields import keys, nearest
from trunkline.core.layers import Layers, Loose
from trunkline.core.mistakes import Location, Mistake, Mistakes, inner, key_text, quoted
from trunkline.core.reasons import Source, examine
from trunkline.routes.idle import has_idle, idle_config, idle_keys, strange_mode
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.registry import Kind, Registry, registry
from trunkline.routes.route import Behaviour, DeliveryMode, Notes, Route, body_of, route_hash
from trunkline.routes.unread import unread

__all__ = [
    "Configuration",
    "ReadRoute",
    "Reading",
    "Route",
    "RouteReader",
    "listed",
    "load_routes",
    "open_routes",
    "parse_routes",
    "plugin_places",
    "read_route",
    "read_routes",
]

MAX_REMEMBERED = 10_000  # configurations; a table has fewer, and a reader that met more begins anew
MAX_PARTS = 2_000_000  # values in one document: aliases can make a short text endless
MAX_NESTED = 100
LARGE_FILE = 4 << 20  # bytes; from here on JSON is read by the JSON codec: much quicker, but nothing knows its lines


class Configuration(msgspec.Struct, frozen=True):
    """What a route does, whatever it is called. `body`: as it is stored."""

    tenant: Tenant
    does: Route
    body: dict[str, Any]
    hash: str


class ReadRoute(msgspec.Struct, frozen=True, gc=False):
    """The id of `key` is the hash, if none was written. Routes that do the same share their `configuration`. `at`: where it
    stands in what was read."""

    key: RouteKey
    configuration: Configuration
    notes: Notes
    at: Location = ()

    @property
    def hash(self) -> str:
        return self.configuration.hash

    @property
    def route(self) -> Route:
        said = {name: getattr(self.notes, name) for name in self.notes.model_fields_set}
        return self.configuration.does.model_copy(update={**said, "id": self.key.id})


class Reading(msgspec.Struct, frozen=True):
    """What was read; `routes` are those without a mistake."""

    routes: tuple[ReadRoute, ...]
    mistakes: tuple[Mistake, ...]
    warnings: tuple[Mistake, ...]


class Part(msgspec.Struct, frozen=True, gc=False):
    """A part of what was written, for a model that knows only that part."""

    whole: Source
    at: Location
    value: Any

    def place(self, location: Location) -> tuple[str, int | None]:
        return self.whole.place(self.at + location)

    def typed(self, location: Location) -> str | None:
        return self.whole.typed(self.at + location)

    def below(self, *location: int | str) -> Part:
        value = self.value
        for part in location:
            value = inner(value, part)
        return Part(self.whole, self.at + location, value)

    def mistake(self, location: Location, reason: str, next_step: str) -> Mistake:
        return Mistake(*self.place(location), key_text(self.at + location, self.whole.value), reason, next_step)

    def examine(self, model: type[BaseModel]) -> tuple[Any, list[Mistake]]:
        found, mistakes = examine(model, self)
        return found, [dataclasses.replace(one, key=self._key(one.key)) for one in mistakes]

    def placed(self, location: Location, mistake: Mistake) -> Mistake:
        """A mistake of somebody who knows only this part."""
        source, line = self.place(location)
        return dataclasses.replace(mistake, source=source, line=line, key=self._key(mistake.key))

    def _key(self, key: str) -> str:
        above = key_text(self.at, self.whole.value)
        return above + key if not above or not key or key.startswith("[") else f"{above}.{key}"


_BEHAVIOUR = {*Behaviour.model_fields, *keys(Behaviour)}
_KNOWN = {*Route.model_fields, *keys(Route)}
_CHAINS = ("filterChain", "filter_chain")
_ANSWERED = ("items", "item")
_ANSWER = {*_ANSWERED, "status", "tx"}  # an answer of EARS that was kept in a file


class RouteReader:
    """`user_required`: a route without `userId` is a mistake."""

    def __init__(self, plugins: Registry | None = None, user_required: bool = False) -> None:
        self._plugins = plugins or registry()
        self._user_required = user_required
        self._remembered: dict[bytes, Configuration] = {}

    def read(self, part: Part, tenant: Tenant | None = None) -> Reading:
        """One route. `tenant`: whose it is, whatever was written."""
        if tenant is not None and isinstance(part.value, dict):
            part = replace(part, value={**part.value, "tenant": {"orgId": tenant.org, "appId": tenant.app}})
        warnings, mistakes = self._strange_keys(part)
        if isinstance(part.value, dict):
            warnings += _idle(part) if has_idle(part.value) else ()
            if mode := strange_mode(part.value):
                reason = f"there is no such mode as {quoted(part.value[mode])}; it is taken as {DeliveryMode.AT_LEAST_ONCE}"
                warnings.append(part.mistake((mode,), reason, f"known: {', '.join(DeliveryMode)}"))
                part = replace(part, value={**part.value, mode: ""})
        found = None if mistakes else self._recall(part)
        if found is None:
            found, wrong = self._examine(part)
            mistakes += wrong
        return Reading((found,) if found and not mistakes else (), tuple(mistakes), tuple(warnings))

    def _strange_keys(self, part: Part) -> tuple[list[Mistake], list[Mistake]]:
        """Warnings and mistakes."""
        found: tuple[list[Mistake], list[Mistake]] = ([], [])
        if not isinstance(part.value, dict) or part.value.keys() <= _KNOWN:
            return found
        for key in sorted(part.value.keys() - _KNOWN, key=str):
            near = nearest(key, keys(Route))
            reason = f"there is no such key, the nearest is {near!r}"
            misspelt = str(key).replace("-", "").replace("_", "").lower() == near.lower()
            found[misspelt].append(part.mistake((key,), reason, f"known: {', '.join(keys(Route))}"))
        return found

    def _recall(self, part: Part) -> ReadRoute | None:
        mark = _mark(part.value)
        known = self._remembered.get(mark) if mark else None
        return _noted(known, part) if known else None

    def _examine(self, part: Part) -> tuple[ReadRoute | None, list[Mistake]]:
        route, mistakes = part.examine(Route)
        configs, wrong = self._configs(part)
        mistakes += wrong
        if self._user_required and isinstance(part.value, dict) and not (part.value.get("userId") or part.value.get("user_id")):
            mistakes.append(part.mistake(("userId",), "it is missing", "write userId: who is responsible for this route"))
        if route is None or mistakes:
            return None, mistakes
        configuration = _configuration(_filled(route, configs))
        self._remember(part.value, configuration)
        return _noted(configuration, part), []

    def _remember(self, raw: Any, configuration: Configuration) -> None:
        mark = _mark(raw)
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        if mark:
            self._remembered[mark] = configuration

    def _configs(self, part: Part) -> tuple[list[BaseModel | None], list[Mistake]]:
        """The configuration of each plugin: receiver, filters, sender; none where a fragment gives it."""
        configs: list[BaseModel | None] = []
        mistakes: list[Mistake] = []
        for kind, place in plugin_places(part):
            config, wrong = self._config(kind, place)
            configs.append(config)
            mistakes += wrong
        return configs, mistakes

    def _config(self, kind: Kind, place: Part) -> tuple[BaseModel | None, list[Mistake]]:
        name, fragment = place.value.get("plugin", ""), place.value.get("fragmentName") or place.value.get("fragment_name")
        if not isinstance(name, str) or (fragment and place.value.get("config") is None):
            return None, []
        if not name:
            known = ", ".join(self._plugins.names(kind))
            return None, [place.mistake(("plugin",), "it is missing", f"write plugin: and one of {known}")]
        plugin = self._plugins.find(kind, name)
        if plugin is None:
            return None, [place.mistake(("plugin",), *self._plugins.unknown(kind, name))]
        config = place.below("config")
        return (config if config.value is not None else replace(config, value={})).examine(plugin.config)


def _idle(part: Part) -> list[Mistake]:
    found = [part.mistake(*idle) for idle in idle_keys(part.value)]
    places = [place.below("config") for _, place in plugin_places(part)]
    return found + [place.mistake(*idle) for place in places for idle in idle_config(place.value)]


def plugin_places(part: Part) -> Iterator[tuple[Kind, Part]]:
    """Places of plugins in the order receiver, filters, sender; what has not their shape is left out."""
    raw = part.value if isinstance(part.value, dict) else {}
    chain = next((key for key in _CHAINS if isinstance(raw.get(key), list)), "")
    filters = [(Kind.FILTER, part.below(chain, n)) for n in range(len(raw[chain]))] if chain else []
    for kind, place in ((Kind.RECEIVER, part.below("receiver")), *filters, (Kind.SENDER, part.below("sender"))):
        if isinstance(place.value, dict):
            yield kind, place


def _filled(route: Route, configs: Sequence[BaseModel | None]) -> Route:
    """With the plugins' configurations in the place of what was written for them."""
    receiver, *chain, sender = (
        use.model_copy(update={"config": config}) for (_, use), config in zip(route.places, configs, strict=True)
    )
    return route.model_copy(update={"receiver": receiver, "filter_chain": tuple(chain), "sender": sender})


def _configuration(route: Route) -> Configuration:
    does = {name: getattr(route, name) for name in Behaviour.model_fields}
    bare = Route.model_construct(_fields_set=route.model_fields_set & set(does), **does)
    return Configuration(bare.key.tenant, bare, body_of(bare), route_hash(bare))


def _noted(configuration: Configuration, part: Part) -> ReadRoute | None:
    """With the id and the notes of this one; nothing if there is a mistake in them."""
    try:
        notes = Notes.model_validate({key: value for key, value in part.value.items() if key not in _BEHAVIOUR})
    except ValidationError:
        return None
    return ReadRoute(RouteKey(configuration.tenant, notes.id or configuration.hash), configuration, notes, part.at)


def _mark(raw: Any) -> bytes | None:
    """Equal only for equal behaviour: this form tells 1, 1.0, true and "1" apart, and refuses what is not JSON."""
    if not isinstance(raw, dict):
        return None
    try:
        return marshal.dumps([(key, value) for key, value in raw.items() if key in _BEHAVIOUR], 2)
    except ValueError:
        return None


# -- files and lists


def read_routes(written: Loose | Layers, reader: RouteReader | None = None, tenant: Tenant | None = None) -> Reading:
    """A map with `routes`, a list of routes, one route alone, or an answer of EARS."""
    reader = reader or RouteReader()
    places, mistakes = listed(written)
    mistakes += written.twice()
    routes: list[ReadRoute] = []
    warnings: list[Mistake] = []
    with collector_at_rest():
        for place in places:
            one = reader.read(place, tenant)
            routes += one.routes
            mistakes += one.mistakes
            warnings += one.warnings
    return Reading(tuple(routes), tuple(mistakes + _twice(written, routes)), tuple(warnings))


def listed(written: Loose | Layers, beside: Collection[str] = ()) -> tuple[Iterable[Part], list[Mistake]]:
    """The places of the routes. `beside`: keys that may stand beside `routes`, or alone."""
    whole = Part(written, (), written.value)
    too_much = _endless(written.value) if isinstance(written, Layers) else ""
    if too_much:
        return [], [whole.mistake((), too_much, "make it smaller")]
    if isinstance(whole.value, list):
        return (Part(written, (n,), value) for n, value in enumerate(whole.value)), []
    if not isinstance(whole.value, dict) or whole.value.keys().isdisjoint(("routes", *beside, *_ANSWERED)):
        return _alone(whole)
    if isinstance(whole.value.get("item"), dict):
        return [whole.below("item")], []
    key = "items" if "items" in whole.value else "routes"
    known = {"routes", *beside} if key == "routes" else _ANSWER
    mistakes = [
        whole.mistake((name,), "there is no such key beside routes", "put it into a route, or remove it")
        for name in sorted(whole.value.keys() - known, key=str)
    ]
    found = whole.value.get(key, [])
    if not isinstance(found, list):
        return [], [*mistakes, whole.mistake((key,), "a list is wanted", "write - id: ... for each route")]
    return (Part(written, (key, n), value) for n, value in enumerate(found)), mistakes


def _alone(whole: Part) -> tuple[Iterable[Part], list[Mistake]]:
    if isinstance(whole.value, dict) and _KNOWN & whole.value.keys():
        return [whole], []
    return [], [whole.mistake((), "there are no routes in it", "write routes: and a list of them")]


def _endless(value: Any) -> str:
    level, parts, nested = [value], 0, 0
    while level:
        parts, nested = parts + len(level), nested + 1
        if nested > MAX_NESTED:
            return f"it is nested deeper than {MAX_NESTED}"
        if parts > MAX_PARTS:
            return f"it has more than {MAX_PARTS} parts"
        level = list(islice(_below(level), MAX_PARTS + 1 - parts))
    return ""


def _below(level: list[Any]) -> Iterator[Any]:
    return (part for one in level if isinstance(one, dict | list) for part in (one.values() if isinstance(one, dict) else one))


def _twice(written: Loose | Layers, routes: Sequence[ReadRoute]) -> list[Mistake]:
    times = Counter(one.key for one in routes)
    place = Part(written, (), written.value)
    return [
        place.mistake(("routes",), f"more than one route has the id {key.id}", "give each route an id of its own")
        for key, count in times.items()
        if count > 1
    ]


def read_route(raw: Any, reader: RouteReader, tenant: Tenant | None = None) -> Reading:
    """One route that stands in no file, such as the body of a request."""
    too_much = _endless(raw)
    if too_much:
        return Reading((), (Mistake("", None, "", too_much, "make it smaller"),), ())
    return reader.read(Part(Loose(raw), (), raw), tenant)


def open_routes(path: Path) -> Loose | Layers:
    what = f"routes {path}"
    if path.suffix == ".json" and path.is_file() and path.stat().st_size >= LARGE_FILE:
        return Loose(unread(path.read_bytes(), what))
    return Layers(read_document(path, what, "name an existing file"))


def parse_routes(raw: Any, what: str) -> tuple[Route, ...]:
    return _right(read_routes(Loose(raw)), what)


def load_routes(path: Path) -> tuple[Route, ...]:
    return _right(read_routes(open_routes(path)), f"routes {path}")


def _right(reading: Reading, what: str) -> tuple[Route, ...]:
    if reading.mistakes:
        raise Mistakes(what, reading.mistakes, "mend these fields")
    return tuple(one.route for one in reading.routes)
