"""When two JSON values are the same: numbers by value (1 = 1.0), and a boolean is never a number."""

from __future__ import annotations

from typing import Any


def same(one: Any, other: Any) -> bool:
    return one == other and _alike(one, other)


def _alike(one: Any, other: Any) -> bool:
    """Of values that Python calls equal, whether no boolean stands where the other has a number."""
    if isinstance(one, dict):
        return all(_alike(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(map(_alike, one, other))
    return isinstance(one, bool) == isinstance(other, bool)
