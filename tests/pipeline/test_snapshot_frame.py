"""A provider whose records come from a DataFrame: all of its partitions read at the base, whatever changes meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads
from trunkline.db.lease import acquire, connect_fenced
from trunkline.pipeline.session import Spark
from trunkline.pipeline.snapshot_frame import read_frame, transmit_frame
from trunkline.queues import requests
from trunkline.queues.messages import RECORDS
from trunkline.queues.provider import SnapshotContext, SnapshotProvider
from trunkline.queues.stamper import Stamper, random_mark
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

_ACCOUNT = """
CREATE TABLE account (id int PRIMARY KEY, owner text, value numeric, at timestamptz, day date, small smallint, big bigint,
                      ratio float8, flag boolean, raw bytea, tags text[], extra jsonb, plain timestamp)
"""
_ROW = """
INSERT INTO account SELECT n, 'o' || n, 1.10, '2026-01-02T03:04:05.678+00', '2026-01-02', 3, 5000000000, 0.5, true, '\\xff',
                           '{a,b}', '{"k": 1}', '2026-01-02T03:04:05' FROM generate_series(1, 200) AS n
"""


@pytest.fixture(scope="module")
def dsn(make_databases: Callable[..., str]) -> str:
    dsn = make_databases("queues")
    do(dsn, _ACCOUNT)
    return dsn


@pytest.fixture
def accounts(dsn: str) -> Iterator[str]:
    do(dsn, _ROW)
    yield dsn
    do(dsn, "TRUNCATE account, queues.request, queues.send_snapshot, queues.delivery, queues.provider")


def do(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(statement.encode())


def provided(dsn: str, provide: Callable[[SnapshotContext], None]) -> list[tuple[dict[str, str], bytes]]:
    """The records of one request that a real provider serves in a snapshot which a real stamper exported."""
    errors: list[BaseException] = []

    def work(context: SnapshotContext) -> None:
        try:
            provide(context)
        except BaseException as error:
            errors.append(error)
            raise

    def state() -> str:
        with psycopg.connect(dsn) as conn:
            row = conn.execute("SELECT state FROM queues.request WHERE id = %s", (request,)).fetchone()
            return str(row[0]) if row else ""

    with psycopg.connect(dsn) as conn, closing(connect_fenced(dsn)) as stamping:
        request = requests.ask(conn, "pol", ["hub"], "first")
        conn.execute("UPDATE site.lease SET expires_at = '-infinity'")
        conn.commit()
        grant = acquire(conn, "leader", 600.0)
        assert grant is not None
        with (
            closing(Stamper(stamping, grant, random_mark).export([request])),
            SnapshotProvider(dsn, "pol", work, "app", Backoff(0.01, 0.01, lambda: 1.0)),
        ):
            eventually(lambda: errors or state() == "complete", 100)
    if errors:
        raise errors[0]
    with psycopg.connect(dsn) as conn:
        bodies = conn.execute("SELECT body FROM queues.send_snapshot WHERE request = %s ORDER BY chunk", (request,)).fetchall()
    return [record for (body,) in bodies for record in RECORDS.decode(body)]


def test_h19_all_partitions_read_at_the_base_while_rows_change(spark: Spark, accounts: str) -> None:
    frames: list[DataFrame] = []

    def provide(context: SnapshotContext) -> None:
        do(accounts, "UPDATE account SET owner = 'changed' WHERE id % 2 = 0; DELETE FROM account WHERE id = 1")
        frame = read_frame(spark, context, "SELECT id, owner FROM account", key="id", partitions=3)
        frames.append(frame)
        assert frame.rdd.getNumPartitions() == 3
        do(accounts, "DELETE FROM account WHERE id > 100; INSERT INTO account (id, owner) VALUES (999, 'new')")
        shaped = frame.selectExpr("to_json(struct(*)) AS payload", "map('id', CAST(id AS STRING)) AS headers")
        assert transmit_frame(context, shaped) == 200

    records = provided(accounts, provide)
    assert sorted((int(h["id"]), loads(p)) for h, p in records) == [(n, {"id": n, "owner": f"o{n}"}) for n in range(1, 201)]
    with pytest.raises(PySparkException, match="snapshot"):
        frames[0].count()  # the snapshot went with `provide`


def test_every_type_arrives_and_what_spark_does_not_know_as_text(spark: Spark, accounts: str) -> None:
    def provide(context: SnapshotContext) -> None:
        frame = read_frame(spark, context, "SELECT * FROM account WHERE id = 1")
        types.update(dict(frame.dtypes))
        transmit_frame(context, frame.selectExpr("to_json(struct(*)) AS payload"))

    types: dict[str, str] = {}
    ((_, payload),) = provided(accounts, provide)
    assert types == {
        "id": "int", "owner": "string", "value": "string", "at": "timestamp", "day": "date", "small": "smallint",
        "big": "bigint", "ratio": "double", "flag": "boolean", "raw": "binary", "tags": "string", "extra": "string",
        "plain": "timestamp_ntz",
    }  # fmt: skip
    assert loads(payload) == {
        "id": 1, "owner": "o1", "value": "1.10", "at": "2026-01-02T03:04:05.678Z", "day": "2026-01-02", "small": 3,
        "big": 5000000000, "ratio": 0.5, "flag": True, "raw": "/w==", "tags": "{a,b}", "extra": '{"k": 1}',
        "plain": "2026-01-02T03:04:05.000",
    }  # fmt: skip


def test_what_cannot_be_sent_is_refused(spark: Spark, accounts: str) -> None:
    seen = threading.Event()

    def provide(context: SnapshotContext) -> None:
        frame = read_frame(spark, context, "SELECT id, owner FROM account WHERE id < 3")
        for broken, why in (
            (frame, "no column payload"),
            (frame.selectExpr("id AS payload"), "column payload is of type int"),
            (frame.selectExpr("CAST(NULL AS STRING) AS payload"), "a row has no payload"),
        ):
            with pytest.raises(Invalid, match=why):
                transmit_frame(context, broken)
        with pytest.raises(Invalid, match="no column nr to divide it by"):
            read_frame(spark, context, "SELECT id FROM account", key="nr")
        seen.set()

    assert provided(accounts, provide) == []
    assert seen.is_set()
