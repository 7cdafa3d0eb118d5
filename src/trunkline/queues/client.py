"""What an application holds: appends to the send queue inside the application's own transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from trunkline.core.errors import Invalid
from trunkline.core.ids import check_name
from trunkline.core.jsoncodec import dumps

_REFUSED = "TL1"  # SQLSTATEs of sql/003_transmit.sql
_TRANSMIT = "SELECT trunkline.transmit(%t::text, %b::bytea, %t::text[], %t::jsonb)"
_TRANSMIT_MANY = "SELECT trunkline.transmit_many(%t::text, %b::bytea[], %t::text[], %t::jsonb[])"


class QueueClient:
    """Sends when, and only when, the caller's transaction commits; the caller commits.

    A refused message raises `Invalid` and leaves the transaction failed: roll it back, or to a savepoint.
    """

    def __init__(self, name: str) -> None:
        self.name = check_name("client", name)

    def transmit(
        self,
        conn: psycopg.Connection[Any],
        payload: bytes,
        destinations: Sequence[str],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        with self._refusals():
            conn.execute(_TRANSMIT, (self.name, payload, list(destinations), _jsonb(headers or {})))

    def transmit_many(
        self,
        conn: psycopg.Connection[Any],
        payloads: Sequence[bytes],
        destinations: Sequence[str],
        headers: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        """All messages, in this order, to the same destinations; `headers` has one mapping per payload."""
        given = None if headers is None else [_jsonb(h) for h in headers]
        with self._refusals():
            conn.execute(_TRANSMIT_MANY, (self.name, list(payloads), list(destinations), given))

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            refused = (error.sqlstate or "").startswith(_REFUSED)
            if not refused and not isinstance(error, psycopg.DataError):
                raise
            why = error.diag.message_primary or str(error)
            next_step = error.diag.message_hint or "correct the message"
            raise Invalid(f"message of client {self.name}", why, f"roll back; {next_step}") from error


def _jsonb(headers: Mapping[str, str]) -> Jsonb:
    return Jsonb(dict(headers), dumps=dumps)
