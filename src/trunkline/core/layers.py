"""What was written: a document with overrides on top; one value, and for each part of it where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trunkline.core.document import Document
from trunkline.core.environment import Override
from trunkline.core.mistakes import Location, Mistake, inner


@dataclass(frozen=True)
class Loose:
    """A value that stands in no file, such as the body of a request."""

    value: Any

    def place(self, location: Location) -> tuple[str, int | None]:
        return "", None

    def typed(self, location: Location) -> str | None:
        return None

    def twice(self) -> list[Mistake]:
        return []


class Layers:
    def __init__(self, document: Document, overrides: Sequence[Override] = ()) -> None:
        self._document = document
        self._overrides = overrides
        self.value = document.value
        for one in overrides:
            self.value = _with(self.value, one.location, one.value)

    def get(self, *location: int | str) -> Any:
        value = self.value
        for part in location:
            value = inner(value, part)
        return value

    def place(self, location: Location) -> tuple[str, int | None]:
        override = self._override(location)
        return (override.variable, None) if override else (self._document.source, self._document.nearest_line(location))

    def typed(self, location: Location) -> str | None:
        override = self._override(location)
        if override is None:
            return self._document.typed(location)
        return override.text if override.location == location else None

    def twice(self) -> list[Mistake]:
        return self._document.twice()

    def origin(self, location: Location) -> str | None:
        """Where the value was given; nothing when nobody gave it."""
        override = self._override(location)
        if override is not None:
            return override.variable if self.get(*location) is not None else None
        line = self._document.line(location)
        return f"{self._document.source}:{line}" if line else None

    def _override(self, location: Location) -> Override | None:
        covering = [one for one in self._overrides if location[: len(one.location)] == one.location]
        return covering[-1] if covering else None


def _with(value: Any, location: Location, new: Any) -> Any:
    """The value with a changed part; a section that is not there yet is made, a wrong one stays for its own mistake."""
    if not location:
        return new
    if value is not None and not isinstance(value, dict):
        return value
    old = value or {}
    return {**old, location[0]: _with(old.get(location[0]), location[1:], new)}
