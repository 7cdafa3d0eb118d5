"""The id of a request: the caller's own where it is sane, so that both logs can be read together; else a new one."""

from __future__ import annotations

import re

HEADER = "x-request-id"
_SANE = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def request_id(offered: bytes | None, random: bytes) -> str:
    """What comes from outside ends in logs, headers and URNs: nothing but letters, digits, '.', '_' and '-'."""
    if offered is not None and _SANE.fullmatch(offered):
        return offered.decode()
    return random.hex()
