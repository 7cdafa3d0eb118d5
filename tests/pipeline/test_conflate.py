"""Conflation on Spark, by both ways, against the same thing said in five lines of Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame

from trunkline.bridge.shipped import SHIPPED
from trunkline.core.bundle import parse_bundle
from trunkline.core.errors import Invalid
from trunkline.pipeline.conflate import IN_ORDER, by_two_phases, by_window, conflate
from trunkline.pipeline.queue_source import HEADER_COLUMNS, QueueSource
from trunkline.pipeline.session import Spark

pytestmark = pytest.mark.spark

Row = dict[str, Any]
WAYS = [by_window, by_two_phases]


def row(position: int, remote: str = "a", **headers: str | None) -> Row:
    known = {
        "ce_id": f"{remote}{position}", "ce_source": remote, "ce_type": "clusters", "ce_mode": "complete",
        "ce_incarnation": "1", "ce_generation": "1", **headers,
    }  # fmt: skip
    return {"queue": f"q-{remote}", "position": position, "remote": remote, "payload": b"", "headers": "{}",
            **{name: known.get(name) for name in HEADER_COLUMNS}}  # fmt: skip


def frame(spark: Spark, rows: list[Row]) -> DataFrame:
    schema = QueueSource({}).schema()
    names = [part.split()[0] for part in schema.split(", ")]
    return spark.session.createDataFrame([tuple(r[n] for n in names) for r in rows], schema)


def kept(way: Callable[[DataFrame], DataFrame], spark: Spark, rows: list[Row]) -> dict[tuple[str, int], int]:
    found = way(frame(spark, rows)).select("remote", "position", "copies").collect()
    assert len(found) == len({(r.remote, r.position) for r in found})
    return {(r.remote, r.position): r.copies for r in found}


def accepted(r: Row) -> bool:
    try:
        SHIPPED.accept(parse_bundle({n: r[n] for n in HEADER_COLUMNS if r[n] is not None}, b"", r["remote"]))
    except Invalid:
        return False
    return True


ODD = [
    {"ce_generation": "12\n"}, {"ce_generation": "9" * 40}, {"ce_generation": "-1"}, {"ce_generation": "x"},
    {"ce_generation": "٣"}, {"ce_generation": None}, {"ce_generation": ""}, {"ce_incarnation": " 1"},
    {"ce_source": "z"}, {"ce_source": None}, {"ce_id": ""}, {"ce_id": None}, {"ce_mode": "COMPLETE"}, {"ce_mode": None},
    {"ce_mode": "append"}, {"ce_type": "weather"}, {"ce_type": None}, {"ce_type": "events"}, {"ce_dependency": "junk"},
    {"ce_dependency": "clusters@1.1"}, {"ce_type": "compliance", "ce_dependency": "clusters@1.x"},
    {"ce_type": "compliance", "ce_dependency": "clusters@1.1\n"}, {"ce_type": "compliance", "ce_dependency": "events@1.1"},
    {"ce_type": "compliance", "ce_dependency": "clusters@" + "9" * 30 + ".1"},
]  # fmt: skip
FINE = [
    {}, {"ce_dependency": ""}, {"ce_type": "compliance"}, {"ce_type": "compliance", "ce_dependency": "clusters@1.1"},
    {"ce_generation": "007"},
]  # fmt: skip


def test_only_messages_that_intake_accepts_are_conflated(spark: Spark) -> None:
    rows = [row(n, **headers) for n, headers in enumerate([*ODD, *FINE])]
    judged = {r.position: r.ok for r in frame(spark, rows).selectExpr("position", f"{IN_ORDER} AS ok").collect()}
    for r in rows:
        assert accepted(r) or judged[r["position"]] is False, r
    assert [judged[len(ODD) + n] for n in range(len(FINE))] == [True] * len(FINE)


@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_will_be_refused_displaces_nothing(spark: Spark, way: Callable[[DataFrame], DataFrame]) -> None:
    rows = [row(1), *[row(n, **{"ce_generation": "99", **odd}) for n, odd in enumerate(ODD, 2)]]
    found = kept(way, spark, rows)
    assert found == {("a", r["position"]): 1 for r in rows}


@pytest.mark.parametrize("way", WAYS)
def test_versions_are_compared_as_numbers_and_the_first_of_equals_stays(
    spark: Spark, way: Callable[[DataFrame], DataFrame]
) -> None:
    rows = [
        row(1, ce_generation="9"), row(2, ce_generation="10"), row(3, ce_generation="10"),
        row(1, "b", ce_incarnation="2", ce_generation="1"), row(2, "b", ce_incarnation="1", ce_generation="500"),
    ]  # fmt: skip
    assert kept(way, spark, rows) == {("a", 2): 3, ("b", 1): 2}


def model(rows: list[Row]) -> dict[tuple[str, int], int]:
    newest: dict[tuple[Any, ...], Row] = {}
    copies: Counter[tuple[Any, ...]] = Counter()
    for r in sorted(rows, key=lambda r: r["position"]):
        alone = r["ce_mode"] != "complete"
        slot = (r["remote"], r["ce_type"], r["position"] if alone else None)
        copies[slot] += 1
        best = newest.setdefault(slot, r)
        if (int(r["ce_incarnation"]), int(r["ce_generation"])) > (int(best["ce_incarnation"]), int(best["ce_generation"])):
            newest[slot] = r
    return {(r["remote"], r["position"]): copies[slot] for slot, r in newest.items()}


@pytest.mark.parametrize("way", WAYS)
def test_survivors_and_copies_are_those_of_the_model(spark: Spark, way: Callable[[DataFrame], DataFrame]) -> None:
    rng = random.Random(7)
    rows = []
    for site in ("a", "b", "c", "d"):
        for position in range(1, 150):
            type_ = rng.choice(["clusters", "compliance", "events"])
            mode = "append" if type_ == "events" else "complete"
            version = {"ce_incarnation": str(rng.randint(1, 2)), "ce_generation": str(rng.randint(1, 40))}
            rows.append(row(position, site, ce_type=type_, ce_mode=mode, **version))
    assert kept(way, spark, rows) == model(rows)


@pytest.mark.parametrize("promised", [3, 60_000], ids=["window", "two phases"])
def test_counts_per_site_and_queue_come_with_the_survivors(spark: Spark, promised: int) -> None:
    rows = [row(1), row(2, ce_generation="2"), row(3, ce_mode="append", ce_type="events"), row(1, "b")]
    result = conflate(frame(spark, rows), promised)
    assert result.received() == {"a": 3, "b": 1}
    assert result.read() == {"q-a": 3, "q-b": 1}
    assert sorted((s.remote, s.position) for s in result.survivors) == [("a", 2), ("a", 3), ("b", 1)]
