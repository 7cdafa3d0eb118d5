"""Routes as a person keeps them: files and folders of YAML and JSON, with the fragments that they use and their test cases.

G1  A folder means all its files that end in .yaml, .yml or .json, at any depth; hidden ones are left out. Those that end in
    .test.yaml (or .yml, .json) hold cases, all others routes: a list, a map with `routes` and `fragments`, one route
    alone, or an answer that EARS gave.
G2  Fragments count for all files that are read together, for the routes of their tenant. A fragment that is in none of
    them has to be at the node: that is a warning, and such a route is not compiled here.
G3  All that is wrong in all files comes at once, with its line. An id may stand in one place only.
G4  Secrets are not followed: their references are listed, for the site's configuration must have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel, Field

from trunkline.core.errors import Invalid
from trunkline.core.layers import Layers, Loose
from trunkline.core.mistakes import Mistake, Mistakes, in_order
from trunkline.routes.compile import NOWHERE, CompiledRoute, compile_written
from trunkline.routes.fields import Label, RouteModel
from trunkline.routes.fragments import fragment_names, inflate
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.model import Part, ReadRoute, RouteReader, listed, open_routes, plugin_places
from trunkline.routes.plugin import Around
from trunkline.routes.registry import Kind, Registry, registry
from trunkline.routes.route import RouteTenant
from trunkline.routes.secrets import references

SUFFIXES = (".yaml", ".yml", ".json")
CASES = ".test"
FRAGMENTS = "fragments"

Place = tuple[str, int | None]
Written = Loose | Layers
Fragments = dict[Tenant, dict[str, dict[str, Any]]]


class FileFragment(RouteModel):
    """A plugin with a name, for routes of its tenant."""

    name: Label = Field(description="by which routes name it")
    tenant: RouteTenant = RouteTenant()
    plugin: str = Field(description="its name")
    config: Any = Field(default=None, description="what it is told; its keys are the plugin's")


class FileRoute(msgspec.Struct, frozen=True):
    """`body`: as it was written, with its fragments. `compiled`: none where a fragment is missing, or something is wrong."""

    one: ReadRoute
    place: Place
    body: dict[str, Any]
    compiled: CompiledRoute | None

    @property
    def key(self) -> RouteKey:
        return self.one.key


class Need(msgspec.Struct, frozen=True):
    """A secret that a route refers to."""

    route: RouteKey
    reference: str
    place: Place


class Files(msgspec.Struct, frozen=True):
    """What was read; `routes` are those without a mistake."""

    routes: tuple[FileRoute, ...]
    mistakes: tuple[Mistake, ...]
    warnings: tuple[Mistake, ...]
    needs: tuple[Need, ...]


# -- which files


def is_cases(path: Path) -> bool:
    return path.suffix in SUFFIXES and path.stem.endswith(CASES)


def files_of(paths: Iterable[Path]) -> list[Path]:
    """All that the paths mean, each once; raises `Invalid` for a path that means nothing."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            found |= dict.fromkeys(_inside(path))
        elif path.exists():
            found[path] = None
        else:
            raise Invalid(f"path {path}", "there is no such file or folder", "name files or folders of routes")
    return list(found)


