"""Conflation of a micro-batch on Spark: of the complete bundles of a (site, type) only the newest goes on.

C1  A message that would be refused never displaces one that would not. So only messages whose headers are certainly in
    order are conflated; all others go on as they are, and intake judges them by the one rule there is for that.
C2  Of equal versions the first to arrive stays, as in the inbox.
C3  Every survivor carries how many messages it stands for, so one Spark job gives survivors, counts per site and the
    number of rows read.
C4  Where intake tells a sender's runs apart (incarnation "auto"), only messages of one *stretch* are compared: those that
    follow each other with the same session and with generations that grow. A message of generation 0 is a stretch
    of its own, for it may begin a run. So whatever begins a run goes on, and what the run ends with.
C5  Chunks are never conflated: each is a part of something else.

The site is the authenticated sender, never what the headers say. Survivors come in the order of queue and position.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import msgspec
from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.bridge.types import BundleType, Types
from trunkline.core.bundle import AUTO, Mode
from trunkline.core.jsoncodec import loads
from trunkline.pipeline.arrivals import HEADER_COLUMNS
from trunkline.pipeline.newest import Newest
from trunkline.queues.kinds import Kind

# Up to this a plan with a shuffle takes Spark longer to make than a batch to be conflated by hand.
HAND_ROWS = 5_000
# Above this the window's sort costs more than a second pass.
WINDOW_ROWS = 50_000

_NUMBER = "[0-9]{1,18}"


class Survivor(msgspec.Struct, frozen=True):
    queue: str
    position: int
    remote: str
    headers: dict[str, str]
    payload: bytes
    copies: int = 1
    at: float | None = None
    kind: Kind = Kind.LOG_ENTRY

    @property
    def is_bundle(self) -> bool:
        return self.kind is Kind.LOG_ENTRY or self.kind is Kind.SNAPSHOT


@dataclass(frozen=True)
class Conflated:
    survivors: list[Survivor]

    def received(self) -> Counter[str]:
        """Messages per site."""
        return self._sum((s.remote, s.copies) for s in self.survivors if s.is_bundle)

    def read(self) -> Counter[str]:
        """Entries per queue, as far as all bundles of a site come from one."""
        return self._sum((s.queue, s.copies) for s in self.survivors)

    @staticmethod
    def _sum(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
        sums: Counter[str] = Counter()
        for name, copies in pairs:
            sums[name] += copies
        return sums


def _as_declared(declared: BundleType) -> str:
    allowed = [] if declared.needs_dependency else ["coalesce(ce_dependency, '') = ''"]
    if declared.depends_on:
        allowed.append(rf"ce_dependency RLIKE r'\A{re.escape(declared.depends_on)}@{_NUMBER}\.{_NUMBER}\z'")
    return f"(ce_type = '{declared.name}' AND ({' OR '.join(allowed)}))"


def in_order(types: Types) -> str:
    """A condition that holds only for complete bundles that intake accepts."""
    complete = [_as_declared(t) for t in types.values() if t.mode is Mode.COMPLETE]
    number = rf"RLIKE r'\A{_NUMBER}\z'"
    return (
        f"coalesce(ce_mode = '{Mode.COMPLETE}' AND ce_source = remote AND ce_id <> ''"
        f" AND (ce_incarnation {number} OR ce_incarnation = '{AUTO}') AND ce_generation {number}"
        f" AND (coalesce(ce_value, '') = '' OR ce_value {number}) AND coalesce(ce_chunk, '') = ''"
        " AND NOT contains(concat_ws('', ce_id, ce_time, ce_session), chr(0))"
        f" AND ({' OR '.join(complete) or 'false'}), false)"
    )


# Texts, not columns: each step of building a column is a call into the JVM, and a small batch would spend its time there.
_IS_AUTO = f"ce_incarnation = '{AUTO}'"
_GENERATION = "try_cast(ce_generation AS BIGINT)"
_INCARNATION = "coalesce(try_cast(ce_incarnation AS BIGINT), 0)"
_SESSION = "coalesce(ce_session, '')"
_IN_TURN = "OVER (PARTITION BY remote, ce_type, turned ORDER BY queue, position)"
_TURNS = (
    f"int(turned AND ({_GENERATION} = 0 OR lag({_GENERATION}, 1, 0) {_IN_TURN} = 0"
    f" OR {_GENERATION} <= lag({_GENERATION}, 1, 0) {_IN_TURN} OR {_SESSION} <> lag({_SESSION}, 1, '') {_IN_TURN})) AS turns"
)
_STRETCH = f"sum(turns) {_IN_TURN} AS stretch"
# It begins as the other window does, so that one shuffle serves both.
_GROUP = "PARTITION BY remote, ce_type, turned, stretch, in_order, if(in_order, NULL, queue), if(in_order, 0, position)"
_NEWEST = f"{_INCARNATION} DESC, {_GENERATION} DESC, queue, position"
_TOP = f"min_by(struct(queue, position), struct(-{_INCARNATION} AS i, -{_GENERATION} AS g, queue AS q, position AS p))"
_NARROW = ("queue", "position", "remote", "ce_type", "ce_incarnation", "ce_generation", "ce_session", "messages")


def _stretched(batch: DataFrame) -> DataFrame:
    """C4: `stretch` counts the stretches of a site and type."""
    return batch.selectExpr("*", _TURNS).selectExpr("*", _STRETCH)


class Conflation:
    """By the types of one hub. `by_window` and `by_two_phases` give the same survivors; their speed differs.
    `few_come`: whether the first large batch is expected to have been conflated where it was read."""

    def __init__(self, types: Types, few_come: bool = False) -> None:
        self.in_order = in_order(types)
        self._newest = Newest.of(types)
        self._few_come = few_come

    def by_window(self, batch: DataFrame) -> DataFrame:
        """One shuffle with the payloads. A message that is not in order is a group of its own."""
        judged = batch.selectExpr("*", f"{self.in_order} AS in_order").selectExpr("*", f"in_order AND {_IS_AUTO} AS turned")
        return (
            _stretched(judged)
            .selectExpr(
                "*", f"row_number() OVER ({_GROUP} ORDER BY {_NEWEST}) AS place", f"sum(messages) OVER ({_GROUP}) AS copies"
            )
            .where("place = 1")
        )

    def by_two_phases(self, batch: DataFrame) -> DataFrame:
        """The newest versions first, without payloads; then the rows that have them."""
        known = batch.where(self.in_order).select(*_NARROW)
        plain = known.where(f"NOT {_IS_AUTO}").groupBy("remote", "ce_type")
        turned = _stretched(known.where(_IS_AUTO).selectExpr("*", "true AS turned")).groupBy("remote", "ce_type", "stretch")
        best = (F.expr(f"{_TOP} AS best"), F.expr("sum(messages) AS n"))
        newest = plain.agg(*best).select("best", "n").unionAll(turned.agg(*best).select("best", "n"))
        named = newest.selectExpr("best.queue AS queue", "best.position AS position", "n")
        joined = batch.join(F.broadcast(named), ["queue", "position"], "left")
        return joined.where(f"NOT {self.in_order} OR n IS NOT NULL").selectExpr("*", "coalesce(n, messages) AS copies")

    def conflate(self, batch: DataFrame, rows: int) -> Conflated:
        """`rows` is what the plan promises. Of a large batch most may have been left out where it was read; whether that was so
        last time is a good guess. Both only choose the way."""
        if rows <= HAND_ROWS:
            return self.by_hand(_as_they_are(batch))
        if self._few_come:
            return self._by_guess(batch)
        if rows < WINDOW_ROWS:
            return Conflated(_in_order(_collected(self.by_window(batch))))
        kept = batch.persist()
        try:
            self._few_come = kept.count() <= HAND_ROWS
            if self._few_come:
                return self.by_hand(_as_they_are(kept))
            return Conflated(_in_order(_collected(self.by_two_phases(kept))))
        finally:
            kept.unpersist()

    def _by_guess(self, batch: DataFrame) -> Conflated:
        """Without keeping the batch to count it first. A guess that fails costs one batch collected whole."""
        self._few_come = False
        every = list(_as_they_are(batch))
        self._few_come = len(every) <= HAND_ROWS
        return self.by_hand(every)

    def by_hand(self, survivors: Iterable[Survivor]) -> Conflated:
        """Of messages as they came."""
        every = _in_order(survivors)
        if len({(s.remote, s.headers.get("ce_type")) for s in every}) == len(every):
            return Conflated(every)
        kept = self._newest.choose(("", s.remote, s.headers, s.copies) for s in every)
        return Conflated([replace(every[number], copies=copies) for number, copies in kept.items()])


def _in_order(survivors: Iterable[Survivor]) -> list[Survivor]:
    return sorted(survivors, key=lambda s: (s.queue, s.position))


_COLUMNS = ("queue", "position", "remote", "payload", "at", "kind", "headers", *HEADER_COLUMNS)


def _as_they_are(batch: DataFrame) -> Iterator[Survivor]:
    """All columns there are: one that is left out would be work for Spark."""
    return _survivors(batch.toArrow(), "messages")


def _collected(survivors: DataFrame) -> Iterator[Survivor]:
    return _survivors(survivors.select(*_COLUMNS, "copies").toArrow(), "copies")


def _survivors(table: Any, copies: str) -> Iterator[Survivor]:
    return starmap(_survivor, zip(*(table[name].to_pylist() for name in (copies, *_COLUMNS)), strict=True))


def _survivor(
    copies: int, queue: str, position: int, remote: str, payload: bytes, at: float | None, kind: int, headers: str | None,
    *known: str | None,
) -> Survivor:  # fmt: skip
    more = loads(headers) if headers else {}
    named = {name: value for name, value in zip(HEADER_COLUMNS, known, strict=True) if value is not None}
    return Survivor(queue, position, remote, {**more, **named}, payload, copies, at, Kind(kind))
