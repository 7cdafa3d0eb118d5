"""A program that runs for us: it writes into a log, and the kernel ends it when this process ends, however that comes.

The kernel counts the *thread* that started a program as its parent. All are therefore started by one thread that stays.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")


class _Wish(NamedTuple):
    words: Sequence[str]
    log: Path
    started: Future[subprocess.Popen[bytes]]


class Child:
    def __init__(self, words: Sequence[str], log: Path) -> None:
        self.log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        started: Future[subprocess.Popen[bytes]] = Future()
        _wishes().put(_Wish(words, log, started))
        try:
            self._process = started.result()
        except BaseException:
            started.add_done_callback(_kill)  # we were told to end meanwhile
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self, seconds: float) -> None:
        """Asks it to end, and insists when that takes too long."""
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """What it wrote into its log since it was started."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")


@cache
def _wishes() -> SimpleQueue[_Wish]:
    wishes: SimpleQueue[_Wish] = SimpleQueue()
    threading.Thread(target=_fulfil, args=(wishes,), name="starter of programs", daemon=True).start()
    return wishes


def _fulfil(wishes: SimpleQueue[_Wish]) -> None:
    while True:
        wish = wishes.get()
        try:
            wish.started.set_result(_start(wish.words, wish.log))
        except OSError as error:
            wish.started.set_exception(error)


def _start(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            [*_DIES_WITH_US, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


def _kill(started: Future[subprocess.Popen[bytes]]) -> None:
    if started.exception() is None:
        process = started.result()
        process.kill()
        process.wait()


def last_lines(text: str, lines: int = 3) -> str:
    """The end of a log on one line, without the stack of a Java exception."""
    words = [line for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", "\t..."))]
    return " / ".join(words[-lines:]) or "it ended without a word"
