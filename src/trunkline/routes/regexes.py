"""Regular expressions of routes: RE2's, which take time in proportion to the text, whatever the expression says.

Filters run on the event loop, where nothing can interrupt them, and who may write a route must not be able to hold a node up.
Python's `re` goes back and tries again, so that `(a+)+$` takes hours over sixty characters. What cannot be had in linear time,
looking around and back references, is refused. RE2's own Python layer costs five times the search, so its core is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from re2 import _re2  # type: ignore[import-untyped]

from trunkline.core.errors import Invalid
from trunkline.routes.patience import TooSlow

MAX_MEMORY: Final = 1 << 20  # bytes, for what one regex remembers of the states it went through
MAX_PROGRAM: Final = 2_000  # steps: where a regex has too many states to remember, each character costs as many
_ANYWHERE = _re2.RE2.Anchor.UNANCHORED
_NOT_IN_RE2: Final = ("invalid perl operator: (?", "invalid escape sequence")

Spans = list[tuple[int, int]]
"""Of the find and of each of its groups, in bytes; -1 for a group that found nothing."""


class Regex:
    """`groups`: how many there are, `names`: their numbers by name."""

    def __init__(self, text: str) -> None:
        core = _compiled(text, never_capture=False)
        self._match = core.Match
        self.groups: int = core.NumberOfCapturingGroups()
        self.names: Mapping[str, int] = {name.decode(): number for name, number in core.NamedCapturingGroups()}

    def first(self, text: bytes) -> bytes:
        """Empty if nothing is found."""
        begin, end = self._match(_ANYWHERE, text, 0, len(text))[0]
        return text[begin:end] if end > begin else b""

    def all(self, text: bytes, until: float) -> Iterator[Spans]:
        """From left to right; an empty find right after another is none. Raises `TooSlow`: each may look at all that is left.
        `until`: by the monotonic clock."""
        at, end, last = 0, len(text), -1
        while at <= end:
            spans: Spans = self._match(_ANYWHERE, text, at, end)
            begin, after = spans[0]
            if begin < 0:
                return
            if after > last:
                yield spans
            last, at = after, after if after > begin else _next(text, after)
            if time.monotonic() > until:
                raise TooSlow


def check_regex(text: Any) -> None:
    if not isinstance(text, str):
        raise Invalid("pattern", "it is not a text", "write a regex, or set matcher: pattern")
    Regex(text)


@lru_cache(maxsize=4096)
def finder(regex: str) -> Callable[[str], bool]:
    """Whether it is found in a text."""
    match = _compiled(regex, never_capture=True).Match

    def found(text: str) -> bool:
        data = encoded(text)
        return bool(match(_ANYWHERE, data, 0, len(data))[0][0] >= 0)

    return found


def encoded(text: str) -> bytes:
    """Half of a surrogate pair, which JSON can name and UTF-8 cannot, is a question mark."""
    return text.encode(errors="replace")


def _next(text: bytes, at: int) -> int:
    """Where the next character begins."""
    at += 1
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def _compiled(text: str, never_capture: bool) -> Any:
    options = _re2.RE2.Options()
    options.log_errors, options.max_mem, options.never_capture = False, MAX_MEMORY, never_capture
    core = _re2.RE2(encoded(text), options)
    if not core.ok():
        raise _refused(text, core.error().decode(errors="replace"))
    if core.ProgramSize() > MAX_PROGRAM:
        raise _refused(text, "it is too large", "make it shorter, or its counted repeats smaller")
    return core


def _refused(text: str, why: str, next_step: str = "mend it, in the syntax of RE2") -> Invalid:
    shown = text if len(text) <= 100 else text[:100] + "…"
    if why.startswith(_NOT_IN_RE2):
        next_step = "write it without looking around and back references (RE2, in which \\z is the end)"
    return Invalid(f"regex {shown!r}", why, next_step)
