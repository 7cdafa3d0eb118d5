"""A named consumer that hands what arrives to the application, in order.

    with QueueListener(dsn, "policy", "ledger", process):
        ...

Invariants:
  L1  a position moves only after the application accepted what lies before it; a crash in between delivers it again, with the
      same message ids. With `process_in` both are one transaction: exactly once
  L2  nothing of a queue overtakes what was refused; other queues go on
  L3  a batch is of one kind, in order: [SNAPSHOT…], [LAST], [LOG_ENTRY…]
  L4  a message is given up only when it was refused alone, `tries` times since it was the first; it goes to the dead letters in
      the transaction that passes it
  L5  of several listeners under one name one works; the others wait for it to end

It polls: 20 ms after the last work, at most 250 ms when all is quiet.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import random
from types import TracebackType
from typing import Any, Self

import psycopg

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Terminal
from trunkline.core.ids import check_name
from trunkline.db.away import AWAY, attentive
from trunkline.queues import consumers, deadletters
from trunkline.queues.attempts import Attempts
from trunkline.queues.callbacks import Batch, Callbacks, Delivery, Process, ProcessIn, QueueMessage, goes_with
from trunkline.queues.consumers import Overtaken, Place
from trunkline.queues.discovery import Discovery
from trunkline.queues.reader import read_queue

__all__ = ["Callbacks", "Pace", "QueueListener", "QueueMessage"]

_ONE_OF_A_NAME = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"


@dataclass(frozen=True)
class Pace:
    """Sizes of a batch; seconds between looks, and between two tries at what was refused."""

    batch: int = 1000
    batch_bytes: int = 8 << 20
    busy: float = 0.02
    idle: float = 0.25
    first_retry: float = 0.1
    last_retry: float = 5.0
    seen_every: float = 10.0
    replay_every: float = 1.0


@dataclass
class _Queue:
    """What is remembered of one queue between tries."""

    attempts: Attempts
    backoff: Backoff
    not_before: float = 0.0


@dataclass
class _NowAndThen:
    seconds: float
    last: float = field(default=float("-inf"))

    def due(self) -> bool:
        now = time.monotonic()
        if now - self.last < self.seconds:
            return False
        self.last = now
        return True


class QueueListener:
    """`tries`: how often a message may be refused before it becomes a dead letter; None: for ever."""

    def __init__(
        self,
        dsn: str,
        client: str,
        consumer: str,
        process: Process | None = None,
        *,
        process_in: ProcessIn | None = None,
        callbacks: Callbacks | None = None,
        tries: int | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._dsn, self._client, self._name = dsn, check_name("client", client), check_name("consumer", consumer)
        self._tell, self._tries, self._pace = callbacks or Callbacks(), tries, pace or Pace()
        self._delivery = Delivery(process, process_in, self._tell)
        self._discovery = Discovery(self._tell.on_new_site, self._tell.on_error)
        self._queues: dict[int, _Queue] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._seen, self._replay = _NowAndThen(self._pace.seen_every), _NowAndThen(self._pace.replay_every)

    # -- life

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run_aside, name=f"listener-{self._client}-{self._name}")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        assert self._thread is not None
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def stop(self) -> None:
        """From any thread: `run` returns after the batch that is being processed."""
        self._stop.set()

    @property
    def failure(self) -> Exception | None:
        """Why a listener that ran aside has ended by itself."""
        return self._failure

    def run(self) -> None:
        """Until `stop`. A database that is away is waited for; `Detached` and other defects are raised."""
        backoff = Backoff(self._pace.first_retry, self._pace.last_retry, random)
        while not self._stop.is_set():
            try:
                with psycopg.connect(attentive(self._dsn), application_name=f"trunkline-listener-{self._name}") as conn:
                    self._serve(conn, backoff.success)
            except AWAY as error:
                self._tell.on_error(error)
                self._stop.wait(backoff.after_failure())

    def _run_aside(self) -> None:
        try:
            self.run()
        except Exception as error:
            self._failure = error
            self._tell.on_error(error)

    def _serve(self, conn: psycopg.Connection[Any], connected: Callable[[], None]) -> None:
        self._queues.clear()
        if not self._is_the_one(conn):
            return
        consumers.attach(conn, self._client, self._name)
        conn.commit()
        connected()
        pause = self._pace.busy
        while not self._stop.is_set():
            worked = self._round(conn)
            pause = self._pace.busy if worked else min(2 * pause, self._pace.idle)
            if not worked:
                self._stop.wait(pause)

    def _is_the_one(self, conn: psycopg.Connection[Any]) -> bool:
        """Waits until no other listener has this name; false when stopped meanwhile (L5)."""
        while not self._stop.is_set():
            taken = conn.execute(_ONE_OF_A_NAME, (f"trunkline listener {self._client} {self._name}",)).fetchone()
            conn.commit()
            if taken == (True,):
                return True
            self._stop.wait(self._pace.idle)
        return False

    # -- one look at all queues

    def _round(self, conn: psycopg.Connection[Any]) -> bool:
        if self._seen.due():
            consumers.seen(conn, self._client, self._name)
        places = consumers.positions(conn, self._client, self._name)
        conn.commit()
        self._discovery.look(place.remote for place in places)
        worked = [self._step(conn, place) for place in places if not self._stop.is_set() and self._may_go_on(place)]
        if self._replay.due():
            self._replay_one(conn)
        return any(worked)

    def _may_go_on(self, place: Place) -> bool:
        known = self._queues.get(place.queue)
        return place.head > place.position and (known is None or known.not_before <= time.monotonic())

    def _step(self, conn: psycopg.Connection[Any], place: Place) -> bool:
        """One batch of one queue; true when it was processed."""
        queue = self._queues.get(place.queue)
        if queue is None:
            backoff = Backoff(self._pace.first_retry, self._pace.last_retry, random)
            queue = self._queues[place.queue] = _Queue(Attempts(self._tries, place.tries), backoff)
        batch = self._read(conn, place, queue.attempts.most(self._pace.batch))
        try:
            return self._offer(conn, place, queue, batch)
        except Overtaken as error:
            conn.rollback()
            del self._queues[place.queue]
            self._tell.on_error(error)
            return False

    def _offer(self, conn: psycopg.Connection[Any], place: Place, queue: _Queue, batch: Batch) -> bool:
        try:
            self._deliver(conn, place, batch)
        except _NotAccepted as refusal:
            conn.rollback()
            self._refused(conn, place, queue, batch, refusal.reason)
            return False
        queue.attempts.accepted(len(batch))
        queue.backoff.success()
        return True

    def _read(self, conn: psycopg.Connection[Any], place: Place, most: int) -> Batch:
        batch: Batch = []
        size = 0
        for message in read_queue(conn, place.queue, place.remote, place.position, min(place.head, place.position + most)):
            if message.position != place.position + len(batch) + 1:
                raise _missing(place, place.position + len(batch) + 1)
            size += len(message.payload)
            if batch and (size > self._pace.batch_bytes or not goes_with(batch, message)):
                break
            batch.append(message)
        if not batch:
            raise _missing(place, place.position + 1)
        return batch

    def _deliver(self, conn: psycopg.Connection[Any], place: Place, batch: Batch) -> None:
        if not self._delivery.in_transaction:
            conn.commit()  # nothing stays open while the application works
        try:
            self._delivery.give(conn, batch)
        except Exception as error:
            raise _NotAccepted(error) from error
        consumers.advance(conn, self._client, self._name, place.queue, batch[-1].position, place.position)
        conn.commit()

    # -- what is refused

    def _refused(self, conn: psycopg.Connection[Any], place: Place, queue: _Queue, batch: Batch, error: Exception) -> None:
        self._tell.on_error(error)
        if queue.attempts.refused(len(batch)):
            reason = str(error) or type(error).__name__
            deadletters.refuse(conn, self._client, self._name, batch[0], queue.attempts.failures, reason)
            consumers.advance(conn, self._client, self._name, place.queue, batch[0].position, place.position)
            conn.commit()
            queue.attempts.accepted(1)
            queue.backoff.success()
        else:
            consumers.refused(conn, self._client, self._name, place.queue, place.position)
            conn.commit()
            queue.not_before = time.monotonic() + queue.backoff.after_failure()

    def _replay_one(self, conn: psycopg.Connection[Any]) -> None:
        letter = deadletters.next_wanted(conn, self._client, self._name)
        if letter is None:
            conn.commit()
            return
        self._replay.last = float("-inf")
        if not self._delivery.in_transaction:
            conn.commit()
        try:
            self._delivery.give(conn, [letter.message])
        except Exception as error:
            conn.rollback()
            self._tell.on_error(error)
            deadletters.refused_again(conn, letter, str(error) or type(error).__name__)
        else:
            deadletters.accepted(conn, letter)
        conn.commit()


class _NotAccepted(Exception):
    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


def _missing(place: Place, position: int) -> Terminal:
    why = f"position {position} is missing, though its head is {place.head}"
    return Terminal(f"queue {place.name}", why, "look at it with `trunkline queues verify`")
