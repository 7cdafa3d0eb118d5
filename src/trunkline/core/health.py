"""What a process says about its own health: named checks, each with a reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`reason` says what is so, whether or not it is well: "epoch 7 until 12:00:03", "no answer since 4 s"."""

    name: str
    ok: bool
    reason: str
