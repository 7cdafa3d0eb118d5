r"""How a path is written: a root and segments.

The roots are `payload` and `metadata`; a path that begins with a dot means the payload, and "" or "." is the payload itself.
A segment is one of

    .key     of a map
    [n]      of a list, n counted from 0
    [k=v]    the first element of a list that is a map whose k is v; v is a text, or what spells a number or boolean

and a dot may stand before a bracket. In keys and selectors, a backslash makes . [ ] = \ ordinary characters:
`payload.a\.b[0]` reads {"a.b": ["this"]}.

For reading there are also `trace.id`, `tenant.orgId`, `tenant.appId` and `timestamp`: when the event came in, in milliseconds,
as a text. It stays the same however often the event is replayed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache

import msgspec

from trunkline.core.errors import Invalid

ROOTS = ("payload", "metadata")
MAX_SEGMENTS = 64

_ROOT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SEGMENT = re.compile(
    r"\.((?:[^.\[\]{}\\]|\\[.=\[\]\\])+)"
    r"|\.?\[(0|[1-9][0-9]{0,8})\]"
    r"|\.?\[((?:[^=\[\]{}\\]|\\[.=\[\]\\])+)=((?:[^\[\]{}\\]|\\[.=\[\]\\])*)\]"
)
_ESCAPED = re.compile(r"\\(.)")
_SPECIAL = re.compile(r"([.=\[\]\\])")


class Selector(msgspec.Struct, frozen=True):
    key: str
    value: str


Segment = str | int | Selector


class Path(msgspec.Struct, frozen=True):
    root: str
    segments: tuple[Segment, ...] = ()

    def __str__(self) -> str:
        return self.root + "".join(map(_segment_text, self.segments))

    def below(self, key: Segment) -> Path:
        return Path(self.root, (*self.segments, key))

    @property
    def parent(self) -> Path:
        return Path(self.root, self.segments[:-1])


ABOUT = (Path("trace", ("id",)), Path("tenant", ("orgId",)), Path("tenant", ("appId",)), Path("timestamp"))
"""What can be read of an event beside its content."""


def _segment_text(segment: Segment) -> str:
    if isinstance(segment, int):
        return f"[{segment}]"
    if isinstance(segment, Selector):
        return f"[{_escaped(segment.key)}={_escaped(segment.value)}]"
    return "." + _escaped(segment)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


@lru_cache(maxsize=4096)
def parse_path(text: str) -> Path:
    if text in ("", "."):
        return Path("payload")
    root = _ROOT.match(text)
    at = root.end() if root else 0
    segments: list[Segment] = []
    while at < len(text):
        found = _SEGMENT.match(text, at)
        if found is None or len(segments) == MAX_SEGMENTS:
            raise _not_a_segment(text, at, len(segments))
        segments.append(_segment(*found.groups()))
        at = found.end()
    return Path(root.group() if root else "payload", tuple(segments))


def _segment(key: str | None, index: str | None, name: str | None, value: str | None) -> Segment:
    if index is not None:
        return int(index)
    if name is not None:
        return Selector(_ESCAPED.sub(r"\1", name), _ESCAPED.sub(r"\1", value or ""))
    return _ESCAPED.sub(r"\1", key or "")


def _not_a_segment(text: str, at: int, depth: int) -> Invalid:
    if depth == MAX_SEGMENTS:
        return Invalid(f"path {text[:40]!r}…", f"it has more than {MAX_SEGMENTS} segments", "make it shorter")
    if re.match(r"\.?\[-[0-9]", text[at:]):
        return Invalid(f"path {text!r}", f"{text[at:]!r} counts from the end", "count from the front: the first is [0]")
    return Invalid(f"path {text!r}", f"{text[at:]!r} is not a segment", "write .key, [0] or [key=value] for each segment")


def event_path(text: str) -> Path:
    """A path that can be read of an event: constants have no business here."""
    path = parse_path(text)
    if not in_event(path):
        raise unknown_root(text, path.root, (*ROOTS, *map(str, ABOUT)))
    return path


def target_path(text: str) -> Path:
    """A path that can be set."""
    path = event_path(text)
    if path.root not in ROOTS:
        raise Invalid(f"path {text!r}", "it can only be read", "set something in payload or metadata")
    return path


def in_event(path: Path) -> bool:
    return path.root in ROOTS or path in ABOUT


def unknown_root(text: str, root: str, known: Sequence[str]) -> Invalid:
    near = get_close_matches(root, known, n=1, cutoff=0.0)[0]
    return Invalid(f"path {text!r}", f"there is no {root!r}", f"begin it with {near!r} (known: {', '.join(known)})")
