"""Format `trunkline.queue` with the option `consumer`: all receive queues of a client, read as a named consumer.

Spark's offsets are {queue: position to read next}. Unlike the bridge's own mode it needs no lease, works with any sink, and
leaves the checkpoint to Spark; so it does not trust the checkpoint. Before a batch is named, its plan is in Postgres.

T1  A new checkpoint starts where the consumer stands.
T2  A batch begins where the consumer stands, or at the end of the plan that began there: Spark asks for the next batch only
    when it is done with the last, so that one is passed. Any other start is of another time or another query (H28): it is
    refused, and nothing is passed.
T3  The consumer moves only behind a batch that Spark is done with. A killed query reads its last batch again; who must not
    see it twice compares `message_id`, or writes with a sink that knows its batches, as `trunkline.queue` does.
T4  No end lies before its start. A batch is exactly the positions of its plan: they are dense, and one that is missing fails
    the task.
T5  With nothing new the answer is the start itself, to the letter: Spark compares texts.

Options: dsn, client, consumer; max_entries (of a batch), tasks. Rows of type START, LAST and LOST are in the stream as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.types.json import Jsonb
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from trunkline.bridge.plan import FIRST_POSITION, Offsets, Plan, same_offsets
from trunkline.core.errors import Invalid, Terminal
from trunkline.core.jsoncodec import dumps
from trunkline.db.away import attentive
from trunkline.pipeline.spread import Piece, pack, share_out
from trunkline.queues.consumers import Place, advance, attach, positions, seen
from trunkline.queues.reader import Received, read

CONSUMER = "consumer"
_ARROW = pa.schema(
    [
        ("queue", pa.string()),
        ("position", pa.int64()),
        ("remote", pa.string()),
        ("type", pa.string()),
        ("seq", pa.int64()),
        ("index", pa.int32()),
        ("request", pa.string()),
        ("message_id", pa.string()),
        ("headers", pa.string()),
        ("payload", pa.binary()),
    ]
)
_SQL_TYPES = {pa.int64(): "BIGINT", pa.int32(): "INT", pa.binary(): "BINARY", pa.string(): "STRING"}
SCHEMA = ", ".join(f"{field.name} {_SQL_TYPES[field.type]}" for field in _ARROW)
# Of both, what comes first ends an Arrow batch: few rows are slow, many large ones do not fit a worker.
_BATCH_ROWS = 5_000
_BATCH_BYTES = 8 << 20
# Below this a second task costs more than it saves.
_TASK_ROWS = 1_000
_SEEN_SECONDS = 5.0

_PLAN = "SELECT from_offsets, to_offsets FROM queues.spark_plan WHERE client = %s AND consumer = %s FOR UPDATE"
_WRITE_PLAN = """
INSERT INTO queues.spark_plan (client, consumer, from_offsets, to_offsets) VALUES (%s, %s, %s, %s)
ON CONFLICT (client, consumer) DO UPDATE
   SET from_offsets = excluded.from_offsets, to_offsets = excluded.to_offsets, planned_at = now()
