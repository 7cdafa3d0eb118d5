"""A driver that the test kills: `killed_copy.py <dsn> <checkpoint folder> <scratch>` copies what it receives."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from trunkline.pipeline.queue_source import FORMAT, QueueSource
from trunkline.pipeline.session import Spark, open_session


def copy(spark: Spark, dsn: str, checkpoint: Path) -> StreamingQuery:
    spark.register(QueueSource)
    reading = {"dsn": dsn, "client": "pol", "consumer": "copy", "max_entries": "700"}
    rows = spark.session.readStream.format(FORMAT).options(**reading).load()
    messages = rows.selectExpr("payload", "'hub' AS destinations", "map('id', message_id) AS headers")
    writing = {"dsn": dsn, "client": "copy", "query": "copy", "checkpointLocation": checkpoint.as_uri()}
    return messages.writeStream.format(FORMAT).options(**writing).trigger(processingTime="100 milliseconds").start()


if __name__ == "__main__":
    copy(open_session(Path(sys.argv[3]), "copy", fast_start=True), sys.argv[1], Path(sys.argv[2])).awaitTermination()
