"""Conflation by hand, against Spark's condition for what may be conflated, and against the same thing said in a few lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from test_conflate import FINE, ODD, Row, accepted, model, row

from trunkline.bridge.shipped import SHIPPED
from trunkline.pipeline.arrivals import HEADER_COLUMNS
from trunkline.pipeline.newest import Newest

NEWEST = Newest.of(SHIPPED)


def kept(rows: list[Row], copies: int = 1) -> dict[int, int]:
    return NEWEST.choose(("", r["remote"], {n: r[n] for n in HEADER_COLUMNS}, copies) for r in rows)


def test_only_messages_that_intake_accepts_displace_others() -> None:
    for odd in ODD:
        rows = [row(1), row(2, **{"ce_generation": "99", **odd})]
        assert kept(rows) == {0: 1, 1: 1}, odd
    for fine in FINE:
        if fine.get("ce_incarnation") != "auto":
            rows = [
                row(1, **{"ce_generation": "1", **fine}),
                row(2, **fine, **({"ce_generation": "99"} if "ce_generation" not in fine else {})),
            ]
            assert all(map(accepted, rows))
            assert list(kept(rows).values()) == [2], fine


def test_messages_whose_run_is_not_told_are_left_alone() -> None:
    rows = [row(n, ce_incarnation="auto", ce_generation=str(n)) for n in range(1, 5)]
    assert kept(rows) == dict.fromkeys(range(4), 1)


def test_messages_that_stood_elsewhere_are_not_compared() -> None:
    headers = [{n: row(g, ce_generation=str(g))[n] for n in HEADER_COLUMNS} for g in (1, 2, 3)]
    chosen = NEWEST.choose((place, "a", each, 1) for place, each in zip(("t@0", "t@1", "t@0"), headers, strict=True))
    assert chosen == {1: 1, 2: 2}


def test_what_stands_for_many_goes_on_doing_so() -> None:
    assert kept([row(1, ce_generation="1"), row(2, ce_generation="3"), row(3, ce_generation="2")], copies=5) == {1: 15}


def test_it_travels_as_text() -> None:
    assert str(Newest.parse(str(NEWEST))) == str(NEWEST)


VERSIONS = st.tuples(st.sampled_from("ab"), st.sampled_from(["clusters", "compliance"]), st.integers(1, 2), st.integers(0, 9))


@given(st.lists(VERSIONS, max_size=40))
def test_survivors_and_copies_are_those_of_the_model(sent: list[tuple[str, str, int, int]]) -> None:
    rows = [
        row(n, site, "t@0", ce_type=type_, ce_incarnation=str(incarnation), ce_generation=str(generation))
        for n, (site, type_, incarnation, generation) in enumerate(sent)
    ]
    assert {("t@0", number): copies for number, copies in kept(rows).items()} == model(rows)
