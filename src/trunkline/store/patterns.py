"""Regular expressions over keys that cannot hold a node up.

A pattern runs on the event loop over every key, and no time limit can stop one. A repeat may end at any of a key's 256
characters, a choice has two ways to go, and of these each multiplies the steps; where a repeat stands inside a repeated group
they have no bound. So no group is repeated, and the rest may double the steps at most MOST_DOUBLINGS times.
"""

from __future__ import annotations

import re
from typing import Final

from trunkline.core.errors import Invalid

MAX_PATTERN: Final = 256
MOST_DOUBLINGS: Final = 26
_PARTS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?|(?P<group>\)(?:[*+?]|\{))|(?P<repeat>(?:[*+]|\{\d*,?\d*\})[?+]?)|(?P<choice>[?|])|.",
    re.S,
)
_COST: Final = {"repeat": 8, "choice": 1}


def compiled(pattern: str) -> re.Pattern[str]:
    if len(pattern) > MAX_PATTERN:
        raise Invalid(f"pattern {pattern[:20]!r}…", f"it has more than {MAX_PATTERN} characters", "give several short ones")
    parts = [part.lastgroup for part in _PARTS.finditer(pattern)]
    if "group" in parts or sum(_COST.get(part or "", 0) for part in parts) > MOST_DOUBLINGS:
        raise Invalid(f"pattern {pattern!r}", "it might take very long to match", "give several simple ones, or a prefix")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise Invalid(f"pattern {pattern!r}", f"not a regular expression: {error}", "escape what is meant literally") from None
