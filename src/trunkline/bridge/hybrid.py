"""Objects that a site creates, changes and deletes one by one, and now and then lists in full: managed clusters and policies.

A bundle is {create, update, delete, resync, resync_metadata}. `create`, `update` and `resync` hold whole objects; `delete` and
`resync_metadata` hold {id, ns, name}. Inside one bundle objects come first, then deletions, then the list.

R1  `resync_metadata` is a barrier with the generation its list was read at: of the site's rows it deletes those that are not
    listed and were last changed at or before it. What comes after it stays behind it (H36). An empty list
    deletes all, no list deletes none.
R2  Between barriers only the last that happened to an object counts. An object that comes back is no longer deleted.
R3  A deletion names an object by its id, or, without one, by its name (and namespace, where the objects have one); it means
    what has that name at that moment.
R4  Rows that no bundle brings an object for can only be deleted here, so it does not matter for them in which order: `fold`
    needs no database, and one statement per kind does for many sites.
R5  A row keeps the version of its last change; an object that comes again as it was changes nothing. A barrier older than such
    an object spares it inside one call by `fold`, later by the ledger, which takes nothing older than what was applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
from msgspec.structs import replace

from trunkline.bridge.handler import Part
from trunkline.core.bundle import Version
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads

Json = Mapping[str, Any]
_BROUGHT = ("resync", "create", "update")
_KNOWN = {*_BROUGHT, "delete", "resync_metadata"}
_CLAIM = "id.k8s.io"


class Named(msgspec.Struct, frozen=True):
    """Says which object is meant: by `id`, or where that is empty, by name."""

    id: str
    namespace: str
    name: str

    def means(self, other: Named) -> bool:
        if self.id:
            return self.id == other.id
        return self.name == other.name and self.namespace in ("", other.namespace)


class Put(msgspec.Struct, frozen=True):
    """An object as the bundles leave it: there, or brought and deleted again."""

    who: Named
    payload: Json
    version: Version
    is_deleted: bool = False


class Delete(msgspec.Struct, frozen=True):
    who: Named
    version: Version


@dataclass(frozen=True)
class Barrier:
    version: Version
    listed: tuple[Named, ...]

    @cached_property
    def _ids(self) -> frozenset[str]:
        return frozenset(one.id for one in self.listed if one.id)

    @cached_property
    def _names(self) -> frozenset[tuple[str, str]]:
        return frozenset((one.namespace, one.name) for one in self.listed if not one.id)

    def deletes(self, who: Named, version: Version) -> bool:
        names = {(who.namespace, who.name), ("", who.name)}
        return version <= self.version and who.id not in self._ids and self._names.isdisjoint(names)


@dataclass(frozen=True)
class Folded:
    """`deletes` and `barriers` are for rows without a put."""

    puts: Mapping[str, Put]
    deletes: tuple[Delete, ...]
    barriers: tuple[Barrier, ...]


Operation = Put | Delete | Barrier


class _Puts:
    """The objects brought so far, and under which names."""

    def __init__(self) -> None:
        self.by_id: dict[str, Put] = {}
        self._by_name: dict[str, set[str]] = {}

    def bring(self, put: Put) -> None:
        former = self.by_id.get(put.who.id)
        if former is not None:
            self._by_name[former.who.name].discard(put.who.id)
        self._by_name.setdefault(put.who.name, set()).add(put.who.id)
        self.by_id[put.who.id] = put

    def delete(self, who: Named, version: Version) -> None:
        for id_ in [who.id] if who.id else sorted(self._by_name.get(who.name, ())):
            put = self.by_id.get(id_)
            if put is not None and who.means(put.who):
                self._gone(put, version)

    def bar(self, barrier: Barrier) -> None:
        for put in list(self.by_id.values()):
            if barrier.deletes(put.who, put.version):
                self._gone(put, barrier.version)

    def _gone(self, put: Put, version: Version) -> None:
        if not put.is_deleted:
            self.by_id[put.who.id] = replace(put, is_deleted=True, version=version)


def fold(operations: Iterable[Operation]) -> Folded:
    """One effect for all, in their order."""
    puts, deletes, barriers = _Puts(), list[Delete](), list[Barrier]()
    for one in operations:
        match one:
            case Put():
                puts.bring(one)
            case Delete():
                deletes.append(one)
                puts.delete(one.who, one.version)
            case Barrier():
                barriers.append(one)
                puts.bar(one)
    return Folded(puts.by_id, tuple(deletes), tuple(barriers))


@dataclass(frozen=True)
class Kind:
    """What tells kinds of objects apart. `id_column` is of the declared table. `claims`: the id is what the cluster claims, and
    an object that claims none is left out; otherwise it is the uid."""

    id_column: str
    namespaced: bool
    claims: bool

    def who(self, item: Json, where: str) -> Named:
        metadata = item.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
            raise Invalid(where, "it has no metadata.name", "send whole objects")
        id_ = _claimed(item) if self.claims else metadata.get("uid")
        if not self.claims and (not isinstance(id_, str) or not id_):
            raise Invalid(where, "it has no metadata.uid", "send whole objects")
        return Named(str(id_ or ""), self._namespace(metadata.get("namespace")), metadata["name"])

    def meant(self, item: Json, where: str) -> Named:
        id_, name = item.get("id") or "", item.get("name") or ""
        if not (isinstance(id_, str) and isinstance(name, str)) or not (id_ or name):
            raise Invalid(where, "it says neither an id nor a name", "say which object is meant")
        return Named(id_, self._namespace(item.get("ns") or item.get("namespace")), name)

    def _namespace(self, value: Any) -> str:
        return str(value or "") if self.namespaced else ""

    def read(self, part: Part, what: str) -> Iterator[Operation]:
        document = loads(part.data, f"data of {what}")
        if not isinstance(document, dict) or not document.keys() <= _KNOWN:
            raise Invalid(f"data of {what}", "it is not an object of " + ", ".join(sorted(_KNOWN)), "send it as such")
        for name in _BROUGHT:
            for item, where in _items(document, name, what):
                who = self.who(item, where)
                if who.id:
                    yield Put(who, item, part.version)
        for item, where in _items(document, "delete", what):
            yield Delete(self.meant(item, where), part.version)
        if document.get("resync_metadata") is not None:
            listed = _items(document, "resync_metadata", what)
            yield Barrier(part.version, tuple(self.meant(item, where) for item, where in listed))


def _items(document: Json, name: str, what: str) -> list[tuple[Json, str]]:
    items = document.get(name) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Invalid(f"{name} of {what}", "it is not a list of objects", "send a list of objects")
    return [(item, f"{name} {number} of {what}") for number, item in enumerate(items)]


def _claimed(item: Json) -> str:
    status = item.get("status")
    claims = status.get("clusterClaims") if isinstance(status, dict) else None
    found = (one.get("value") for one in claims or () if isinstance(one, dict) and one.get("name") == _CLAIM)
    return str(next(found, "") or "")
