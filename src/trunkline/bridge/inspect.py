"""What people and machines see of a hub's bridge: read only, each look in the caller's transaction, as plain values.

Looks at sites come in pages by name. The inbox is short while all is well, and has no index by age: it is looked at once for
all numbers, and not beyond MOST_WAITING entries. Everything else is read by a key, or has one row per site and type at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from trunkline.core.errors import Invalid
from trunkline.db.operated import Shown, rows_of
from trunkline.queues.inspect import shown_payload

MOST_WAITING = 100_000
MOST_NOTES = 20
MOST_OFFSETS = 1_000
MOST_SITES_ALONE = 500
COUNTED = (
    "received", "conflated", "rejected", "stale", "applied", "quarantined", "discarded", "joined", "expired", "rows_received",
    "rows_written",
)  # fmt: skip

# A bundle waits for its base where that is missing or older: of which run it is does not matter where it says incarnation 0.
# A base that is newer than an exact dependent wants parks nothing: the dependent is discarded when its turn comes.
_PARKED = """i.dependency_type IS NOT NULL AND (b.site IS NULL OR CASE WHEN i.dependency_incarnation = 0
         THEN b.value < i.dependency_generation
         ELSE (b.incarnation, b.value) < (i.dependency_incarnation, i.dependency_generation) END)"""
_HELD = "h.site IS NOT NULL AND NOT i.restores"
_WITH_BASE = "LEFT JOIN bridge.ledger b ON (b.site, b.type) = (i.site, i.dependency_type)"
_WITH_HOLD = """LEFT JOIN (SELECT DISTINCT site, holds FROM bridge.resync WHERE holds IS NOT NULL) h
         ON (h.site, h.holds) = (i.site, i.type)"""
_AGE = "extract(epoch FROM now() - {})::float8"

_SUMMARY = """
SELECT (SELECT count(*) FROM bridge.site) AS sites,
       (SELECT count(*) FROM bridge.site WHERE state = 'silent') AS silent,
       (SELECT count(*) FROM bridge.quarantine WHERE state = 'open') AS quarantined,
       (SELECT count(*) FROM bridge.resync) AS resyncs,
       coalesce((SELECT owner FROM site.lease WHERE name = 'bridge' AND expires_at > now()), '') AS owner,
       EXISTS (SELECT FROM site.lease WHERE name = 'bridge' AND expires_at > now()) AS running
"""
_WAITING = f"""
SELECT count(*) AS waiting, coalesce(sum(octet_length(i.data)), 0)::bigint AS waiting_bytes,
       count(*) FILTER (WHERE ({_PARKED}) OR ({_HELD})) AS parked,
       {_AGE.format("min(i.arrived_at)")} AS oldest_seconds
  FROM (SELECT * FROM bridge.inbox LIMIT {MOST_WAITING}) i {_WITH_BASE} {_WITH_HOLD}
"""
_SITES = f"""
SELECT s.site, s.transport, s.state, s.first_seen, s.last_seen, {_AGE.format("s.last_seen")} AS silence_seconds,
       {_AGE.format("s.state_since")} AS state_seconds,
       (SELECT {_AGE.format("max(event_time)")} FROM bridge.ledger l WHERE l.site = s.site) AS staleness_seconds
  FROM bridge.site s WHERE s.site > %(after)s ORDER BY s.site LIMIT %(most)s
"""
_NAMED = _SITES.replace("s.site > %(after)s ORDER BY s.site LIMIT %(most)s", "s.site = ANY(%(sites)s) ORDER BY s.site")
# Names under which nothing but refused messages came; '' is that of messages of which there is no telling whose they are.
_REFUSED = f"""
SELECT q.site, '' AS transport, 'refused' AS state, min(q.quarantined_at) AS first_seen, max(q.quarantined_at) AS last_seen,
       {_AGE.format("max(q.quarantined_at)")} AS silence_seconds, {_AGE.format("min(q.quarantined_at)")} AS state_seconds,
       NULL::float8 AS staleness_seconds
  FROM bridge.quarantine q
 WHERE q.state = 'open' AND q.site = ANY(%(sites)s) AND NOT EXISTS (SELECT FROM bridge.site s WHERE s.site = q.site)
 GROUP BY q.site ORDER BY q.site
