"""Spans of time in words for people."""

from __future__ import annotations

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def about(seconds: float) -> str:
    """In the largest unit of which there are two."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= 2 * size), (1.0, "s"))
    return f"{max(seconds, 0.0) / size:.0f} {unit}"
