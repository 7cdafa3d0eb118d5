"""Conflation on Spark, by both ways, against the same thing said in a few lines of Python."""

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
from trunkline.pipeline.arrivals import HEADER_COLUMNS, SCHEMA
from trunkline.pipeline.conflate import HAND_ROWS, WINDOW_ROWS, Conflation
from trunkline.pipeline.session import Spark
from trunkline.queues.kinds import Kind

pytestmark = pytest.mark.spark

Row = dict[str, Any]
Place = tuple[str, int]
CONFLATION = Conflation(SHIPPED)
WAYS = [CONFLATION.by_window, CONFLATION.by_two_phases]
Way = Callable[[DataFrame], DataFrame]


def row(position: int, remote: str = "a", queue: str = "", **headers: str | None) -> Row:
    known = {
        "ce_id": f"{remote}{position}", "ce_source": remote, "ce_type": "clusters", "ce_mode": "complete",
        "ce_incarnation": "1", "ce_generation": "1", **headers,
    }  # fmt: skip
    return {
        "queue": queue or f"q-{remote}", "position": position, "remote": remote, "payload": b"", "headers": None, "at": None,
        "kind": int(Kind.LOG_ENTRY), "messages": 1, **{name: known.get(name) for name in HEADER_COLUMNS},
    }  # fmt: skip


def frame(spark: Spark, rows: list[Row]) -> DataFrame:
    names = [part.split()[0] for part in SCHEMA.split(", ")]
    return spark.session.createDataFrame([tuple(r[n] for n in names) for r in rows], SCHEMA)


def kept(way: Way, spark: Spark, rows: list[Row]) -> dict[Place, int]:
    found = way(frame(spark, rows)).select("queue", "position", "copies").collect()
    assert len(found) == len({(r.queue, r.position) for r in found})
    return {(r.queue, r.position): r.copies for r in found}


def accepted(r: Row) -> bool:
    try:
        SHIPPED.accept(parse_bundle({n: r[n] for n in HEADER_COLUMNS if r[n] is not None}, b"", r["remote"]))
    except Invalid:
        return False
    return True


ODD = [
    {"ce_generation": "12\n"}, {"ce_generation": "9" * 40}, {"ce_generation": "-1"}, {"ce_generation": "x"},
    {"ce_generation": "٣"}, {"ce_generation": None}, {"ce_generation": ""}, {"ce_incarnation": " 1"},
    {"ce_incarnation": "AUTO"}, {"ce_value": "x"}, {"ce_value": "-1"}, {"ce_id": "a\x00b"}, {"ce_time": "\x00"},
    {"ce_session": "\x00"}, {"ce_chunk": "junk"},
    {"ce_source": "z"}, {"ce_source": None}, {"ce_id": ""}, {"ce_id": None}, {"ce_mode": "COMPLETE"}, {"ce_mode": None},
    {"ce_mode": "append"}, {"ce_type": "weather"}, {"ce_type": None}, {"ce_type": "events"}, {"ce_dependency": "junk"},
    {"ce_dependency": "clusters@1.1"}, {"ce_type": "compliance", "ce_dependency": "clusters@1.x"},
    {"ce_type": "compliance", "ce_dependency": "clusters@1.1\n"}, {"ce_type": "compliance", "ce_dependency": "events@1.1"},
    {"ce_type": "compliance", "ce_dependency": "clusters@" + "9" * 30 + ".1"},
]  # fmt: skip
FINE = [
    {}, {"ce_dependency": ""}, {"ce_type": "compliance"}, {"ce_type": "compliance", "ce_dependency": "clusters@1.1"},
    {"ce_generation": "007"}, {"ce_value": "7"}, {"ce_incarnation": "auto"}, {"ce_incarnation": "auto", "ce_session": "s"},
]  # fmt: skip


def test_only_messages_that_intake_accepts_are_conflated(spark: Spark) -> None:
    rows = [row(n, **headers) for n, headers in enumerate([*ODD, *FINE])]
    found = frame(spark, rows).selectExpr("position", f"{CONFLATION.in_order} AS ok").collect()
    judged = {r.position: r.ok for r in found}
    for r in rows:
        assert accepted(r) or judged[r["position"]] is False, r
    assert [judged[len(ODD) + n] for n in range(len(FINE))] == [True] * len(FINE)


