"""What the leader says of its sessions, as rows for everybody to read (`inspect.sessions`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from trunkline.core.jsoncodec import dumps
from trunkline.queues.sessionstatus import SessionStatus

_WRITE = """
INSERT INTO queues.status (role, remote, client, status)
SELECT * FROM unnest(%(roles)s::text[], %(remotes)s::text[], %(clients)s::text[], %(statuses)s::jsonb[])
ON CONFLICT (role, remote, client) DO UPDATE SET status = excluded.status, updated_at = now()
"""
_FORGET = """
DELETE FROM queues.status s WHERE NOT EXISTS (
    SELECT FROM unnest(%(roles)s::text[], %(remotes)s::text[], %(clients)s::text[]) AS k(role, remote, client)
     WHERE (k.role, k.remote, k.client) = (s.role, s.remote, s.client))
"""


def write_statuses(conn: psycopg.Connection[Any], statuses: Sequence[SessionStatus]) -> None:
    """All there are, in the caller's transaction: sessions that are not among them are no more."""
    keys = {f"{what}s": [getattr(status, what) for status in statuses] for what in ("role", "remote", "client")}
    conn.execute(_FORGET, keys)
    conn.execute(_WRITE, {**keys, "statuses": [Jsonb(msgspec.to_builtins(status), dumps=dumps) for status in statuses]})
