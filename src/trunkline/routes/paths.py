r"""Reading and setting what a path names in an event, and templates made of paths. How paths are written: `pathtext`.

    P1  Reading never fails: what is not there, or not of that kind (a key of a list, an index of a map), reads as null.
    P2  A path that cannot be read or set is refused when the route is added, never while events run.
    P3  Setting makes a new event that shares all but the way down to what is set; the old one stays as it was.
    P4  What is missing on the way (or null) is made: a map for a key, a list for an index; an index past the end fills up
        with nulls, at most MAX_FILL of them. What is there and of another kind is not replaced: `CannotSet` says what is.

A template is a text with paths in braces: `{payload.id}`. A bare name, `{site}`, is a constant given when the route is
compiled. `{{` and `}}` stand for the braces themselves.

    T1  A template that is exactly one reference gives the value with its type; a missing one gives null.
    T2  In any other text a string is put in as it is, everything else as JSON.
    T3  What was put in is never looked at again: a value with braces stays that value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from trunkline.core.errors import Invalid
from trunkline.routes.codegen import Code, as_text, place, wanted_of
from trunkline.routes.event import Event
from trunkline.routes.pathtext import (
    ABOUT,
    ROOTS,
    Path,
    Segment,
    Selector,
    event_path,
    in_event,
    parse_path,
    target_path,
    unknown_root,
)

__all__ = [
    "MAX_FILL",
    "ROOTS",
    "CannotSet",
    "Path",
    "Put",
    "Read",
    "Selector",
    "Write",
    "as_text",
    "compile_tree",
    "event_path",
    "parse_path",
    "parse_template",
    "putter",
    "reader",
    "target_path",
    "texts",
    "tree_source",
    "unknown_constants",
    "writer",
]

Read = Callable[[Event], Any]
Write = Callable[[Event, Any], Event]
Put = Callable[[Any, Any], Any]

MAX_FILL = 1000

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_KINDS: Mapping[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "an array"}


@lru_cache(maxsize=4096)
def reader(path: Path) -> Read:
    code = Code()
    return code.function(code.read(path))


class CannotSet(Exception):
    """Something on the way is of another kind; as a text it says where, what is needed, and what was found."""


def writer(path: Path) -> Write:
    """A function that gives the event with a value set at the path; raises `CannotSet`. Only `target_path`s can be set."""
    put = putter(path)
    if path.root == "payload":
        return lambda event, value: Event(put(event.payload, value), event.metadata, event.source, event.entered or (event,))

    def write(event: Event, value: Any) -> Event:
        metadata = put(event.metadata, value)
        if type(metadata) is not dict:
            raise CannotSet(f"metadata: a map is needed, found {_kind(metadata)}")
        return event.with_content(event.payload, metadata)

    return write


def putter(path: Path) -> Put:
    """As `writer`, of a value that is the path's root itself: (root, value) -> new root."""
    put: Put = lambda _, value: value  # noqa: E731 - each segment wraps it
    for depth in range(len(path.segments), 0, -1):
        put = _put_one(Path(path.root, path.segments[: depth - 1]), path.segments[depth - 1], put)
    return put


def _put_one(at: Path, segment: Segment, put: Put) -> Put:
    if isinstance(segment, str):
        return _put_key(at, segment, put)
    return _put_index(at, segment, put) if isinstance(segment, int) else _put_selected(at, segment, put)


def _put_key(at: Path, key: str, put: Put) -> Put:
    def put_key(inner: Any, value: Any) -> Any:
        if type(inner) is dict:
            return {**inner, key: put(inner.get(key), value)}
        if inner is None:
            return {key: put(None, value)}
        raise CannotSet(f"{at}: a map is needed, found {_kind(inner)}")

    return put_key


