"""Which keys somebody wants to see: by the beginning of their name, by a pattern of it, by their originator. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from trunkline.store.patterns import compiled
from trunkline.store.values import Value


@dataclass(frozen=True)
class Filter:
    """Nothing given: everything. Several patterns or originators: any of them. `every`: of the two kinds both must match."""

    patterns: tuple[re.Pattern[str], ...] = ()
    originators: frozenset[str] = frozenset()
    every: bool = False

    def matches(self, key: str, value: Value) -> bool:
        return self.matches_originator(key, value.originator)

    def matches_originator(self, key: str, originator: str) -> bool:
        if not self.originators:
            return self.matches_key(key)
        if originator in self.originators:
            return not self.every or self.matches_key(key)
        return not self.every and bool(self.patterns) and self.matches_key(key)

    def matches_key(self, key: str) -> bool:
        return not self.patterns or any(pattern.match(key) for pattern in self.patterns)

    def may_match(self, key: str) -> bool:
        """Whoever its originator is."""
        return self.matches_key(key) or (not self.every and bool(self.originators))


def filter_of(
    keys: Iterable[str] = (), originators: Iterable[str] = (), every: bool = False, prefixes: Iterable[str] = ()
) -> Filter:
    """`keys` are regular expressions that must match from the beginning; plain text is a prefix."""
    patterns = [compiled(key) for key in keys] + [re.compile(re.escape(prefix)) for prefix in prefixes if prefix]
    return Filter(tuple(patterns), frozenset(originators), every)
