"""Which keys somebody wants to see: by the beginning of their name, by a pattern of it, by their originator. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from trunkline.core.errors import Invalid
from trunkline.store.values import Value

MAX_PATTERN: Final = 256


@dataclass(frozen=True)
class Filter:
    """Nothing given: everything. Several patterns or originators: any of them. `every`: of the two kinds both must match."""

    patterns: tuple[re.Pattern[str], ...] = ()
    originators: frozenset[str] = frozenset()
    every: bool = False

    def matches(self, key: str, value: Value) -> bool:
        if not self.patterns and not self.originators:
            return True
        judged = []
        if self.patterns:
            judged.append(self.matches_key(key))
        if self.originators:
            judged.append(value.originator in self.originators)
        return all(judged) if self.every else any(judged)

    def matches_key(self, key: str) -> bool:
        """For what has no originator any more."""
        return not self.patterns or any(pattern.match(key) for pattern in self.patterns)


def filter_of(
    keys: Iterable[str] = (), originators: Iterable[str] = (), every: bool = False, prefixes: Iterable[str] = ()
) -> Filter:
    """`keys` are regular expressions that must match from the beginning; plain text is a prefix."""
    compiled = [_compiled(key) for key in keys] + [re.compile(re.escape(prefix)) for prefix in prefixes if prefix]
    return Filter(tuple(compiled), frozenset(originators), every)


def _compiled(pattern: str) -> re.Pattern[str]:
    if len(pattern) > MAX_PATTERN:
        raise Invalid(f"pattern {pattern[:20]!r}…", f"it has more than {MAX_PATTERN} characters", "give several short ones")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise Invalid(f"pattern {pattern!r}", f"not a regular expression: {error}", "escape what is meant literally") from None
