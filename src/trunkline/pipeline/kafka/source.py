"""The reading half of format `trunkline.kafka`: topics of one cluster as a Spark stream.

The planning half of this class lives in a process of its own beside the driver, the reading half in the executors' workers.
What Spark is told of thousands of offsets is their digest, their *stand*; what it stands for is in that process and in
Postgres. So Spark's logs and progress stay small, and an end that this process did not name means nothing to it.

S1  A query starts where Postgres stands, never where a checkpoint does: stands that this process did not name are refused
    (H28).
S2  Before `latestOffset` names an end other than its start, the plan is committed under the lease (H29).
S3  An open plan that begins at the start is the batch, whoever made it, as long as the broker can still give all of it.
    One that names what is trimmed, deleted or made anew cannot be repeated: the plan that replaces it says what was lost.
S4  With nothing new the answer is the start itself, to the letter: Spark compares texts.
S5  New topics and partitions are in the first plan after they are seen, for every plan looks at all that is wanted.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
from confluent_kafka import Consumer, Message
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow

from trunkline.core.errors import Terminal
from trunkline.db.lease import PATIENCE, connect_fenced
from trunkline.pipeline.kafka import bundles
from trunkline.pipeline.kafka.admit import Limits, Piece, admit, pack
from trunkline.pipeline.kafka.clients import Config, borrowed, configuration
from trunkline.pipeline.kafka.cluster import Cluster, Look, Place
from trunkline.pipeline.kafka.fetch import CONSUMER, fetch
from trunkline.pipeline.kafka.judge import Change, Move, Offsets, judge
from trunkline.pipeline.kafka.offsets import commit_plan, open_plan, read_offsets, remembered
from trunkline.pipeline.kafka.plan import Plan, stand_of
from trunkline.pipeline.kafka.records import batch, batches
from trunkline.pipeline.kafka.settings import BUNDLES, Settings
from trunkline.pipeline.kafka.sizes import PROBE, Sizes
from trunkline.pipeline.newest import Newest

_STAND = "stand"
Offset = dict[str, str]
# Below this a second task costs more than it saves.
_TASK_ROWS = 1_000
# Records of a partition: of so few hardly any is left out where they are read.
_FEW = 16


class Pieces(InputPartition):
    """Whole partitions' shares of a batch, for one task."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(tuple(pieces))
        self.pieces = tuple(pieces)

    @property
    def rows(self) -> int:
        return sum(end - first for _, _, first, end in self.pieces)


class KafkaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._conn: psycopg.Connection[Any] | None = None
        self._cluster: Cluster | None = None
        self._sizes = Sizes(self._config(PROBE))
        self._plan: Plan | None = None
        self._stands: dict[str, Offsets] = {}
        self._behind = 0
        self._until: Mapping[Place, int] | None = None
        self._turn = 0

    def _config(self, own: Config) -> Config:
        return configuration(self._settings.bootstrap, own, self._settings.client)

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = connect_fenced(self._settings.dsn, **PATIENCE)
        return self._conn

    def _look(self, offsets: Offsets) -> Look:
        s = self._settings
        if self._cluster is None:
            self._cluster = Cluster(s.bootstrap, s.client, s.patience_seconds)
        return self._cluster.look(s.subscription.wants, offsets)

    def initialOffset(self) -> Offset:
        conn = self._connection()
        offsets = read_offsets(conn, self._settings.group)
        conn.rollback()
        return self._name(offsets)

    def _name(self, offsets: Offsets) -> Offset:
        stand = stand_of(offsets)
        self._stands[stand] = offsets
        return {_STAND: stand}

    def _named(self, offset: Offset) -> Offsets:
        offsets = self._stands.get(offset.get(_STAND, ""))
        if offsets is None:
            raise self._refusal()
        return offsets

    def _refusal(self) -> Terminal:
        why = "it was not planned by this query: its checkpoint is of an earlier one"
        return Terminal(f"batch of {self._settings.group}", why, "start the query with a new, empty checkpoint folder")

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._settings.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._look({}).ends

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        offsets = self._named(start)
        look = self._look(offsets)
        conn, settings = self._connection(), self._settings
        moves, changes = self._judge(conn, offsets, look)
        plan = open_plan(conn, settings.group)
        conn.rollback()
        if not plan or plan.stand != start[_STAND] or not plan.still_holds(moves, changes):
            plan = Plan(start[_STAND], tuple(self._admit(moves, limit)), tuple(changes))
        self._plan = plan
        self._behind = sum(m.rows for m in moves) - plan.rows()
        if not plan:
            return start
        if plan.epoch != settings.grant.epoch:
            commit_plan(conn, settings.grant, settings.group, plan)
        self._stands = {start[_STAND]: offsets}
        return self._name(plan.applied_to(offsets))

    def _judge(self, conn: psycopg.Connection[Any], offsets: Offsets, look: Look) -> tuple[list[Move], list[Change]]:
        returned = remembered(conn, self._settings.group, [s.id for topic, s in look.seen.items() if topic not in offsets])
        moves: list[Move] = []
        changes = [Change(topic, offsets[topic], None) for topic in look.gone]
        is_told_apart = self._settings.envelope == BUNDLES  # one that comes twice changes nothing
        for topic, seen in sorted(look.seen.items()):
            onward, change = judge(topic, offsets.get(topic) or returned.get(topic), seen, again=is_told_apart)
            moves += onward
            changes += [change] if change else []
        return moves, changes

    def _admit(self, moves: Sequence[Move], limit: ReadLimit) -> list[Move]:
        moves = _until(moves, self._until)
        limits = _limits(limit, self._settings)
        sizes = self._sizes.of(moves) if limits.size is not None else {}
        self._turn += 1
        return admit(moves, sizes, limits, self._turn)

    def reportLatestOffset(self) -> dict[str, Any]:
        """How many records the last plan has, whoever reads them, and how many wait behind it."""
        return {"planned": self._plan.rows() if self._plan else 0, "behind": self._behind}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        plan = self._plan
        if plan is None or plan.stand != start.get(_STAND) or plan.applied_to(self._named(start)) != self._named(end):
            raise self._refusal()
        tasks = min(self._settings.tasks, -(-plan.rows() // _TASK_ROWS))
        return [Pieces(pieces) for pieces in pack(plan.moves, tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Pieces)
        with _no_collection(), borrowed(Consumer, self._config(CONSUMER)) as consumer:
            yield from self._batches(fetch(consumer, partition.pieces, self._settings.patience_seconds), partition)

    def _batches(self, fetched: Iterator[Sequence[Message]], partition: Pieces) -> Iterator[pa.RecordBatch]:
        settings = self._settings
        if settings.envelope == BUNDLES:
            senders = bundles.Senders(settings.subscription)
            if settings.newest and partition.rows > _FEW * len(partition.pieces):
                return bundles.conflated(fetched, senders, Newest.parse(settings.newest))
            return (made for messages in fetched for made in batches(messages, lambda part: bundles.batch(part, senders)))
        return (made for messages in fetched for made in batches(messages, batch))

    def stop(self) -> None:
        self._sizes.close()
        self._cluster = None
        if self._conn is not None:
            self._conn.close()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Messages make no cycles, but so many objects that looking for cycles would take a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _limits(limit: ReadLimit, settings: Settings) -> Limits:
    if isinstance(limit, ReadMaxBytes):
        return Limits(settings.max_records, limit.max_bytes)
    return Limits(limit.max_rows) if isinstance(limit, ReadMaxRows) else Limits()


def _until(moves: Sequence[Move], until: Mapping[Place, int] | None) -> Sequence[Move]:
    """What was there when a run to the end of all there is began."""
    if until is None:
        return moves
    return [
        msgspec.structs.replace(m, end=max(m.first, min(m.end, until[m.topic, m.partition])))
        for m in moves
        if (m.topic, m.partition) in until
    ]
