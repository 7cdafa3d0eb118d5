"""How deep a JSON value is nested: filters and tables walk an event by recursion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MAX_DEPTH = 64


def deeper_than(most: int, value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(most):
        if not level:
            return False
        level = [inner for outer in level for inner in _members(outer) if isinstance(inner, dict | list)]
    return bool(level)


def _members(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container
