"""CPU seconds of the bridge by where they are spent: Spark's JVM, Python (driver and Spark's workers), Postgres, Kafka.

Python workers are children of the JVM. What those that ended have used is in the JVM's account of its children, and is counted
as Python's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _OWN, _ENDED, _END = 1, 11, 13, 15  # after the name: user and system time, its own and its ended children's
SPARK, PYTHON = "spark", "python"


@dataclass(frozen=True)
class _Process:
    parent: int
    is_java: bool
    own: float
    ended: float


def _processes() -> Iterator[tuple[int, _Process]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name, words = (folder / "stat").read_text().rsplit(")", 1)
            except OSError:
                continue  # it ended meanwhile
            at = words.split()
            own, ended = (sum(map(int, at[a:b])) / _TICKS for a, b in ((_OWN, _ENDED), (_ENDED, _END)))
            yield int(folder.name), _Process(int(at[_PARENT]), name.endswith("(java"), own, ended)


class Split:
    """`others`: the heads of families that are not the bridge's: they are counted whole, under their names."""

    def __init__(self, others: Mapping[str, int]) -> None:
        self._heads = {pid: name for name, pid in others.items()}
        self._begun = self._seconds()

    def _seconds(self) -> dict[str, float]:
        found = dict(_processes())
        sums = dict.fromkeys((SPARK, PYTHON, *self._heads.values()), 0.0)
        for pid, process in found.items():
            head = self._head(found, pid)
            if head == PYTHON:
                sums[SPARK if process.is_java else PYTHON] += process.own
                sums[PYTHON] += process.ended if process.is_java else 0.0
            elif head is not None:
                sums[head] += process.own + process.ended
        return sums

    def _head(self, found: Mapping[int, _Process], pid: int) -> str | None:
        at = pid
        while at in found:
            if at in self._heads:
                return self._heads[at]
            if at == os.getpid():
                return PYTHON
            at = found[at].parent
        return None

    def used(self) -> dict[str, float]:
        return {name: now - self._begun[name] for name, now in self._seconds().items()}
