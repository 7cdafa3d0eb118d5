"""What an application holds: appends to the send queue inside the application's own transaction.

`QueueClient` is for psycopg connections, `AsyncQueueClient` for asynchronous ones. Both send when, and only when, the
caller's transaction commits; the caller commits. A refused message raises `Invalid`, or `NoRoom` when its destinations are
too far behind, and leaves the transaction failed: roll it back, or to a savepoint.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, Dumper, PyFormat
from psycopg.pq import Format, TransactionStatus
from psycopg.types.json import Jsonb

from trunkline.core.errors import Invalid, Retryable
from trunkline.core.ids import check_name
from trunkline.core.jsoncodec import dumps

Headers = Mapping[str, str]
Call = tuple[str, tuple[Any, ...]]
"""A statement and its arguments."""

_REFUSED = "TL1"  # SQLSTATEs of sql/003_transmit.sql
_NO_ROOM = "TL109"
_TRANSMIT = "SELECT trunkline.transmit(%t::text, %b::bytea, %t::text[], %t::jsonb)"
_TRANSMIT_MANY = "SELECT trunkline.transmit_many(%t::text, %b::bytea[], %t::text[], %t::jsonb[])"
_TRANSMIT_PACKS = "SELECT trunkline.transmit_packs(%t::text, %b::bytea, %t::int[], %t::int[], %t::int[], %t::text[])"
_TRANSMIT_MESSAGES = "SELECT trunkline.transmit_messages(%t::text, %b::bytea[], %t::jsonb, %t::jsonb[])"
_HAS_ROOM = "SELECT trunkline.has_room(%t::text, %t::text[])"
_POLL_SECONDS = 0.1
_PACK_BYTES, _END_BYTES = 7_900, 4
"""A pack and what comes with it fill a page."""
_ARRAY, _LENGTH = struct.Struct("!iiIii"), struct.Struct("!i")  # dimensions, nulls, element type, length, lower bound
_BYTEA = 17


class NoRoom(Retryable):
    """Every destination of the message has more before it than it may; each gets a snapshot, or catches up."""


@dataclass(frozen=True)
class Message:
    payload: bytes
    destinations: Sequence[str]
    headers: Headers | None = None


class _Payloads(list[bytes]):
    """A bytea[], faster than the driver's own lists, which ask each element for its type."""


class _PayloadsDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: _Payloads) -> bytes:
        parts = [_ARRAY.pack(1, 0, _BYTEA, len(obj), 1)] if obj else [_ARRAY.pack(0, 0, _BYTEA, 0, 0)[:12]]
        for payload in obj:
            parts += (_LENGTH.pack(len(payload)), payload)
        return b"".join(parts)


class _Client:
    def __init__(self, name: str) -> None:
        self.name = check_name("client", name)

    def _one(self, payload: bytes, destinations: Sequence[str], headers: Headers | None) -> Call:
        return _TRANSMIT, (self.name, _bytes(payload), _names(destinations), _jsonb(headers) if headers else None)

    def _many(self, payloads: Sequence[bytes], destinations: Sequence[str], headers: Sequence[Headers] | None) -> Call:
        all_ = _Payloads(map(_bytes, payloads))
        if headers is not None:
            return _TRANSMIT_MANY, (self.name, all_, _names(destinations), [_jsonb(h) for h in headers])
        starts, lasts, ends = packed(all_)
        if len(starts) == len(all_):
            return _TRANSMIT_MANY, (self.name, all_, _names(destinations), None)
        packs = _ints(starts), _ints(lasts), _ints(ends)
        return _TRANSMIT_PACKS, (self.name, b"".join(all_), *packs, _names(destinations))

    def _each(self, messages: Sequence[Message]) -> Call:
        headers = [_jsonb(m.headers or {}) for m in messages] if any(m.headers for m in messages) else None
        destinations = Jsonb([_names(m.destinations) for m in messages], dumps=dumps)
        return _TRANSMIT_MESSAGES, (self.name, _Payloads(_bytes(m.payload) for m in messages), destinations, headers)

    def _room(self, destinations: Sequence[str]) -> Call:
        return _HAS_ROOM, (self.name, _names(destinations))

    @contextmanager
    def _refusals(self, what: str = "message", first: str = "roll back; ") -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            refused = (error.sqlstate or "").startswith(_REFUSED)
            if not refused and not isinstance(error, psycopg.DataError):
                raise
            kind = NoRoom if error.sqlstate == _NO_ROOM else Invalid
            why = error.diag.message_primary or str(error)
            next_step = error.diag.message_hint or "correct the message"
            raise kind(f"{what} of client {self.name}", why, f"{first}{next_step}") from error

    def _check_idle(self, status: TransactionStatus) -> None:
        if status != TransactionStatus.IDLE:
            why = "a transaction is open, and would be held open"
            raise Invalid(f"room of client {self.name}", why, "wait for room before the transaction begins")

    def _no_room(self, destinations: Sequence[str], seconds: float) -> NoRoom:
        why = f"{', '.join(destinations)}: more is unacknowledged than may be, for {seconds:g} s"
        return NoRoom(f"room of client {self.name}", why, "see `trunkline queues status`, and send it again later")


