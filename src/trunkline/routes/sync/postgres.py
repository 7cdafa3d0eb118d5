"""LISTEN and NOTIFY in the site's own database: needs nothing beside it.

Listening has an autocommit connection of its own (H41): in a transaction nothing would be heard, and the server would keep all
notifications since. Acks are rows of `routes.ack` too: who was away when they came reads them, and so does whoever wants to
show them. A notification holds 8,000 bytes at most, so a publishing becomes as few as there is room for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict

from trunkline.core.clock import Clock, SystemClock
from trunkline.core.errors import Retryable
from trunkline.db.away import AWAY, in_one_line
from trunkline.routes.keys import Tenant
from trunkline.routes.sync.base import Ack, Delta, Item, Operation
from trunkline.routes.sync.carrier import Channel, Heard
from trunkline.routes.sync.syncer import Syncer
from trunkline.routes.sync.texts import ack_text, delta_text
from trunkline.routes.sync.waiting import Load, everything

MOST_BYTES = 7_900
KEEP_SECONDS = 86_400.0
SWEEP_SECONDS = 600.0
_CHANNELS = {"routes_sync": Channel.SYNC, "routes_ack": Channel.ACK}
# A server that is gone without a word is noticed, by who listens only as well. An ack is not worth waiting for the disk.
_CONNECTION: dict[str, Any] = {
    "options": "-c synchronous_commit=off",
    "connect_timeout": 10, "tcp_user_timeout": 10_000, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3,
}  # fmt: skip

_LISTEN: LiteralString = "LISTEN routes_sync; LISTEN routes_ack"
_TELL: LiteralString = "SELECT count(pg_notify('routes_sync', text)) FROM unnest(%s::text[]) AS text"
_ACK: LiteralString = """
WITH kept AS (
    INSERT INTO routes.ack (session, instance, operation, item, org, app, id, revision, reason)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[],
                         %s::text[])
    ON CONFLICT (session, instance, item, org, app, id) DO UPDATE
       SET operation = excluded.operation, revision = excluded.revision, reason = excluded.reason, at = excluded.at
)
SELECT count(pg_notify('routes_ack', text)) FROM unnest(%s::text[]) AS text
"""
_ACKS_OF: LiteralString = """
SELECT session, instance, revision, reason, operation, org, app, id, item FROM routes.ack WHERE session = ANY(%s) ORDER BY at
"""
_SWEEP: LiteralString = "DELETE FROM routes.ack WHERE at < now() - make_interval(secs => %s)"

Connection = psycopg.AsyncConnection[Any]


class PostgresCarrier:
    """`keep_seconds`: how long acks are shown."""

    def __init__(self, dsn: str, clock: Clock, keep_seconds: float = KEEP_SECONDS) -> None:
        self._dsn, self._clock, self._keep_seconds = dsn, clock, keep_seconds
        self._conn: Connection | None = None
        self._sweeps_at = clock.monotonic()

    @property
    def title(self) -> str:
        return f"Postgres database {conninfo_to_dict(self._dsn).get('dbname', '')}"

    @asynccontextmanager
    async def listening(self, sessions: Sequence[str]) -> AsyncIterator[AsyncIterator[Heard]]:
        with self._told():
            conn = await self._connect("trunkline-routes-listen")
            try:
                await conn.execute(_LISTEN, prepare=False)
                yield self._heard(conn, await _acks_of(conn, sessions))
            finally:
                await conn.close()

    async def _heard(self, conn: Connection, acks: list[Ack]) -> AsyncIterator[Heard]:
        for ack in acks:
            yield Heard(Channel.ACK, ack_text(ack))
        async with aclosing(conn.notifies()) as notifies:
            async for notify in notifies:
                yield Heard(_CHANNELS[notify.channel], notify.payload)

    async def send(self, load: Load) -> None:
        with self._told():
            conn = self._conn
            if conn is None or conn.closed:
                conn = self._conn = await self._connect("trunkline-routes-tell")
            if load.deltas:
                await conn.execute(_TELL, (packed([_fitting(delta) for delta in load.deltas]),))
            if load.acks:
                await self._keep(conn, load.acks)

    async def _keep(self, conn: Connection, acks: list[Ack]) -> None:
        newest = list({(ack.session, ack.instance, ack.item, ack.tenant, ack.id): ack for ack in acks}.values())
        columns = [list(column) for column in zip(*map(_row, newest), strict=True)]
        await conn.execute(_ACK, (*columns, packed([ack_text(ack) for ack in newest])))
        if self._clock.monotonic() >= self._sweeps_at:
            self._sweeps_at = self._clock.monotonic() + SWEEP_SECONDS
            await conn.execute(_SWEEP, (self._keep_seconds,))

    async def close(self) -> None:
        if self._conn is not None:
            await self._conn.close()

    async def _connect(self, name: str) -> Connection:
        return await psycopg.AsyncConnection.connect(self._dsn, autocommit=True, application_name=name, **_CONNECTION)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except AWAY as error:
            raise Retryable(self.title, in_one_line(error), "see that it runs; it is tried again") from None


async def _acks_of(conn: Connection, sessions: Sequence[str]) -> list[Ack]:
    if not sessions:
        return []
    rows = await (await conn.execute(_ACKS_OF, (list(sessions),))).fetchall()
    return [
        Ack(session, instance, revision, reason, Operation(operation), Tenant(org, app), id, Item(item))
        for session, instance, revision, reason, operation, org, app, id, item in rows
    ]


def _row(ack: Ack) -> tuple[str | int, ...]:
    reason = ack.reason.replace("\x00", "\N{SYMBOL FOR NULL}")
    return (
        ack.session, ack.instance, ack.operation.value, ack.item.value, ack.tenant.org, ack.tenant.app, ack.id, ack.revision,
        reason,
    )  # fmt: skip


def _fitting(delta: Delta) -> str:
    text = delta_text(delta)
    return text if len(text) <= MOST_BYTES else delta_text(everything(delta.instance, delta.session))


def packed(texts: Sequence[str]) -> list[str]:
    """As few notifications as there is room for; texts are ASCII, so characters are bytes."""
    packs: list[list[str]] = []
    room = 0
    for text in texts:
        if len(text) >= room:
            packs.append([])
            room = MOST_BYTES + 1
        packs[-1].append(text)
        room -= len(text) + 1
    return ["\n".join(pack) for pack in packs]


class PostgresSyncer(Syncer):
    def __init__(self, dsn: str, instance: str, keep_seconds: float = KEEP_SECONDS) -> None:
        super().__init__(instance, PostgresCarrier(dsn, SystemClock(), keep_seconds))