def test_a_type_that_needs_its_base_is_conflated_only_with_it(spark: Spark) -> None:
    exact = [t for t in SHIPPED.values() if t.needs_dependency and t.mode == "complete"]
    assert exact
    with_base = [row(n, ce_type=t.name, ce_dependency=f"{t.depends_on}@0.1") for n, t in enumerate(exact)]
    without = [row(n, ce_type=t.name) for n, t in enumerate(exact)]
    for rows, wanted in ((with_base, True), (without, False)):
        found = frame(spark, rows).selectExpr(f"{CONFLATION.in_order} AS ok").collect()
        assert {r.ok for r in found} == {wanted}
        assert {accepted(r) for r in rows} == {wanted}


@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_will_be_refused_displaces_nothing(spark: Spark, way: Way) -> None:
    rows = [row(1), *[row(n, **{"ce_generation": "99", **odd}) for n, odd in enumerate(ODD, 2)]]
    assert kept(way, spark, rows) == {("q-a", r["position"]): 1 for r in rows}


@pytest.mark.parametrize("way", WAYS)
def test_versions_are_compared_as_numbers_and_the_first_of_equals_stays(spark: Spark, way: Way) -> None:
    rows = [
        row(1, ce_generation="9"), row(2, ce_generation="10"), row(3, ce_generation="10"),
        row(1, "b", ce_incarnation="2", ce_generation="1"), row(2, "b", ce_incarnation="1", ce_generation="500"),
    ]  # fmt: skip
    assert kept(way, spark, rows) == {("q-a", 2): 3, ("q-b", 1): 2}


@pytest.mark.parametrize("way", WAYS)
def test_chunks_are_never_conflated(spark: Spark, way: Way) -> None:
    rows = [row(1, ce_chunk="5/10"), row(2, ce_chunk="10/10"), row(3, ce_chunk="5/10", ce_generation="2")]
    assert kept(way, spark, rows) == {("q-a", n): 1 for n in (1, 2, 3)}


@pytest.mark.parametrize("way", WAYS)
def test_a_restart_inside_a_batch_is_never_lost(spark: Spark, way: Way) -> None:
    def sent(generations: list[tuple[str, str | None]]) -> dict[Place, int]:
        rows = [
            row(n, ce_incarnation="auto", ce_generation=g, ce_session=session) for n, (g, session) in enumerate(generations, 1)
        ]
        return kept(way, spark, rows)

    by_generation = sent([("7", None), ("8", None), ("0", None), ("1", None), ("2", None)])
    assert by_generation == {("q-a", 2): 2, ("q-a", 3): 1, ("q-a", 5): 2}
    by_going_back = sent([("7", None), ("8", None), ("3", None), ("3", None), ("9", None)])
    assert by_going_back == {("q-a", 2): 2, ("q-a", 3): 1, ("q-a", 5): 2}
    by_session = sent([("7", "x"), ("8", "x"), ("3", "y"), ("4", "y"), ("9", "x")])
    assert by_session == {("q-a", 2): 2, ("q-a", 4): 2, ("q-a", 5): 1}


def model(rows: list[Row]) -> dict[Place, int]:
    """One message after the other: each goes into the stretch that is open for its site and type, or opens one."""
    newest: dict[tuple[Any, ...], Row] = {}
    copies: Counter[tuple[Any, ...]] = Counter()
    before: dict[tuple[str, str], tuple[int, Row]] = {}

    def version(r: Row) -> tuple[int, int]:
        return 0 if r["ce_incarnation"] == "auto" else int(r["ce_incarnation"]), int(r["ce_generation"])

    for r in sorted(rows, key=lambda r: (r["queue"], r["position"])):
        slot: tuple[Any, ...] = (r["remote"], r["ce_type"])
        if r["ce_mode"] != "complete" or r["ce_chunk"]:
            slot = (r["queue"], r["position"])
        elif r["ce_incarnation"] == "auto":
            stretch, last = before.get((r["remote"], r["ce_type"]), (0, None))
            turns = last is None or "0" in (r["ce_generation"], last["ce_generation"])
            if last is not None:
                turns |= r["ce_session"] != last["ce_session"] or int(r["ce_generation"]) <= int(last["ce_generation"])
            stretch += turns
            before[r["remote"], r["ce_type"]] = (stretch, r)
            slot = (*slot, stretch)
        copies[slot] += 1
        best = newest.setdefault(slot, r)
        if version(r) > version(best):
            newest[slot] = r
    return {(r["queue"], r["position"]): copies[slot] for slot, r in newest.items()}


