"""What has to be done so that a node's table equals a folder. Pure: what is stored and what is written go in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import msgspec

from trunkline.cli.routes.table import IN_ANSWERS, Shown
from trunkline.core.jsoncodec import dumps
from trunkline.core.mistakes import Location, key_text
from trunkline.routes.files import FileRoute, Files, Place
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.redaction import ModelOf, redacted
from trunkline.routes.route import notes_of

LONGEST = 100
_NOT_COMPARED = (*IN_ANSWERS, "id", "tenant")
_MISSING = object()


class Step(msgspec.Struct, frozen=True):
    """`put`: the route as it is written; none: it is removed. `revision`: the one that was looked at; 0: none was there.
    `before`, `after`: as people see them, without secrets."""

    key: RouteKey
    revision: int
    put: Shown | None
    place: Place
    before: Shown | None
    after: Shown | None

    def change(self) -> Shown:
        tenant = {"orgId": self.key.tenant.org, "appId": self.key.tenant.app}
        if self.put is None:
            return {"remove": {"id": self.key.id, "tenant": tenant}, "revision": self.revision}
        return {"put": {**self.put, "tenant": tenant}, "revision": self.revision}


def tenants_of(files: Files) -> list[Tenant]:
    return sorted({route.key.tenant for route in files.routes})


def plan(files: Files, stored: Mapping[RouteKey, Shown], prune: bool, model_of: ModelOf) -> list[Step]:
    """All routes of the files, then those that are in none of them."""
    puts = [_put(route, stored.get(route.key), model_of) for route in files.routes]
    written = {step.key for step in puts}
    extra = sorted(stored.keys() - written) if prune else []
    return [*puts, *(Step(key, stored[key]["revision"], None, ("", None), stored[key], None) for key in extra)]


def _put(route: FileRoute, before: Shown | None, model_of: ModelOf) -> Step:
    body = {"id": route.key.id, **notes_of(route.one.notes), **route.one.configuration.body}
    return Step(route.key, before["revision"] if before else 0, body, route.place, before, redacted(body, model_of))


def differences(before: Shown, after: Shown) -> list[str]:
    """Each field that differs, on a line: - it goes, + it comes, ~ it changes."""
    old, new = (_comparable(one) for one in (before, after))
    lines = [_line(at, *both) for at, both in _differing(old, new, ())]
    return lines or ["~ something that is not shown, such as a secret"]


def _comparable(shown: Shown) -> Shown:
    kept = {key: value for key, value in shown.items() if key not in _NOT_COMPARED}
    return kept if kept.get("inactive") else {key: value for key, value in kept.items() if key != "inactive"}


def _differing(old: Any, new: Any, at: Location) -> Iterator[tuple[Location, tuple[Any, Any]]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in (*old, *(key for key in new if key not in old)):
            yield from _differing(old.get(key, _MISSING), new.get(key, _MISSING), (*at, key))
    elif isinstance(old, list) and isinstance(new, list):
        for n, (before, after) in enumerate(zip_longest(old, new, fillvalue=_MISSING)):
            yield from _differing(before, after, (*at, n))
    elif old is _MISSING or new is _MISSING or dumps(old) != dumps(new):
        yield at, (old, new)


def _line(at: Location, old: Any, new: Any) -> str:
    if old is _MISSING:
        return f"+ {key_text(at)}: {_short(new)}"
    if new is _MISSING:
        return f"- {key_text(at)}: {_short(old)}"
    return f"~ {key_text(at)}: {_short(old)} → {_short(new)}"


def _short(value: Any) -> str:
    text = dumps(value).decode()
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
