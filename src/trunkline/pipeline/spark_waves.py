"""Large waves of bundles as tasks of Spark: the same function that the DB workers call, with the same fence, on an executor.

A worker of Spark keeps its connection between calls. What a wave raises comes back as itself, for the DB workers tell a bundle
that cannot be written from a database that is away.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from trunkline.bridge.apply import Outcome, apply_wave
from trunkline.bridge.connection import connect_worker
from trunkline.bridge.types import Types
from trunkline.core.errors import Retryable
from trunkline.db.lease import Grant
from trunkline.pipeline.query import in_pool
from trunkline.pipeline.session import BRIDGE_POOL, Spark

_connections: dict[tuple[str, float], psycopg.Connection[Any]] = {}


@dataclass(frozen=True)
class WaveTask:
    """All that a task needs; it travels to the executor."""

    dsn: str
    grant: Grant
    types: Types
    statement_seconds: float
    type_name: str
    sites: tuple[str, ...]

    def __call__(self, _: object) -> list[Outcome] | BaseException:
        try:
            return apply_wave(self._connection(), self.grant, self.types, self.type_name, self.sites)
        except Exception as error:
            self._close()
            return _portable(error)

    def _connection(self) -> psycopg.Connection[Any]:
        kept = _connections.get((self.dsn, self.statement_seconds))
        if kept is None or kept.closed:
            kept = connect_worker(self.dsn, self.statement_seconds, "trunkline-wave")
            _connections[self.dsn, self.statement_seconds] = kept
        return kept

    def _close(self) -> None:
        kept = _connections.pop((self.dsn, self.statement_seconds), None)
        if kept is not None:
            kept.close()


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return Retryable("wave", f"{type(error).__name__}: {error}", "see the log of Spark's executors")
    return error


class SparkWaves:
    """`run` may be called from several threads at once."""

    def __init__(self, spark: Spark, dsn: str, grant: Grant, types: Types, statement_seconds: float) -> None:
        self._session = spark.session
        self._dsn, self._grant, self._types, self._seconds = dsn, grant, types, statement_seconds

    def run(self, type_name: str, sites: Sequence[str]) -> list[Outcome]:
        task = WaveTask(self._dsn, self._grant, self._types, self._seconds, type_name, tuple(sites))
        with in_pool(self._session, BRIDGE_POOL):
            [found] = self._session.sparkContext.parallelize([None], 1).map(task).collect()
        if isinstance(found, BaseException):
            raise found
        return list(found)
