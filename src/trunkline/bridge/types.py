"""Bundle types are declared, not coded: one row here is all that intake and the DB workers know of a type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from trunkline.bridge.handler import Handler
from trunkline.core.bundle import LARGEST, Bundle, Dependency, Mode, Version
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads

Row = tuple[str | int | float | bool | None, ...]
LONGEST_ID = 512  # bytes; an index of Postgres takes no entry above 2,700


class Missing(StrEnum):
    """What it means that a row the hub has is not in the bundle."""

    GONE = "gone"
    KEPT = "kept"


class Match(StrEnum):
    """Which version of its base a dependent may be applied on."""

    EXACT = "exact"
    AT_LEAST = "at_least"

    def is_met(self, base: Version | None, needs: Version) -> bool:
        if base is None:
            return False
        return _of_run(base, needs) >= needs if self is Match.AT_LEAST else _of_run(base, needs) == needs

    def is_outdated(self, base: Version | None, needs: Version) -> bool:
        """The base it was made for is gone for good."""
        return self is Match.EXACT and base is not None and _of_run(base, needs) > needs


def _of_run(base: Version, needs: Version) -> Version:
    return base if needs.incarnation else Version(0, base.generation)


@dataclass(frozen=True)
class BundleType:
    """`priority`: smaller goes first inside a unit. `columns`: (name, SQL type), without the site. `table` holds the rows;
    `tables` are all that hold rows of a site. `group`: bundles of one site in different groups are applied side by side.
    `handler`: none for rows that are written as they come."""

    name: str
    priority: int
    depends_on: str | None
    mode: Mode
    table: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    missing: Missing
    match: Match = Match.AT_LEAST
    group: str = ""
    handler: Handler | None = None
    more_tables: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        return self.table, *self.more_tables

    @property
    def needs_dependency(self) -> bool:
        return self.depends_on is not None and self.match is Match.EXACT

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    def slot_key(self, bundle: Bundle) -> str:
        """What tells bundles apart that wait side by side in the inbox."""
        return "" if self.mode is Mode.COMPLETE else bundle.id

    def rows(self, data: bytes) -> list[Row]:
        """The bundle's rows in the order of `names`; columns this version does not know are left out."""
        document = loads(data, f"data of {self.name}")
        if not isinstance(document, list):
            raise Invalid(f"data of {self.name}", "it is not a list of rows", "send a JSON array of objects")
        return [self._row(number, item) for number, item in enumerate(document)]

    def _row(self, number: int, item: Any) -> Row:
        what = f"row {number} of {self.name}"
        if not isinstance(item, dict):
            raise Invalid(what, "it is not an object", "send a JSON array of objects")
        missing = [name for name in self.names if name not in item]
        if missing:
            raise Invalid(what, f"no column {', '.join(missing)}", "send every declared column")
        row = tuple(item[name] for name in self.names)
        if any(isinstance(value, dict | list) for value in row):
            raise Invalid(what, "a column holds an object or a list", "send plain values")
        return row


class Types(Mapping[str, BundleType]):
    """All types of a hub, by name."""

    def __init__(self, declared: Iterable[BundleType]) -> None:
        self._types = {one.name: one for one in declared}

    def __getitem__(self, name: str) -> BundleType:
        declared = self._types.get(name)
        if declared is None:
            raise Invalid(f"bundle type {name!r}", "it is not declared here", f"send one of {', '.join(self._types)}")
        return declared

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def dependents(self, name: str) -> tuple[BundleType, ...]:
        return tuple(one for one in self._types.values() if one.depends_on == name)

    def accept(self, bundle: Bundle) -> Bundle:
        """The bundle, if it is as its type is declared; raises `Invalid` otherwise."""
        declared = self[bundle.type]
        what = f"bundle of type {bundle.type}"
        if bundle.mode is not declared.mode:
            raise Invalid(what, f"its mode is {bundle.mode}", f"send it as {declared.mode}")
        _check_dependency(what, declared, bundle.dependency)
        version, needs = bundle.version, bundle.dependency.version if bundle.dependency else bundle.version
        if max(version.incarnation, version.generation, needs.incarnation, needs.generation, bundle.value or 0) > LARGEST:
            raise Invalid(what, "a version above 2^63 cannot be kept", "count from the unix time, not from more")
        if declared.mode is not Mode.COMPLETE and len(bundle.id.encode()) > LONGEST_ID:
            raise Invalid(what, f"its id has more than {LONGEST_ID} bytes", "send a UUID")
        if "\x00" in bundle.id + bundle.time + bundle.session:
            raise Invalid(what, "a header holds a NUL character", "send text")
        return bundle


def _check_dependency(what: str, declared: BundleType, dependency: Dependency | None) -> None:
    if dependency is None:
        if declared.needs_dependency:
            why = f"it names no version of {declared.depends_on} that it was made for"
            raise Invalid(what, why, "send it with a dependency")
        return
    if dependency.type != declared.depends_on:
        allowed = declared.depends_on or "nothing"
        raise Invalid(what, f"it names a dependency on {dependency.type}", f"let it depend on {allowed}")
