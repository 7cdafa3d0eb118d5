"""What pydantic found wrong, in the words of the person who wrote the file: why, and what would be right.

One row of the table per kind of finding. Two rules keep secrets out: a value is quoted only when its field is no
secret, and of lists and maps only that they are such (a secret may stand in them, and an alias can make them endless).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trunkline.core.errors import Invalid
from trunkline.core.fields import Spot, example, keys, limits, nearest, sections, spot, yaml_text
from trunkline.core.mistakes import Location, Mistake, key_text, printable, quoted

Said = tuple[str, str]
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Source(Protocol):
    """A value that a person wrote."""

    @property
    def value(self) -> Any: ...

    def place(self, location: Location) -> tuple[str, int | None]:
        """Where a mistake there is to be mended: (variable, none) or (file, line)."""

    def typed(self, location: Location) -> str | None:
        """How the scalar there was typed, when that is known: `on`, not true."""


class Unfit(ValueError):
    """A validator's refusal, with its next step."""

    def __init__(self, reason: str, next_step: str) -> None:
        super().__init__(f"{reason} ({next_step})")
        self.reason, self.next_step = reason, next_step


def checked(check: Callable[[T], object]) -> AfterValidator:
    """A check that raises `Invalid`, as a validator; the value stays as it was written."""

    def validate(value: T) -> T:
        try:
            check(value)
        except Invalid as error:
            unfit = Unfit(f"{error.what}: {error.why}", error.next_step)
        else:
            return value
        raise unfit

    return AfterValidator(validate)


@dataclass(frozen=True)
class _Found:
    details: ErrorDetails
    spot: Spot
    top: type[BaseModel]
    typed: str | None

    @property
    def input(self) -> Any:
        return self.details["input"]

    @property
    def context(self) -> dict[str, Any]:
        return self.details.get("ctx", {})

    @property
    def found(self) -> str:
        """The value, or of a secret what kind of thing it is."""
        if self.input is None:
            return "nothing"
        return self.kind if self.spot.secret else quoted(self.input)

    @property
    def kind(self) -> str:
        return next((word for kinds, word in _KINDS if isinstance(self.input, kinds)), "something else")


_KINDS: tuple[tuple[tuple[type[Any], ...], str], ...] = (
    ((bool,), "true or false"),
    ((int, float), "a number"),
    ((datetime.date,), "a date"),
    ((str,), "a text"),
    ((dict,), "a map"),
    ((list, tuple, set), "a list"),
)


def examine(top: type[M], source: Source, context: object = None) -> tuple[M | None, list[Mistake]]:
    """The model, or a mistake for each finding; pydantic's own error, which holds the values, ends here."""
    try:
        return top.model_validate(source.value, context=context), []
    except ValidationError as error:
        return None, [_mistake(details, top, source) for details in error.errors(include_url=False)]


def _mistake(details: ErrorDetails, top: type[BaseModel], source: Source) -> Mistake:
    at = spot(details["loc"], top)
    reason, next_step = _said(_Found(details, at, top, source.typed(at.location)))
    return Mistake(*source.place(at.location), key_text(at.location, source.value), reason, next_step)


def _said(found: _Found) -> Said:
    say = _TABLE.get(found.details["type"])
    if say is not None:
        return say(found)
    limit = limits(found.spot.field)
    if limit:
        return f"it must be {limit}, found {found.found}", _such_as(found)
    return f"{found.details['msg']}, found {found.found}", _such_as(found)


def _unknown_key(found: _Found) -> Said:
    word, known = found.spot.location[-1], keys(found.spot.owner)
    if not known:
        return "there is no such key, nothing can be set here", "remove it"
    homes = [".".join(path) or "the top" for path, model in sections(found.top, in_lists=True) if word in keys(model)]
    reason = f"it belongs to {' or '.join(dict.fromkeys(homes))}" if homes else f"the nearest is {nearest(word, known)!r}"
    return f"there is no such key, {reason}", f"known: {', '.join(known)}"


def _key_is_no_text(found: _Found) -> Said:
    return "a key is a text", f"write {yaml_text(str(found.spot.location[-1]))}"


def _unknown_plugin(found: _Found) -> Said:
    tag = printable(str(found.context["tag"]))
    known = [known.strip("' ") for known in found.context["expected_tags"].split(",")]
    return f"there is no plugin {tag!r}, the nearest is {nearest(tag, known)!r}", ""


def _missing(found: _Found) -> Said:
    field, key = found.spot.field, found.spot.location[-1]
    about = f", {field.description}" if field and field.description else ""
    return "it is missing", f"write {key}: {example(field) or '...'}{about}"


def _unknown_word(found: _Found) -> Said:
    return f"{found.found} is not known, write {found.context['expected']}", ""


def _refused(found: _Found) -> Said:
    error = found.context.get("error")
    if isinstance(error, Unfit):
        return error.reason, error.next_step
    return found.details["msg"].removeprefix("Value error, "), ""


def _text_wanted(found: _Found) -> Said:
    if found.details["loc"][-1:] == ("[key]",):
        return _key_is_no_text(found)
    if found.input is None or isinstance(found.input, dict | list | set):
        return _wanted("a text")(found)
    if found.spot.secret or found.typed is None:
        return f"a text is wanted, found {found.found}", "put it in quotes"
    typed = printable(found.typed)
    return f"a text is wanted, and YAML reads {typed} as {_read_as(found)}", f'put it in quotes: "{typed}"'


def _read_as(found: _Found) -> str:
    return found.found if isinstance(found.input, bool) else found.kind


def _wanted(what: str) -> Callable[[_Found], Said]:
    def say(found: _Found) -> Said:
        return f"{what} is wanted, found {found.found}", _such_as(found)

    return say


def _section_wanted(found: _Found) -> Said:
    if found.input is None:
        return "it is empty", "write its keys, or {} for its defaults, or remove it"
    return f"a section is wanted, found {found.found}", f"write its keys below it: {', '.join(_section_keys(found))}"


def _section_keys(found: _Found) -> list[str]:
    inner = spot((*found.spot.location, "?"), found.top).owner
    return keys(inner)


def _such_as(found: _Found) -> str:
    text = example(found.spot.field)
    return f"such as {text}" if text else ""


_TABLE: dict[str, Callable[[_Found], Said]] = {
    "extra_forbidden": _unknown_key,
    "invalid_key": _key_is_no_text,
    "union_tag_invalid": _unknown_plugin,
    "union_tag_not_found": lambda found: ("it names no plugin, write plugin: <name>", ""),
    "missing": _missing,
    "literal_error": _unknown_word,
    "enum": _unknown_word,
    "value_error": _refused,
    "string_type": _text_wanted,
    "path_type": _wanted("a path"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), _wanted("a whole number")),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), _wanted("a number")),
    **dict.fromkeys(("bool_type", "bool_parsing"), _wanted("true or false")),
    **dict.fromkeys(("tuple_type", "list_type"), _wanted("a list")),
    "dict_type": _wanted("a map"),
    **dict.fromkeys(("model_type", "model_attributes_type"), _section_wanted),
}
