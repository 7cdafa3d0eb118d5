"""What two or more nodes have differently, out of what each says of its keys. Pure.

The best of a key is what a merge would leave: the highest version, then the greatest originator. Where these are the same and
the hashes are not, the bytes decide, which are not here: all of these are `other value`. The ttl counts for nothing: it moves
all the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Hashes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Difference:
    key: str
    node: str
    what: str
    """missing, older, or other value"""
    version: int | None
    originator: str | None
    best: int
    """The highest version of the key."""


def differences(nodes: Mapping[str, Hashes]) -> list[Difference]:
    keys = sorted({key for hashes in nodes.values() for key in hashes})
    return [found for key in keys for found in _of_key(key, {node: hashes.get(key) for node, hashes in nodes.items()})]


def _of_key(key: str, held: Mapping[str, Mapping[str, Any] | None]) -> list[Difference]:
    there = [value for value in held.values() if value is not None]
    if len(there) == len(held) and len({value["hash"] for value in there}) == 1:
        return []
    best = max((value["version"], value["originator"]) for value in there)
    several = len({value["hash"] for value in there if (value["version"], value["originator"]) == best}) > 1
    judged = ((node, value, _judged(value, best, several)) for node, value in held.items())
    return [
        Difference(key, node, what, value["version"] if value else None, value["originator"] if value else None, best[0])
        for node, value, what in judged
        if what
    ]


def _judged(value: Mapping[str, Any] | None, best: tuple[int, str], several: bool) -> str:
    if value is None:
        return "missing"
    if (value["version"], value["originator"]) != best:
        return "older"
    return "other value" if several else ""
