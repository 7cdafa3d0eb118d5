"""Conflation by hand, message by message: where a batch is small, and in the tasks that read it. Pure.

W1  As on Spark (`trunkline.pipeline.conflate`, C1 and C2): only messages whose headers are certainly in order displace others,
    and of equal versions the first stays. What a survivor stands for is counted.
W2  Messages whose run intake has to tell are left alone: their order says where a run begins (C4).
W3  A task compares messages of one partition only. They come in order there; what is left over meets on Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from trunkline.bridge.types import BundleType, Types
from trunkline.core.bundle import Mode
from trunkline.core.jsoncodec import dumps, loads

_NUMBER = "[0-9]{1,18}"
_DIGITS = 18

Headers = Mapping[str, bytes | None]
Texts = Mapping[str, str | None]
Version = tuple[int, int]
T = TypeVar("T")


class Choice(Generic[T]):
    """Of what is added, one after the other, what goes on; and how many each of these stands for."""

    def __init__(self, allowed: Mapping[bytes, re.Pattern[bytes]]) -> None:
        self._allowed = allowed
        self._slots: dict[tuple[str, str, bytes | None], tuple[Version, int]] = {}
        self._kept: dict[int, tuple[T, int]] = {}
        self._added = 0

    def add(self, item: T, place: str, sender: str, headers: Headers, copies: int = 1) -> None:
        """`place`: among which others it is compared."""
        number, self._added = self._added, self._added + 1
        version = self._version(sender, headers)
        if version is not None:
            slot = (place, sender, headers["ce_type"])
            before = self._slots.get(slot)
            if before is not None and before[0] >= version:
                older, stands_for = self._kept[before[1]]
                self._kept[before[1]] = (older, stands_for + copies)
                return
            if before is not None:
                copies += self._kept.pop(before[1])[1]
            self._slots[slot] = (version, number)
        self._kept[number] = (item, copies)

    def kept(self) -> list[tuple[T, int]]:
        """In the order they were added."""
        return list(self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def _version(self, sender: str, headers: Headers) -> Version | None:
        """None for what does not take part."""
        get = headers.get
        allowed = self._allowed.get(get("ce_type") or b"")
        id_, incarnation, generation = get("ce_id"), get("ce_incarnation") or b"", get("ce_generation") or b""
        if allowed is None or not id_ or get("ce_mode") != b"complete" or get("ce_source") != sender.encode():
            return None
        if get("ce_chunk") or not (_is_number(incarnation) and _is_number(generation)):
            return None
        value, dependency = get("ce_value"), get("ce_dependency") or b""
        if (value and not _is_number(value)) or not allowed.fullmatch(dependency):
            return None
        if b"\x00" in id_ or b"\x00" in (get("ce_time") or b"") or b"\x00" in (get("ce_session") or b""):
            return None
        return int(incarnation), int(generation)


class Newest:
    """`allowed`: for every type with complete bundles, what `ce_dependency` may be, as a pattern of the whole of it."""

    def __init__(self, allowed: Mapping[str, str]) -> None:
        self._allowed = dict(allowed)
        self._patterns = {name.encode(): re.compile(pattern.encode()) for name, pattern in allowed.items()}

    @classmethod
    def of(cls, types: Types) -> Newest:
        return cls({one.name: _dependency(one) for one in types.values() if one.mode is Mode.COMPLETE})

    @classmethod
    def parse(cls, text: str) -> Newest:
        return cls(loads(text, "types to conflate"))

    def __str__(self) -> str:
        return dumps(self._allowed).decode()

    def choice(self) -> Choice[Any]:
        return Choice(self._patterns)

    def choose(self, messages: Iterable[tuple[str, str, Texts, int]]) -> dict[int, int]:
        """Of (place, sender, headers, copies) the numbers of those that go on, and how many each stands for."""
        choice: Choice[int] = Choice(self._patterns)
        for number, (place, sender, headers, copies) in enumerate(messages):
            choice.add(
                number, place, sender, {name: text.encode() for name, text in headers.items() if text is not None}, copies
            )
        return dict(choice.kept())


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _DIGITS


def _dependency(declared: BundleType) -> str:
    named = rf"{re.escape(declared.depends_on)}@{_NUMBER}\.{_NUMBER}" if declared.depends_on else ""
    return named if declared.needs_dependency else f"(?:{named})?"
