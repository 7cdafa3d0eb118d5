"""Where a bundle is at the hub: before intake, in the inbox, set aside, or applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, LiteralString

import psycopg

from trunkline.bridge import explain, inspect
from trunkline.bridge.types import Types
from trunkline.core.bundle import UNTOLD, Bundle, parse_bundle
from trunkline.core.errors import Invalid
from trunkline.db.operated import Shown, rows_of
from trunkline.db.traced import State, Step, Wanted, matches
from trunkline.queues.tracing import Arrival

LOOKED_AT = 100_000
"""Entries of the inbox, and of the newest that were set aside."""
TABLES = ("bridge.inbox", "bridge.ledger", "status.transport")

_HERE: LiteralString = (
    f"({matches('headers')} OR (queue, position) IN (SELECT * FROM unnest(%(queues)s::text[], %(at)s::bigint[])))"
)
_INTAKE: LiteralString = """
SELECT (payload ->> 'next')::bigint AS next, extract(epoch FROM updated_at)::float8 AS at,
       EXISTS (SELECT FROM site.lease WHERE name = 'bridge' AND expires_at > now()) AS running
  FROM status.transport WHERE queue = %(queue)s ORDER BY reader_group LIMIT 1
"""
_INBOX: LiteralString = f"""
SELECT site, type, incarnation, generation, headers, extract(epoch FROM arrived_at)::float8 AS at
  FROM (SELECT * FROM bridge.inbox LIMIT %(most)s) i WHERE {_HERE} LIMIT %(found)s
"""
_CHUNKS: LiteralString = f"""
SELECT site, type, extract(epoch FROM arrived_at)::float8 AS at, end_byte, size
  FROM (SELECT * FROM bridge.chunk ORDER BY arrived_at DESC LIMIT %(most)s) c WHERE {_HERE} LIMIT %(found)s
"""
_QUARANTINE: LiteralString = f"""
SELECT id, site, type, reason, state, headers, extract(epoch FROM quarantined_at)::float8 AS at
  FROM (SELECT * FROM bridge.quarantine ORDER BY id DESC LIMIT %(most)s) q WHERE {_HERE} ORDER BY id DESC LIMIT %(found)s
"""
_LEDGER: LiteralString = """
SELECT incarnation, generation, extract(epoch FROM applied_at)::float8 AS at FROM bridge.ledger
 WHERE (site, type) = (%(site)s, %(type)s)
"""


def taken_in(
    conn: psycopg.Connection[Any],
    types: Types,
    wanted: Wanted,
    arrivals: Sequence[Arrival],
    headers: Sequence[Mapping[str, str]],
) -> Iterator[Step]:
    """`headers`: of the record wherever it was seen, so that it is known what it is when only the ledger knows of it."""
    asked = wanted.args(queues=[one.queue for one in arrivals], at=[one.position for one in arrivals], most=LOOKED_AT)
    for arrival in arrivals:
        yield from _intake(conn, arrival)
    waiting = rows_of(conn, _INBOX, asked)
    parts = rows_of(conn, _CHUNKS, asked)
    aside = rows_of(conn, _QUARANTINE, asked)
    yield from (_waits(conn, types, row) for row in waiting)
    yield from (_part(row) for row in parts)
    yield from (_aside(row) for row in aside)
    if not waiting and not parts and not any(row["state"] == "open" for row in aside):
        for bundle in _bundles([*headers, *(row["headers"] for row in aside)]):
            yield from _applied(conn, bundle)


def _intake(conn: psycopg.Connection[Any], arrival: Arrival) -> Iterator[Step]:
    for row in rows_of(conn, _INTAKE, {"queue": arrival.queue}):
        details = {"queue": arrival.queue, "position": arrival.position, "next": row["next"]}
        if row["next"] > arrival.position:
            exact = row["at"] if row["next"] == arrival.position + 1 else None
            yield Step("intake", State.DONE, f"it reads {arrival.queue} on at {row['next']}", exact, details)
        else:
            runs = "" if row["running"] else "; no bridge runs: start it with `trunkline bridge run`"
            yield Step("intake", State.WAITS, f"it reads {arrival.queue} on at {row['next']}{runs}", None, details)


def _waits(conn: psycopg.Connection[Any], types: Types, row: Shown) -> Step:
    found = inspect.site(conn, row["site"]) if _heard(conn, row["site"]) else None
    part = next((one for one in found["types"] if one["type"] == row["type"]), None) if found else None
    why = explain.waits(types, found, part) if found and part and part["next"] else "a database worker applies it"
    version = f"{row['incarnation']}.{row['generation']}"
    return Step("inbox", State.WAITS, why, row["at"], {"site": row["site"], "type": row["type"], "version": version})


def _heard(conn: psycopg.Connection[Any], site: str) -> bool:
    return bool(rows_of(conn, "SELECT 1 FROM bridge.site WHERE site = %(site)s", {"site": site}))


def _part(row: Shown) -> Step:
    why = f"it is a part of a larger bundle, up to byte {row['end_byte']} of {row['size']}, and waits for the others"
    return Step("chunks", State.WAITS, why, row["at"], {"site": row["site"], "type": row["type"]})


def _aside(row: Shown) -> Step:
    state = State.FAILED if row["state"] == "open" else State.DONE
    next_step = f"; see `trunkline bridge quarantine show {row['id']}`" if row["state"] == "open" else ""
    why = f"it was set aside, and is {row['state']}: {row['reason']}{next_step}"
    return Step("quarantine", state, why, row["at"], {"id": row["id"], "site": row["site"], "type": row["type"]})


def _bundles(headers: Sequence[Mapping[str, str]]) -> Iterator[Bundle]:
    seen: set[tuple[str, str, str]] = set()
    for one in headers:
        try:
            bundle = parse_bundle(one, b"", one.get("ce_source", ""))
        except Invalid:
            continue
        if (name := (bundle.source, bundle.type, bundle.id)) not in seen:
            seen.add(name)
            yield bundle


def _applied(conn: psycopg.Connection[Any], bundle: Bundle) -> Iterator[Step]:
    details = {"site": bundle.source, "type": bundle.type, "version": str(bundle.version)}
    for row in rows_of(conn, _LEDGER, {"site": bundle.source, "type": bundle.type}):
        there, own = (row["incarnation"], row["generation"]), (bundle.version.incarnation, bundle.version.generation)
        newest = f"{bundle.type} {there[0]}.{there[1]} of {bundle.source}"
        if own[0] == UNTOLD:
            why = f"{newest} is applied; this bundle is number {own[1]} of a run that its sender does not name"
            yield Step("ledger", State.DONE if there[1] == own[1] else State.UNKNOWN, why, row["at"], details)
        elif there == own:
            yield Step("ledger", State.DONE, f"{newest} is applied: it is this one", row["at"], details)
        elif there > own:
            yield Step("ledger", State.DONE, f"{newest} is applied, which is newer", None, details)
        else:
            yield Step("ledger", State.WAITS, f"{newest} is applied; this one is newer, and has not come here", None, details)
