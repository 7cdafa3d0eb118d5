"""What pydantic found wrong, said so that a person can mend it: which field, why, and what would be right."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]


def reasons(error: ValidationError, top: type[BaseModel], raw: Any) -> list[str]:
    return [f"{_place(found['loc'], top, raw)}: {_reason(found, top)}" for found in error.errors(include_url=False)]


def nearest(word: object, known: list[str]) -> str:
    return get_close_matches(str(word), known, n=1, cutoff=0.0)[0]


def _reason(found: ErrorDetails, top: type[BaseModel]) -> str:
    kind, location, context = found["type"], found["loc"], found.get("ctx", {})
    if kind == "extra_forbidden":
        known = _keys(_model_at(location[:-1], top))
        return f"there is no such key, the nearest is {nearest(location[-1], known)!r} (known: {', '.join(known)})"
    if kind == "union_tag_invalid":
        known = [tag.strip("' ") for tag in context["expected_tags"].split(",")]
        return f"there is no plugin {context['tag']!r}, the nearest is {nearest(context['tag'], known)!r}"
    if kind == "union_tag_not_found":
        return "it names no plugin, write plugin: <name>"
    if kind == "missing":
        return "it is missing, write it"
    if kind == "literal_error":
        return f"{found['input']!r} is not known, write {context['expected']}"
    if kind == "value_error":
        return found["msg"].removeprefix("Value error, ")
    return f"{found['msg']}, found {_short(found['input'])}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _place(location: Location, top: type[BaseModel], raw: Any) -> str:
    """routes[0](its-id).filterChain[1].config.mode, without the tags that pydantic puts between."""
    text = ""
    for part, _, is_tag in _steps(location, top):
        if isinstance(part, int):
            text += f"[{part}]{_id_of(raw, location[0], part) if text == 'routes' else ''}"
        elif not is_tag:
            text += f".{part}" if text else part
    return text or "file"


def _id_of(raw: Any, key: int | str, n: int) -> str:
    route = raw[key][n]
    return f"({route['id']})" if isinstance(route, dict) and isinstance(route.get("id"), str) else ""


def _model_at(location: Location, top: type[BaseModel]) -> type[BaseModel]:
    return [top, *(model for _, model, _ in _steps(location, top))][-1]


def _steps(location: Location, top: type[BaseModel]) -> Iterator[tuple[int | str, type[BaseModel], bool]]:
    """Each part of a location with the model it leads to, and whether it is the tag of a union."""
    models = [top]
    for part in location:
        tagged = [model for model in models if len(models) > 1 and _tag(model) == part]
        models = tagged or _inner_models(models[0], part) or models
        yield part, models[0], bool(tagged)


def _tag(model: type[BaseModel]) -> str | None:
    plugin = model.model_fields.get("plugin")
    return next(iter(get_args(plugin.annotation)), None) if plugin else None


def _inner_models(model: type[BaseModel], part: int | str) -> list[type[BaseModel]]:
    for name, field in model.model_fields.items():
        if part in (name, field.alias):
            return _models_in(field.annotation)
    return []


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]
