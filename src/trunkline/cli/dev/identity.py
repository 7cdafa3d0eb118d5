"""Which process it is: a pid is given again, but never again with the same time of birth in the same life of the machine."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec

from trunkline.core.errors import Terminal

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Process(msgspec.Struct, frozen=True):
    pid: int
    born: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """None when there is no such process, or only its corpse."""
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if words[0] in "ZX" else cls(pid, int(words[19]), _BOOT.read_text().strip())

    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def send(self, word: signal.Signals) -> None:
        if self.alive():
            try:
                os.kill(self.pid, word)
            except ProcessLookupError:
                return
            except PermissionError:
                raise Terminal(
                    f"process {self.pid}", "it belongs to another user", "stop it as the user who started it"
                ) from None

    def end(self, word: signal.Signals, seconds: float) -> None:
        """Returns when it is gone; after `seconds` it is killed."""
        self.send(word)
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
            time.sleep(0.02)


NOBODY = Process(0, 0, "")