def _put_index(at: Path, index: int, put: Put) -> Put:
    def put_index(inner: Any, value: Any) -> Any:
        inner = [] if inner is None else inner
        if type(inner) is not list:
            raise CannotSet(f"{at}: an array is needed, found {_kind(inner)}")
        missing = index - len(inner)
        if missing > MAX_FILL:
            raise CannotSet(f"{at}[{index}]: the array has {len(inner)} elements; at most {MAX_FILL} are filled up")
        old = inner[index] if missing < 0 else None
        return [*inner[:index], *[None] * missing, put(old, value), *inner[index + 1 :]]

    return put_index


def _put_selected(at: Path, selector: Selector, put: Put) -> Put:
    key, wanted = selector.key, wanted_of(selector)

    def put_selected(inner: Any, value: Any) -> Any:
        index = place(inner, key, wanted)
        if index is None:
            raise CannotSet(f"{at.below(selector)}: there is no such element")
        return [*inner[:index], put(inner[index], value), *inner[index + 1 :]]

    return put_selected


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "a map" if type(value) is dict else "nothing")


@lru_cache(maxsize=4096)
def parse_template(text: str) -> tuple[str | Path, ...]:
    """The template's literal texts and references, in order."""
    pieces: list[str | Path] = []
    at = 0
    for found in _PIECE.finditer(text):
        pieces.append(text[at : found.start()])
        at = found.end()
        word, inner = found.group(), found.group(1)
        if inner is not None:
            pieces.append(_reference(text, inner))
        elif len(word) == 2:
            pieces.append(word[0])
        else:
            raise Invalid(f"template {text!r}", f"a lone {word!r}", f"write {word * 2} for the brace itself")
    pieces.append(text[at:])
    return tuple(piece for piece in pieces if piece != "")


def _reference(text: str, inner: str) -> Path:
    if not inner:
        raise Invalid(f"template {text!r}", "it refers to nothing", "write {payload} for the whole payload")
    path = parse_path(inner)
    return event_path(inner) if path.segments else path


def texts(tree: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a template tree that may hold references, with its place."""
    if isinstance(tree, str):
        yield where, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from texts(value, f"{where}.{key}")
    elif isinstance(tree, list | tuple):
        for n, value in enumerate(tree):
            yield from texts(value, f"{where}[{n}]")


def unknown_constants(tree: Any, constants: Mapping[str, str]) -> list[str]:
    """Why references of this (already parsed once) tree cannot be resolved; empty when all can."""
    known = (*ROOTS, *map(str, ABOUT), *constants)
    return [
        f"{where.lstrip('.')}: {unknown_root(str(piece), piece.root, known)}"
        for where, text in texts(tree)
        for piece in parse_template(text)
        if isinstance(piece, Path) and not in_event(piece) and piece.root not in constants
    ]


def compile_tree(tree: Any, constants: Mapping[str, str]) -> Read:
    """A function that builds the tree's value from an event; keys are literal, texts are templates."""
    code = Code()
    return code.function(tree_source(code, tree, constants))


def tree_source(code: Code, tree: Any, constants: Mapping[str, str]) -> str:
    """An expression that builds the tree's value."""
    if isinstance(tree, str):
        return _text_source(code, tree, constants)
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {tree_source(code, value, constants)}" for key, value in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(tree_source(code, value, constants) for value in tree) + "]"
    return code.value(tree)


def _text_source(code: Code, text: str, constants: Mapping[str, str]) -> str:
    pieces = [p if isinstance(p, str) or in_event(p) else _constant(p, constants) for p in parse_template(text)]
    if all(isinstance(piece, str) for piece in pieces):
        return code.value("".join(map(str, pieces)))
    if len(pieces) == 1 and isinstance(pieces[0], Path):
        return code.read(pieces[0])
    parts = [code.value(p) if isinstance(p, str) else code.text(p) for p in pieces]
    return f"f'{''.join(f'{{{part}}}' for part in parts)}'"


def _constant(path: Path, constants: Mapping[str, str]) -> str:
    if path.root not in constants:
        raise unknown_root(str(path), path.root, (*ROOTS, *map(str, ABOUT), *constants))
    return constants[path.root]
