"""Format `trunkline.routes`: what becomes of the events of a receiver group, as a Spark stream.

Events are routed where they are read: a task reads its piece, runs the routes, sends, and tells the driver only what is left to
do (`trunkline.pipeline.jobs.outcomes`). Records would otherwise cross between the JVM and Python twice more, which costs
more than routing them.

The planning half of this class lives in a process of its own beside the driver, the reading half in the executors' workers.

P1  Spark's offsets are {"moves": batches that are done}. What a batch reads is in its plan row, committed under the lease
    before Spark is told that there is one (H29).
P2  A query goes on where Postgres stands, never where a checkpoint does; a start that is not where the group stands is
    refused (H28).
P3  An open plan that follows the start is the batch, whoever made it, with its revision of the routes: as long as all of it
    can still be read.
P4  The newest revision is asked for at every look: so receivers join and leave, and routes change, without a restart.
P5  With nothing new the answer is the start itself, to the letter: Spark compares texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from trunkline.core.collector import collector_at_rest
from trunkline.core.errors import Terminal
from trunkline.db.away import attentive
from trunkline.db.lease import PATIENCE, commit_fenced, connect_fenced
from trunkline.pipeline.jobs.deliver import Delivery, senders_of_worker
from trunkline.pipeline.jobs.feed import Feed, Piece, feed_of
from trunkline.pipeline.jobs.loaded import kept_in_worker
from trunkline.pipeline.jobs.outcomes import SCHEMA, batches
from trunkline.pipeline.jobs.receivers import Receivers, ReceiverTable
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.pipeline.jobs.stage import Stage
from trunkline.pipeline.jobs.stored import (
    JobPlan,
    drop_plan,
    inherit_lanes,
    looked,
    open_plan,
    stands,
    waiting_lanes,
    write_plan,
)

FORMAT = "trunkline.routes"
_MOVES = "moves"


class Share(InputPartition):
    """One task's part of a batch."""

    def __init__(self, plan: JobPlan, piece: Piece) -> None:
        super().__init__(None)
        self.revision, self.waiting, self.piece = plan.revision, plan.waiting, piece


class JobReader(DataSourceStreamReader):
    def __init__(self, settings: JobSettings) -> None:
        self._settings = settings
        self._conn: psycopg.Connection[Any] | None = None
        self._feed: Feed | None = None
        self._receivers: ReceiverTable | None = None
        self._plan: JobPlan | None = None
        self._behind = 0

    # -- planning

    def initialOffset(self) -> dict[str, int]:
        conn = self._connection()
        moves = stands(conn, self._settings.group)[1]
        conn.rollback()
        return {_MOVES: moves}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        conn, settings = self._connection(), self._settings
        try:
            revision, moves = stands(conn, settings.group)
            if start.get(_MOVES) != moves:
                why = f"it begins behind batch {start.get(_MOVES)}, the group stands at {moves}"
                raise Terminal(f"query of {settings.group}", why, "start it anew, with a new, empty checkpoint folder")
            self._plan = self._next(conn, moves, revision)
        finally:
            conn.rollback()
        return {_MOVES: moves + 1} if self._plan is not None else start

    def _next(self, conn: psycopg.Connection[Any], moves: int, revision: int) -> JobPlan | None:
        group, grant = self._settings.group, self._settings.grant
        opened = open_plan(conn, group)
        if opened is not None and opened.moves == moves:
            receivers = self._at(conn, opened.revision)
            body, self._behind = self._feeding().next(conn, receivers, opened.body)
            if body == opened.body:
                if opened.epoch != grant.epoch:
                    write_plan(conn, group, grant, opened)
                    commit_fenced(conn, grant)
                return opened
            conn.rollback()
        body, self._behind = self._feeding().next(conn, self._at(conn, revision), None)
        looked(conn, group, revision)
        plan = None
        if body is not None:
            inherit_lanes(conn, group)
            plan = JobPlan(revision, moves, body, waiting_lanes(conn, group))
            write_plan(conn, group, grant, plan)
        elif opened is not None:  # or the query's first batch, which may be empty, would be taken for it
            drop_plan(conn, group)
        commit_fenced(conn, grant)  # also without a plan: where new receivers begin
        return plan

    def _at(self, conn: psycopg.Connection[Any], revision: int) -> Receivers:
        if self._receivers is None:
            self._receivers = ReceiverTable(self._settings)
        return self._receivers.at(conn, revision)

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = connect_fenced(self._settings.dsn, "trunkline-job-plans", **PATIENCE)
        return self._conn

    def _feeding(self) -> Feed:
        if self._feed is None:
            self._feed = feed_of(self._settings)
        return self._feed

    def reportLatestOffset(self) -> dict[str, Any]:
        """How many events wait behind the last plan, and what stands still."""
        return {"behind": self._behind, "stuck": self._feed.stuck if self._feed is not None else ""}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if start == end:  # a query's first batch, when there is nothing new
            return []
        plan = self._plan
        if plan is None or start.get(_MOVES) != plan.moves or end.get(_MOVES) != plan.moves + 1:
            why = "it was not planned by this query: its checkpoint is of an earlier one"
            raise Terminal(f"batch of {self._settings.group}", why, "start the query with a new, empty checkpoint folder")
        return [Share(plan, piece) for piece in self._feeding().pieces(plan.body, self._settings.tasks)]

    def stop(self) -> None:
        if self._feed is not None:
            self._feed.close()
        if self._conn is not None:
            self._conn.close()

    # -- in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        settings = self._settings
        with collector_at_rest(), kept_in_worker(settings) as loaded:
            if loaded.revision != partition.revision:
                with closing(psycopg.connect(attentive(settings.dsn), application_name="trunkline-job-task")) as conn:
                    loaded.move(conn, partition.revision)
            stage = Stage(loaded, Delivery(senders_of_worker(settings)), partition.waiting)
            with closing(feed_of(settings)) as feed:
                for receiver, events in feed.read(partition.piece, loaded.receivers):
                    stage.take(receiver, events)
            yield from batches(stage.finish())


class JobSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return JobReader(JobSettings.of_options(self.options))
