"""A mistake in a file that a person wrote, or in a variable: where it is, which key, why, and what to do.

A secret's value is never part of one: values are quoted only where a model says that they are no secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trunkline.core.errors import Invalid

Location = tuple[int | str, ...]
_LONGEST = 60
_LONGEST_PATH = 4096


@dataclass(frozen=True)
class Mistake:
    """`source` is a file, then with a line, or an environment variable."""

    source: str
    line: int | None
    key: str
    reason: str
    next_step: str = ""

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source

    def __str__(self) -> str:
        step = f" ({self.next_step})" if self.next_step else ""
        return ": ".join(part for part in (self.place, self.key, self.reason) if part) + step


class Mistakes(Invalid):
    """All that is wrong at once; the text has a line for each."""

    def __init__(self, what: str, mistakes: Iterable[Mistake], next_step: str) -> None:
        self.mistakes = in_order(mistakes)
        lines = "".join(f"\n  {mistake}" for mistake in self.mistakes)
        count = "1 mistake" if len(self.mistakes) == 1 else f"{len(self.mistakes)} mistakes"
        super().__init__(what, count + lines, next_step)

    def __str__(self) -> str:
        return f"{self.what}: {self.why}\n  next: {self.next_step}"

    def __reduce__(self) -> tuple[type[Mistakes], tuple[str, tuple[Mistake, ...], str]]:
        return Mistakes, (self.what, self.mistakes, self.next_step)


def in_order(mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
    """By line; those outside of the file come last."""
    return tuple(sorted(mistakes, key=lambda found: (not found.line, found.line or 0, found.source, found.key)))


def printable(text: str | Path) -> str:
    """The text on one line, not too long unless it is a path, and harmless for a terminal."""
    longest = _LONGEST_PATH if isinstance(text, Path) else _LONGEST
    plain = str(text) if str(text).isprintable() else repr(str(text))[1:-1]
    return plain if len(plain) <= longest else plain[: longest - 3] + "..."


def quoted(value: object) -> str:
    """A value as YAML would have it; of lists and maps only what they are, for they can be endless."""
    if isinstance(value, dict | list | tuple | set):
        return "a map" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    return repr(printable(value)) if isinstance(value, str) else printable(str(value))


def key_text(location: Location, raw: Any = None) -> str:
    """link.seeds[0], api.tokens[1](ci): a list's item that has a name or an id is called by it too."""
    text = ""
    for part in location:
        is_item, raw = isinstance(part, int) and not isinstance(raw, dict), inner(raw, part)
        text += f"[{part}]{_name_of(raw)}" if is_item else f"{'.' if text else ''}{printable(str(part))}"
    return text


def inner(raw: Any, part: int | str) -> Any:
    if isinstance(raw, dict):
        return raw.get(part)
    return raw[part] if isinstance(raw, list) and isinstance(part, int) and part < len(raw) else None


def _name_of(item: Any) -> str:
    names = (item.get("id"), item.get("name")) if isinstance(item, dict) else ()
    return next((f"({printable(name)})" for name in names if isinstance(name, str) and name), "")
