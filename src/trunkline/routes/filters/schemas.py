"""JSON Schemas of routes: checked as a whole when a route is added, and never fetched from anywhere.

jsonschema takes a tenth of a second to import; only those wait for it who use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trunkline.core.errors import Invalid

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check_schema(schema: Any) -> None:
    """Its form, its regexes, and that each reference leads to a place in it or to a published draft."""
    from jsonschema import SchemaError  # type: ignore[import-untyped]

    try:
        _kind(schema).check_schema(schema)
    except SchemaError as error:
        raise Invalid(f"schema at {error.json_path}", error.message, "mend it there") from None
    _check_references(schema)
    try:
        validator(schema).is_valid(None)
    except RecursionError:
        raise Invalid("schema", "it refers to itself without end", "put a keyword between $ref and its target") from None


def validator(schema: Any) -> Any:
    """jsonschema's object for a schema that `check_schema` lets pass: any value can be given to it."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    return _kind(schema)(schema, registry=REGISTRY)


def _kind(schema: Any) -> Any:
    from jsonschema import validators

    kind = validators.validator_for({"$schema": _draft(schema)}, default=None)
    if kind is None:
        raise Invalid("$schema", f"there is no draft {_draft(schema)!r}", f"leave it out, or write {DRAFT}")
    return kind


def _draft(schema: Any) -> str:
    named = schema.get("$schema", DRAFT) if isinstance(schema, Mapping) else DRAFT
    return named if isinstance(named, str) else repr(named)


def _check_references(schema: Any) -> None:
    from jsonschema_specifications import REGISTRY
    from referencing.jsonschema import specification_with

    draft = specification_with(_draft(schema))
    root = draft.create_resource(schema)
    open, seen = [(root, REGISTRY.resolver_with_root(root))], {id(schema)}
    while open:
        resource, resolver = open.pop()
        led = [_looked_up(target, resolver) for target in _targets(resource.contents)]
        near = [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
        near += [(draft.create_resource(found.contents), found.resolver) for found in led]
        open += [one for one in near if id(one[0].contents) not in seen]
        seen |= {id(one.contents) for one, _ in near}


def _targets(schema: Any) -> list[str]:
    return [schema[key] for key in _REFERENCES if key in schema] if isinstance(schema, Mapping) else []


def _looked_up(target: str, resolver: Any) -> Any:
    from referencing.exceptions import Unresolvable

    try:
        return resolver.lookup(target)
    except Unresolvable:
        raise Invalid(f"schema's reference {target!r}", "it leads nowhere", "define it under $defs") from None
