"""JSON Schemas of routes: checked as a whole when a route is added, and never fetched from anywhere.

Their regexes are those of routes (`trunkline.routes.regexes`): jsonschema's own keywords would look with Python's `re`.
A schema may ask for more than there is time (`allOf` of references to `allOf` of references …): who checks says until when.
jsonschema takes a tenth of a second to import; only those wait for it who use it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from trunkline.core.errors import Invalid
from trunkline.routes.patience import SECONDS, TooSlow
from trunkline.routes.regexes import check_regex, finder

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_UNEVALUATED = "unevaluatedProperties"
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check_schema(schema: Any) -> None:
    """Its form, its regexes, and that each reference leads to a place in it or to a published draft."""
    from jsonschema import SchemaError  # type: ignore[import-untyped]

    try:
        _kind(schema).check_schema(schema)
    except SchemaError as error:
        raise Invalid(f"schema at {error.json_path}", error.message, "mend it there") from None
    _check_regexes(_parts(schema))
    try:
        with within(time.monotonic() + SECONDS):
            validator(schema).is_valid(None)
    except TooSlow:
        raise Invalid("schema", f"to check null takes more than {SECONDS} s", "let it refer to fewer others") from None
    except RecursionError:
        raise Invalid("schema", "it refers to itself without end", "put a keyword between $ref and its target") from None


def validator(schema: Any) -> Any:
    """jsonschema's object for a schema that `check_schema` lets pass: any value can be given to it."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    return _linear(_kind(schema))(schema, registry=REGISTRY)


class _Limit(threading.local):
    until = math.inf


_limit = _Limit()


@contextmanager
def within(until: float) -> Iterator[None]:
    """What is checked in it raises `TooSlow` then (monotonic)."""
    _limit.until = until
    try:
        yield
    finally:
        _limit.until = math.inf


@cache
def _linear(kind: Any) -> Any:
    """The same draft with regexes that cannot hold a node up, also where a part of the schema names a draft of its own."""
    from jsonschema import validators

    keywords = {"pattern": _pattern, "patternProperties": _pattern_properties, "uniqueItems": _unique_items}
    made = validators.extend(kind, {**keywords, "additionalProperties": _beside(kind.VALIDATORS["additionalProperties"])})

    fields = [(field.name, field.alias) for field in made.__attrs_attrs__ if field.init]

    def evolve(self: Any, **changes: Any) -> Any:
        if time.monotonic() > _limit.until:
            raise TooSlow
        now = {alias: getattr(self, name) for name, alias in fields} | changes
        other = validators.validator_for(now["schema"], default=made)
        return (made if other is made else _linear(other))(**now)

    made.evolve = evolve
    return made


def _pattern(checking: Any, regex: str, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if checking.is_type(value, "string") and not finder(regex)(value):
        yield ValidationError(f"{value!r} does not match {regex!r}")


def _pattern_properties(checking: Any, schemas: Mapping[str, Any], value: Any, schema: Any) -> Iterator[Any]:
    if not checking.is_type(value, "object"):
        return
    for regex, wanted in schemas.items():
        found = finder(regex)
        for key in filter(found, value):
            yield from checking.descend(value[key], wanted, path=key, schema_path=regex)


def _unique_items(checking: Any, wanted: bool, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if wanted and checking.is_type(value, "array") and len({_kept(item) for item in value}) < len(value):
        yield ValidationError(f"{value!r} has non-unique elements")


def _kept(value: Any) -> Any:
    """Equal for equal values, and can be an element of a set: true is not 1, which is 1.0."""
    if isinstance(value, Mapping):
        return frozenset((key, _kept(inner)) for key, inner in value.items())
    if isinstance(value, list):
        return tuple(map(_kept, value))
    return str(value).encode() if isinstance(value, bool) else value


def _beside(keyword: Any) -> Any:
    """`additionalProperties`, asked about those properties only that no name and no regex takes."""

    def additional_properties(checking: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        if not checking.is_type(value, "object"):
            return
        named, tests = schema.get("properties", {}), [finder(regex) for regex in schema.get("patternProperties", {})]
        others = {key: value[key] for key in value if key not in named and not any(found(key) for found in tests)}
        yield from keyword(checking, wanted, others, {})

    return additional_properties


def _kind(schema: Any) -> Any:
    from jsonschema import validators

    kind = validators.validator_for({"$schema": _draft(schema)}, default=None)
    if kind is None:
        raise Invalid("$schema", f"there is no draft {_draft(schema)!r}", f"leave it out, or write {DRAFT}")
    return kind


def _draft(schema: Any) -> str:
    named = schema.get("$schema", DRAFT) if isinstance(schema, Mapping) else DRAFT
    return named if isinstance(named, str) else repr(named)


def _parts(schema: Any) -> list[Any]:
    """All schemas in it and those it refers to; each reference must lead somewhere."""
    from jsonschema_specifications import REGISTRY
    from referencing.jsonschema import specification_with

    draft = specification_with(_draft(schema))
    root = draft.create_resource(schema)
    open, seen = [(root, REGISTRY.resolver_with_root(root))], {id(schema): schema}
    while open:
        resource, resolver = open.pop()
        led = [_looked_up(target, resolver) for target in _targets(resource.contents)]
        near = [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
        near += [(draft.create_resource(found.contents), found.resolver) for found in led]
        open += [one for one in near if id(one[0].contents) not in seen]
        seen |= {id(one.contents): one.contents for one, _ in near}
    return list(seen.values())


def _check_regexes(parts: list[Any]) -> None:
    schemas = [part for part in parts if isinstance(part, Mapping)]
    for schema in schemas:
        for regex in (*schema.get("patternProperties", {}), *([schema["pattern"]] if "pattern" in schema else [])):
            check_regex(regex)
    if any(_UNEVALUATED in schema for schema in schemas) and any("patternProperties" in schema for schema in schemas):
        raise Invalid(_UNEVALUATED, "it cannot stand beside patternProperties", "write additionalProperties instead")


def _targets(schema: Any) -> list[str]:
    return [schema[key] for key in _REFERENCES if key in schema] if isinstance(schema, Mapping) else []


def _looked_up(target: str, resolver: Any) -> Any:
    from referencing.exceptions import Unresolvable

    try:
        return resolver.lookup(target)
    except Unresolvable:
        raise Invalid(f"schema's reference {target!r}", "it leads nowhere", "define it under $defs") from None
