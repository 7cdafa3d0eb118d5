"""A change as it is written down, for every storage alike: checked as a whole, as JSON texts, each configuration once."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps, loads
from trunkline.routes.keys import HOUSE, RouteKey, Tenant
from trunkline.routes.storage.base import Body, Change, Conflict, Fragment, Put, Remove, RouteConfig, TenantConfig

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
NOTHING = "{}"
Stamps = tuple[int, float, float]
"""Revision, created, modified."""


class Written(msgspec.Struct, frozen=True):
    """`bodies`: configurations by their hash. `hashes`, `notes`: of each change; both empty where it removes. `tenants`: that
    must be there."""

    changes: Sequence[Change]
    hashes: list[str]
    notes: list[str]
    bodies: dict[str, str]
    tenants: list[Tenant]


def write_down(changes: Sequence[Change]) -> Written:
    _check_keys([change.key for change in changes])
    puts = [change for change in changes if isinstance(change, Put)]
    firsts = {put.hash: put for put in reversed(puts)}
    for put in firsts.values():
        _check_hash(put)
    return Written(
        changes,
        [_hash(change) for change in changes],
        [_notes(change) for change in changes],
        {hash: text_of(f"route {put.key}", put.body) for hash, put in firsts.items()},
        list({put.key.tenant: None for put in puts if put.asks_tenant and put.key.tenant != HOUSE}),
    )


def routes_as_put(written: Written, new: Stamps, own: Mapping[int, Stamps]) -> dict[RouteKey, RouteConfig]:
    """`new` holds for all that were not there before; the others have stamps of their `own`, by their places."""
    bodies = {hash: loads(body) for hash, body in written.bodies.items()}
    return {
        put.key: RouteConfig(put.key, put.hash, bodies[put.hash], loads(notes) if notes != NOTHING else {}, *own.get(at, new))
        for at, (put, notes) in enumerate(zip(written.changes, written.notes, strict=True))
        if isinstance(put, Put)
    }


def text_of(what: str, value: Body) -> str:
    """As JSON with its keys in order; what the JSON codec would change or a database refuse is `Invalid`."""
    try:
        text = dumps(value).decode()
    except orjson.JSONEncodeError as error:
        raise Invalid(what, f"it cannot be written as JSON: {error}", "write it with JSON's values only") from None
    if "\\u0000" in text and _NUL.search(text):
        raise _has_nul(what)
    if "null" in text and not _finite(value):
        raise Invalid(what, "a number in it is not finite, which JSON does not know", "write a number, or a text")
    return text


def check_names(what: str, *names: str) -> None:
    text = "".join(names)
    if "\x00" in text:
        raise _has_nul(what.replace("\x00", "\\x00"))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(ascii(what), "a character of its name is half of a pair", "write it as UTF-8") from None


def check_tenant(config: TenantConfig) -> None:
    what = f"tenant {config.tenant}"
    check_names(what, config.tenant.org, config.tenant.app, *config.clients)
    quota = config.events_per_second
    if quota is not None and not 0 <= quota < math.inf:
        raise Invalid(what, f"{quota} events per second is no quota", "write 0 or more, or leave it out for no quota")


def fragment_text(fragment: Fragment) -> str:
    what = f"fragment {fragment.tenant}/{fragment.name}"
    check_names(what, fragment.tenant.org, fragment.tenant.app, fragment.name)
    return text_of(what, fragment.body)


def conflict(key: RouteKey, expect: int, found: int) -> Conflict:
    """`found`: the revision it is at; 0 when it is not there."""
    why = f"it was at revision {expect} when it was read, and " + (f"is at {found} now" if found else "is not there any more")
    if not expect:
        why = f"it is there already, at revision {found}"
    return Conflict(f"route {key}", f"{why}; nothing was changed", "read it again and decide anew")


def has_routes(tenant: object, number: int) -> Conflict:
    return Conflict(f"tenant {tenant}", f"it still has {number} routes", "remove its routes first, then the tenant")


def _hash(change: Change) -> str:
    return change.hash if isinstance(change, Put) else ""


def _notes(change: Change) -> str:
    if isinstance(change, Remove):
        return ""
    return text_of(f"route {change.key}", change.notes) if change.notes else NOTHING


def _check_hash(put: Put) -> None:
    check_names(f"route {put.key}", put.hash)
    if not put.hash:
        raise Invalid(f"route {put.key}", "its configuration has no hash", "give it the hash of its configuration")


def _check_keys(keys: Sequence[RouteKey]) -> None:
    try:
        check_names("", *(part for key in keys for part in (key.tenant.org, key.tenant.app, key.id)))
    except Invalid:
        for key in keys:
            check_names(f"route {key}", key.tenant.org, key.tenant.app, key.id)
    if len(set(keys)) < len(keys):
        key = next(key for key, times in Counter(keys).items() if times > 1)
        raise Invalid(f"route {key}", "one change names it twice", "give each route once")


def _has_nul(what: str) -> Invalid:
    return Invalid(what, "it has a NUL character, which Postgres cannot keep", "take it out")


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_finite, value))
