"""What tasks tell the driver of a batch: rows, each about one message or event, and one with all their counts.

Whatever a task could do by itself is not told, only counted. So the driver of a group whose messages go to Kafka hears of
a few rows per batch, however large that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any

import msgspec
import pyarrow as pa


class Told(IntEnum):
    COUNTS = 0
    """`content`: JSON of `TaskCounts`."""
    MESSAGE = 1
    """For a sender that only the driver has."""
    KEEP = 2
    """A message for the route's outbox."""
    DEAD = 3
    """A dead letter of `step`."""
    EVENT = 4
    """It came to the first filter that remembers."""
    FAILED = 5
    """It was given back: the batch is not done."""


class Outcome(msgspec.Struct, frozen=True):
    """`hash`: the route's. `content`: JSON of a message or, of DEAD and EVENT, of an event. `came`: in unix seconds."""

    told: Told
    hash: str = ""
    id: str = ""
    source: str = ""
    step: str = ""
    reason: str = ""
    content: bytes = b""
    came: float = 0.0


class RouteCount(msgspec.Struct, array_like=True):
    """Of one route in one batch. `received`: events that came to its filters; `matched`: messages that left them; `dropped`:
    events that came to nothing there; `seconds`: from coming in to being sent, in all."""

    received: int = 0
    matched: int = 0
    dropped: int = 0
    sent: int = 0
    kept: int = 0
    dead: int = 0
    failed: int = 0
    seconds: float = 0.0

    def add(self, other: RouteCount) -> None:
        self.received += other.received
        self.matched += other.matched
        self.dropped += other.dropped
        self.sent += other.sent
        self.kept += other.kept
        self.dead += other.dead
        self.failed += other.failed
        self.seconds += other.seconds


class TaskCounts(msgspec.Struct):
    """`events`: that were read. `routes`: by hash. `custom`, `lines`: what filters count and log for people. The driver
    says `group`, and `took`: the seconds from a batch's plan to its commit; none: it was no batch."""

    events: int = 0
    routes: dict[str, RouteCount] = {}
    custom: dict[str, int] = {}
    lines: list[dict[str, Any]] = []
    group: str = ""
    took: float | None = None


_ARROW = pa.schema(
    [
        ("told", pa.int8()),
        ("hash", pa.string()),
        ("id", pa.string()),
        ("source", pa.string()),
        ("step", pa.string()),
        ("reason", pa.string()),
        ("content", pa.binary()),
        ("came", pa.float64()),
    ]
)
SCHEMA = "told TINYINT, hash STRING, id STRING, source STRING, step STRING, reason STRING, content BINARY, came DOUBLE"
_BATCH_ROWS = 5_000
_NAMES = tuple(field.name for field in _ARROW)


def batches(outcomes: Iterable[Outcome]) -> Iterator[pa.RecordBatch]:
    rows: list[Outcome] = []
    for outcome in outcomes:
        rows.append(outcome)
        if len(rows) == _BATCH_ROWS:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def _batch(rows: list[Outcome]) -> pa.RecordBatch:
    arrays = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in _ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def read(table: pa.Table) -> Iterator[Outcome]:
    columns = [table[name].to_pylist() for name in _NAMES]
    for told, *rest in zip(*columns, strict=True):
        yield Outcome(Told(told), *rest)
