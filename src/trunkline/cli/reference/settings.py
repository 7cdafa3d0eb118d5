"""Every key of a file that is checked by models: its meaning, type, default and limits, as Markdown."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trunkline.core.config import ProcessConfig
from trunkline.core.environment import variable_of
from trunkline.core.fields import is_single, limits, models_in, yaml_text
from trunkline.core.secret import Secret
from trunkline.routes.cases import Case
from trunkline.routes.files import FileFragment
from trunkline.routes.registry import OURS, Kind, Registry
from trunkline.routes.route import RouteFile

_WORDS: tuple[tuple[type[Any], str], ...] = (
    (bool, "true or false"),
    (int, "whole number"),
    (float, "number"),
    (Path, "path"),
    (Secret, "secret"),
    (BaseModel, "section"),
    (str, "text"),
)


@dataclass(frozen=True)
class Section:
    """In `path` a list's key ends in `[]`, and a plugin is `<kind>[<name>]`."""

    path: tuple[str, ...]
    model: type[BaseModel]

    @property
    def title(self) -> str:
        return ".".join(self.path)

    @property
    def anchor(self) -> str:
        return "-".join(("section", *self.path)).replace("[]", "").replace("[", "-").replace("]", "")

    @property
    def fields(self) -> list[tuple[str, FieldInfo]]:
        return [(field.alias or name, field) for name, field in self.model.model_fields.items()]

    def inner(self) -> Iterator[Section]:
        for name, field in self.fields:
            for model in models_in(field.annotation):
                yield Section((*self.path, name if is_single(field.annotation) else f"{name}[]"), model)


def sections(top: Section, above: tuple[type[BaseModel], ...] = ()) -> Iterator[Section]:
    """The section itself, then all that are in it; what may be part of itself is shown once."""
    yield top
    for section in top.inner():
        if section.model not in (*above, top.model):
            yield from sections(section, (*above, top.model))


# -- a heading for each key


def configuration() -> str:
    return "\n".join(line for section in sections(Section((), ProcessConfig)) for line in _section(section))


def _section(section: Section) -> Iterator[str]:
    heading = f"`{section.title}`" if section.path else "The process"
    yield from (f"## {heading} {{ #{section.anchor} }}", "", _text(_doc(section.model)), "")
    for name, field in section.fields:
        yield from _key(section, name, field)


def _key(section: Section, name: str, field: FieldInfo) -> Iterator[str]:
    path = (*section.path, name)
    said = [*facts(field), "" if "[]" in section.title else f"`{variable_of(path)}`"]
    yield from (f"### `{'.'.join(path)}` {{ #{'.'.join(path).replace('[]', '')} }}", "", _about(field), "")
    yield from (" · ".join(fact for fact in said if fact), "")
    if field.examples and not kind(field.annotation).startswith("`"):
        yield from (f"Example: `{yaml_text(field.examples[0])}`", "")
    if models_in(field.annotation):
        yield from (f"Its keys are [below](#{'-'.join(('section', *path))}).", "")


# -- a table for each section


def routes() -> str:
    """What every route has, fragments and cases, then what each of our plugins can be told."""
    tops = (Section((), RouteFile), Section(("fragments[]",), FileFragment), Section(("cases[]",), Case), *_plugins())
    shown = [section for top in tops for section in sections(top) if section.path]
    return "\n".join(line for section in shown for line in _table(section))


def _plugins() -> Iterator[Section]:
    ours = Registry(OURS)
    for kind in Kind:
        for name in ours.names(kind):
            plugin = ours.find(kind, name)
            assert plugin is not None
            yield Section((f"{kind}[{name}]", "config"), plugin.config)


def _table(section: Section) -> Iterator[str]:
    yield from (f"## `{section.title}` {{ #{section.anchor} }}", "", _text(_doc(section.model)), "")
    if section.fields:
        yield from ("| key | value | |", "|---|---|---|")
    for name, field in section.fields:
        about = _text(_sentence(field.description or ""))
        yield f"| `{name}` | {', '.join(fact for fact in facts(field) if fact)} | {about} |"
    yield ""


# -- words


def facts(field: FieldInfo) -> tuple[str, str, str]:
    return kind(field.annotation), _default(field), limits(field)


def _about(field: FieldInfo) -> str:
    docs = [_doc(model) for model in models_in(field.annotation)]
    return _text(_sentence(field.description or " ".join(docs[:1])))


def kind(annotation: Any) -> str:
    """`tuple[str, ...] | None` → list of text"""
    origin, inner = get_origin(annotation), [part for part in get_args(annotation) if part not in (..., type(None))]
    if origin is Annotated:
        return kind(inner[0])
    if origin is Literal:
        return " or ".join(f"`{word}`" for word in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(kind(part) for part in inner))
    if origin is tuple:
        return f"list of {kind(inner[0])}s" if models_in(annotation) else f"list of {kind(inner[0])}"
    if origin is dict:
        return f"map of names to {kind(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return " or ".join(f"`{word}`" for word in annotation)
    return next((word for type_, word in _WORDS if isinstance(annotation, type) and issubclass(annotation, type_)), "any value")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    default = field.get_default(call_default_factory=True)
    if default is None:
        return "not set by default"
    return "" if isinstance(default, BaseModel) else f"default `{yaml_text(default)}`"


def _doc(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def _sentence(text: str) -> str:
    stop = "." if text and not text.endswith(".") else ""
    return text[:1].upper() + text[1:] + stop


def _text(sentence: str) -> str:
    """`<host>` is meant as it stands, not as HTML."""
    return sentence.replace("<", "&lt;")
