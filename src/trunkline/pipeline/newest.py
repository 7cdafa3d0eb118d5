"""Conflation by hand, message by message: where a batch is small, and in the tasks that read it. Pure.

W1  As on Spark (`trunkline.pipeline.conflate`, C1 and C2): only messages whose headers are certainly in order displace others,
    and of equal versions the first stays. What a survivor stands for is counted.
W2  Messages whose run intake has to tell are left alone: their order says where a run begins (C4).
W3  A task compares messages of one partition only. They come in order there; what is left over meets on Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trunkline.bridge.types import BundleType, Types
from trunkline.core.bundle import Mode
from trunkline.core.jsoncodec import dumps, loads

_NUMBER = "[0-9]{1,18}"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}")
_VALUE = re.compile(f"(?:{_NUMBER})?")

Headers = Mapping[str, str | None]
Message = tuple[str, str, Headers, int]
"""Among which others it is compared, its sender, its headers, how many it stands for already."""
Slot = tuple[str, str, str | None]


class Newest:
    """`allowed`: for every type with complete bundles, what `ce_dependency` may be, as a pattern of the whole of it."""

    def __init__(self, allowed: Mapping[str, str]) -> None:
        self._allowed = dict(allowed)
        self._dependency = {name: re.compile(pattern) for name, pattern in allowed.items()}

    @classmethod
    def of(cls, types: Types) -> Newest:
        return cls({one.name: _dependency(one) for one in types.values() if one.mode is Mode.COMPLETE})

    @classmethod
    def parse(cls, text: str) -> Newest:
        return cls(loads(text, "types to conflate"))

    def __str__(self) -> str:
        return dumps(self._allowed).decode()

    def choose(self, messages: Iterable[Message]) -> dict[int, int]:
        """The numbers of those that go on, in order, and how many each stands for."""
        slots: dict[Slot, tuple[tuple[int, int], int]] = {}
        kept: dict[int, int] = {}
        for number, (place, sender, headers, copies) in enumerate(messages):
            kept[number] = copies
            version = self._version(sender, headers)
            if version is None:
                continue
            slot = (place, sender, headers.get("ce_type"))
            before = slots.get(slot)
            if before is None:
                slots[slot] = (version, number)
            elif before[0] < version:
                kept[number] += kept.pop(before[1])
                slots[slot] = (version, number)
            else:
                kept[before[1]] += kept.pop(number)
        return dict(sorted(kept.items()))

    def _version(self, sender: str, headers: Headers) -> tuple[int, int] | None:
        """None for what does not take part."""
        get = headers.get
        incarnation, generation = get("ce_incarnation"), get("ce_generation")
        allowed = self._dependency.get(get("ce_type") or "")
        if (
            allowed is None
            or get("ce_mode") != Mode.COMPLETE
            or get("ce_source") != sender
            or not get("ce_id")
            or get("ce_chunk")
            or not _VERSION.fullmatch(f"{incarnation}.{generation}")
            or not _VALUE.fullmatch(get("ce_value") or "")
            or not allowed.fullmatch(get("ce_dependency") or "")
            or "\x00" in f"{get('ce_id')}{get('ce_time')}{get('ce_session')}"
        ):
            return None
        return int(incarnation or 0), int(generation or 0)


def _dependency(declared: BundleType) -> str:
    named = rf"{re.escape(declared.depends_on)}@{_NUMBER}\.{_NUMBER}" if declared.depends_on else ""
    return named if declared.needs_dependency else f"(?:{named})?"
