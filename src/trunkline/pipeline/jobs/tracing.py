"""When a record of Kafka was read and routed by a job of this site, or why it was not yet. Batches tell it: they are kept for a
day, and each says which offsets it read, by which revision of the routes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, LiteralString

import msgspec
import psycopg

from trunkline.db.operated import Shown, rows_of
from trunkline.db.traced import State, Step
from trunkline.routes.instances import ALIVE_SECONDS
from trunkline.routes.keys import RouteKey

LOOKED_AT = 50_000
"""The newest batches of a group."""
TABLES = ("pipeline.job_batch", "pipeline.kafka_offset", "routes.group_count")

# The id is the beginning of one in base64: it may have slashes.
_KAFKA = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)@(?P<id>[^@]{8})/(?P<partition>\d{1,9})/(?P<offset>\d{1,18})")
_STANDS: LiteralString = """
SELECT o.reader_group, o.next_offset, g.failing, g.instance
  FROM pipeline.kafka_offset o
  LEFT JOIN LATERAL (
       SELECT c.failing, c.instance FROM routes.group_count c JOIN site.instance i ON i.id = c.instance
           AND i.heartbeat_at > clock_timestamp() - make_interval(secs => %(alive)s)
        WHERE c.name = o.reader_group AND c.holds ORDER BY i.heartbeat_at DESC LIMIT 1) g ON true
 WHERE o.topic = %(topic)s AND o.partition = %(partition)s AND starts_with(o.topic_id, %(id)s)
   AND starts_with(o.reader_group, 'routes:')
 ORDER BY o.reader_group
"""
# A move is written as [topic, partition, id, start, first, end].
_COVERS: LiteralString = """EXISTS (SELECT FROM jsonb_array_elements(b.body -> 'moves') AS m
        WHERE m ->> 0 = %(topic)s AND (m ->> 1)::int = %(partition)s AND starts_with(m ->> 2, %(id)s)
          AND (m ->> 4)::bigint <= %(offset)s AND (m ->> 5)::bigint > %(offset)s)"""
_BATCH: LiteralString = f"""
SELECT b.moves, b.revision, b.events, extract(epoch FROM b.planned_at)::float8 AS planned,
       extract(epoch FROM b.done_at)::float8 AS at
  FROM (SELECT * FROM pipeline.job_batch WHERE reader_group = %(group)s ORDER BY moves DESC LIMIT %(most)s) b
 WHERE {_COVERS} ORDER BY b.moves LIMIT 1
"""
_PLAN: LiteralString = f"""
SELECT b.moves, b.revision, extract(epoch FROM b.planned_at)::float8 AS at FROM pipeline.job_plan b
 WHERE b.reader_group = %(group)s AND {_COVERS}
"""
_GAP: LiteralString = """
SELECT extract(epoch FROM at)::float8 AS at FROM pipeline.kafka_gap
 WHERE reader_group = %(group)s AND topic = %(topic)s AND partition = %(partition)s AND starts_with(topic_id, %(id)s)
   AND from_offset <= %(offset)s AND to_offset > %(offset)s LIMIT 1
"""
_ROUTE: LiteralString = """
SELECT since <= %(revision)s AND (until IS NULL OR until > %(revision)s) AS live FROM pipeline.job_route
 WHERE reader_group = %(group)s AND (org, app, id) = (%(org)s, %(app)s, %(route)s) ORDER BY 1 DESC LIMIT 1
"""


class KafkaPlace(msgspec.Struct, frozen=True):
    """`id`: how the topic's id begins."""

    topic: str
    id: str
    partition: int
    offset: int


def kafka_place(source: str) -> KafkaPlace | None:
    """Of the id of an event, if it is one of a Kafka record."""
    found = _KAFKA.fullmatch(source)
    if found is None:
        return None
    return KafkaPlace(found["topic"], found["id"], int(found["partition"]), int(found["offset"]))


def routed(conn: psycopg.Connection[Any], place: KafkaPlace, route: RouteKey | None) -> Iterator[Step]:
    """One for each group that reads the topic; there may be several with a cluster that is known by several names."""
    asked: Shown = {**msgspec.structs.asdict(place), "most": LOOKED_AT, "alive": ALIVE_SECONDS}
    for stands in rows_of(conn, _STANDS, asked):
        asked["group"] = stands["reader_group"]
        if lost := rows_of(conn, _GAP, asked):
            why = "the broker trimmed it before it was read"
            yield Step("route job", State.FAILED, why, lost[0]["at"], {"group": asked["group"]})
        elif stands["next_offset"] > place.offset:
            yield _read(conn, asked, stands, route)
        else:
            yield _unread(conn, asked, stands, place)


def _read(conn: psycopg.Connection[Any], asked: Shown, stands: Shown, route: RouteKey | None) -> Step:
    found = rows_of(conn, _BATCH, asked)
    details = {"group": asked["group"], "next": stands["next_offset"]}
    if not found:
        old = "its batch is older than those that are kept, or the group began behind it"
        why = f"{asked['group']} reads on at offset {stands['next_offset']}; {old}"
        return Step("route job", State.UNKNOWN, why, None, details)
    batch = found[0]
    details |= {"batch": batch["moves"], "revision": batch["revision"], "planned": batch["planned"]}
    why = f"batch {batch['moves']} of {asked['group']} read and routed it, by revision {batch['revision']} of its routes"
    return Step("route job", State.DONE, why + _with_route(conn, asked, batch, route), batch["at"], details)


def _with_route(conn: psycopg.Connection[Any], asked: Shown, batch: Shown, route: RouteKey | None) -> str:
    if route is None:
        return ""
    of = {"org": route.tenant.org, "app": route.tenant.app, "route": route.id, "revision": batch["revision"]}
    found = rows_of(conn, _ROUTE, {**asked, **of})
    if found and not found[0]["live"]:
        return f"; route {route} was not live then"
    return ""


def _unread(conn: psycopg.Connection[Any], asked: Shown, stands: Shown, place: KafkaPlace) -> Step:
    details = {"group": asked["group"], "next": stands["next_offset"]}
    plan = rows_of(conn, _PLAN, asked)
    if plan:
        words = f"it is in the batch that is under way, the one behind {plan[0]['moves']}"
    else:
        at = stands["next_offset"]
        words = f"it is not read yet: {asked['group']} stands at offset {at}, {place.offset - at} before it"
    if stands["failing"]:
        words += f"; its job fails: {stands['failing']}"
    elif stands["instance"] is None:
        words += "; no pipeline runs it"
    return Step("route job", State.WAITS, words, plan[0]["at"] if plan else None, details)
