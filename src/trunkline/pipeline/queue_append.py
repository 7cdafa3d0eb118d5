"""The writing half of format `trunkline.queue`: rows become messages of the send queue, each exactly once.

A task writes its rows in several transactions, and each also moves the row that says how many of the partition's rows are
in. A task or a batch that is done again passes over what is in already.

W1  A batch is known by Spark's own id of the query, which lives and ends with its checkpoint, and by its number; a number
    alone would be that of another batch after the checkpoint is lost.
W2  What was written is remembered with its digest. A batch that comes again with other rows, or in another order, fails; it
    neither skips nor repeats. So rows need an order that does not depend on chance: of a source as it is, or sorted. What
    a batch sent before it failed stays sent.
W3  A number below one that was written before fails: the checkpoint was put back.
W4  With a new checkpoint folder Spark reads its last batch anew, and its rows are sent again: keep the folder.

Columns: `payload` (binary or text), `destinations` (an array of sites, or one), and where there is one `headers` (a map, or
JSON text). Other columns are not sent. Options: dsn, client, query (a name for people). A batch write is done once per call;
with the option `batch`, any text, once per text: for `foreachBatch`, which may do a batch again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from trunkline.core.errors import Invalid, Terminal
from trunkline.core.jsoncodec import dumps, loads
from trunkline.db.away import attentive
from trunkline.queues.client import Message, QueueClient

# Both within the limits of one transaction; headers count twice, for their stored form may be longer than their text.
_ROWS = 500
_BYTES = 2 << 20
_KEPT_DAYS = 30

_COLUMNS: Mapping[str, tuple[type[DataType], ...]] = {
    "payload": (BinaryType, StringType),
    "destinations": (ArrayType, StringType),
    "headers": (MapType, StringType),
}
_WHAT = "queue sink"
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

_BEGIN = "INSERT INTO queues.spark_append (query, run, batch, partition) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
_AT = """
SELECT written, digest FROM queues.spark_append WHERE query = %s AND run = %s AND batch = %s AND partition = %s FOR UPDATE
"""
_MOVE = """
UPDATE queues.spark_append SET written = %s, digest = %s, updated_at = now()
 WHERE query = %s AND run = %s AND batch = %s AND partition = %s
"""
_LATER = "SELECT max(batch) FROM queues.spark_append WHERE query = %s AND run = %s AND batch > %s"
_PASSED = "DELETE FROM queues.spark_append WHERE query = %s AND run = %s AND batch < %s"
_FORGET = "DELETE FROM queues.spark_append WHERE query = %s AND updated_at < now() - make_interval(days => %s)"


@dataclass(frozen=True)
class AppendSettings:
    dsn: str
    client: str
    query: str
    batch: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType) -> AppendSettings:
        missing = [name for name in ("dsn", "client", "query") if not options.get(name)]
        if missing:
            raise Invalid(_WHAT, f"it is not told its {' and '.join(missing)}", "set the option")
        check_columns(_WHAT, schema, ["payload", "destinations"])
        return cls(options["dsn"], options["client"], options["query"], options.get("batch"))


@dataclass(frozen=True)
class BatchId:
    query: str
    run: str
    number: int


@dataclass
class Appended(WriterCommitMessage):
    batch: BatchId
    rows: int


def append(settings: AppendSettings, batch: BatchId, batches: Iterator[pa.RecordBatch]) -> Appended:
    partition = _task().partitionId()
    with closing(psycopg.connect(attentive(settings.dsn), application_name="trunkline-append")) as conn:
        writer = PartitionWriter(conn, QueueClient(settings.client), batch, partition)
        for messages in _transactions(m for arrow in batches for m in _messages(arrow)):
            writer.write(messages)
    return Appended(batch, writer.rows)


class PartitionWriter:
    """`rows` and `digest` are of what the partition had so far, written by this task or by one before it."""

    def __init__(self, conn: psycopg.Connection[Any], client: QueueClient, batch: BatchId, partition: int) -> None:
        self._conn, self._client = conn, client
        self._key = (batch.query, batch.run, batch.number, partition)
        self.rows = 0
        self._digest = b""
        with conn.transaction():
            self._require_newest(batch)
            conn.execute(_BEGIN, self._key)

    def write(self, messages: Sequence[Message]) -> None:
        end, digest = self.rows + len(messages), _digest(self._digest, messages)
        with self._conn.transaction():
            written, known = self._at()
            if self._is_new(written, known, end, digest):
                self._client.transmit_messages(self._conn, messages)
                self._conn.execute(_MOVE, (end, digest, *self._key))
        self.rows, self._digest = end, digest

    def _at(self) -> tuple[int, bytes]:
        row = self._conn.execute(_AT, self._key).fetchone()
        if row is None:
            raise Terminal(self._what(), "it is over: a later batch was written", "let only one query use this checkpoint")
        return row[0], bytes(row[1])

    def _is_new(self, written: int, known: bytes, end: int, digest: bytes) -> bool:
        """False if these rows are in already."""
        mine = {self.rows: self._digest, end: digest}
        if written > end:
            return False
        if mine.get(written) != known:
            why = f"its first {written} rows were sent already, and are others now"
            raise Terminal(self._what(), why, "sort the rows; or start with a new checkpoint folder, which sends them again")
        return written == self.rows

    def _require_newest(self, batch: BatchId) -> None:
        row = self._conn.execute(_LATER, self._key[:3]).fetchone()
        if row and row[0] is not None:
            why = f"batch {row[0]} was written before it: the checkpoint is older than what was sent"
            raise Terminal(self._what(), why, "start with a new checkpoint folder, and see which rows are sent again")

    def _what(self) -> str:
        query, _, number, partition = self._key
        return f"batch {number} of query {query}, partition {partition}"


class QueueWriter(DataSourceArrowWriter):
    def __init__(self, settings: AppendSettings) -> None:
        self._settings = settings
        self._batch = BatchId(settings.query, settings.batch or str(uuid.uuid4()), 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return append(self._settings, self._batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """A write without a name of its own cannot come again."""
        _clean(self._settings, None if self._settings.batch else self._batch, upto=1)


class QueueStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, settings: AppendSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        run, number = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        if run is None or number is None:
            raise Terminal(_WHAT, "Spark does not say which batch this is", "use it from writeStream, or a batch write")
        return append(self._settings, BatchId(self._settings.query, run, int(number)), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Spark may repeat the last batch, none before it."""
        known = next((m.batch for m in messages if isinstance(m, Appended)), None)
        _clean(self._settings, known, upto=batchId)


