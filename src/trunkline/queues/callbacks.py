"""What an application is told by its listener, and which kind of record leads to which call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog
from psycopg.pq import TransactionStatus

from trunkline.core.errors import Invalid, Terminal
from trunkline.queues.kinds import Kind
from trunkline.queues.reader import Received
from trunkline.queues.sinksessions import FORCED_HEADER, REAPPLIED_HEADER
from trunkline.trunk.log import LOST

QueueMessage = Received
Batch = list[QueueMessage]
Process = Callable[[Batch], bool]
ProcessIn = Callable[[psycopg.Connection[Any], Batch], bool]

log = structlog.get_logger()


def _nothing(*_: Any) -> None:
    return None


def _say_lost(source: str, first: int, last: int) -> None:
    log.error("entries are lost: their source had trimmed them", source=source, first=first, last=last)


def _say_error(error: Exception) -> None:
    log.warning("a listener's step failed; it is tried again", error=str(error) or type(error).__name__)


@dataclass(frozen=True)
class Callbacks:
    """One that raises is called again, in order, like a refused batch; but for `on_error`, which must not raise."""

    on_new_site: Callable[[str], None] = _nothing
    """(source), once per run for each site there is a queue of."""
    on_snapshot_start: Callable[[str, str, bool], None] = _nothing
    """(source, request, forced): what an unfinished snapshot brought before does not count."""
    on_snapshot_complete: Callable[[str, str], None] = _nothing
    """(source, request), after LAST was processed."""
    on_reapplied: Callable[[str, int], None] = _nothing
    """(source, seq), after LAST of a snapshot that was not read at one instant of the log: entries up to this one, which
    follow, may be in it already."""
    on_lost: Callable[[str, int, int], None] = _say_lost
    """(source, first seq, last seq) of entries that will not come."""
    on_error: Callable[[Exception], None] = _say_error


class Refused(Terminal):
    """The application did not accept a batch."""


class Delivery:
    """Gives one batch of one kind to the application; any exception is a refusal."""

    def __init__(self, process: Process | None, process_in: ProcessIn | None, callbacks: Callbacks) -> None:
        if (process is None) == (process_in is None):
            raise Invalid("listener", "it needs one of `process` and `process_in`", "give exactly one of them")
        self._process, self._process_in, self._callbacks = process, process_in, callbacks
        self._calls: dict[Kind, Callable[[psycopg.Connection[Any], Batch], None]] = {
            Kind.LOG_ENTRY: self._messages,
            Kind.SNAPSHOT: self._messages,
            Kind.LAST: self._last,
            Kind.START: self._start,
            Kind.LOST: self._lost,
        }

    @property
    def in_transaction(self) -> bool:
        """The application works in the transaction that moves the position."""
        return self._process_in is not None

    def give(self, conn: psycopg.Connection[Any], batch: Batch) -> None:
        self._calls[batch[0].kind](conn, batch)
        if self.in_transaction and conn.info.transaction_status != TransactionStatus.INTRANS:
            why = "the transaction ended before the position moved, so the batch will come again"
            raise Refused("process_in", why, "leave commit and rollback to the listener")

    def _messages(self, conn: psycopg.Connection[Any], batch: Batch) -> None:
        if self._process_in is not None:
            answer = self._process_in(conn, batch)
        else:
            assert self._process is not None
            answer = self._process(batch)
        if answer is not True:
            raise Refused(
                f"{len(batch)} messages", f"the application answered {answer!r}", "return True when they are processed"
            )

    def _last(self, conn: psycopg.Connection[Any], batch: Batch) -> None:
        self._messages(conn, batch)
        if upto := batch[0].headers.get(REAPPLIED_HEADER):
            self._callbacks.on_reapplied(batch[0].source, int(upto))
        self._callbacks.on_snapshot_complete(batch[0].source, str(batch[0].request))

    def _start(self, conn: psycopg.Connection[Any], batch: Batch) -> None:
        start = batch[0]
        self._callbacks.on_snapshot_start(start.source, str(start.request), start.headers[FORCED_HEADER] == "true")

    def _lost(self, conn: psycopg.Connection[Any], batch: Batch) -> None:
        first, _, last = batch[0].headers[LOST].partition("-")
        self._callbacks.on_lost(batch[0].source, int(first), int(last))


ALIKE = frozenset({Kind.LOG_ENTRY, Kind.SNAPSHOT})


def goes_with(batch: Sequence[QueueMessage], message: QueueMessage) -> bool:
    """Kinds are never mixed, and the marks come alone."""
    return message.kind in ALIKE and message.kind == batch[0].kind and message.request == batch[0].request
