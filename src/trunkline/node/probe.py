"""Asks the site's database once a second how it is, so that nobody else has to wait for an answer.

The answers are plain attributes; whoever reads them sees how old they are. A database that does not answer at all holds
this probe's thread, and nothing else: the last answer then simply grows old.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import psycopg

from trunkline.core.clock import Clock
from trunkline.db.away import in_one_line

PROBE_SECONDS = 1.0
MANY = 1000  # tickets that wait are counted up to here

# Tickets up to the cursor are stamped: many of them may be there as dead rows, which nobody wants to look through.
_STATE = """
WITH last AS (SELECT last_seq, cursor FROM queues.stamp ORDER BY first_seq DESC LIMIT 1)
SELECT coalesce((SELECT last_seq FROM last), 0),
       (SELECT count(*) FROM (SELECT FROM queues.ticket WHERE ticket > coalesce((SELECT cursor FROM last), 0) LIMIT %s) AS t)
"""


@dataclass(frozen=True)
class Answer:
    """`moved_at`: when the head last moved, or nothing waited for it to move."""

    at: float
    head: int
    waiting: int
    moved_at: float


def moved(before: Answer | None, head: int, waiting: int, now: float) -> Answer:
    stuck = before is not None and waiting > 0 and before.waiting > 0 and head == before.head
    return Answer(now, head, waiting, before.moved_at if stuck and before is not None else now)


class DatabaseProbe:
    def __init__(self, dsn: str, clock: Clock) -> None:
        self.answer: Answer | None = None
        self.trouble = ""
        self._dsn, self._clock = dsn, clock

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                with self._connect() as conn:
                    self._ask_until(conn, stop)
            except psycopg.Error as error:
                self.trouble = in_one_line(error)
                stop.wait(PROBE_SECONDS)

    def _ask_until(self, conn: psycopg.Connection[Any], stop: threading.Event) -> None:
        while not stop.is_set():
            row = conn.execute(_STATE, (MANY,)).fetchone()
            assert row is not None
            self.answer = moved(self.answer, row[0], row[1], self._clock.monotonic())
            self.trouble = ""
            stop.wait(PROBE_SECONDS)

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            self._dsn, connect_timeout=2, autocommit=True, tcp_user_timeout=3000, application_name="trunkline-probe",
            options="-c statement_timeout=2000",
        )  # fmt: skip
