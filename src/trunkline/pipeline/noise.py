"""What the JVM and its Python workers say on standard error, without what means nothing to anybody.

Nothing is hidden by this: a task or a query that fails raises in the driver, whatever was printed.
"""

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
            r"Traceback \(most(?s:.*)pyspark/daemon\.py(?s:.*)\nBrokenPipeError",  # a worker whose task was over first
        )
    )
)
_BELOW = re.compile(r"\s|Caused by: ")


def _statements(lines: Iterable[str]) -> Iterator[str]:
    """A line with the stack trace below it; Python's ends with a line that is not indented. Traces of two workers that speak at
    once are one statement, which ends when each of them has."""
    said = ""
    begun = 0
    for line in lines:
        begun += line.startswith("Traceback ")
        if said.startswith("Traceback ") and begun > 1:
            said += line
            begun -= not (_BELOW.match(line) or line.startswith("Traceback "))
            continue
        ends_python = said.startswith("Traceback ") and not _BELOW.match(line)
        if said and not ends_python and not _BELOW.match(line):
            yield said
            said = ""
        said += line
        if ends_python or not (_BELOW.match(line) or _has_more(line)):
            yield said
            said, begun = "", 0
    if said:
        yield said


def _has_more(line: str) -> bool:
    """A trace may follow; any other line is passed on at once."""
    return line.startswith("Traceback ") or bool(re.search(r"Error|Exception", line))


def without_noise(lines: Iterable[str]) -> Iterator[str]:
    return (said for said in _statements(lines) if not _HARMLESS.search(said))


def quiet_stderr() -> int:
    """A descriptor for a child's standard error; what is worth saying goes on to ours. The caller closes it."""
    reading, writing = os.pipe()

    def forward() -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for said in without_noise(lines):
                sys.stderr.write(said)

    threading.Thread(target=forward, name="jvm-stderr", daemon=True).start()
    return writing
