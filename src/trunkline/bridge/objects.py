"""Writes what hybrid bundles come to: rows of objects with the version of their last change, deleted softly.

The rules are at the top of `trunkline.bridge.hybrid`, which folds the bundles of a site; here are the statements that do for
many sites what was folded. A row that is as it should be is not written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
from psycopg import sql

from trunkline.bridge.clusterids import fill_cluster_ids
from trunkline.bridge.handler import Work, Written
from trunkline.bridge.hybrid import Folded, Kind, Named, Operation, Put, fold
from trunkline.bridge.staging import Stage, counted, plain
from trunkline.bridge.types import BundleType
from trunkline.core.bundle import Version
from trunkline.core.jsoncodec import dumps
from trunkline.db.awake import awake

_WHO = (("id", 'text COLLATE "C"'), ("namespace", 'text COLLATE "C"'), ("name", 'text COLLATE "C"'))
_VERSION = (("incarnation", "bigint"), ("generation", "bigint"))
_PUTS = Stage("object_puts", (("site", "text"), *_WHO, *_VERSION, ("is_deleted", "boolean"), ("payload", "jsonb")))
_DELETES = Stage("object_deletes", (("site", "text"), *_WHO, *_VERSION))
_BARRIERS = Stage("object_barriers", (("site", "text"), ("number", "int"), *_VERSION))
_LISTED = Stage("object_listed", (("site", "text"), ("number", "int"), *_WHO))

_PUT = """
INSERT INTO {table} AS t (site, {id}, {names}, payload, incarnation, generation, deleted_at, updated_at)
SELECT site, id, {names}, payload, incarnation, generation, CASE WHEN is_deleted THEN clock_timestamp() END, clock_timestamp()
  FROM pg_temp.object_puts AS p
 WHERE NOT EXISTS (SELECT 1 FROM {table} AS t
                    WHERE t.site = ANY(%(sites)s) AND t.site = p.site AND t.{id} = p.id
                      AND (t.deleted_at IS NOT NULL) = p.is_deleted AND {same_names} AND t.payload = p.payload)
 ORDER BY site, id
ON CONFLICT (site, {id}) DO UPDATE
   SET ({names}, payload, incarnation, generation, deleted_at, updated_at) =
       ({new_names}, excluded.payload, excluded.incarnation, excluded.generation, excluded.deleted_at, excluded.updated_at)
RETURNING t.site
"""
_GO = """
UPDATE {table} AS t
   SET deleted_at = clock_timestamp(), updated_at = clock_timestamp(), incarnation = d.incarnation, generation = d.generation
"""
_UNTOUCHED = """
   AND t.site = ANY(%(sites)s) AND t.deleted_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM pg_temp.object_puts AS p WHERE p.site = t.site AND p.id = t.{id})
RETURNING t.site
"""
_DELETE_BY_ID = f"{_GO} FROM pg_temp.object_deletes AS d WHERE t.site = d.site AND d.id = t.{{id}} {_UNTOUCHED}"
_DELETE_BY_NAME = f"""
{_GO} FROM pg_temp.object_deletes AS d
 WHERE t.site = d.site AND d.id = '' AND d.name = t.name AND {{same_namespace}} {_UNTOUCHED}
"""
_BAR = f"""
{_GO} FROM pg_temp.object_barriers AS d
 WHERE t.site = d.site AND d.number = %(number)s AND (t.incarnation, t.generation) <= (d.incarnation, d.generation)
   AND NOT EXISTS (SELECT 1 FROM pg_temp.object_listed AS l
                    WHERE l.site = t.site AND l.number = %(number)s AND l.id = t.{{id}})
   AND NOT EXISTS (SELECT 1 FROM pg_temp.object_listed AS d
                    WHERE d.site = t.site AND d.number = %(number)s AND d.id = '' AND d.name = t.name
                      AND {{same_namespace}}) {_UNTOUCHED}
