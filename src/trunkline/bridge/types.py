"""Bundle types are declared, not coded: one row here is all that intake and the DB workers know of a type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trunkline.core.bundle import Bundle, Mode
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads

Row = tuple[str | int | float | bool | None, ...]

# Postgres keeps versions as bigint.
_TOO_LARGE = 2**63


class Missing(StrEnum):
    """What it means that a row the hub has is not in the bundle."""

    GONE = "gone"
    KEPT = "kept"


@dataclass(frozen=True)
class BundleType:
    """`priority`: smaller goes first inside a site. `columns`: (name, SQL type), without the site."""

    name: str
    priority: int
    depends_on: str | None
    mode: Mode
    table: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    missing: Missing

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    def slot_key(self, bundle: Bundle) -> str:
        """What tells bundles apart that wait side by side in the inbox."""
        return bundle.id if self.mode is Mode.APPEND else ""

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


_DECLARED = (
    BundleType(
        name="clusters",
        priority=0,
        depends_on=None,
        mode=Mode.COMPLETE,
        table="status.cluster",
        key=("name",),
        columns=(("name", "text"), ("health", "text"), ("revision", "bigint"), ("changed_at", "timestamptz")),
        missing=Missing.GONE,
    ),
    BundleType(
        name="compliance",
        priority=10,
        depends_on="clusters",
        mode=Mode.COMPLETE,
        table="status.compliance",
        key=("cluster", "policy"),
        columns=(("cluster", "text"), ("policy", "text"), ("state", "text"), ("changed_at", "timestamptz")),
        missing=Missing.GONE,
    ),
    BundleType(
        name="events",
        priority=20,
        depends_on=None,
        mode=Mode.APPEND,
        table="status.event",
        key=("id",),
        columns=(("id", "text"), ("kind", "text"), ("subject", "text"), ("severity", "text"), ("at", "timestamptz")),
        missing=Missing.KEPT,
    ),
)

BUNDLE_TYPES: Mapping[str, BundleType] = {declared.name: declared for declared in _DECLARED}


def type_named(name: str) -> BundleType:
    declared = BUNDLE_TYPES.get(name)
    if declared is None:
        raise Invalid(f"bundle type {name!r}", "it is not declared here", f"send one of {', '.join(BUNDLE_TYPES)}")
    return declared


def accept(bundle: Bundle) -> Bundle:
    """The bundle, if it is as its type is declared; raises `Invalid` otherwise."""
    declared = type_named(bundle.type)
    what = f"bundle of type {bundle.type}"
    if bundle.mode is not declared.mode:
        raise Invalid(what, f"its mode is {bundle.mode}", f"send it as {declared.mode}")
    dependency = bundle.dependency
    if dependency is not None and dependency.type != declared.depends_on:
        allowed = declared.depends_on or "nothing"
        raise Invalid(what, f"it names a dependency on {dependency.type}", f"let it depend on {allowed}")
    versions = [bundle.version, *([dependency.version] if dependency else [])]
    if any(max(v.incarnation, v.generation) >= _TOO_LARGE for v in versions):
        raise Invalid(what, "a version above 2^63 cannot be kept", "count from the unix time, not from more")
    if "\x00" in bundle.id + bundle.time:
        raise Invalid(what, "a header holds a NUL character", "send text")
    return bundle
