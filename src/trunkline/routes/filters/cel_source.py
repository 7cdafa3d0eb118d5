"""The text of a CEL expression: what it refers to, and the same expression over variables that hold just that.

`payload.at.site == "a" && has(metadata.key)` becomes `_p0 == "a" && (_p1 != null)`, with the paths of both. A path ends where
it cannot be followed in advance: before a method, and before an index that is computed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches

import msgspec
from cel.stdlib import STDLIB_FUNCTIONS

from trunkline.core.errors import Invalid
from trunkline.routes.paths import Path

ROOTS = ("payload", "metadata")
MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
FUNCTIONS = frozenset({"has", "size", "int", "uint", "double", "string", "bytes", "timestamp", "duration", "type", "dyn"})
TIMES = ("FullYear", "Month", "DayOfYear", "DayOfMonth", "Date", "DayOfWeek", "Hours", "Minutes", "Seconds", "Milliseconds")
METHODS = MACROS | {"size", "contains", "startsWith", "endsWith", "matches"} | {f"get{part}" for part in TIMES}
LIBRARY = {name: function for name, function in STDLIB_FUNCTIONS.items() if name not in ("first", "last", "contains")}
_LITERALS = ("true", "false", "null", "in")

_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*)
    |(?P<text>[bB]?[rR](?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
        |[bB]?(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<broken>[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|0[xX][0-9a-fA-F]+[uU]?|[0-9]+[uU])
    |(?P<whole>[0-9]+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>[=!<>]=|&&|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN_KEY = re.compile(r"""(["'])([^"'\\]*)\1""")


class Token(msgspec.Struct, frozen=True):
    kind: str
    text: str


END = Token("end", "")


class Rewritten(msgspec.Struct, frozen=True):
    """`text` over the variables of `paths`; `broken`: the same with all whole numbers written as broken ones. `library`: the
    functions that it needs beside CEL's own. `divides`: whether what it gives depends on how numbers are written."""

    text: str
    broken: str
    paths: dict[str, Path]
    library: tuple[str, ...]
    divides: bool


def tokens(source: str) -> list[Token]:
    """Without blanks and comments."""
    found = (Token(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(source))
    return [token for token in found if token.kind != "blank"]


def rewritten(source: str, constants: Collection[str] = ()) -> Rewritten:
    """Of an expression that CEL can parse; raises `Invalid` for names it does not know."""
    written = tokens(source)
    _check_names(written, constants)
    paths: dict[Path, str] = {}
    made = list(_with_variables(written, paths))
    library = sorted(name for name in LIBRARY if any(_calls(written, name)))
    broken = [_broken(made, n) for n in range(len(made))]
    text = " ".join(token.text for token in made)
    divides = any(token.text == "/" for token in made)
    return Rewritten(text, " ".join(broken), {name: path for path, name in paths.items()}, tuple(library), divides)


def _with_variables(written: list[Token], paths: dict[Path, str]) -> Iterator[Token]:
    at = 0
    while at < len(written):
        token = written[at]
        if not _is_variable(written, at) or token.text not in ROOTS:
            asked = token.text == "has" and _at(written, at + 2).text in ROOTS
            yield Token("blank", "") if asked else token
            at += 1
            continue
        segments, end = _segments(written, at + 1)
        name = paths.setdefault(Path(token.text, segments), f"_p{len(paths)}")
        asked = [_at(written, at - 2).text, _at(written, at - 1).text, _at(written, end).text] == ["has", "(", ")"]
        yield Token("name", f"{name} != null" if asked else name)
        at = end


def _segments(written: list[Token], at: int) -> tuple[tuple[str | int, ...], int]:
    segments: list[str | int] = []
    while True:
        first, second, third = (_at(written, at + n) for n in range(3))
        key = _PLAIN_KEY.fullmatch(second.text)
        if first.text == "." and second.kind == "name" and third.text != "(":
            segments.append(second.text)
            at += 2
        elif first.text == "[" and third.text == "]" and (second.kind == "whole" or key):
            segments.append(key.group(2) if key else int(second.text))
            at += 3
        else:
            return tuple(segments), at


def _check_names(written: list[Token], constants: Collection[str]) -> None:
    bound = _bound(written)
    for name in bound.intersection(ROOTS):
        raise Invalid(f"expression, name {name!r}", "it is the event's", "take another name for what a macro goes through")
    known = {*ROOTS, *constants, *_LITERALS, *bound}
    for n, token in enumerate(written):
        if _is_variable(written, n) and token.text not in known and not _is_namespace(written, n):
            raise _unknown("name", token.text, sorted(known - set(_LITERALS)))
        if token.kind == "name" and _at(written, n + 1).text == "(" and not _is_function(written, n):
            raise _unknown_function(token.text, _at(written, n - 1).text == ".")


def _unknown_function(name: str, as_method: bool) -> Invalid:
    if name in (FUNCTIONS if as_method else METHODS):
        form = f"{name}(x)" if as_method else f"x.{name}(...)"
        return Invalid(f"expression, function {name!r}", "it is not called like this", f"write {form}")
    return _unknown("function", name, sorted((METHODS if as_method else FUNCTIONS) | set(LIBRARY)))


def _unknown(what: str, name: str, known: list[str]) -> Invalid:
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"write {near[0]!r}" if near else f"use one of {', '.join(known)}"
    return Invalid(f"expression, {what} {name!r}", "there is no such thing", hint)


def _is_variable(written: list[Token], at: int) -> bool:
    return written[at].kind == "name" and _at(written, at - 1).text != "." and _at(written, at + 1).text != "("


def _is_namespace(written: list[Token], at: int) -> bool:
    return any(
        _at(written, at + 1).text == "." and f"{written[at].text}.{_at(written, at + 2).text}" == name for name in LIBRARY
    )


def _is_function(written: list[Token], at: int) -> bool:
    name, method = written[at].text, _at(written, at - 1).text == "."
    if method and _is_namespace(written, at - 2):
        return True
    return name in LIBRARY or name in (METHODS if method else FUNCTIONS)


def _bound(written: list[Token]) -> set[str]:
    """Names that macros bind: the x of `all(x, ...)`."""
    return {
        _at(written, n + 2).text for n, token in enumerate(written) if token.text in MACROS and _at(written, n + 1).text == "("
    }


def _calls(written: list[Token], name: str) -> Iterator[bool]:
    parts = [*re.split(r"(\.)", name), "("]
    for n in range(len(written)):
        yield [token.text for token in written[n : n + len(parts)]] == parts


def _broken(written: list[Token], at: int) -> str:
    """An index stays whole."""
    token = written[at]
    alone = _at(written, at - 1).text == "[" and _at(written, at + 1).text == "]"
    return f"{token.text}.0" if token.kind == "whole" and not alone else token.text


def _at(written: list[Token], at: int) -> Token:
    return written[at] if 0 <= at < len(written) else END
