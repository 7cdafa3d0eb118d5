"""Secrets of routes: a plugin's configuration says `secret://k.x`, and the site's own configuration knows what that is.

Q1  A reference is looked up for the route's tenant, then for all tenants (org `all`, app `all`). A tenant never gets
    another's, nor a variable or a file of the process: only a site's configuration says where a secret stands.
Q2  It is followed when a plugin is built (`TenantSecrets.resolved`), in memory. What is stored, hashed and published is the
    reference. So a secret that changed counts from the next reload.
Q3  Only a field whose type is `Secret` (or `Text`) takes one. Elsewhere a reference is a mistake: a template that gives
    it to an event would tell it to everybody.
Q4  No message holds one: a model prints a secret as its reference, and what others say goes through `scrubbed`. How a
    route is shown is `trunkline.routes.redaction`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import BaseModel

from trunkline.core.errors import Invalid
from trunkline.core.mistakes import Location, key_text, printable
from trunkline.core.secret import SCHEME, Secret
from trunkline.routes.keys import Tenant

M = TypeVar("M", bound=BaseModel)
Sections = Mapping[str, Mapping[str, Mapping[str, Secret]]]
"""org → app → key → secret, as the site's configuration has them."""

ALL = Tenant("all", "all")
MAX_DEPTH = 64

_KEY = re.compile(r"[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*")


class Text(Secret):
    """A field that may be a secret, such as a host: written out it is shown, as a reference it is followed."""

    @classmethod
    def plain(cls, text: str) -> Self:
        return cls(text, text)


@dataclass(frozen=True)
class TenantSecrets:
    """What the plugins of one tenant may refer to."""

    tenant: Tenant
    sections: Sections

    def secret(self, reference: str) -> Secret | str:
        """The secret, or why there is none."""
        key = reference.removeprefix(SCHEME)
        if not _KEY.fullmatch(key):
            return f"{printable(reference)} is not a key such as {SCHEME}kafka.password"
        for org, app in ((self.tenant.org, self.tenant.app), (ALL.org, ALL.app)):
            if (found := self.sections.get(org, {}).get(app, {}).get(key)) is not None:
                return found
        return f"there is no secret {key} for {self.tenant}, nor for all tenants"

    def resolved(self, config: M) -> M:
        """The configuration with its references followed; the same object if it has none."""
        wrong: list[str] = []
        built: M = self._followed(config, (), wrong)
        if wrong:
            step = (
                f"set them under route_secrets.{self.tenant.org}.{self.tenant.app} in the site's configuration, or correct them"
            )
            raise Invalid("secrets of the plugin", "; ".join(wrong), step)
        return built

    def _followed(self, value: Any, at: Location, wrong: list[str]) -> Any:
        if isinstance(value, Secret):
            return value if value.known else self._revealed(value, at, wrong)
        if isinstance(value, str) and value.startswith(SCHEME):
            wrong.append(f"{key_text(at)}: this field takes no secret")
            return value
        inner = list(_inner(value)) if len(at) < MAX_DEPTH else []
        made = {part: self._followed(item, (*at, part), wrong) for part, item in inner}
        return value if all(made[part] is item for part, item in inner) else _rebuilt(value, made)

    def _revealed(self, unknown: Secret, at: Location, wrong: list[str]) -> Secret:
        found = self.secret(unknown.shown)
        if isinstance(found, Secret) and not found.known:
            found = f"the site's {found.shown} was not followed"
        if isinstance(found, Secret) and (why := type(unknown).mistake(found.reveal())):
            found = f"what {unknown.shown} holds cannot be used: {why}"
        if isinstance(found, str):
            wrong.append(f"{key_text(at)}: {found}")
            return unknown
        return type(unknown)(found.reveal(), unknown.shown)


def _inner(value: Any) -> Iterator[tuple[int | str, Any]]:
    if isinstance(value, BaseModel):
        yield from ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)


def _rebuilt(value: Any, parts: dict[int | str, Any]) -> Any:
    if isinstance(value, BaseModel):
        return value.model_copy(update={str(part): item for part, item in parts.items()})
    return parts if isinstance(value, Mapping) else type(value)(parts.values())


def references(config: BaseModel) -> Iterator[tuple[Location, str, str]]:
    """Every reference of a configuration: where it is, what it is, and why it can never be followed; empty if it may be."""
    yield from _references(config, ())


def _references(value: Any, at: Location) -> Iterator[tuple[Location, str, str]]:
    if isinstance(value, Secret):
        if not value.known:
            key = value.shown.removeprefix(SCHEME)
            yield at, value.shown, "" if _KEY.fullmatch(key) else f"it is not a key such as {SCHEME}kafka.password"
    elif isinstance(value, str) and value.startswith(SCHEME):
        yield at, value, "this field takes no secret"
    elif len(at) < MAX_DEPTH:
        for part, item in _inner(value):
            yield from _references(item, (*at, part))


def scrubbed(text: str, config: BaseModel) -> str:
    """What a plugin or its libraries said, without the secrets that they were given."""
    for secret in _known(config):
        text = text.replace(secret.reveal(), secret.shown)
    return text


def _known(value: Any, depth: int = 0) -> Iterator[Secret]:
    if isinstance(value, Secret):
        yield from [value] if value.known and value.reveal() else []
    elif depth < MAX_DEPTH:
        for _, item in _inner(value):
            yield from _known(item, depth + 1)
