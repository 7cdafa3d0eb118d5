"""What becomes of an event that a source gave."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Outcome(StrEnum):
    ACKED = "acked"
    NACKED = "nacked"
    TIMED_OUT = "timed_out"


class Done(msgspec.Struct, frozen=True):
    """`of`: what the source called the event."""

    of: Any
    outcome: Outcome
    reason: str = ""
