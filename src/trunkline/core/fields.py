"""What a place in a document means to the models: its section, its field, the limits and an example of its value."""

from __future__ import annotations

import math
import types
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from trunkline.core.mistakes import Location
from trunkline.core.secret import Secret

_LIMITS: tuple[tuple[type[Any], str, str], ...] = (
    (Gt, "gt", "above {}"),
    (Ge, "ge", "at least {}"),
    (Lt, "lt", "below {}"),
    (Le, "le", "at most {}"),
    (MinLen, "min_length", "at least {} long"),
    (MaxLen, "max_length", "at most {} long"),
)


@dataclass(frozen=True)
class Spot:
    """`location` is without the tags that pydantic puts between; `owner` is the section that the last part belongs to."""

    location: Location
    owner: type[BaseModel]
    field: FieldInfo | None

    @property
    def secret(self) -> bool:
        return self.field is not None and any(issubclass(kind, Secret) for kind in kinds(self.field.annotation))


def spot(location: Location, top: type[BaseModel]) -> Spot:
    clean: list[int | str] = []
    owner, field, models = top, None, [top]
    for part in location:
        tagged = [model for model in models if len(models) > 1 and _tag(model) == part]
        if tagged:
            models = tagged
        elif part != "[key]":
            clean.append(part)
            if isinstance(part, str) and models:
                owner = models[0]
                field = named(owner, part)
                models = models_in(field.annotation) if field else []
    return Spot(tuple(clean), owner, field)


def named(model: type[BaseModel], key: str) -> FieldInfo | None:
    return next((field for name, field in model.model_fields.items() if key in (name, field.alias)), None)


def keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def models_in(annotation: Any) -> list[type[BaseModel]]:
    return [kind for kind in kinds(annotation) if issubclass(kind, BaseModel)]


def kinds(annotation: Any) -> list[type[Any]]:
    """The classes an annotation is made of: `tuple[str, ...] | None` → str."""
    if get_origin(annotation) is Literal:
        return [type(word) for word in get_args(annotation)]
    if isinstance(annotation, type) and not get_args(annotation):
        return [annotation]
    return [kind for inner in get_args(annotation) if inner not in (..., type(None)) for kind in kinds(inner)]


def is_single(annotation: Any) -> bool:
    """One value, not a list or a map."""
    if get_origin(annotation) is Annotated:
        return is_single(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return all(is_single(inner) for inner in get_args(annotation))
    return get_origin(annotation) in (None, Literal)


def sections(
    top: type[BaseModel], in_lists: bool = False, above: tuple[str, ...] = (), around: tuple[type[BaseModel], ...] = ()
) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    """The top itself and every section below it, with its path; an item of a list has no path of its own. What may be part of
    itself comes once: `around` are the sections that this one is in."""
    yield above, top
    for name, field in top.model_fields.items():
        if is_single(field.annotation) or in_lists:
            for model in models_in(field.annotation):
                if model not in (*around, top):
                    yield from sections(model, in_lists, (*above, field.alias or name), (*around, top))


def nearest(word: object, known: list[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    return by_lower[get_close_matches(str(word)[:100].lower(), list(by_lower), n=1, cutoff=0.0)[0]]


def limits(field: FieldInfo | None) -> str:
    """above 0 and at most 60"""
    metadata = _constraints(field) if field else ()
    return " and ".join(
        text.format(getattr(limit, name)) for kind, name, text in _LIMITS for limit in metadata if isinstance(limit, kind)
    )


def _constraints(field: FieldInfo) -> list[Any]:
    """Of a map, those of its values."""
    inner = get_args(field.annotation)[1] if get_origin(field.annotation) is dict else None
    return [*field.metadata, *getattr(inner, "__metadata__", ())]


def example(field: FieldInfo | None) -> str:
    """How a right value is written: an example of the field's, or its default."""
    if field is None:
        return ""
    if field.examples:
        return yaml_text(field.examples[0])
    default = field.get_default(call_default_factory=True) if not field.is_required() else None
    return "" if default is None or isinstance(default, BaseModel) else yaml_text(default)


def yaml_text(value: Any) -> str:
    """On one line, as it would stand in the file."""
    plain = to_jsonable_python(value, fallback=str)
    text = yaml.safe_dump(plain, default_flow_style=True, width=math.inf, sort_keys=False, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _tag(model: type[BaseModel]) -> str | None:
    plugin = model.model_fields.get("plugin")
    return next(iter(get_args(plugin.annotation)), None) if plugin else None
