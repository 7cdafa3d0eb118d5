"""What filters of a group's routes remember and hold back, in Postgres beside where the group stands.

M1  A filter's memory is that of the batches that are done: a batch that is tried again meets what was remembered before it.
M2  The row of a route changes in the transaction that ends a batch, or that flushes what was due (H32); each of them has read
    it before, and finds it as it was or fails.
M3  A route that takes over from another goes on with what filters remember that both have at the same place. What other filters
    of the old one hold is flushed.
M4  A message's number is its place among all that became of the same source event. Numbers of events that are still held are
    remembered with them.
M5  What a filter joins, it joins by what came before: in other batches, by the clock. So where several events become one, and
    are sent effectively once, what came of a batch or a flush is written down before anything of it is sent, with what
    the filters remember from then on; and is sent as it was written until it is done. A batch that is tried again finds its own
    mark there, and its events do not go through the filters again.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

import msgspec
from msgspec.structs import replace

from trunkline.core.errors import Retryable
from trunkline.core.jsoncodec import dumps
from trunkline.pipeline.jobs.loaded import LoadedRoute
from trunkline.pipeline.jobs.outcomes import Outcome
from trunkline.pipeline.jobs.stored import Connection
from trunkline.routes.event import Event

_READ = "SELECT state, version FROM pipeline.job_state WHERE reader_group = %s AND hash = %s"
_ADD = """
INSERT INTO pipeline.job_state (reader_group, hash, state, due, version) VALUES (%s, %s, %s, %s, 1) ON CONFLICT DO NOTHING
"""
_WRITE = """
UPDATE pipeline.job_state SET state = %s, due = %s, version = version + 1
 WHERE reader_group = %s AND hash = %s AND version = %s
"""
_DROP = "DELETE FROM pipeline.job_state WHERE reader_group = %s AND hash = %s AND version = %s"
_LEAVE = """
UPDATE pipeline.job_state SET state = %s, version = version + 1 WHERE reader_group = %s AND hash = %s AND version = %s
"""
_DUE = """
SELECT hash, false FROM pipeline.job_state WHERE reader_group = %(group)s AND due <= extract(epoch FROM clock_timestamp())
"""
_DUE_OR_GONE = """
SELECT s.hash, g.gone
  FROM pipeline.job_state s JOIN pipeline.job j USING (reader_group), LATERAL (
       SELECT NOT EXISTS (
           SELECT FROM pipeline.job_route r WHERE r.reader_group = s.reader_group AND r.hash = s.hash
              AND (r.until IS NULL OR r.until > j.looked OR EXISTS (
                  SELECT FROM pipeline.job_plan p WHERE p.reader_group = s.reader_group AND p.revision < r.until))) AS gone) g
 WHERE s.reader_group = %(group)s AND (g.gone OR s.due <= extract(epoch FROM clock_timestamp()))
"""
_IS_EMPTY = "SELECT NOT EXISTS (SELECT FROM pipeline.job_state WHERE reader_group = %s)"


class Remembered(msgspec.Struct):
    """`chain`: what the filters remember, by their places. `numbers`: of messages, by the ids of source events that are held.
    `version`: 0 if nothing is stored. `ahead`, `batch`: what was written down before it was sent, and of which batch (M5)."""

    chain: dict[str, Any]
    numbers: dict[str, int] = {}
    version: int = 0
    ahead: list[Outcome] = []
    batch: str = ""

    def done(self) -> Remembered:
        """All that was written ahead is sent, or kept."""
        return replace(self, ahead=[], batch="")


class Memory:
    """`fresh`: what filters remember that have just been made; kept, for those of a loaded route are used again and again."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._fresh: dict[str, dict[str, Any]] = {}

    def read(self, conn: Connection, hash: str) -> Remembered | None:
        row = conn.execute(_READ, (self._group, hash)).fetchone()
        return None if row is None else msgspec.convert({**row[0], "version": row[1]}, Remembered)

    def fresh(self, route: LoadedRoute) -> Remembered:
        """Asked before the first run of a route as it was compiled."""
        return Remembered(dict(self._fresh.setdefault(route.hash, route.chain.state())))

    def write(self, conn: Connection, route: LoadedRoute, before: Remembered) -> None:
        """What the route remembers now, if nobody changed it since it was read."""
        held = sources_of(route.chain.held())
        numbers = {source: number for source, number in before.numbers.items() if source in held}
        state = _written(replace(before, chain=route.chain.state(), numbers=numbers))
        due = 0.0 if before.ahead else route.chain.due()
        if before.version:
            done = conn.execute(_WRITE, (state, due, self._group, route.hash, before.version)).rowcount
        else:
            done = conn.execute(_ADD, (self._group, route.hash, state, due)).rowcount
        self._require(done, route.hash)

    def drop(self, conn: Connection, hash: str, version: int) -> None:
        self._fresh.pop(hash, None)
        self._require(conn.execute(_DROP, (self._group, hash, version)).rowcount, hash)

    def leave(self, conn: Connection, hash: str, places: Set[str], row: Remembered) -> None:
        """Without what filters at these places remember: another route goes on with it."""
        chain = {n: state for n, state in row.chain.items() if n not in places}
        state = _written(replace(row, chain=chain))
        self._require(conn.execute(_LEAVE, (state, self._group, hash, row.version)).rowcount, hash)

    def due(self, conn: Connection, gone: bool) -> list[tuple[str, bool]]:
        """Routes with something to flush and, if asked for, those that no plan can name any more; which of both they are."""
        return list(conn.execute(_DUE_OR_GONE if gone else _DUE, {"group": self._group}).fetchall())

    def is_empty(self, conn: Connection) -> bool:
        row = conn.execute(_IS_EMPTY, (self._group,)).fetchone()
        return bool(row and row[0])

    def _require(self, done: int, hash: str) -> None:
        if done != 1:
            why = "what its filters remember was changed by somebody else meanwhile"
            raise Retryable(f"route {hash} of {self._group}", why, "the batch is tried again")


def sources_of(events: Iterable[Event]) -> set[str]:
    return {one.source.id for event in events for one in event.entered or (event,)}


def _written(remembered: Remembered) -> str:
    told: dict[str, Any] = msgspec.to_builtins(remembered)
    return dumps({name: value for name, value in told.items() if name != "version"}).decode()


def taken_over(old: LoadedRoute, new: LoadedRoute) -> set[str]:
    """Places at which both have the same filter, and it remembers."""
    ours, theirs = new.compiled.config.filter_chain, old.compiled.config.filter_chain
    remembering = new.chain.state().keys()
    return {str(n) for n, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a == b} & remembering
