"""Handlers of what a hub says of itself: that it lives, what it is, and its alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from trunkline.bridge.handler import Work, Written
from trunkline.bridge.mapped import MappedRows, write_rows
from trunkline.bridge.payload import Field, moment, objects
from trunkline.bridge.types import BundleType

_NOW = "now"  # as Postgres reads it


@dataclass(frozen=True)
class Heartbeats:
    """Only the time of a heartbeat matters: when it was sent, or came, where it does not say when."""

    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        return write_rows(conn, declared, {one.site: [(self._sent(declared, one),)] for one in work})

    def _sent(self, declared: BundleType, work: Work) -> str:
        newest = work.parts[-1]
        objects(newest.data, declared.name)
        try:
            return moment(newest.time).isoformat()
        except (ValueError, OverflowError):
            return _NOW


HUB_INFO = MappedRows(
    fields=(
        Field(("clusterId",)), Field(("consoleURL",), ""), Field(("grafanaURL",), ""), Field(("mchVersion",), ""),
    ),
    needs="clusterId",
)  # fmt: skip

ALERT_COUNTS = MappedRows(
    fields=(
        Field(("source",), ""), Field(("low",), "0"), Field(("medium",), "0"), Field(("high",), "0"),
        Field(("critical",), "0"), Field(("detail_url",), ""),
    )
)  # fmt: skip
