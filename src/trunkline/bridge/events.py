"""Handlers of events: rows that are added once, whatever their order and however often they come, by month.

An event is told apart by its name and time, an event of a policy by its count, too. What is there already is not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import psycopg

from trunkline.bridge.handler import Work, Written
from trunkline.bridge.history import retell
from trunkline.bridge.mapped import MappedRows, Values, write_rows
from trunkline.bridge.months import ensure_months
from trunkline.bridge.payload import Field, day_of
from trunkline.bridge.types import BundleType
from trunkline.db.awake import awake


@dataclass(frozen=True)
class EventsHandler:
    """`retells`: the days of these events in the history of compliance are told anew."""

    mapped: MappedRows
    retells: bool = False

    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        rows = {one.site: self._unique(declared, self.mapped.rows(conn, declared, one)) for one in awake(conn, work)}
        for table in declared.tables:
            ensure_months(conn, table, _days(declared, rows))
        written = write_rows(conn, declared, rows)
        if self.retells and any(one.written for one in written.values()):
            retold = retell(conn)
            return {site: Written(one.received, one.written + retold[site]) for site, one in written.items()}
        return written

    def _unique(self, declared: BundleType, rows: list[Values]) -> list[Values]:
        places = [declared.names.index(name) for name in declared.key]
        return list({tuple(row[place] for place in places): row for row in reversed(rows)}.values())


def _days(declared: BundleType, rows: Mapping[str, Sequence[Values]]) -> set[date]:
    place = declared.names.index("created_at")
    return {day_of(text) for text in {row[place] for values in rows.values() for row in values}}


def _fields(*names: str) -> tuple[Field, ...]:
    return tuple(Field((name,), "") for name in names)


_EVENT = (Field(("eventName",)), *_fields("eventNamespace", "message", "reason"))
_POLICY_EVENT = (
    *_EVENT,
    Field(("count",), "0"),
    Field(("source",), nullable=True),
    Field(("policyId",), ""),
    Field(("compliance",), nullable=True),
    Field(("createdAt",)),
)

CLUSTER_EVENTS = EventsHandler(
    MappedRows(
        (
            *_EVENT,
            *_fields("type", "clusterName", "clusterId", "reportingController", "reportingInstance"),
            Field(("createdAt",)),
        )
    )
)
ROOT_POLICY_EVENTS = EventsHandler(MappedRows(_POLICY_EVENT))
POLICY_EVENTS = EventsHandler(MappedRows((*_POLICY_EVENT, *_fields("clusterName", "clusterId"))), retells=True)