"""
_LEDGER = f"""
SELECT site, type, incarnation, generation, value, event_time, {_AGE.format("applied_at")} AS age_seconds,
       {_AGE.format("event_time")} AS lag_seconds
  FROM bridge.ledger WHERE site = ANY(%(sites)s)
"""
_HEADS = f"""
SELECT i.site, i.type, i.mode, i.incarnation, i.generation, i.dependency_type, i.dependency_incarnation,
       i.dependency_generation, {_AGE.format("i.arrived_at")} AS waiting_seconds,
       b.incarnation AS base_incarnation, b.value AS base_value, {_PARKED} AS parked, {_HELD} AS held, i.waiting
  FROM (SELECT DISTINCT ON (site, type) site, type, mode, incarnation, generation, dependency_type, dependency_incarnation,
               dependency_generation, arrived_at, restores, count(*) OVER (PARTITION BY site, type) AS waiting
          FROM bridge.inbox WHERE site = ANY(%(sites)s) ORDER BY site, type, arrival) i
       {_WITH_BASE} AND b.site = ANY(%(sites)s) {_WITH_HOLD}
"""
_OPEN = f"""
SELECT DISTINCT ON (site, type) site, coalesce(type, '') AS type, id, mode, incarnation, generation, reason,
       {_AGE.format("quarantined_at")} AS age_seconds, count(*) OVER (PARTITION BY site, type) AS entries
  FROM bridge.quarantine WHERE state = 'open' AND site = ANY(%(sites)s)
 ORDER BY site, type, id DESC
"""
_RESYNCS = f"""
SELECT site, type, holds, reason, asks, {_AGE.format("wanted_at")} AS age_seconds, {_AGE.format("asked_at")} AS asked_seconds
  FROM bridge.resync WHERE site = ANY(%(sites)s)
"""
_CHUNKS = f"""
SELECT site, type, count(*) AS parts, {_AGE.format("min(arrived_at)")} AS age_seconds
  FROM bridge.chunk WHERE site = ANY(%(sites)s) GROUP BY site, type
"""
# Sites that somebody should look at, whatever page they are on: each kind its worst few.
_TROUBLED = f"""
SELECT site FROM (SELECT site FROM bridge.site WHERE state = 'silent' ORDER BY last_seen LIMIT {MOST_NOTES}) x
 UNION SELECT site FROM (SELECT site FROM bridge.quarantine WHERE state = 'open' ORDER BY id DESC LIMIT {MOST_NOTES}) x
 UNION SELECT site FROM (
       SELECT site FROM bridge.quarantine q WHERE state = 'open'
          AND NOT EXISTS (SELECT FROM bridge.site s WHERE s.site = q.site)
        GROUP BY site ORDER BY max(id) DESC LIMIT {MOST_NOTES}) x
 UNION SELECT site FROM (SELECT site FROM bridge.resync ORDER BY wanted_at LIMIT {MOST_NOTES}) x
 UNION SELECT site FROM (
       SELECT i.site FROM (SELECT * FROM bridge.inbox LIMIT {MOST_WAITING}) i {_WITH_BASE} WHERE {_PARKED}
        ORDER BY i.arrived_at LIMIT {MOST_NOTES}) x
 ORDER BY 1
"""
_COUNTERS = f"SELECT site, {', '.join(COUNTED)} FROM bridge.counter WHERE site = ANY(%(sites)s)"
_ALL_COUNTERS = f"SELECT site, {', '.join(COUNTED)} FROM bridge.counter ORDER BY site LIMIT {MOST_SITES_ALONE + 1}"
_SUMS = f"SELECT {', '.join(f'coalesce(sum({name}), 0)::bigint AS {name}' for name in COUNTED)} FROM bridge.counter"
_STALENESS = f"""
SELECT site, {_AGE.format("max(event_time)")} AS seconds FROM bridge.ledger WHERE event_time IS NOT NULL GROUP BY site
"""
_QUARANTINE = f"""
SELECT id, site, coalesce(type, '') AS type, coalesce(mode, '') AS mode, incarnation, generation, reason, queue, position,
       state, quarantined_at, {_AGE.format("quarantined_at")} AS age_seconds, octet_length(payload) AS bytes
  FROM bridge.quarantine
