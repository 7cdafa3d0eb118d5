r"""Paths into an event, and templates made of them.

A path is a root and segments. The roots are `payload` and `metadata`; a path that begins with a dot means the payload,
and "" or "." is the payload itself. A segment is `.key` or `[n]` with n counted from 0. In a key, a backslash makes
. [ ] \ ordinary characters: `payload.a\.b[0]` reads {"a.b": ["this"]}.

    P1  Reading never fails: what is not there, or not of that kind (a key of a list, an index of a map), reads as null.
    P2  A path that cannot be read as above is refused when the route is added, never while events run.

A template is a text with paths in braces: `{payload.id}`. A bare name, `{site}`, is a constant given when the route is
compiled. `{{` and `}}` stand for the braces themselves.

    T1  A template that is exactly one reference gives the value with its type; a missing one gives null.
    T2  In any other text a string is put in as it is, everything else as JSON.
    T3  What was put in is never looked at again: a value with braces stays that value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps
from trunkline.routes.event import Event

Read = Callable[[Event], Any]

ROOTS = ("payload", "metadata")
_ROOT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SEGMENT = re.compile(r"\.((?:[^.\[\]{}\\]|\\[.\[\]\\])+)|\[(0|[1-9][0-9]{0,8})\]")
_ESCAPED = re.compile(r"\\(.)")
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Path(msgspec.Struct, frozen=True):
    root: str
    segments: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        return self.root + "".join(map(_segment_text, self.segments))

    def below(self, key: str) -> Path:
        return Path(self.root, (*self.segments, key))


def _segment_text(segment: str | int) -> str:
    return f"[{segment}]" if isinstance(segment, int) else "." + re.sub(r"([.\[\]\\])", r"\\\1", segment)


def parse_path(text: str) -> Path:
    if text in ("", "."):
        return Path("payload")
    root = _ROOT.match(text)
    at = root.end() if root else 0
    segments: list[str | int] = []
    while at < len(text):
        found = _SEGMENT.match(text, at)
        if found is None:
            raise Invalid(f"path {text!r}", f"{text[at:]!r} is not a segment", "write .key or [0] for each segment")
        key, index = found.groups()
        segments.append(_ESCAPED.sub(r"\1", key) if key is not None else int(index))
        at = found.end()
    return Path(root.group() if root else "payload", tuple(segments))


def event_path(text: str) -> Path:
    """A path that must lie in the event: constants have no business here."""
    path = parse_path(text)
    if path.root not in ROOTS:
        raise _unknown_root(text, path.root, ROOTS)
    return path


def _unknown_root(text: str, root: str, known: tuple[str, ...]) -> Invalid:
    near = get_close_matches(root, known, n=1, cutoff=0.0)[0]
    return Invalid(f"path {text!r}", f"there is no {root!r}", f"begin it with {near!r} (known: {', '.join(known)})")


def reader(path: Path) -> Read:
    segments = path.segments
    if path.root == "metadata":
        return lambda event: _walk(event.metadata, segments)
    return lambda event: _walk(event.payload, segments)


def _walk(value: Any, segments: tuple[str | int, ...]) -> Any:
    for segment in segments:
        if isinstance(segment, str):
            value = value.get(segment) if isinstance(value, dict) else None
        else:
            value = value[segment] if isinstance(value, list) and segment < len(value) else None
    return value


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
    if path.root not in ROOTS and path.segments:
        raise _unknown_root(inner, path.root, ROOTS)
    return path


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
    known = (*ROOTS, *constants)
    return [
        f"{where.lstrip('.')}: {_unknown_root(str(piece), piece.root, known)}"
        for where, text in texts(tree)
        for piece in parse_template(text)
        if isinstance(piece, Path) and piece.root not in known
    ]


def compile_tree(tree: Any, constants: Mapping[str, str]) -> Read:
    """A closure that builds the tree's value from an event; keys are literal, texts are templates."""
    if isinstance(tree, str):
        return _compile_text(tree, constants)
    if isinstance(tree, dict):
        fields = [(key, compile_tree(value, constants)) for key, value in tree.items()]
        return lambda event: {key: build(event) for key, build in fields}
    if isinstance(tree, list):
        items = [compile_tree(value, constants) for value in tree]
        return lambda event: [build(event) for build in items]
    return lambda event: tree


def _compile_text(text: str, constants: Mapping[str, str]) -> Read:
    pieces = [constants[p.root] if isinstance(p, Path) and p.root not in ROOTS else p for p in parse_template(text)]
    if all(isinstance(piece, str) for piece in pieces):
        literal = "".join(map(str, pieces))
        return lambda event: literal
    if len(pieces) == 1 and isinstance(pieces[0], Path):
        return reader(pieces[0])
    builds = [(lambda event, p=piece: p) if isinstance(piece, str) else reader(piece) for piece in pieces]
    return lambda event: "".join(as_text(build(event)) for build in builds)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value).decode()
