"""Long work in Python inside a transaction: the server hears now and then that its client did not fall asleep.

A transaction whose client says nothing for 3 s is ended (`connect_fenced`), for a stopped process must not hold locks. Work on
hundreds of megabytes may take longer than that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import psycopg

WORD_SECONDS = 0.5

Item = TypeVar("Item")


def awake(conn: psycopg.Connection[Any], items: Iterable[Item]) -> Iterator[Item]:
    """The items; the work is done between them. Not while a COPY is open."""
    said = time.monotonic()
    for item in items:
        yield item
        if (now := time.monotonic()) - said >= WORD_SECONDS:
            conn.execute("SELECT")
            said = now
