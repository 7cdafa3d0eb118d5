"""Dead letters for people: to list, to look at, to try again, to drop.

A letter that is tried again goes to the retry outbox of its route: a message to the sender, an event to the filter that could
not process it, by then perhaps another. The instance that runs the route does the rest. If the route is gone, it comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

import msgspec

from trunkline.core.errors import Terminal
from trunkline.core.jsoncodec import loads
from trunkline.routes.ends import Pool
from trunkline.routes.keys import Tenant
from trunkline.routes.local.asking import Asking

PAGE = 100
_COLUMNS: LiteralString = (
    "id, org, app, route, hash, plugin, step, message_id, source, reason, came, tries, extract(epoch FROM at)::float8"
)
_LIST: LiteralString = f"""
SELECT {_COLUMNS} FROM routes.dead_letter
 WHERE (%(org)s::text IS NULL OR (org, app) = (%(org)s, %(app)s)) AND (%(route)s::text IS NULL OR route = %(route)s)
   AND id > %(after)s ORDER BY id LIMIT %(limit)s
"""
_SHOW: LiteralString = f"SELECT {_COLUMNS}, content::text FROM routes.dead_letter WHERE id = %s"
_COUNT: LiteralString = (
    "SELECT org, app, route, count(*) FROM routes.dead_letter GROUP BY org, app, route ORDER BY org, app, route"
)


class DeadLetter(msgspec.Struct, frozen=True):
    """`step`: the filter that could not process it, `message` if nothing could be made of it for the sender, or `sender`.
    `came`, `at`: when its event came in, and when it was given up, in unix seconds."""

    id: int
    org: str
    app: str
    route: str
    hash: str
    plugin: str
    step: str
    message_id: str
    source: str
    reason: str
    came: float
    tries: int
    at: float


class NoSuchLetter(Terminal):
    def __init__(self, id: int) -> None:
        super().__init__(f"dead letter {id}", "there is none", "list the dead letters for their ids")


class DeadLetters:
    def __init__(self, pool: Pool) -> None:
        self._ask = Asking(pool, "dead letters")

    async def list(
        self, tenant: Tenant | None = None, route: str | None = None, after: int = 0, limit: int = PAGE
    ) -> list[DeadLetter]:
        """The oldest first, from the one behind `after` on."""
        org, app = (tenant.org, tenant.app) if tenant is not None else (None, None)
        values = {"org": org, "app": app, "route": route, "after": after, "limit": limit}
        return [DeadLetter(*row) for row in await self._ask.rows(_LIST, values)]

    async def counts(self) -> dict[tuple[str, str, str], int]:
        """How many there are, by org, app and route."""
        return {(org, app, route): count for org, app, route, count in await self._ask.rows(_COUNT)}

    async def show(self, id: int) -> tuple[DeadLetter, Any]:
        """With its content: the event, or the message as its sender would have sent it."""
        rows = await self._ask.rows(_SHOW, (id,))
        if not rows:
            raise NoSuchLetter(id)
        *columns, content = rows[0]
        return DeadLetter(*columns), loads(content, f"dead letter {id}")

    async def replay(self, ids: Sequence[int]) -> int:
        """How many of them are tried again."""
        return int(await self._ask.value("SELECT routes.replay(%s::bigint[])", (list(ids),)))

    async def drop(self, ids: Sequence[int]) -> int:
        """How many of them were there."""
        gone = await self._ask.rows("DELETE FROM routes.dead_letter WHERE id = ANY (%s::bigint[]) RETURNING id", (list(ids),))
        return len(gone)
