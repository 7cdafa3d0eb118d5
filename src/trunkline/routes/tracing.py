"""Where a message of a route is at its own site: waits for another try, is a dead letter, or was sent once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, LiteralString

import msgspec
import psycopg

from trunkline.core.span import about
from trunkline.db.operated import Shown, rows_of
from trunkline.db.traced import State, Step, Wanted
from trunkline.routes.keys import RouteKey, Tenant

LOOKED_AT = 200_000
"""Rows of the outbox, and of the newest dead letters."""
TABLES = ("routes.outbox", "routes.dead_letter")

_MESSAGE = re.compile(r"(?P<source>.+):(?P<org>[^/:]+)/(?P<app>[^/:]+)/(?P<route>[^:]+):\d+(\+[0-9a-f]+)?", re.DOTALL)
_WHICH: LiteralString = "(message_id = ANY (%(ids)s) OR source = %(source)s)"
_OUTBOX: LiteralString = f"""
SELECT o.message_id, o.reason AS first_reason, extract(epoch FROM o.at)::float8 AS at, l.reason, l.tries, l.plugin,
       l.org || '/' || l.app || '/' || l.route AS route, extract(epoch FROM l.next_at - clock_timestamp())::float8 AS next,
       (SELECT count(*) FROM routes.outbox a WHERE a.hash = o.hash AND a.seq < o.seq) AS ahead
  FROM (SELECT hash, seq, message_id, reason, at FROM (SELECT * FROM routes.outbox LIMIT %(most)s) all_of
         WHERE {_WHICH} LIMIT %(found)s) o
  JOIN routes.lane l ON l.hash = o.hash ORDER BY o.seq
"""
_LETTERS: LiteralString = f"""
SELECT id, message_id, org || '/' || app || '/' || route AS route, step, reason, tries, extract(epoch FROM at)::float8 AS at
  FROM (SELECT * FROM routes.dead_letter ORDER BY id DESC LIMIT %(most)s) d WHERE {_WHICH} ORDER BY id DESC LIMIT %(found)s
"""
_SENT: LiteralString = """
SELECT message_id, extract(epoch FROM at)::float8 AS at FROM routes.sent WHERE message_id = ANY (%(ids)s)
"""


class RecordId(msgspec.Struct, frozen=True):
    """`source`: the event's; `route`: if it is the id of a message."""

    text: str
    source: str
    route: RouteKey | None = None

    @property
    def wanted(self) -> Wanted:
        return Wanted((self.text,), "" if self.route else self.source)


def record_id(text: str) -> RecordId:
    """Of a message (`trunkline.routes.naming`), of a source event, or of a bundle."""
    found = _MESSAGE.fullmatch(text)
    if found is None:
        return RecordId(text, text)
    return RecordId(text, found["source"], RouteKey(Tenant(found["org"], found["app"]), found["route"]))


def kept(conn: psycopg.Connection[Any], record: RecordId) -> Iterator[Step]:
    asked = record.wanted.args(source=record.source if record.route is None else "", most=LOOKED_AT)
    for row in rows_of(conn, _OUTBOX, asked):
        yield Step("outbox", State.WAITS, _waits(row), row["at"], {"message_id": row["message_id"], "route": row["route"]})
    for row in rows_of(conn, _LETTERS, asked):
        yield Step("dead letter", State.FAILED, _letter(row), row["at"], {"message_id": row["message_id"], "letter": row["id"]})
    for row in rows_of(conn, _SENT, asked):
        why = "its sender sent it, and remembers its id so that it is not sent again"
        yield Step("sender", State.DONE, why, row["at"], {"message_id": row["message_id"]})


def _waits(row: Shown) -> str:
    tries = f"tried {row['tries']} times in vain: {row['reason']}" if row["tries"] else row["reason"]
    due = f"the next try is in {about(row['next'])}" if row["next"] >= 1 else "it may be tried now"
    ahead = f"; {row['ahead']} are ahead of it" if row["ahead"] else ""
    return f"for sender {row['plugin']} of route {row['route']}: {tries}; {due}{ahead}"


def _letter(row: Shown) -> str:
    return (
        f"route {row['route']} gave it up at {row['step']}: {row['reason']}; "
        f"when its cause is gone: trunkline deadletters replay {row['id']}"
    )
