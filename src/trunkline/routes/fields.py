"""The kinds of values a plugin's configuration is made of, each checked where it stands.

Keys may be written as in JSON (`filterChain`) or as in Python (`filter_chain`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from trunkline.core.errors import Invalid
from trunkline.core.ids import ALL_SITES, check_name
from trunkline.core.mistakes import printable
from trunkline.core.section import Model
from trunkline.routes.paths import event_path, parse_template, texts
from trunkline.routes.secrets import Text

WHOLE = range(-(1 << 63), 1 << 64)  # that JSON is read and written with
MAX_DEPTH = 64  # of patterns and templates: they are compiled by recursion, and YAML can make a value its own part


class RouteModel(Model):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


def checked(check: Callable[[Any], object]) -> AfterValidator:
    """A check that raises `Invalid` as a validator; the value stays as it was written."""
    return AfterValidator(lambda value: validated(check, value))


def validated(check: Callable[[Any], object], value: Any) -> Any:
    try:
        check(value)
    except Invalid as error:
        raise ValueError(f"{error.what}: {error.why}, {error.next_step}") from None
    return value


def _check_json(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise Invalid("value", f"nested deeper than {MAX_DEPTH}", "make it flatter")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise Invalid(f"key {key!r}", "keys are texts in JSON", "put it in quotes")
            _check_json(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check_json(inner, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise Invalid(f"value {value}", "JSON has no such number", "leave it out")
    elif isinstance(value, int) and value not in WHOLE:
        raise Invalid(f"value {value}", "a whole number has at most 64 bits", "put it in quotes, or write it as 1.0e+30")
    elif not isinstance(value, str | int | float | bool | None):
        raise Invalid(f"value {value}", f"a {type(value).__name__} is not JSON", "put it in quotes")


def _check_templates(tree: Any) -> None:
    _check_json(tree)
    wrong = [f"{where.lstrip('.')} {mistake}".lstrip() for where, text in texts(tree) if (mistake := _mistake(text))]
    if wrong:
        raise Invalid("templates", ", ".join(wrong), "mend the references")


def _mistake(template: str) -> str:
    try:
        parse_template(template)
    except Invalid as error:
        return str(error)
    return ""


class _SecretTemplate(Text):
    """A template, or a reference to a secret, which is taken as it is."""

    @classmethod
    def mistake(cls, text: str) -> str:
        return ""


def _check_secret_template(text: _SecretTemplate) -> None:
    if text.known and text.shown == text.reveal():
        _check_templates(text.reveal())


def _check_destination(text: str) -> None:
    if text != ALL_SITES and all(isinstance(piece, str) for piece in parse_template(text)):
        check_name("site", text)


_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.\-]{0,253}[A-Za-z0-9])?")
_TENANT_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_\-]{0,253}[A-Za-z0-9])?")


def _named(kind: str, form: re.Pattern[str], signs: str, optional: bool) -> AfterValidator:
    def check(text: str) -> None:
        if not (optional and not text) and not form.fullmatch(text):
            step = f"use up to 255 letters, digits and {signs}, with a letter or digit at both ends"
            raise Invalid(f"{kind} {printable(text)!r}", "it cannot be a name", step)

    return checked(check)


class _Templated:
    """Marks texts that are templates."""


_TEMPLATED = _Templated()

Json = Annotated[Any, checked(_check_json)]
EventPath = Annotated[str, checked(event_path)]
Template = Annotated[str, checked(_check_templates), _TEMPLATED]
SecretTemplate = Annotated[_SecretTemplate, checked(_check_secret_template), _TEMPLATED]
TemplateTree = Annotated[Any, checked(_check_templates), _TEMPLATED]
Destination = Annotated[str, checked(_check_destination), _TEMPLATED]
ClientName = Annotated[str, checked(lambda name: check_name("client", name))]
RouteId = Annotated[str, _named("id", _NAME, "_ - .", optional=True)]
Label = Annotated[str, _named("name", _NAME, "_ - .", optional=True)]
TenantName = Annotated[str, _named("name", _TENANT_NAME, "_ -", optional=False)]


def templates_of(config: BaseModel, where: str) -> Iterator[tuple[str, Any]]:
    """Every value of a configuration that is a template or made of templates, with its place."""
    for name, key in _template_fields(type(config)):
        yield f"{where}.{key}", written(getattr(config, name))
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        items = enumerate(value) if isinstance(value, list | tuple) else [(None, value)]
        for n, inner in items:
            if isinstance(inner, BaseModel):
                yield from templates_of(inner, f"{where}.{field.alias or name}{'' if n is None else f'[{n}]'}")


def written(value: Any) -> Any:
    """Templates as they are written; of a reference to a secret, the reference."""
    if isinstance(value, dict):
        return {key: written(inner) for key, inner in value.items()}
    return value.shown if isinstance(value, Text) else value


@cache
def _template_fields(model: type[BaseModel]) -> tuple[tuple[str, str], ...]:
    fields = model.model_fields.items()
    return tuple((name, f.alias or name) for name, f in fields if _TEMPLATED in f.metadata or _holds_templates(f.annotation))


def _holds_templates(annotation: Any) -> bool:
    return _TEMPLATED in getattr(annotation, "__metadata__", ()) or any(map(_holds_templates, get_args(annotation)))
