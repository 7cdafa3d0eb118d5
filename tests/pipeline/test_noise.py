from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest

from trunkline.pipeline.noise import without_noise

HARMLESS = [
    "WARNING: Using incubator modules: jdk.incubator.vector\n",
    'Exception in thread "stream execution thread" java.lang.StackOverflowError\n\tat scala.Foo(Foo.scala:1)\n'
    "\t... 1024 more\nCaused by: java.lang.StackOverflowError\n\tat scala.Foo(Foo.scala:2)\n",
    'Traceback (most recent call last):\n  File "pyspark.zip/pyspark/daemon.py", line 264, in manager\n'
    "BrokenPipeError: [Errno 32] Broken pipe\n",
    "Traceback (most recent call last):\n" * 2
    + '  File "pyspark.zip/pyspark/daemon.py", line 264, in manager\nBrokenPipeError: [Errno 32] Broken pipe\n' * 2,
]
WORTH_SAYING = [
    "spark ERROR Utils: disk full\n",
    "java.io.IOException: disk full\n\tat java.base/java.io.Writer.write(Writer.java:1)\n",
    'Traceback (most recent call last):\n  File "trunkline/x.py", line 1, in f\nValueError: no\n',
    'Traceback (most recent call last):\n  File "pyspark.zip/pyspark/daemon.py", line 264, in manager\nMemoryError\n',
]


def lines(statements: list[str]) -> list[str]:
    return "".join(statements).splitlines(keepends=True)


def test_harmless_statements_go_with_their_traces_and_all_else_stays_in_whatever_order() -> None:
    for order in permutations([*HARMLESS, *WORTH_SAYING]):
        said = "".join(without_noise(lines(list(order))))
        assert said == "".join(s for s in order if s in WORTH_SAYING)


def test_a_plain_line_is_passed_on_before_the_next_one_comes() -> None:
    def coming() -> Iterator[str]:
        yield "spark ERROR Utils: disk full\n"
        pytest.fail("it waited for another line")

    assert next(without_noise(coming())) == "spark ERROR Utils: disk full\n"
