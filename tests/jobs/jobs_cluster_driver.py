"""A pipeline of its own on somebody's Spark cluster: three routes out of one topic. Says in JSON what it saw."""

from __future__ import annotations

import functools
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from kafka_topics import Topics
from route_jobs import RouteJobs
from spark_cluster import DRIVER_SETTINGS, executors, tasks_of_executors
from trunkline.core.config import SparkConfig
from trunkline.core.jsoncodec import dumps
from trunkline.pipeline.session import Spark, open_session
from waiting import eventually

ROUND, LEAST, MOST = 30, 300, 3_000  # records


def routes(brokers: str, prefix: str) -> dict[str, dict[str, Any]]:
    def end(topic: str, **more: str) -> dict[str, Any]:
        return {"plugin": "kafka", "config": {"brokers": brokers, "topic": f"{prefix}-{topic}", **more}}

    received = end("in", startAt="earliest")
    alarms = {"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": "alarm"}}}
    doubled = {"plugin": "js", "config": {"source": "return {payload: {n: 2 * _.payload.n}};"}}
    row = {"plugin": "postgres", "config": {"table": "public.taken", "columns": {"n": "{payload.n}"}}}
    return {
        "alarms": {"receiver": received, "filterChain": [alarms], "sender": end("alarms")},
        "doubled": {"receiver": received, "filterChain": [doubled], "sender": end("doubled")},
        "rows": {"receiver": received, "sender": row, "deliveryMode": "effectively_once"},
    }


def put_records(topics: Topics, begin: int, end: int) -> None:
    """Even numbers to one partition, odd ones to the other."""
    for partition in (0, 1):
        numbers = (n for n in range(begin, end) if n % 2 == partition)
        records = (dumps({"kind": "alarm" if n % 3 == 0 else "note", "n": n}) for n in numbers)
        topics.put("in", *records, partition=partition)


def imported_from(spark: Spark) -> list[str]:
    def ask(_: object) -> str:
        import trunkline.pipeline.jobs.stage

        return trunkline.pipeline.jobs.stage.__file__

    return sorted(set(spark.session.sparkContext.parallelize(range(8), 8).map(ask).collect()))


def run(spark: Spark, dsn: str, folder: Path, brokers: str, prefix: str) -> dict[str, object]:
    eventually(lambda: executors(spark) == 2, 60)
    with closing(Topics(brokers, prefix)) as topics, RouteJobs(spark, dsn, folder, few_events=0) as jobs:
        for id, route in routes(brokers, prefix).items():
            jobs.put(id, route["receiver"], route["sender"], *route.get("filterChain", ()), **_rest(route))
        records = 0
        while records < LEAST or (min(tasks_of_executors(spark)) == 0 and records < MOST):  # Spark throws dice
            records += ROUND
            put_records(topics, records - ROUND, records)
            eventually(functools.partial(_has_routed, jobs, records), 90, jobs.failing)
        sent = {id: count.sent for id, count in jobs.counts.items()}
    tasks = tasks_of_executors(spark)
    return {
        "cores": spark.cores,
        "records": records,
        "sent": sent,
        "tasks": tasks,
        "imported_from": imported_from(spark),
    }


def _has_routed(jobs: RouteJobs, events: int) -> bool:
    return jobs.events >= events


def _rest(route: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in route.items() if key not in ("receiver", "sender", "filterChain")}


if __name__ == "__main__":
    master, python, dsn, folder, brokers, prefix = sys.argv[1:]
    settings = {**DRIVER_SETTINGS, "spark.pyspark.python": python}
    spark = open_session(Path(folder), "cluster", fast_start=True, config=SparkConfig(master=master, settings=settings))
    try:
        sys.stdout.write(json.dumps(run(spark, dsn, Path(folder), brokers, prefix)) + "\n")
    finally:
        spark.stop()
