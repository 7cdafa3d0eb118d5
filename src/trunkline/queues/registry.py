"""The registry of sites: every site ever configured or seen is a destination one may name, for ever.

Both work in the caller's transaction, which the caller commits.
"""

from __future__ import annotations

from typing import Any

import psycopg

from trunkline.core.ids import check_name


def remember_site(conn: psycopg.Connection[Any], name: str) -> None:
    # The look first: a site that is known already costs no write.
    conn.execute(
        "INSERT INTO queues.site (name) SELECT %(name)s WHERE NOT EXISTS (SELECT FROM queues.site WHERE name = %(name)s) "
        "ON CONFLICT DO NOTHING",
        {"name": check_name("site", name)},
    )


def known_sites(conn: psycopg.Connection[Any]) -> set[str]:
    return {name for (name,) in conn.execute("SELECT name FROM queues.site")}