def drawn(rng: random.Random, position: int, site: str, queue: str) -> Row:
    type_ = rng.choice(["clusters", "compliance", "events", "heartbeat"])
    headers: dict[str, str | None] = {"ce_type": type_, "ce_mode": "append" if type_ == "events" else "complete"}
    headers |= {"ce_incarnation": str(rng.randint(1, 2)), "ce_generation": str(rng.randint(0, 40))}
    if site in ("c", "d"):
        headers |= {"ce_incarnation": "auto", "ce_generation": str(rng.choice([0, 1, 1, 2, 3, 10, 20]))}
    if site == "d":
        headers["ce_session"] = rng.choice(["x", "x", "x", "y"])
    if rng.random() < 0.05:
        headers["ce_chunk"] = "3/9"
    return row(position, site, queue, **headers)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS)
def test_survivors_and_copies_are_those_of_the_model(spark: Spark, way: Way, seed: int) -> None:
    rng = random.Random(seed)
    rows = [drawn(rng, n, site, f"t@{rng.randint(0, 1)}") for n in range(1, 200) for site in "abcd"]
    rows = list({(r["queue"], r["position"], r["remote"]): r for r in rows}.values())
    for r in rows:  # sites share the two partitions, so offsets are told apart by site here
        r["position"] = r["position"] * 10 + "abcd".index(r["remote"])
    rng.shuffle(rows)
    assert kept(way, spark, rows) == model(rows)


@pytest.mark.parametrize("promised", [3, 6_000, 60_000], ids=["by hand", "window", "two phases"])
def test_counts_per_site_and_queue_come_with_the_survivors_in_order(spark: Spark, promised: int) -> None:
    rows = [row(1), row(2, ce_generation="2"), row(3, ce_mode="append", ce_type="events"), row(1, "b")]
    mark = {**row(4, ce_mode=None), "kind": int(Kind.START), "headers": '{"other": "x"}'}
    result = Conflation(SHIPPED).conflate(frame(spark, [*reversed(rows), mark]), promised)
    assert result.received() == {"a": 3, "b": 1}
    assert result.read() == {"q-a": 4, "q-b": 1}
    assert [(s.remote, s.position, s.is_bundle) for s in result.survivors] == [
        ("a", 2, True), ("a", 3, True), ("a", 4, False), ("b", 1, True),
    ]  # fmt: skip
    assert result.survivors[0].headers["ce_generation"] == "2"
    assert result.survivors[2].headers["other"] == "x"


def test_a_batch_is_conflated_all_the_same_when_it_is_not_like_the_one_before(spark: Spark) -> None:
    """One of which little is left where it is read makes the next be taken for such."""
    conflation, promised = Conflation(SHIPPED), WINDOW_ROWS
    many = [row(n, f"s{n % 100}", ce_generation=str(n)) for n in range(HAND_ROWS + 100)]
    batches = [[row(1), row(2, ce_generation="2")], many, many, [row(3)]]
    found = [conflation.conflate(frame(spark, rows), promised).survivors for rows in batches]
    newest = [(f"s{n % 100}", n, 51) for n in range(HAND_ROWS, HAND_ROWS + 100)]
    assert [[(s.remote, s.position, s.copies) for s in some] for some in found] == [
        [("a", 2, 2)], sorted(newest), sorted(newest), [("a", 3, 1)],
    ]  # fmt: skip