"""


@dataclass(frozen=True)
class StreamSettings:
    """`tasks` is not the number of cores: a batch that is done again on another machine must be cut in the same way."""

    dsn: str
    client: str
    consumer: str
    tasks: int = 2
    max_entries: int = 50_000

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StreamSettings:
        missing = [name for name in ("dsn", "client", CONSUMER) if not options.get(name)]
        if missing:
            raise Invalid("queue stream", f"it is not told its {' and '.join(missing)}", "set the option")
        numbers = {name: int(options[name]) for name in ("tasks", "max_entries") if name in options}
        return cls(options["dsn"], options["client"], options[CONSUMER], **numbers)


class Ranges(InputPartition):
    """Positions from `first` up to and without `end`, of one or more queues."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(tuple(pieces))
        self.pieces = tuple(pieces)


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings
        self._conn: psycopg.Connection[Any] | None = None
        self._until: Offsets | None = None
        self._seen_again = 0.0

    @property
    def _me(self) -> tuple[str, str]:
        return self._settings.client, self._settings.consumer

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = psycopg.connect(attentive(self._settings.dsn), application_name="trunkline-stream")
            with self._conn.transaction():
                attach(self._conn, *self._me)
        return self._conn

    def initialOffset(self) -> dict[str, int]:
        with self._connection().transaction():
            return _stand(self._places())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._settings.max_entries)

    def prepareForTriggerAvailableNow(self) -> None:
        with self._connection().transaction():
            self._until = _ends(self._places())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        conn = self._connection()
        with conn.transaction():
            self._be_seen(conn)
            places = self._places()
            self._pass(places, start)
            end = self._end(places, start, limit)
            if same_offsets(start, end):
                return start
            conn.execute(_WRITE_PLAN, (*self._me, Jsonb(start), Jsonb(end)))
        return end

    def _be_seen(self, conn: psycopg.Connection[Any]) -> None:
        now = time.monotonic()
        if now >= self._seen_again:
            seen(conn, *self._me)
            self._seen_again = now + _SEEN_SECONDS

    def _places(self) -> list[Place]:
        return positions(self._connection(), *self._me)

    def _open_plan(self) -> Plan | None:
        row = self._connection().execute(_PLAN, self._me).fetchone()
        return Plan(*row) if row else None

    def _pass(self, places: Sequence[Place], start: Offsets) -> None:
        """The consumer stands at `start` after it, if that is where it may stand."""
        stand, plan = _stand(places), self._open_plan()
        if same_offsets(start, stand):
            return
        if plan is None or not same_offsets(plan.start, stand) or not same_offsets(plan.end, start):
            raise self._refusal(f"the query is at {dict(start)}, the consumer at {stand}")
        for place in places:
            reached = start.get(place.name, FIRST_POSITION) - 1
            if reached != place.position:
                advance(self._connection(), *self._me, place.queue, reached, after=place.position)

    def _refusal(self, why: str) -> Terminal:
        next_step = "start it with a new, empty checkpoint folder, and let no other query have this consumer's name"
        return Terminal(f"query of consumer {self._settings.consumer}", why, next_step)

    def _end(self, places: Sequence[Place], start: Offsets, limit: ReadLimit) -> dict[str, int]:
        available = _ends(places)
        if self._until is not None:
            available = {q: min(end, max(start.get(q, FIRST_POSITION), self._until.get(q, 0))) for q, end in available.items()}
        backlog = {q: end - start.get(q, FIRST_POSITION) for q, end in available.items()}
        back = sorted(q for q, n in backlog.items() if n < 0)
        if back or start.keys() - available.keys():
            raise self._refusal(f"the query is at {dict(start)}, the queues end before {available}")
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(backlog.values())
        shares = share_out(backlog, most)
        return {**start, **{q: start.get(q, FIRST_POSITION) + n for q, n in shares.items() if n}}

    def reportLatestOffset(self) -> dict[str, int]:
        with self._connection().transaction():
            return _ends(self._places())

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        with self._connection().transaction():
            plan = self._open_plan()
        if plan is None or not same_offsets(plan.start, start) or not same_offsets(plan.end, end):
            raise self._refusal(f"the batch from {start} to {end} is not the one that was planned")
        tasks = min(self._settings.tasks, -(-plan.rows() // _TASK_ROWS))
        return [Ranges(pieces) for pieces in pack(plan.ranges(), tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Ranges)
        with closing(psycopg.connect(attentive(self._settings.dsn), application_name="trunkline-stream-task")) as conn:
            yield from _batches(conn, partition.pieces)

    def commit(self, end: dict[str, int]) -> None:
        """Spark is done with the batch that ends here."""
        with self._connection().transaction():
            plan = self._open_plan()
            if plan is not None and same_offsets(plan.end, end):
                self._pass(self._places(), end)

    def stop(self) -> None:
        if self._conn is not None:
            self._conn.close()


def _stand(places: Sequence[Place]) -> dict[str, int]:
    return {place.name: place.position + 1 for place in places}


def _ends(places: Sequence[Place]) -> dict[str, int]:
    return {place.name: place.head + 1 for place in places}


def _batches(conn: psycopg.Connection[Any], pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    for queue, first, end in pieces:
        expected = first
        for entry in read(conn, queue, first - 1, end - 1):
            if entry.position != expected:
                break
            expected += 1
            rows.append(_row(queue, entry))
            size += len(entry.payload)
            if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield _batch(rows)
                rows, size = [], 0
        if expected != end:
            raise Terminal(f"queue {queue}", f"position {expected} is no longer there", "start with a new checkpoint folder")
    if rows:
        yield _batch(rows)


def _row(queue: str, entry: Received) -> tuple[Any, ...]:
    request = None if entry.request is None else str(entry.request)
    headers = dumps(entry.headers).decode()
    return (
        queue, entry.position, entry.remote, entry.kind.name, entry.seq, entry.index, request, entry.message_id, headers,
        entry.payload,
    )  # fmt: skip


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
