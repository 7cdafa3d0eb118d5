"""Child processes that are started again when they die, and that leave nothing behind when it ends.

Every child carries a mark in its environment, which whatever it starts inherits (a JVM in a session of its own, Python
workers), also when the child itself is dead by then. The kernel ends the children if this process is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
RESTART_SECONDS = 0.5
MARK = "TRUNKLINE_DEMO"
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """Every live process that was started under this mark."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # it ended meanwhile, or is another user's
    return found


@dataclass
class Child:
    name: str
    words: Sequence[str]
    log: Path
    mark: str
    restarts: int = 0
    wanted: bool = True
    process: subprocess.Popen[bytes] | None = None
    _died: float | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trunkline.cli.main", *self.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, MARK: self.mark, "TMPDIR": str(self.log.parent)},
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._died = None

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """kill -9 of the process itself; what it started is left to notice."""
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        self.wanted = False
        if self.alive():
            assert self.process is not None
            self.process.terminate()

    def supervise(self, now: float) -> None:
        if not self.wanted or self.alive():
            return
        if self._died is None:
            self._died = now
        elif now - self._died >= RESTART_SECONDS:
            self.restarts += 1
            self.start()

    def tail(self, lines: int = 12) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


def stop_all(children: Sequence[Child], seconds: float = 10.0) -> None:
    """Asks politely, then insists; returns when no process under their marks is left."""
    for child in children:
        child.stop()
    deadline = time.monotonic() + seconds
    while any(c.alive() for c in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    marks = {c.mark for c in children}
    while left := [pid for mark in marks for pid in marked(mark)]:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
        for child in children:
            child.alive()  # reaps it
