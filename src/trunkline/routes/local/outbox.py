"""The retry outbox: messages that wait for another try, in order per live route, in the site's database (H33).

X1  A lane's messages are numbered in the order of the commits: whoever appends locks the lane.
X2  One drains a lane at a time: who holds it, for HOLD_SECONDS from its last word. What it did counts only if it still does.
X3  A lane has at most `cap` messages; what comes on top is a dead letter, in the same transaction.
X4  Sending cannot be fenced: who loses a lane while it sends has sent in vain, and those messages come twice. At least once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString

import msgspec

from trunkline.routes.ends import Pool
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.local.asking import Asking, plain
from trunkline.routes.local.keeping import Kept, LaneName, Letter

HOLD_SECONDS = 15.0
MAX_MESSAGES = 100_000  # of a lane: about 100 MB of the database; hours of a quiet route, minutes of the busiest
MAX_LANES = 10_000  # that are looked at in one turn; more routes than this do not fail at once in a site that is well
SENT_DAYS = 7

KEEP: LiteralString = "SELECT routes.keep(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
BURY: LiteralString = """
INSERT INTO routes.dead_letter (org, app, route, hash, plugin, step, message_id, source, content, reason, came, tries)
SELECT u.org, u.app, u.route, u.hash, u.plugin, u.step, u.id, u.source, u.content::json, u.reason, u.came, u.tries
  FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
              %s::text[], %s::float8[], %s::int[])
    AS u (org, app, route, hash, plugin, step, id, source, content, reason, came, tries)
"""
_LANES: LiteralString = """
SELECT hash, org, app, route, plugin, messages, tries, reason, next_at <= clock_timestamp(),
       held_until > clock_timestamp() AND holder <> %s, extract(epoch FROM clock_timestamp() - since)::float8
  FROM routes.lane ORDER BY next_at LIMIT %s
"""
_CLAIM: LiteralString = """
UPDATE routes.lane SET holder = %s, held_until = clock_timestamp() + make_interval(secs => %s)
 WHERE hash = %s AND next_at <= clock_timestamp() AND (held_until <= clock_timestamp() OR holder = %s) RETURNING tries
"""
_FIRST: LiteralString = """
SELECT seq, step, message_id, source, message::text, came FROM routes.outbox WHERE hash = %s ORDER BY seq LIMIT %s
"""


class WaitingLane(msgspec.Struct, frozen=True):
    """`due`: it may be tried now. `held`: another instance drains it. `age`: of the lane, in seconds."""

    name: LaneName
    messages: int
    tries: int
    reason: str
    due: bool
    held: bool
    age: float


class Row(msgspec.Struct, frozen=True):
    seq: int
    step: str
    id: str
    source: str
    message: str
    came: float


class Drained(msgspec.Struct, frozen=True):
    """What became of rows: by `seq`. `failure`: why the others were not sent; then they rest for `pause` seconds."""

    gone: list[int]
    dead: dict[int, str]
    failure: str = ""
    pause: float = 0.0


class Outbox:
    """A `Keeper`."""

    def __init__(self, pool: Pool, cap: int = MAX_MESSAGES) -> None:
        self._ask, self._cap = Asking(pool, "retry outbox"), cap

    async def append(self, lane: LaneName, messages: Sequence[Kept]) -> int:
        return int(await self._ask.value(KEEP, keep_values(lane, messages, self._cap)))

    async def bury(self, letters: Sequence[Letter]) -> None:
        await self._ask.rows(BURY, bury_values(letters))

    async def waits(self, hash: str) -> bool:
        return bool(await self._ask.rows("SELECT 1 FROM routes.lane WHERE hash = %s", (hash,)))

    async def inherit(self, old: LaneName, new: LaneName) -> None:
        """A route was updated: its messages go to the new sender, if that is of the same plugin."""
        if old.plugin == new.plugin:
            key = new.key
            values = (old.hash, new.hash, key.tenant.org, key.tenant.app, key.id)
            await self._ask.rows("SELECT routes.move_lane(%s, %s, %s, %s, %s)", values)
        else:
            await self.bury_lane(old.hash, f"the route's sender is {new.plugin} now")

    async def bury_lane(self, hash: str, reason: str) -> int:
        return int(await self._ask.value("SELECT routes.bury_lane(%s, %s)", (hash, reason)))

    async def lanes(self, me: str) -> list[WaitingLane]:
        rows = await self._ask.rows(_LANES, (me, MAX_LANES))
        return [
            WaitingLane(LaneName(hash, RouteKey(Tenant(org, app), route), plugin), *rest)
            for hash, org, app, route, plugin, *rest in rows
        ]

    async def claim(self, hash: str, me: str) -> int | None:
        """How often it was tried in vain; None: another drains it."""
        tries: int | None = await self._ask.value(_CLAIM, (me, HOLD_SECONDS, hash, me))
        return tries

    async def first(self, hash: str, count: int) -> list[Row]:
        return [Row(*row) for row in await self._ask.rows(_FIRST, (hash, count))]

    async def drained(self, hash: str, me: str, done: Drained) -> int:
        """How many messages are left in the lane; -1: it is another's now."""
        hold = 0.0 if done.failure else HOLD_SECONDS
        values = (hash, me, done.gone, list(done.dead), [plain(why) for why in done.dead.values()], plain(done.failure))
        statement: LiteralString = (
            "SELECT routes.drained(%s, %s, %s::bigint[], %s::bigint[], %s::text[], %s, %s::float8, %s::float8)"
        )
        return int(await self._ask.value(statement, (*values, done.pause, hold)))

    async def forget_sent(self) -> None:
        """Ids of messages that were sent once, and that nobody sends again after so long."""
        await self._ask.rows("DELETE FROM routes.sent WHERE at < clock_timestamp() - make_interval(days => %s)", (SENT_DAYS,))


def keep_values(lane: LaneName, messages: Sequence[Kept], cap: int = MAX_MESSAGES) -> tuple[object, ...]:
    """Of `KEEP`, which gives how many of them found room."""
    key = lane.key
    columns = (
        [plain(one.id) for one in messages], [plain(one.source) for one in messages],
        [one.message.decode() for one in messages], [plain(one.reason) for one in messages], [one.came for one in messages],
    )  # fmt: skip
    return (lane.hash, key.tenant.org, key.tenant.app, key.id, lane.plugin, cap, *columns)


def bury_values(letters: Sequence[Letter]) -> list[list[object]]:
    """Of `BURY`."""
    rows = [_letter(at, at.lane, at.lane.key) for at in letters]
    return [list(column) for column in zip(*rows, strict=True)]


def _letter(at: Letter, lane: LaneName, key: RouteKey) -> tuple[object, ...]:
    named = (key.tenant.org, key.tenant.app, key.id, lane.hash, lane.plugin)
    return (*named, at.step, plain(at.id), plain(at.source), at.content.decode(), plain(at.reason), at.came, at.tries)