"""


@cache
def _statement(text: str, table: str, kind: Kind) -> str:
    names = ("namespace", "name") if kind.namespaced else ("name",)
    composed = sql.SQL(text).format(
        table=sql.Identifier(*table.split(".")),
        id=sql.Identifier(kind.id_column),
        names=sql.SQL(", ").join(sql.Identifier(name) for name in names),
        new_names=sql.SQL(", ").join(sql.Identifier("excluded", name) for name in names),
        same_names=sql.SQL(" AND ").join(sql.SQL("t.{0} = p.{0}").format(sql.Identifier(name)) for name in names),
        same_namespace=sql.SQL("d.namespace IN ('', t.namespace)" if kind.namespaced else "true"),
    )
    return composed.as_string(None)


def _who(site: str, who: Named) -> tuple[str, ...]:
    return plain(site), plain(who.id), plain(who.namespace), plain(who.name)


def _version(version: Version) -> tuple[str, str]:
    return str(version.incarnation), str(version.generation)


def _line(*values: str) -> str:
    return "\t".join(values) + "\n"


def _put_lines(folded: Mapping[str, Folded]) -> Iterator[str]:
    """A block per site."""
    for site, one in folded.items():
        yield "".join(_put_line(site, put) for put in one.puts.values())


def _put_line(site: str, put: Put) -> str:
    payload = plain(dumps(put.payload).decode())
    return _line(*_who(site, put.who), *_version(put.version), "t" if put.is_deleted else "f", payload)


def _listed_lines(folded: Mapping[str, Folded]) -> Iterator[str]:
    for site, one in folded.items():
        for number, barrier in enumerate(one.barriers):
            for who in barrier.listed:
                yield _line(plain(site), str(number), *_who(site, who)[1:])


@dataclass(frozen=True)
class ObjectsHandler:
    kind: Kind
    fills_cluster_ids: bool = False

    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        folded = {one.site: fold(awake(conn, self._operations(declared, one))) for one in awake(conn, work)}
        written = self._put(conn, declared, folded) + self._delete(conn, declared, folded)
        written += self._bar(conn, declared, folded)
        if self.fills_cluster_ids and any(one.puts for one in folded.values()):
            written += fill_cluster_ids(conn)
        return {site: Written(_size(one), written[site]) for site, one in folded.items()}

    def _operations(self, declared: BundleType, one: Work) -> Iterator[Operation]:
        return (operation for part in one.parts for operation in self.kind.read(part, declared.name))

    def _run(
        self, conn: psycopg.Connection[Any], declared: BundleType, text: str, sites: Iterable[str], **values: object
    ) -> Counter[str]:
        return counted(conn, _statement(text, declared.table, self.kind), {"sites": list(sites), **values})

    def _put(self, conn: psycopg.Connection[Any], declared: BundleType, folded: Mapping[str, Folded]) -> Counter[str]:
        _PUTS.fill(conn, _put_lines(folded))
        return self._run(conn, declared, _PUT, folded) if any(one.puts for one in folded.values()) else Counter()

    def _delete(self, conn: psycopg.Connection[Any], declared: BundleType, folded: Mapping[str, Folded]) -> Counter[str]:
        deletes = [(site, delete) for site, one in folded.items() for delete in one.deletes]
        if not deletes:
            return Counter()
        _DELETES.fill(conn, (_line(*_who(site, one.who), *_version(one.version)) for site, one in deletes))
        return self._run(conn, declared, _DELETE_BY_ID, folded) + self._run(conn, declared, _DELETE_BY_NAME, folded)

    def _bar(self, conn: psycopg.Connection[Any], declared: BundleType, folded: Mapping[str, Folded]) -> Counter[str]:
        barriers = [(site, n, one) for site, each in folded.items() for n, one in enumerate(each.barriers)]
        if not barriers:
            return Counter()
        _BARRIERS.fill(conn, (_line(plain(site), str(n), *_version(one.version)) for site, n, one in barriers))
        _LISTED.fill(conn, _listed_lines(folded))
        most = max(n for _, n, _ in barriers) + 1
        return sum((self._run(conn, declared, _BAR, folded, number=number) for number in range(most)), Counter())


def _size(folded: Folded) -> int:
    return len(folded.puts) + len(folded.deletes)


MANAGED_CLUSTERS = ObjectsHandler(Kind("cluster_id", namespaced=False, claims=True), fills_cluster_ids=True)
POLICIES = ObjectsHandler(Kind("policy_id", namespaced=True, claims=False))
