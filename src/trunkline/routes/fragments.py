"""Fragments: plugins that a tenant has given a name, so that many routes can use one.

R1  Where a route says `fragmentName`, plugin and configuration are the fragment's, all of them; only `name` may be another.
    What else stands there of the place itself (`onError`) stays.
R2  A route is stored as it is after that. So a fragment that changes later changes no route until that is written again.
R3  All that is wrong with the fragments of a route is told at once; the route itself is not checked here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from trunkline.core.errors import Invalid
from trunkline.core.fields import nearest
from trunkline.core.mistakes import printable
from trunkline.routes.storage.base import Body

Plugins = Mapping[str, Collection[str]]
"""The names of the plugins that may stand at a place: receiver, filter, sender."""

_ANY: Plugins = MappingProxyType({})
_FRAGMENT = ("fragmentName", "fragment_name")
_CHAIN = ("filterChain", "filter_chain")
_OF_FRAGMENT = ("plugin", "config")


class Inflated(NamedTuple):
    """`used`: the fragments that went into it, by their place."""

    body: Body
    used: dict[str, str]


class _Place(NamedTuple):
    kind: str
    key: str
    at: int | None
    plugin: Body

    def __str__(self) -> str:
        return self.key if self.at is None else f"{self.key}[{self.at}]"

    @property
    def fragment(self) -> Any:
        return next((self.plugin[key] for key in _FRAGMENT if self.plugin.get(key)), None)


def fragment_names(route: Body) -> set[str]:
    """Those that have to be at hand for `inflate`."""
    return {place.fragment for place in _places(route) if isinstance(place.fragment, str)}


def inflate(route: Body, fragments: Mapping[str, Body], plugins: Plugins = _ANY) -> Inflated:
    """The route with the plugins that it names. Raises `Invalid` for a fragment that is not there or cannot stand there."""
    places = [place for place in _places(route) if place.fragment is not None]
    wrong = [f"{place}: {why}" for place in places if (why := _mistake(place, fragments, plugins))]
    if wrong:
        raise Invalid(
            "fragments of the route", "; ".join(wrong), "name fragments of this tenant, each where its plugin may stand"
        )
    body = dict(route)
    for place in places:
        _put(body, place, _joined(place, fragments[place.fragment]))
    return Inflated(body, {str(place): place.fragment for place in places})


def _places(route: Body) -> Iterator[_Place]:
    for key in ("receiver", "sender"):
        if isinstance(plugin := route.get(key), Mapping):
            yield _Place(key, key, None, plugin)
    for key in _CHAIN:
        chain = route.get(key)
        for at, plugin in enumerate(chain if isinstance(chain, list | tuple) else ()):
            if isinstance(plugin, Mapping):
                yield _Place("filter", key, at, plugin)


def _mistake(place: _Place, fragments: Mapping[str, Body], plugins: Plugins) -> str:
    name = place.fragment
    if not isinstance(name, str):
        return "fragmentName is not a text"
    if name not in fragments:
        near = f", the nearest is {printable(nearest(name, list(fragments)))}" if fragments else ""
        return f"there is no fragment {printable(name)}{near}"
    return _misfit(place, fragments[name].get("plugin"), plugins)


def _misfit(place: _Place, plugin: Any, plugins: Plugins) -> str:
    """Why a fragment with this plugin cannot stand here."""
    fragment, asked = f"the fragment {printable(place.fragment)}", place.plugin.get("plugin")
    if not isinstance(plugin, str) or not plugin:
        return f"{fragment} names no plugin"
    if asked and asked != plugin:
        return f"{fragment} is a {printable(plugin)}, not a {printable(str(asked))}"
    others = [kind for kind, names in plugins.items() if plugin in names]
    if others and place.kind not in others:
        return f"{fragment} is a {' or '.join(others)} ({printable(plugin)}), not a {place.kind}"
    return ""


def _joined(place: _Place, fragment: Body) -> Body:
    own = {key: value for key, value in place.plugin.items() if key not in (*_FRAGMENT, *_OF_FRAGMENT)}
    theirs = {key: fragment[key] for key in _OF_FRAGMENT if key in fragment}
    name = place.plugin.get("name") or fragment.get("name")
    return {**own, **theirs, **({"name": name} if name else {})}


def _put(body: dict[str, Any], place: _Place, plugin: Body) -> None:
    if place.at is None:
        body[place.key] = plugin
    else:
        chain = list(body[place.key])
        chain[place.at] = plugin
        body[place.key] = chain
