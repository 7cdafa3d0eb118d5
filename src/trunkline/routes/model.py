"""A route's configuration: receiver → filter chain → sender, in the shape EARS users know.

A plugin declares its configuration here once; checking, messages and compilation come from these models. Keys may be
written as in JSON (`filterChain`) or as in Python (`filter_chain`). Everything about a route that does not depend on
the place where it will run is checked here, so that `load_routes` reports every mistake of a file at once.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from trunkline.core.config import Model
from trunkline.core.document import read_document
from trunkline.core.errors import Invalid
from trunkline.core.ids import ALL_SITES, check_name
from trunkline.core.layers import Layers, Loose
from trunkline.core.mistakes import Mistake, Mistakes
from trunkline.core.reasons import examine
from trunkline.routes.paths import event_path, parse_template, texts

MAX_DEPTH = 64  # of patterns and templates: they are compiled by recursion, and YAML can make a value its own part


class RouteModel(Model):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


def _checked(check: Callable[[Any], object]) -> AfterValidator:
    """A check that raises `Invalid` as a validator; the value stays as it was written."""
    return AfterValidator(lambda value: _validate(check, value))


def _validate(check: Callable[[Any], object], value: Any) -> Any:
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


def _check_destination(text: str) -> None:
    if text != ALL_SITES and all(isinstance(piece, str) for piece in parse_template(text)):
        check_name("site", text)


def _check_regex(text: Any) -> None:
    if not isinstance(text, str):
        raise Invalid("pattern", "it is not a text", "write a regex, or set matcher: pattern")
    try:
        re.compile(text)
    except re.error as error:
        raise Invalid(f"regex {text!r}", str(error), "mend it, in the syntax of Python's re") from None


_ROUTE_ID = r"^[A-Za-z0-9]([A-Za-z0-9_.\-]{0,126}[A-Za-z0-9])?$"

Json = Annotated[Any, _checked(_check_json)]
EventPath = Annotated[str, _checked(event_path)]
Template = Annotated[str, _checked(_check_templates)]
TemplateTree = Annotated[Any, _checked(_check_templates)]
Destination = Annotated[str, _checked(_check_destination)]
ClientName = Annotated[str, _checked(lambda name: check_name("client", name))]


class MatchConfig(RouteModel):
    """Lets an event pass (allow) or keeps it back (deny) when the value at `path` matches."""

    mode: Literal["allow", "deny"] = "allow"
    matcher: Literal["pattern", "regex"] = "regex"
    pattern: Json = Field(default="^.*$", description="pattern: a value contained in the event's; regex: found in its text")
    path: EventPath = ""
    exact_array_match: bool = Field(default=True, description="arrays of a pattern must also be as long as the event's")

    @field_validator("pattern")
    @classmethod
    def _regex_compiles(cls, value: Any, info: ValidationInfo) -> Any:
        return _validate(_check_regex, value) if info.data.get("matcher") == "regex" else value


class MatchFilter(RouteModel):
    plugin: Literal["match"]
    name: str = ""
    config: MatchConfig = MatchConfig()


class TransformConfig(RouteModel):
    """Builds a new payload, and if given new metadata, by example: texts in the trees are templates."""

    transformation: TemplateTree = Field(description="the new payload")
    metadata: TemplateTree = Field(default=None, description="the new metadata; without it the old stays")

    @field_validator("metadata")
    @classmethod
    def _metadata_is_a_map(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, dict):
            raise ValueError("metadata is not a map; write key: template")
        return value


class TransformFilter(RouteModel):
    plugin: Literal["transform"]
    name: str = ""
    config: TransformConfig


class HttpReceiver(RouteModel):
    """Events posted to the node's API."""

    plugin: Literal["http"]
    name: str = ""


class QueueConfig(RouteModel):
    """Where a message goes. Templates here see the event as it *entered* the chain, not what the filters made of it."""

    client: ClientName
    destinations: tuple[Destination, ...] = Field(min_length=1, description="sites, '*', or templates that give them")
    headers: dict[str, Template] = Field(default_factory=dict)


class QueueSender(RouteModel):
    plugin: Literal["queue"]
    name: str = ""
    config: QueueConfig


Filter = MatchFilter | TransformFilter


class Route(RouteModel):
    id: str = Field(pattern=_ROUTE_ID)
    receiver: HttpReceiver
    filter_chain: tuple[Annotated[Filter, Field(discriminator="plugin")], ...] = ()
    sender: QueueSender


class RouteFile(RouteModel):
    routes: tuple[Route, ...]


def parse_routes(raw: Any, what: str) -> tuple[Route, ...]:
    return _checked_routes(Loose(raw), what)


def load_routes(path: Path) -> tuple[Route, ...]:
    what = f"routes {path}"
    return _checked_routes(Layers(read_document(path, what, "name an existing file")), what)


def _checked_routes(written: Loose | Layers, what: str) -> tuple[Route, ...]:
    file, mistakes = examine(RouteFile, written)
    mistakes += written.twice()
    ids = Counter(route.id for route in file.routes) if file else {}
    for id in (id for id, times in ids.items() if times > 1):
        reason = f"more than one route has the id {id}"
        mistakes.append(Mistake(*written.place(("routes",)), "routes", reason, "give each route an id of its own"))
    if file is None or mistakes:
        raise Mistakes(what, mistakes, "mend these fields")
    return file.routes
