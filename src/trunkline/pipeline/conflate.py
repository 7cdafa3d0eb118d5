"""Conflation of a micro-batch on Spark: of the complete bundles of a (site, type) only the newest goes on.

C1  A message that would be refused never displaces one that would not. So only messages whose headers are certainly in
    order are conflated; all others go on as they are, and intake judges them by the one rule there is for that.
C2  Of equal versions the first to arrive stays, as in the inbox.
C3  Every survivor carries how many messages it stands for, so one Spark job gives survivors, counts per site and the
    number of rows read.

The site is the authenticated sender, never what the headers say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.types import BundleType
from trunkline.core.bundle import Mode

# Above this the window's sort costs more than a second pass.
WINDOW_ROWS = 50_000

_NUMBER = "[0-9]{1,18}"


@dataclass(frozen=True)
class Survivor:
    queue: str
    position: int
    remote: str
    headers: str
    payload: bytes
    copies: int


@dataclass(frozen=True)
class Conflated:
    survivors: list[Survivor]

    def received(self) -> Counter[str]:
        """Messages per site."""
        return self._sum((s.remote, s.copies) for s in self.survivors)

    def read(self) -> Counter[str]:
        """Messages per queue."""
        return self._sum((s.queue, s.copies) for s in self.survivors)

    @staticmethod
    def _sum(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
        sums: Counter[str] = Counter()
        for name, copies in pairs:
            sums[name] += copies
        return sums


def _as_declared(declared: BundleType) -> str:
    depends = ""
    if declared.depends_on:
        depends = rf" OR ce_dependency RLIKE r'\A{re.escape(declared.depends_on)}@{_NUMBER}\.{_NUMBER}\z'"
    return f"(ce_type = '{declared.name}' AND (coalesce(ce_dependency, '') = ''{depends}))"


def _in_order() -> str:
    complete = [_as_declared(t) for t in SHIPPED.values() if t.mode is Mode.COMPLETE]
    number = rf"RLIKE r'\A{_NUMBER}\z'"
    return (
        f"coalesce(ce_mode = '{Mode.COMPLETE}' AND ce_source = remote AND ce_id <> ''"
        f" AND ce_incarnation {number} AND ce_generation {number} AND ({' OR '.join(complete)}), false)"
    )


# Texts, not columns: each step of building a column is a call into the JVM, and a small batch would spend its time there.
IN_ORDER = _in_order()
_COLUMNS = ("queue", "position", "remote", "headers", "payload", "copies")
_GROUP = "PARTITION BY remote, if(in_order, ce_type, NULL), if(in_order, 0, position)"
_NEWEST = "try_cast(ce_incarnation AS BIGINT) DESC, try_cast(ce_generation AS BIGINT) DESC, position"
_TOP = "max(struct(CAST(ce_incarnation AS BIGINT) AS i, CAST(ce_generation AS BIGINT) AS g, -position AS p))"


def by_window(batch: DataFrame) -> DataFrame:
    """One shuffle with the payloads. A message that is not in order is a group of its own."""
    return (
        batch.selectExpr("*", f"{IN_ORDER} AS in_order")
        .selectExpr("*", f"row_number() OVER ({_GROUP} ORDER BY {_NEWEST}) AS place", f"count(1) OVER ({_GROUP}) AS copies")
        .where("place = 1")
    )


def by_two_phases(batch: DataFrame) -> DataFrame:
    """The newest versions first, without payloads; then the rows that have them."""
    newest = (
        batch.where(IN_ORDER)
        .groupBy("remote", "ce_type")
        .agg(F.expr(f"-{_TOP}.p AS position"), F.expr("count(1) AS n"))
        .select("remote", "position", "n")
    )
    joined = batch.join(F.broadcast(newest), ["remote", "position"], "left")
    return joined.where(f"NOT {IN_ORDER} OR n IS NOT NULL").selectExpr("*", "coalesce(n, 1) AS copies")


def conflate(batch: DataFrame, rows: int) -> Conflated:
    """`rows` is what the plan promises; it only chooses the way."""
    if rows < WINDOW_ROWS:
        return _collected(by_window(batch))
    kept = batch.persist()
    try:
        return _collected(by_two_phases(kept))
    finally:
        kept.unpersist()


def _collected(survivors: DataFrame) -> Conflated:
    table: Any = survivors.select(*_COLUMNS).toArrow()
    return Conflated([Survivor(*row) for row in zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True)])
