"""Who holds this site's routing table: its instances, in `site.instance`, each with a heartbeat on the database's clock.

I1  An instance is alive if its heartbeat is not older than ALIVE_SECONDS. Ids never come twice: each start makes one.
I2  A heartbeat registers again whoever is not registered (the row was swept, or the database restored).
I3  With its heartbeat it tells how its routing table is (`trunkline.routes.told`), when that has changed.
I4  Publishing waits for nobody, so it takes who was alive at the last heartbeat (`Presence.others`).
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from enum import StrEnum
from typing import Any, LiteralString

import msgspec
import psycopg
import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Retryable
from trunkline.db.away import AWAY, in_one_line
from trunkline.net.tasks import Tasks
from trunkline.routes.told import Tells, Told, tell

HEARTBEAT_SECONDS = 1.5
ALIVE_SECONDS = 5.0
FORGET_SECONDS = 86_400.0

_REGISTER: LiteralString = """
INSERT INTO site.instance (id, kind, runs) VALUES (%(id)s, %(kind)s, %(runs)s)
ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, runs = excluded.runs, heartbeat_at = clock_timestamp()
RETURNING looked IS NOT NULL
"""
_FORGET: LiteralString = "DELETE FROM site.instance WHERE heartbeat_at < clock_timestamp() - make_interval(secs => %s)"
_UNREGISTER: LiteralString = "DELETE FROM site.instance WHERE id = %s"
_ALIVE: LiteralString = """
SELECT id, kind, runs, extract(epoch FROM started_at)::float8, extract(epoch FROM heartbeat_at)::float8
  FROM site.instance WHERE heartbeat_at > clock_timestamp() - make_interval(secs => %s) ORDER BY id
"""

Connection = psycopg.AsyncConnection[Any]
log = structlog.get_logger(__name__)


class Kind(StrEnum):
    NODE = "node"
    PIPELINE = "pipeline"


class Instance(msgspec.Struct, frozen=True):
    """`runs`: what it can run, by the names of plugins. `started`, `heartbeat`: unix seconds, by the database's clock."""

    id: str
    kind: Kind
    runs: tuple[str, ...] = ()
    started: float = 0.0
    heartbeat: float = 0.0


def new_id(name: str) -> str:
    """`name`: for people, such as that of the host."""
    return f"{name}_{uuid.uuid4().hex[:12]}"


async def heartbeat(conn: Connection, me: Instance) -> bool:
    """The first one registers it. Gives whether it has told how its routing table is."""
    rows = await conn.execute(_REGISTER, {"id": me.id, "kind": me.kind.value, "runs": list(me.runs)})
    return bool((await rows.fetchall())[0][0])


async def unregister(conn: Connection, id: str) -> None:
    await conn.execute(_UNREGISTER, (id,))


async def alive(conn: Connection, within: float = ALIVE_SECONDS) -> list[Instance]:
    rows = await (await conn.execute(_ALIVE, (within,))).fetchall()
    return [Instance(id, Kind(kind), tuple(runs), *times) for id, kind, runs, *times in rows]


async def forget(conn: Connection, after: float = FORGET_SECONDS) -> int:
    """Removes those that ended without a word."""
    return (await conn.execute(_FORGET, (after,))).rowcount


def _untold() -> Told | None:
    return None


class Presence:
    """Keeps one instance alive in the table, and knows the others. `tells`: how its routing table is, once it is loaded."""

    def __init__(
        self, dsn: str, me: Instance, every: float = HEARTBEAT_SECONDS, within: float = ALIVE_SECONDS,
        chance: Callable[[], float] = random.random,
    ) -> None:  # fmt: skip
        self.me = me
        self.tells: Tells = _untold
        self._dsn, self._every, self._within = dsn, every, within
        self._backoff = Backoff(0.05, every, chance)
        self._conn: Connection | None = None
        self._known: tuple[Instance, ...] = ()
        self._told: Told | None = None
        self._tasks = Tasks()

    @property
    def others(self) -> tuple[Instance, ...]:
        return tuple(instance for instance in self._known if instance.id != self.me.id)

    async def start(self) -> None:
        """Is registered when it returns. Raises `Retryable`, and leaves nothing behind, while the database is away."""
        try:
            conn = await self._beat()
            await forget(conn)
        except AWAY as error:
            await self._hang_up()
            raise Retryable(f"instance {self.me.id}", in_one_line(error), "see that the database runs") from None
        self._tasks.spawn(self._keep_beating(), f"heartbeat {self.me.id}")

    async def stop(self) -> None:
        await self._tasks.cancel()
        try:
            if self._conn is not None:
                await unregister(self._conn, self.me.id)
        except AWAY as error:
            log.warning("instance stays registered", id=self.me.id, why=in_one_line(error), next_step="none: it counts as gone")
        finally:
            await self._hang_up()

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self._beat()
                self._backoff.success()
            except AWAY as error:
                log.warning("no heartbeat", id=self.me.id, why=in_one_line(error), next_step="see that the database runs")
                await self._hang_up()
                await asyncio.sleep(self._backoff.after_failure())

    async def _beat(self) -> Connection:
        if self._conn is None:
            self._conn = await psycopg.AsyncConnection.connect(
                self._dsn,
                autocommit=True,
                application_name="trunkline-routes-instance",
                connect_timeout=5,
                tcp_user_timeout=5_000,
            )
        if not await heartbeat(self._conn, self.me):
            self._told = None
        if (told := self.tells()) != self._told:
            await tell(self._conn, self.me.id, told)
            self._told = told
        self._known = tuple(await alive(self._conn, self._within))
        return self._conn

    async def _hang_up(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()
