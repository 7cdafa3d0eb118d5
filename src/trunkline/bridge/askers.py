"""How a site is asked for a resync: the request as it travels, and the way over the trunk.

The request is the same on every transport: a JSON object beside the header `kind: resync`. Over the queues it is a message of
the client "<client>-control" to the site; over Kafka a record of the control topic whose key is the site.
A site that does not answer is asked again, so a request may be lost, or come twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
import psycopg
import structlog

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps
from trunkline.db.away import attentive
from trunkline.queues.client import NoRoom, QueueClient

KIND = {"kind": "resync"}

log = structlog.get_logger(__name__)


class Request(msgspec.Struct, frozen=True):
    """`types`: what the hub wants all of; none: all there is."""

    site: str
    types: tuple[str, ...]
    reason: str = ""
    id: str = ""

    def encode(self) -> bytes:
        return dumps(msgspec.to_builtins(self))


def parse_request(headers: Mapping[str, str], payload: bytes) -> Request | None:
    """None for a message of another kind; raises `Invalid` for one that cannot be read."""
    if headers.get("kind") != KIND["kind"]:
        return None
    try:
        return msgspec.json.decode(payload, type=Request)
    except msgspec.MsgspecError as error:
        raise Invalid("resync request", str(error), "send site, types, reason and id as JSON") from None


class Asker(Protocol):
    """Called from one thread. Requests are under way after `flush` at the latest, or it raises."""

    def ask(self, site: str, types: Sequence[str], reason: str, id: str) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def control_client(client: str) -> str:
    return f"{client}-control"


class QueueAsker:
    def __init__(self, dsn: str, client: str) -> None:
        self._dsn, self._client = dsn, QueueClient(control_client(client))
        self._conn: psycopg.Connection[Any] | None = None

    def ask(self, site: str, types: Sequence[str], reason: str, id: str) -> None:
        """A site that the trunk does not know, or that is too far behind, is left out until the next time."""
        conn = self._connected()
        try:
            with conn.transaction():
                self._client.transmit(conn, Request(site, tuple(types), reason, id).encode(), [site], KIND)
        except (Invalid, NoRoom) as error:
            log.warning("resync cannot be asked for", site=site, error=str(error))
        except psycopg.Error:
            conn.close()
            raise

    def flush(self) -> None:
        """Each was committed when it was asked."""

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = psycopg.connect(
                attentive(self._dsn), application_name="trunkline-asker", options="-c statement_timeout=30s"
            )
        return self._conn