def _clean(settings: AppendSettings, batch: BatchId | None, upto: int) -> None:
    with psycopg.connect(attentive(settings.dsn)) as conn:
        if batch is not None:
            conn.execute(_PASSED, (batch.query, batch.run, upto))
        conn.execute(_FORGET, (settings.query, _KEPT_DAYS))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None
    return task


def check_columns(what: str, schema: StructType, needed: Sequence[str]) -> None:
    found = {field.name: field.dataType for field in schema}
    for name, types in _COLUMNS.items():
        if name not in found and name in needed:
            raise Invalid(what, f"the rows have no column {name}", "add it to the rows")
        if name in found and not isinstance(found[name], types):
            why = f"column {name} is of type {found[name].simpleString()}"
            raise Invalid(what, why, f"make it one of {', '.join(t.typeName() for t in types)}")


def _messages(batch: pa.RecordBatch) -> Iterator[Message]:
    columns = (_values(batch, name) for name in _COLUMNS)
    for payload, destinations, headers in zip(*columns, strict=True):
        if payload is None or destinations is None:
            missing = "payload" if payload is None else "destinations"
            raise Invalid(_WHAT, f"a row has no {missing}", "give every row one")
        sites = [destinations] if isinstance(destinations, str) else destinations
        yield Message(payload, sites, headers_of(_WHAT, headers))


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    if name == "payload" and pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    values: list[Any] = column.to_pylist()
    return values


def headers_of(what: str, value: str | Mapping[str, str] | Sequence[tuple[str, str]] | None) -> dict[str, str]:
    if not value:
        return {}
    headers = loads(value, f"headers of a row of the {what}") if isinstance(value, str) else dict(value)
    if not isinstance(headers, dict) or not all(isinstance(v, str) for v in headers.values()):
        raise Invalid(what, "the headers of a row are not texts by name", 'make them {"name": "value"} pairs')
    return headers


def _transactions(messages: Iterator[Message]) -> Iterator[list[Message]]:
    """Cut by the rows alone, so that the same rows are cut in the same places."""
    some: list[Message] = []
    size = 0
    for message in messages:
        weight = len(message.payload) + 2 * sum(len(k) + len(v) for k, v in (message.headers or {}).items())
        if some and (len(some) == _ROWS or size + weight > _BYTES):
            yield some
            some, size = [], 0
        some.append(message)
        size += weight
    if some:
        yield some


def _digest(before: bytes, messages: Sequence[Message]) -> bytes:
    digest = blake2b(before, digest_size=16)
    for message in messages:
        words = dumps([list(message.destinations), message.headers, len(message.payload)])
        digest.update(words)
        digest.update(message.payload)
    return digest.digest()
