"""Durations as people write them."""

from __future__ import annotations

import re

from trunkline.core.errors import Invalid


def seconds(text: str) -> float:
    """Seconds of '90s', '2m', '1h' or a bare number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if not found or float(found[1]) <= 0:
        raise Invalid(f"duration {text!r}", "it is not a positive number with s, m or h", "write it as 90s, 2m or 1h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]
