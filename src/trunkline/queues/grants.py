"""Who may send under which client's name. All work in the caller's transaction, as an owner of the queues; the caller commits.

A role is given what it needs to call the functions of schema `trunkline`, once; what it may call them for is the client's row.
The rights to the functions stay after the last row is gone: without one they refuse.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from trunkline.core.errors import Invalid
from trunkline.core.ids import check_name

ANY_CLIENT = "*"


@dataclass(frozen=True)
class Granted:
    client: str
    role: str
    granted_at: datetime


def grant(conn: psycopg.Connection[Any], client: str, role: str) -> None:
    """`client` may be `*`, and `role` a group: its members may send as well."""
    name = _client(client)
    if not conn.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).rowcount:
        raise Invalid(f"role {role!r}", "this database server has no such role", "CREATE ROLE it first")
    for right in ("USAGE ON SCHEMA trunkline", "EXECUTE ON ALL FUNCTIONS IN SCHEMA trunkline"):
        conn.execute(sql.SQL("GRANT {} TO {}").format(sql.SQL(right), sql.Identifier(role)))
    conn.execute("INSERT INTO queues.client_grant (client, role) VALUES (%s, %s) ON CONFLICT DO NOTHING", (name, role))


def revoke(conn: psycopg.Connection[Any], client: str, role: str) -> None:
    gone = conn.execute("DELETE FROM queues.client_grant WHERE client = %s AND role = %s", (_client(client), role)).rowcount
    if not gone:
        raise Invalid(
            f"client {client!r}", f"role {role!r} has no grant for it", "see `trunkline queues grant` for those there are"
        )


def grants(conn: psycopg.Connection[Any]) -> list[Granted]:
    with conn.cursor(row_factory=class_row(Granted)) as cursor:
        return cursor.execute("SELECT client, role, granted_at FROM queues.client_grant ORDER BY client, role").fetchall()


def _client(name: str) -> str:
    return name if name == ANY_CLIENT else check_name("client", name)
