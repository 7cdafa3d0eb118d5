"""What the JVM says on its standard error, without the sentences that mean nothing to anybody."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator

_HARMLESS = re.compile(
    "|".join(
        (
            "WARNING: Using incubator modules",  # Spark's launcher asks for one, always
            "java.lang.StackOverflowError",  # a query that is stopped unwinds itself through its own interrupt
        )
    )
)
_FRAME = re.compile(r"\s+(?:at |\.\.\. )|Caused by: .*StackOverflowError")


def without_noise(lines: Iterable[str]) -> Iterator[str]:
    """Harmless lines are left out, each with the stack trace below it."""
    dropping = False
    for line in lines:
        dropping = bool(_HARMLESS.search(line)) or (dropping and bool(_FRAME.match(line)))
        if not dropping:
            yield line


def quiet_stderr() -> int:
    """A descriptor for a child's standard error; what is worth saying goes on to ours. The caller closes it."""
    reading, writing = os.pipe()

    def forward() -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in without_noise(lines):
                sys.stderr.write(line)

    threading.Thread(target=forward, name="jvm-stderr", daemon=True).start()
    return writing
