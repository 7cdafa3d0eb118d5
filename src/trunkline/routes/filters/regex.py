"""regex: what a regex finds in a text, or the text with all that replaced.

In a replacement `$1` or `${1}`, `$name` or `${name}` stand for what a group found, `$$` for a dollar. Without braces a name
is as long as it can be: `$1x` means a group `1x`. An empty find right after another is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from trunkline.core.errors import Invalid
from trunkline.routes.codegen import Code
from trunkline.routes.fields import EventPath, RouteModel, checked, validated
from trunkline.routes.filters.change import TargetPath, Unusable, changing, json_bytes, target
from trunkline.routes.filters.kinds import mismatch
from trunkline.routes.paths import event_path
from trunkline.routes.patience import Patience, TooSlow
from trunkline.routes.plugin import Around, Filter, FilterPlugin
from trunkline.routes.regexes import Regex, check_regex, encoded

Pieces = list[str | int]
"""Texts, and numbers of groups."""

_REFERENCE = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)\})", re.ASCII)


class RegexConfig(RouteModel):
    """Sets what a regex finds in a text, or the text with all that it finds replaced. What is no text is taken as JSON."""

    from_path: EventPath = Field(default="", description="where the text is; without one an event cannot be processed")
    to_path: TargetPath = Field(default="", description="where the result is set; empty: in place of the text")
    regex: Annotated[str, checked(check_regex)] = Field(default="^.*$", description="in the syntax of RE2")
    replace_all_string: str | None = Field(
        default=None,
        description="what replaces each find, with $1 or ${name} for what a group found; "
        "without it the result is the first find, or an empty text",
    )

    @field_validator("replace_all_string")
    @classmethod
    def _groups_exist(cls, text: str | None, info: ValidationInfo) -> str | None:
        regex = info.data.get("regex")
        if regex is not None and text is not None:
            validated(lambda text: pieces(text, Regex(regex)), text)
        return text


def compile_regex(config: RegexConfig, around: Around) -> Filter:
    code, path, regex = Code(), event_path(config.from_path), Regex(config.regex)
    patience, replacement = Patience(), config.replace_all_string
    result = regex.first if replacement is None else _replacing(regex, pieces(replacement, regex), patience)

    def change(value: Any) -> str:
        if value is None:
            raise Unusable(mismatch(path, "a text", value))
        text = encoded(value) if isinstance(value, str) else json_bytes(value, path)
        try:
            return result(text).decode()
        except TooSlow:
            raise Unusable(f"{path}: to find all of {config.regex!r} takes more than {patience.gave_up():g} s") from None

    return changing(code, f"{code.value(change)}({code.read(path)})", target(config.to_path, config.from_path))


def _replacing(regex: Regex, pieces: Pieces, patience: Patience) -> Callable[[bytes], bytes]:
    def replaced(text: bytes) -> bytes:
        out, end = list[bytes](), 0
        for spans in regex.all(text, patience.until()):
            begin, after = spans[0]
            out.append(text[end:begin])
            out += [text[slice(*spans[piece])] if isinstance(piece, int) else piece.encode() for piece in pieces]
            end = after
        patience.done()
        return b"".join([*out, text[end:]])

    return replaced


def pieces(replacement: str, regex: Regex) -> Pieces:
    made: Pieces = []
    at = 0
    for found in _REFERENCE.finditer(replacement):
        dollar, bare, braced = found.groups()
        made += [replacement[at : found.start()], dollar or _group(bare or braced, regex)]
        at = found.end()
    return [piece for piece in [*made, replacement[at:]] if piece != ""]


def _group(name: str, regex: Regex) -> int:
    number = int(name) if name.isdecimal() else regex.names.get(name)
    if number is None or number > regex.groups:
        step = "write ${1} where letters or digits follow, and $$ for a dollar"
        raise Invalid(f"replacement ${name}", f"the regex has no group {name!r}", step)
    return number


REGEX = FilterPlugin("regex", RegexConfig, compile_regex, pure=True)
