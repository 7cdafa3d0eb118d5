"""Format `trunkline.queue`: the receive queues of one client as a Spark stream, as the bridge reads them.

The same format is a named consumer's stream with the option `consumer` (`queue_stream.py`), and what is written to it is
sent (`queue_append.py`). The rest of this page is about the bridge's mode.

Spark's offsets are Postgres's: {queue: position to read next}. The planning half of this class lives in a process of its
own beside the driver, the reading half in the executors' workers.

Q1  A query starts where `status.transport` stands, never where a checkpoint does (H28).
Q2  Before `latestOffset` names an end beyond its start, the plan row with both is committed under the lease (H29).
Q3  An open plan that begins at the start is the batch, whoever made it; so a new holder's first batch is the one its
    predecessor may have half done.
Q4  With nothing new the answer is the start itself, to the letter: Spark compares texts.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from trunkline.bridge.plan import FIRST_POSITION, Plan, commit_plan, open_plan, read_offsets, require_forward, same_offsets
from trunkline.core.jsoncodec import dumps
from trunkline.db.away import attentive
from trunkline.db.lease import PATIENCE, Grant, connect_fenced
from trunkline.pipeline import queue_stream
from trunkline.pipeline.arrivals import ARRIVALS, HEADER_COLUMNS, SCHEMA
from trunkline.pipeline.queue_append import AppendSettings, QueueStreamWriter, QueueWriter
from trunkline.pipeline.queue_stream import CONSUMER, QueueStreamReader, Ranges, StreamSettings
from trunkline.pipeline.spread import pack, share_out
from trunkline.queues.consumers import Detached, seen
from trunkline.queues.reader import Received, heads, read

FORMAT = "trunkline.queue"
# Of both, what comes first ends an Arrow batch: few rows are slow, many large ones do not fit a worker.
_BATCH_ROWS = 5_000
_BATCH_BYTES = 8 << 20
# Below this a second task costs more than it saves.
_TASK_ROWS = 1_000
_SEEN_SECONDS = 60.0


@dataclass(frozen=True)
class Settings:
    dsn: str
    client: str
    group: str
    grant: Grant
    tasks: int
    max_entries: int = 50_000

    def options(self) -> dict[str, str]:
        return {
            "dsn": self.dsn,
            "client": self.client,
            "group": self.group,
            "lease": self.grant.name,
            "holder": str(self.grant.holder),
            "epoch": str(self.grant.epoch),
            "tasks": str(self.tasks),
            "max_entries": str(self.max_entries),
        }

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        grant = Grant(options["lease"], uuid.UUID(options["holder"]), int(options["epoch"]))
        numbers = (int(options["tasks"]), int(options["max_entries"]))
        return cls(options["dsn"], options["client"], options["group"], grant, *numbers)


class QueueReader(DataSourceStreamReader):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._conn: psycopg.Connection[Any] | None = None
        self._behind = 0
        self._seen_next = 0.0

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = connect_fenced(self._settings.dsn, **PATIENCE)
        return self._conn

    def initialOffset(self) -> dict[str, int]:
        conn = self._connection()
        offsets = read_offsets(conn, self._settings.group)
        conn.rollback()
        return offsets

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._settings.max_entries)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        conn, settings = self._connection(), self._settings
        self._be_seen(conn)
        plan = open_plan(conn, settings.group)
        backlog = self._backlog(conn, start)
        if plan is None or not plan.rows() or not same_offsets(plan.start, start):
            plan = _next_plan(start, backlog, limit)
        self._behind = sum(backlog.values()) - plan.rows()
        if not plan.rows():
            conn.rollback()
            return start
        if plan.epoch != settings.grant.epoch:
            commit_plan(conn, settings.grant, settings.group, plan.start, plan.end)
        conn.rollback()
        return dict(plan.end)

    def _be_seen(self, conn: psycopg.Connection[Any]) -> None:
        """Also with nothing to read, or the bridge would be taken for gone. If it was, the next start finds out."""
        if time.monotonic() >= self._seen_next:
            self._seen_next = time.monotonic() + _SEEN_SECONDS
            with suppress(Detached):
                seen(conn, self._settings.client, self._settings.group)
            conn.commit()

    def _backlog(self, conn: psycopg.Connection[Any], start: dict[str, int]) -> dict[str, int]:
        known = heads(conn, self._settings.client)
        available = {**start, **{queue: head + 1 for queue, head in known.items() if head >= FIRST_POSITION}}
        require_forward(start, available)
        return {queue: end - start.get(queue, FIRST_POSITION) for queue, end in available.items()}

    def reportLatestOffset(self) -> dict[str, int]:
        """How many entries wait behind the last plan."""
        return {"behind": self._behind}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        plan = Plan(start, end)
        tasks = min(self._settings.tasks, -(-plan.rows() // _TASK_ROWS))
        return [Ranges(pieces) for pieces in pack(plan.ranges(), tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Ranges)
        with closing(psycopg.connect(attentive(self._settings.dsn))) as conn:
            yield from _batches(conn, partition.pieces)

    def stop(self) -> None:
        if self._conn is not None:
            self._conn.close()


def _next_plan(start: dict[str, int], backlog: dict[str, int], limit: ReadLimit) -> Plan:
    most = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(backlog.values())
    shares = share_out(backlog, most)
    return Plan(start, {**start, **{q: start.get(q, FIRST_POSITION) + n for q, n in shares.items() if n}})


def _batches(conn: psycopg.Connection[Any], pieces: Sequence[tuple[str, int, int]]) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    for queue, first, end in pieces:
        for entry in read(conn, queue, first - 1, end - 1):
            rows.append(_row(queue, entry))
            size += len(entry.payload)
            if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield _batch(rows)
                rows, size = [], 0
    if rows:
        yield _batch(rows)


def _row(queue: str, entry: Received) -> tuple[Any, ...]:
    known = (entry.headers.get(name) for name in HEADER_COLUMNS)
    headers = dumps(entry.headers).decode()
    return queue, entry.position, entry.remote, *known, headers, entry.payload, None, int(entry.kind), 1


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ARRIVALS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARRIVALS)


class QueueSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return queue_stream.SCHEMA if CONSUMER in self.options else SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if CONSUMER in self.options:
            return QueueStreamReader(StreamSettings.of(self.options))
        return QueueReader(Settings.of(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return QueueWriter(AppendSettings.of(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return QueueStreamWriter(AppendSettings.of(self.options, schema))
