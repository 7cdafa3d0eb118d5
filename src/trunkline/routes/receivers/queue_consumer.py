"""A route's named consumer of a client's receive queues, over one connection; every method blocks."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import psycopg
import structlog

from trunkline.core.errors import Invalid, Terminal
from trunkline.core.ids import check_name
from trunkline.db.lease import Grant, commit_fenced, connect_fenced
from trunkline.queues import consumers
from trunkline.queues.consumers import Detached, Place
from trunkline.queues.reader import Received, read_queue

BATCH_BYTES = 8 << 20
_KNOWN = "SELECT FROM queues.consumer WHERE client = %s AND name = %s"
log = structlog.get_logger(__name__)


def consumer_name(plugin: str) -> str:
    name = f"routes-{plugin}"
    try:
        return check_name("consumer", name)
    except Invalid:
        return f"routes-{blake2b(plugin.encode(), digest_size=16).hexdigest()}"


class Consumer:
    def __init__(self, dsn: str, client: str, name: str, grant: Grant | None) -> None:
        self._client, self._name, self._grant = client, name, grant
        self._conn: psycopg.Connection[Any] = connect_fenced(dsn, f"trunkline-{name}")

    def attach(self, newest: bool) -> None:
        """`newest`: one that was not there begins behind all that is."""
        is_new = self._conn.execute(_KNOWN, (self._client, self._name)).fetchone() is None
        try:
            consumers.attach(self._conn, self._client, self._name)
        except Detached as error:
            self._conn.rollback()
            log.warning("a route was away for too long; it goes on with what is kept", reason=str(error))
            consumers.reattach(self._conn, self._client, self._name)
        if is_new and newest:
            for place in consumers.positions(self._conn, self._client, self._name):
                consumers.advance(self._conn, self._client, self._name, place.queue, place.head, place.position)
        self._commit()

    def positions(self, seen: bool) -> list[Place]:
        if seen:
            consumers.seen(self._conn, self._client, self._name)
        places = consumers.positions(self._conn, self._client, self._name)
        self._conn.commit()
        return places

    def read(self, place: Place, after: int, most: int) -> list[Received]:
        found: list[Received] = []
        size = 0
        for entry in read_queue(self._conn, place.queue, place.remote, after, min(place.head, after + most)):
            if entry.position != after + len(found) + 1:
                break
            size += len(entry.payload)
            found.append(entry)
            if size >= BATCH_BYTES:
                break
        self._conn.commit()
        if not found:
            why = f"position {after + 1} is missing, though its head is {place.head}"
            raise Terminal(f"queue {place.name}", why, "look at it with `trunkline queues verify`")
        return found

    def advance(self, queue: int, position: int, after: int) -> None:
        consumers.advance(self._conn, self._client, self._name, queue, position, after)
        self._commit()

    def close(self) -> None:
        self._conn.close()

    def _commit(self) -> None:
        if self._grant is None:
            self._conn.commit()
        else:
            commit_fenced(self._conn, self._grant)
