"""The JVM of a driver, which can end without the driver."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def kill_jvm(driver: int) -> None:
    """`driver`: its process id."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, rest = stat.read_text().partition("(")[2].rpartition(")")[0::2]
            if name == "java" and int(rest.split()[1]) == driver:
                os.kill(int(stat.parent.name), signal.SIGKILL)