class QueueClient(_Client):
    def transmit(
        self, conn: psycopg.Connection[Any], payload: bytes, destinations: Sequence[str], headers: Headers | None = None
    ) -> None:
        self._call(conn, self._one(payload, destinations, headers))

    def transmit_many(
        self,
        conn: psycopg.Connection[Any],
        payloads: Sequence[bytes],
        destinations: Sequence[str],
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """All messages, in this order, to the same destinations; `headers` has one mapping per payload."""
        self._call(conn, self._many(payloads, destinations, headers))

    def transmit_messages(self, conn: psycopg.Connection[Any], messages: Sequence[Message]) -> None:
        """All messages, in this order, each to its own destinations."""
        self._call(conn, self._each(messages))

    def wait_for_room(self, conn: psycopg.Connection[Any], destinations: Sequence[str], seconds: float) -> None:
        """Until at least one destination takes more; `NoRoom` when none does in time. Not within a transaction."""
        self._check_idle(conn.info.transaction_status)
        deadline = time.monotonic() + seconds
        while not self._has_room(conn, destinations):
            if time.monotonic() >= deadline:
                raise self._no_room(destinations, seconds)
            time.sleep(_POLL_SECONDS)

    def _has_room(self, conn: psycopg.Connection[Any], destinations: Sequence[str]) -> bool:
        with self._refusals("room", ""), conn.transaction():
            row = conn.execute(*self._room(destinations)).fetchone()
        return bool(row and row[0])

    def _call(self, conn: psycopg.Connection[Any], call: Call) -> None:
        _adapt(conn.adapters)
        with self._refusals(), conn.cursor() as cursor:
            cursor.execute(*call)


class AsyncQueueClient(_Client):
    async def transmit(
        self, conn: psycopg.AsyncConnection[Any], payload: bytes, destinations: Sequence[str], headers: Headers | None = None
    ) -> None:
        await self._call(conn, self._one(payload, destinations, headers))

    async def transmit_many(
        self,
        conn: psycopg.AsyncConnection[Any],
        payloads: Sequence[bytes],
        destinations: Sequence[str],
        headers: Sequence[Headers] | None = None,
    ) -> None:
        await self._call(conn, self._many(payloads, destinations, headers))

    async def transmit_messages(self, conn: psycopg.AsyncConnection[Any], messages: Sequence[Message]) -> None:
        await self._call(conn, self._each(messages))

    async def wait_for_room(self, conn: psycopg.AsyncConnection[Any], destinations: Sequence[str], seconds: float) -> None:
        self._check_idle(conn.info.transaction_status)
        deadline = time.monotonic() + seconds
        while not await self._has_room(conn, destinations):
            if time.monotonic() >= deadline:
                raise self._no_room(destinations, seconds)
            await asyncio.sleep(_POLL_SECONDS)

    async def _has_room(self, conn: psycopg.AsyncConnection[Any], destinations: Sequence[str]) -> bool:
        with self._refusals("room", ""):
            async with conn.transaction():
                row = await (await conn.execute(*self._room(destinations))).fetchone()
        return bool(row and row[0])

    async def _call(self, conn: psycopg.AsyncConnection[Any], call: Call) -> None:
        _adapt(conn.adapters)
        with self._refusals():
            async with conn.cursor() as cursor:
                await cursor.execute(*call)


def packed(payloads: Sequence[bytes]) -> tuple[list[int], list[int], list[int]]:
    """Of each pack where it begins among all bytes and which message is its last, from 1; and where each message ends in it."""
    starts, lasts, ends = list[int](), list[int](), list[int]()
    size, room = 0, -1
    for nth, payload in enumerate(payloads):
        length = len(payload)
        room -= length + _END_BYTES
        if room < 0:
            starts.append(starts[-1] + size if starts else 0)
            lasts.append(nth)
            size, room = 0, _PACK_BYTES - length - _END_BYTES
        size += length
        ends.append(size)
    return starts, [*lasts[1:], len(payloads)] if starts else [], ends


def _ints(numbers: Sequence[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def _adapt(adapters: AdaptersMap) -> None:
    """Once per connection: registering copies the map, which costs as much as the call."""
    if adapters.get_dumper(_Payloads, PyFormat.BINARY) is not _PayloadsDumper:
        adapters.register_dumper(_Payloads, _PayloadsDumper)


def _bytes(payload: bytes) -> bytes:
    if type(payload) is bytes:
        return payload
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise Invalid("payload", f"it is of type {type(payload).__name__}, not bytes", "encode it")
    return bytes(payload)


def _names(destinations: Sequence[str]) -> list[str]:
    """A single string is a sequence too, of letters: never what was meant."""
    if isinstance(destinations, str):
        raise Invalid("destinations", f"{destinations!r} is one name and no list", f"write [{destinations!r}]")
    return list(destinations)


def _jsonb(headers: Headers) -> Jsonb:
    return Jsonb(dict(headers), dumps=dumps)
