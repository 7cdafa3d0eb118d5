"""What a value is, in a person's words: for reasons that say what is needed and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS: Mapping[type, str] = {
    type(None): "nothing",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "an array",
    dict: "a map",
}


def kind(value: Any) -> str:
    return _WORDS.get(type(value), f"a {type(value).__name__}")


def mismatch(path: object, needed: str, found: Any) -> str:
    return f"{path}: {needed} is needed, found {kind(found)}"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
