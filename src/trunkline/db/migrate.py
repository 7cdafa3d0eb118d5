"""SQL migrations: numbered files per part, applied once, in order, under one lock, at every start.

A part owns the schemas its files create. Files only add; a file that was applied must never change, which its
checksum proves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib import resources

import psycopg

from trunkline.core.errors import Terminal

# A word of our own, so that two processes that start together do not both migrate.
_LOCK = 0x7472756E6B

_BOOT = """
CREATE SCHEMA IF NOT EXISTS site;
CREATE TABLE IF NOT EXISTS site.migration (
    part       text        NOT NULL,
    number     int         NOT NULL,
    name       text        NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (part, number)
)
"""


def _files(part: str) -> Iterator[tuple[int, str, str]]:
    """(number, name, text) of the package's sql folder, for example trunkline.queues → queues/sql/001_send.sql."""
    for file in sorted(resources.files(f"trunkline.{part}").joinpath("sql").iterdir(), key=lambda f: f.name):
        number, _, _ = file.name.partition("_")
        if file.name.endswith(".sql") and number.isdigit():
            yield int(number), file.name, file.read_text()


def migrate(dsn: str, *parts: str) -> list[str]:
    """Brings the schemas of `parts` up to date, `db` first; returns the names of the files applied now."""
    applied: list[str] = []
    with psycopg.connect(dsn) as conn:
        conn.execute("SET LOCAL client_min_messages = warning")
        conn.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        conn.execute(_BOOT)
        for part in dict.fromkeys(("db", *parts)):
            done: dict[int, str] = dict(
                conn.execute("SELECT number, checksum FROM site.migration WHERE part = %s", (part,)).fetchall()
            )
            for number, name, text in _files(part):
                checksum = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
                if number not in done:
                    conn.execute(text.encode())
                    conn.execute(
                        "INSERT INTO site.migration (part, number, name, checksum) VALUES (%s, %s, %s, %s)",
                        (part, number, name, checksum),
                    )
                    applied.append(f"{part}/{name}")
                elif done[number] != checksum:
                    raise Terminal(
                        f"migration {part}/{name}", "it was applied with another text", "restore it and add a new file"
                    )
    return applied
