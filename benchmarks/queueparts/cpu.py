"""CPU seconds of whole families of processes: what a process and all that it started have used, also those that ended."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _FIRST_TIME, _LAST_TIME = 1, 11, 15  # after the name: user and system time, its own and its ended children's


def _stat(process: Path) -> list[str]:
    return (process / "stat").read_text().rsplit(")", 1)[1].split()


def _families() -> dict[int, tuple[int, float]]:
    """Parent and seconds of every process."""
    found: dict[int, tuple[int, float]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = _stat(process)
            except OSError:
                continue  # it ended meanwhile
            found[int(process.name)] = (int(words[_PARENT]), sum(map(int, words[_FIRST_TIME:_LAST_TIME])) / _TICKS)
    return found


class Cpu:
    """`pids`: the head of each family."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._begun = self._seconds()

    def _seconds(self) -> dict[str, float]:
        all_, own = _families(), dict.fromkeys(self._pids, 0.0)
        heads = {pid: name for name, pid in self._pids.items()}
        for pid in all_:
            at: int | None = pid
            while at in all_ and at not in heads:
                at = all_[at][0]
            if at in heads:
                own[heads[at]] += all_[pid][1]
        return own

    def used(self) -> dict[str, float]:
        return {name: round(now - self._begun[name], 2) for name, now in self._seconds().items()}