def _inside(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def beside(path: Path) -> list[Path]:
    """The cases of a file of routes, or the routes of a file of cases; none if there are none."""
    stem = path.stem.removesuffix(CASES) if is_cases(path) else path.stem + CASES
    return [other for suffix in SUFFIXES if (other := path.with_name(stem + suffix)).is_file()]


# -- what is in them


def read_files(paths: Sequence[Path], around: Around = NOWHERE, plugins: Registry | None = None) -> Files:
    """Of the files that hold routes; those of cases are left out."""
    work = _Reading(around, plugins or registry())
    opened = [file for path in paths if not is_cases(path) for file in work.opened(path)]
    for written in opened:
        work.take_fragments(written)
    for written in opened:
        work.take_routes(written)
    work.find_doubles()
    return Files(tuple(work.routes), _sorted(work.mistakes), _sorted(work.warnings), tuple(work.needs))


def _sorted(mistakes: list[Mistake]) -> tuple[Mistake, ...]:
    """By file in the order of their names, then by line."""
    return tuple(sorted(in_order(mistakes), key=lambda one: one.source))


class _Reading:
    """Goes on after a mistake, so that all are found."""

    def __init__(self, around: Around, plugins: Registry) -> None:
        self._around, self._plugins = around, plugins
        self._reader = RouteReader(plugins)
        self._names = {kind.value: plugins.names(kind) for kind in Kind}
        self._fragments: Fragments = {}
        self.routes: list[FileRoute] = []
        self.mistakes: list[Mistake] = []
        self.warnings: list[Mistake] = []
        self.needs: list[Need] = []

    def opened(self, path: Path) -> Iterator[Written]:
        try:
            yield open_routes(path)
        except Mistakes as error:
            self.mistakes += error.mistakes
        except Invalid as error:
            self.mistakes.append(Mistake(str(path), None, "", error.why, error.next_step))

    def take_fragments(self, written: Written) -> None:
        raw = written.value.get(FRAGMENTS) if isinstance(written.value, dict) else None
        if raw is None:
            return
        place = Part(written, (FRAGMENTS,), raw)
        if not isinstance(raw, list):
            self.mistakes.append(place.mistake((), "a list is wanted", "write - name: ... for each fragment"))
            return
        for n in range(len(raw)):
            self._take_fragment(place.below(n))

    def _take_fragment(self, place: Part) -> None:
        fragment, mistakes = place.examine(FileFragment)
        self.mistakes += mistakes
        if fragment is None:
            return
        known = self._fragments.setdefault(Tenant(fragment.tenant.org_id, fragment.tenant.app_id), {})
        if fragment.name in known:
            self.mistakes.append(
                place.mistake(("name",), f"there is a fragment {fragment.name} already", "give it another name")
            )
        known[fragment.name] = {"plugin": fragment.plugin, "name": "", "config": fragment.config or {}}

    def take_routes(self, written: Written) -> None:
        places, mistakes = listed(written, (FRAGMENTS,))
        self.mistakes += [*mistakes, *written.twice()]
        for place in places:
            self._take_route(place)

    def _take_route(self, place: Part) -> None:
        complete, place = self._filled(place)
        reading = self._reader.read(place)
        self.mistakes += reading.mistakes
        self.warnings += reading.warnings
        for one in reading.routes:
            self._take(one, place, complete)

    def _take(self, one: ReadRoute, place: Part, complete: bool) -> None:
        compiled = None
        if complete:
            compiled, wrong = compile_written(one, place.whole, self._around, self._plugins)
            self.mistakes += wrong
        if not one.configuration.does.user_id:
            self.warnings.append(place.mistake(("userId",), "it is missing", "write who is responsible; a node wants to know"))
        self._find_secrets(one, place)
        self.routes.append(FileRoute(one, place.place(()), place.value, compiled))

    def _filled(self, place: Part) -> tuple[bool, Part]:
        """The route with its fragments, and whether they were all there."""
        body = place.value if isinstance(place.value, dict) else {}
        names = fragment_names(body)
        known = self._fragments.get(_tenant(body), {})
        if names - known.keys():
            self._miss(place, names - known.keys())
            return False, place
        try:
            return True, Part(place.whole, place.at, inflate(body, known, self._names).body) if names else place
        except Invalid as error:
            self.mistakes.append(place.mistake((), error.why, error.next_step))
            return False, place

    def _miss(self, place: Part, names: set[str]) -> None:
        for _, plugin in plugin_places(place):
            name = plugin.value.get("fragmentName") or plugin.value.get("fragment_name")
            if name in names:
                reason = f"the fragment {name} is not in these files"
                self.warnings.append(plugin.mistake(("fragmentName",), reason, "the node must have it; it is not checked here"))

    def _find_secrets(self, one: ReadRoute, place: Part) -> None:
        for key, use in one.configuration.does.places:
            at = ("filterChain", int(key[12:-1])) if key.startswith("filterChain") else (key,)
            for where, reference, why in references(use.config) if isinstance(use.config, BaseModel) else ():
                location = (*at, "config", *where)
                if why:
                    self.mistakes.append(place.mistake(location, why, "write it out, or set it where a secret may stand"))
                else:
                    self.needs.append(Need(one.key, reference, place.place(location)))

    def find_doubles(self) -> None:
        first: dict[RouteKey, Place] = {}
        for route in self.routes:
            known = first.setdefault(route.key, route.place)
            if known is not route.place:
                file, line = known
                reason = f"more than one route of {route.key.tenant} has the id {route.key.id}, the first in {file}:{line}"
                self.mistakes.append(Mistake(*route.place, "id", reason, "give each route an id of its own"))


def _tenant(body: dict[str, Any]) -> Tenant:
    written = body.get("tenant")
    tenant = written if isinstance(written, dict) else {}
    house = RouteTenant()
    return Tenant(
        str(tenant.get("orgId") or tenant.get("org_id") or house.org_id),
        str(tenant.get("appId") or tenant.get("app_id") or house.app_id),
    )
