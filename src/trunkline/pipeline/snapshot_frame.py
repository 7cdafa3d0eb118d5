"""A snapshot from a DataFrame: rows read inside the exported snapshot, shaped by Spark, sent by the provider.

    def provide(context):
        accounts = read_frame(spark, context, "SELECT id, owner, value FROM account", key="id", partitions=4)
        transmit_frame(context, accounts.selectExpr("to_json(struct(*)) AS payload"))

F1  Every partition reads in a transaction of its own that has taken up the context's snapshot: all of them, whenever they
    run and however often, see the database as it was at the base (H19).
F2  The records go through the driver, one partition after the other, so that a task that is done again sends nothing twice.
F3  A frame is good while `provide` runs; afterwards its snapshot is gone and reading it fails.

Types without a counterpart in Spark, and numeric (whose precision has no bound), come as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import IsolationLevel, sql
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps, loads
from trunkline.db.away import attentive
from trunkline.pipeline.queue_append import check_columns, headers_of
from trunkline.pipeline.session import Spark
from trunkline.queues.provider import SnapshotContext

FORMAT = "trunkline.snapshot"
_PAGE = 1_000

# Postgres's name of a type → Spark's, and Arrow's.
_TYPES: dict[str, tuple[str, pa.DataType]] = {
    "bool": ("BOOLEAN", pa.bool_()),
    "int2": ("SMALLINT", pa.int16()),
    "int4": ("INT", pa.int32()),
    "int8": ("BIGINT", pa.int64()),
    "float4": ("FLOAT", pa.float32()),
    "float8": ("DOUBLE", pa.float64()),
    "bytea": ("BINARY", pa.binary()),
    "date": ("DATE", pa.date32()),
    "timestamp": ("TIMESTAMP_NTZ", pa.timestamp("us")),
    "timestamptz": ("TIMESTAMP", pa.timestamp("us", "UTC")),
}
_TEXT = ("STRING", pa.string())

Columns = Sequence[tuple[str, str]]
"""name, and Postgres's name of its type"""


class Part(InputPartition):
    def __init__(self, nth: int) -> None:
        super().__init__(nth)
        self.nth = nth


class SnapshotReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._dsn, self._snapshot, self._query = options["dsn"], options["snapshot"], options["query"]
        self._key, self._partitions = options.get("key"), int(options["partitions"])
        self._columns: Columns = loads(options["columns"])

    def partitions(self) -> Sequence[InputPartition]:
        return [Part(n) for n in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        schema = pa.schema([(name, _TYPES.get(type_, _TEXT)[1]) for name, type_ in self._columns])
        with closing(psycopg.connect(attentive(self._dsn), application_name="trunkline-snapshot-task")) as conn:
            take_up(conn, self._snapshot)
            with conn.cursor("part") as cursor:
                cursor.execute(self._statement(partition.nth), binary=True)
                while rows := cursor.fetchmany(_PAGE):
                    columns = zip(*rows, strict=True)
                    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _statement(self, nth: int) -> sql.Composed:
        columns = [_column(name, type_) for name, type_ in self._columns]
        query = sql.SQL("SELECT {} FROM ({}) AS q").format(sql.SQL(", ").join(columns), sql.SQL(self._query))
        if self._key is None:
            return query
        share = sql.SQL(" WHERE coalesce(abs(hashtextextended({}::text, 0) % {}), 0) = {}")
        return query + share.format(sql.Identifier(self._key), sql.Literal(self._partitions), sql.Literal(nth))


class SnapshotSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        columns: Columns = loads(self.options["columns"])
        return ", ".join(f"`{name.replace('`', '``')}` {_TYPES.get(type_, _TEXT)[0]}" for name, type_ in columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return SnapshotReader(dict(self.options))


def take_up(conn: psycopg.Connection[Any], snapshot: str) -> None:
    conn.isolation_level = IsolationLevel.REPEATABLE_READ
    conn.read_only = True
    conn.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))


def read_frame(
    spark: Spark, context: SnapshotContext, query: str, key: str | None = None, partitions: int | None = None
) -> DataFrame:
    """The query's rows as they were at the base; with `key`, a column of it, in as many partitions as said or as cores."""
    columns = _columns(context.connection, query)
    if key is not None and key not in {name for name, _ in columns}:
        raise Invalid("snapshot query", f"it has no column {key} to divide it by", "name one of its columns")
    spark.register(SnapshotSource)
    options = {
        "dsn": context.dsn,
        "snapshot": context.snapshot,
        "query": query,
        "columns": dumps(columns).decode(),
        "partitions": str((partitions or spark.cores) if key is not None else 1),
    }
    return spark.session.read.format(FORMAT).options(**options, **({"key": key} if key is not None else {})).load()


def transmit_frame(context: SnapshotContext, frame: DataFrame) -> int:
    """Sends a record per row, in the frame's order: `payload`, and where there is one `headers`. How many they were."""
    names = [name for name in ("payload", "headers") if name in frame.columns]
    check_columns("snapshot", frame.schema, ["payload"])
    records = 0
    for payload, *headers in frame.select(names).toLocalIterator(prefetchPartitions=True):
        if payload is None:
            raise Invalid("snapshot", "a row has no payload", "give every row one")
        body = payload.encode() if isinstance(payload, str) else bytes(payload)
        context.transmit(body, headers_of("snapshot", headers[0] if headers else None))
        records += 1
    return records


def _columns(conn: psycopg.Connection[Any], query: str) -> list[tuple[str, str]]:
    asked = sql.SQL("SELECT * FROM ({}) AS q LIMIT 0").format(sql.SQL(query))
    described = conn.execute(asked).description or []
    known = {info.oid: info.name for info in conn.adapters.types}
    return [(column.name, known.get(column.type_code, "text")) for column in described]


def _column(name: str, type_: str) -> sql.Composable:
    column = sql.Identifier(name)
    return column if type_ in _TYPES else sql.SQL("{}::text").format(column)