"""
_ONE_QUARANTINED = f"""
SELECT q.*, p.headers, p.settled_at, substring(p.payload FOR %(shown)s) AS payload
  FROM ({_QUARANTINE} WHERE id = %(id)s) q JOIN bridge.quarantine p ON p.id = q.id
"""
_QUEUE_OFFSETS = f"""
SELECT 'queues' AS transport, reader_group, queue AS source, (payload->>'next')::bigint AS next,
       {_AGE.format("updated_at")} AS age_seconds
  FROM status.transport ORDER BY reader_group, queue LIMIT {MOST_OFFSETS}
"""
_KAFKA_OFFSETS = f"""
SELECT 'kafka' AS transport, reader_group, topic || '@' || partition AS source, next_offset AS next,
       {_AGE.format("updated_at")} AS age_seconds
  FROM pipeline.kafka_offset ORDER BY reader_group, topic, partition LIMIT {MOST_OFFSETS}
"""


class NoSuchSite(Invalid):
    def __init__(self, site: str) -> None:
        super().__init__(f"site {site!r}", "the bridge never heard of it", "see which there are with `trunkline bridge status`")


class NoSuchBundle(Invalid):
    def __init__(self, id: int) -> None:
        next_step = "see which there are with `trunkline bridge quarantine ls --all`"
        super().__init__(f"bundle {id} of the quarantine", "there is none of this number", next_step)


def summary(conn: psycopg.Connection[Any]) -> Shown:
    found = rows_of(conn, _SUMMARY)[0] | rows_of(conn, _WAITING)[0]
    return found | {"active": found["sites"] - found["silent"]}


def stored(site: str) -> str:
    """The name, if a database can have it at all."""
    if "\x00" in site or not site.isprintable():
        raise NoSuchSite(site)
    return site


def sites(conn: psycopg.Connection[Any], after: str, most: int) -> tuple[list[Shown], str | None]:
    """A page of sites with their types, and after which name the next one begins."""
    rows = rows_of(conn, _SITES, {"after": stored(after), "most": most + 1})
    page = rows[:most]
    return _with_types(conn, page), page[-1]["site"] if len(rows) > most else None


def site(conn: psycopg.Connection[Any], name: str) -> Shown:
    rows = _named(conn, [stored(name)])
    if not rows:
        raise NoSuchSite(name)
    counters = rows_of(conn, _COUNTERS, {"sites": [name]})
    counted = {key: counters[0][key] if counters else 0 for key in COUNTED}
    return _with_types(conn, rows)[0] | {"counters": counted}


def heard(conn: psycopg.Connection[Any], name: str) -> None:
    """Raises where no bundle of the site was ever taken in."""
    if not rows_of(conn, _NAMED, {"sites": [stored(name)]}):
        raise NoSuchSite(name)


def troubled(conn: psycopg.Connection[Any]) -> list[Shown]:
    """The sites that somebody should look at, in no more than some few of each kind."""
    names = [row["site"] for row in rows_of(conn, _TROUBLED)]
    return _with_types(conn, _named(conn, names))


def _named(conn: psycopg.Connection[Any], names: Sequence[str]) -> list[Shown]:
    """Those that were heard, and those of which all was refused so far."""
    asked = {"sites": list(names)}
    return sorted(rows_of(conn, _NAMED, asked) + rows_of(conn, _REFUSED, asked), key=lambda row: str(row["site"]))


def _with_types(conn: psycopg.Connection[Any], rows: Sequence[Shown]) -> list[Shown]:
    asked = {"sites": [row["site"] for row in rows]}
    found = {what: rows_of(conn, query, asked) for what, query in _PARTS.items()}
    by_site: dict[str, dict[str, Shown]] = {row["site"]: {} for row in rows}
    for what, parts in found.items():
        for part in parts:
            by_site[part["site"]].setdefault(part["type"], {})[what] = part
    return [_site(row, by_site[row["site"]]) for row in rows]


_PARTS = {"applied": _LEDGER, "head": _HEADS, "aside": _OPEN, "resync": _RESYNCS, "chunks": _CHUNKS}


def _site(row: Shown, types: dict[str, Shown]) -> Shown:
    times = {name: row[name].isoformat(timespec="seconds") for name in ("first_seen", "last_seen")}
    return row | times | {"types": [_type(name, types[name]) for name in sorted(types)]}


def _type(name: str, parts: Shown) -> Shown:
    applied, head = parts.get("applied", {}), parts.get("head", {})
    return {
        "type": name,
        "version": _version(applied, "incarnation", "generation"),
        "value": applied.get("value"),
        "event_time": applied["event_time"].isoformat() if applied.get("event_time") else None,
        "age_seconds": applied.get("age_seconds"),
        "lag_seconds": applied.get("lag_seconds"),
        "waiting": head.get("waiting", 0),
        "next": _next(head) if head else None,
        "quarantined": _aside(parts["aside"]) if "aside" in parts else None,
        "resync": _without(parts["resync"], "site", "type") if "resync" in parts else None,
        "chunks": parts["chunks"]["parts"] if "chunks" in parts else 0,
    }


def _next(head: Shown) -> Shown:
    """What waits first of its type, and what it waits for."""
    needs = _version(head, "dependency_incarnation", "dependency_generation") if head["dependency_type"] else None
    return {
        "version": _version(head, "incarnation", "generation"), "mode": head["mode"], "parked": head["parked"] or head["held"],
        "held": head["held"], "base": head["dependency_type"], "needs": needs,
        "has": _version(head, "base_incarnation", "base_value"), "waiting_seconds": head["waiting_seconds"],
    }  # fmt: skip


def _aside(row: Shown) -> Shown:
    kept = {key: row[key] for key in ("id", "entries", "reason", "age_seconds")}
    return kept | {"version": _version(row, "incarnation", "generation"), "mode": row["mode"] or ""}


def _version(row: Shown, incarnation: str, generation: str) -> str | None:
    return f"{row[incarnation]}.{row[generation]}" if row.get(incarnation) is not None else None


def _without(row: Shown, *keys: str) -> Shown:
    return {key: value for key, value in row.items() if key not in keys}


def numbers(conn: psycopg.Connection[Any]) -> Shown:
    """For metrics. With more sites than MOST_SITES_ALONE there are only sums, and the largest staleness."""
    counters = rows_of(conn, _ALL_COUNTERS)
    staleness = rows_of(conn, _STALENESS)
    alone = max(len(counters), len(staleness)) <= MOST_SITES_ALONE
    return summary(conn) | {
        "counters": counters if alone else [rows_of(conn, _SUMS)[0] | {"site": "*"}],
        "staleness": staleness if alone else [],
        "staleness_max": max((row["seconds"] for row in staleness), default=0.0),
    }


def quarantine(conn: psycopg.Connection[Any], site: str | None, settled: bool, before: int, most: int) -> list[Shown]:
    """The newest first. `settled`: also those that somebody or something has dealt with."""
    named = None if site is None else stored(site)
    where = ["id < %(before)s", *([] if settled else ["state = 'open'"]), *(["site = %(site)s"] if site is not None else [])]
    query = f"{_QUARANTINE} WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT %(most)s"
    return [_quarantined(row) for row in rows_of(conn, query, {"site": named, "before": before, "most": most})]


def quarantined(conn: psycopg.Connection[Any], id: int, shown: int) -> Shown:
    rows = rows_of(conn, _ONE_QUARANTINED, {"id": id, "shown": shown})
    if not rows:
        raise NoSuchBundle(id)
    row = rows[0]
    settled = {"settled_at": row["settled_at"].isoformat() if row["settled_at"] else None, "headers": row["headers"]}
    return _quarantined(row) | settled | shown_payload(bytes(row["payload"]), row["bytes"])


def _quarantined(row: Shown) -> Shown:
    keys = ("id", "site", "type", "mode", "reason", "queue", "position", "state", "age_seconds", "bytes")
    about = {"version": _version(row, "incarnation", "generation"), "quarantined_at": row["quarantined_at"].isoformat()}
    return {key: row[key] for key in keys} | about


def offsets(conn: psycopg.Connection[Any]) -> list[Shown]:
    """Where intake reads on: the queues, and Kafka where that is read."""
    found = rows_of(conn, _QUEUE_OFFSETS)
    if rows_of(conn, "SELECT to_regclass('pipeline.kafka_offset') IS NOT NULL AS there")[0]["there"]:
        found += rows_of(conn, _KAFKA_OFFSETS)
    return found
