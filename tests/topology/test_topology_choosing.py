"""The table of choices, line by line."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from topologies import Fleet, Lone, mesh

from trunkline.topology.choosing import Outlook, Verdict, forced, preference, verdict
from trunkline.topology.links import LinkRow
from trunkline.topology.settings import Settings, Tie

WORKS = Outlook("p", works=True, hopeful=True, further=False, nearest=("p",), unsafe=frozenset(), valid=())


@pytest.mark.parametrize(
    ("outlook", "wanted"),
    [
        (WORKS, Verdict.KEEP),
        (replace(WORKS, works=False), Verdict.KEEP),
        (replace(WORKS, nearest=("q",), further=True), Verdict.WAIT),
        (replace(WORKS, nearest=("q",), works=False), Verdict.FORCED),
        (replace(WORKS, nearest=(), works=True), Verdict.KEEP),
        (replace(WORKS, nearest=(), works=False), Verdict.FORCED),
        (replace(WORKS, present=None), Verdict.FORCED),
    ],
    ids=["nearest", "nearest, chain in doubt", "shorter", "chain fails", "stale", "out of reach", "first"],
)
def test_verdicts(outlook: Outlook, wanted: Verdict) -> None:
    assert verdict(outlook) is wanted


@pytest.mark.parametrize(
    ("outlook", "target"),
    [
        (replace(WORKS, nearest=("q", "r")), "q"),
        (replace(WORKS, nearest=("q", "r"), unsafe=frozenset("q")), "r"),
        (replace(WORKS, nearest=("q",), unsafe=frozenset("q"), valid=("s",)), "s"),
        (replace(WORKS, nearest=("q",), unsafe=frozenset("q")), "p"),
        (replace(WORKS, nearest=("q",), unsafe=frozenset("q"), hopeful=False), None),
        (replace(WORKS, nearest=(), valid=("s",)), None),
    ],
)
def test_forced_targets(outlook: Outlook, target: str | None) -> None:
    assert forced(outlook) == target


def test_hash_spreads_first_choices_and_first_does_not() -> None:
    origins = [f"o{i}" for i in range(300)]
    spread = Counter(preference(Tie.HASH, "x", origin, "pqr")[0] for origin in origins)
    assert all(60 < spread[via] < 140 for via in "pqr")
    assert {preference(Tie.FIRST, "x", origin, "pqr") for origin in origins} == {("p", "q", "r")}
    assert preference(Tie.HASH, "x", "o1", "pqr") == preference(Tie.HASH, "x", "o1", "rqp")


def test_with_hash_ties_what_was_chosen_stays() -> None:
    origins = tuple(f"o{i}" for i in range(40))
    links = {"p": LinkRow(1, origins), "q": LinkRow(1, origins)}
    lone = Lone(links, Settings(tie=Tie.HASH))
    lone.up("p")
    lone.wait()
    lone.since()
    lone.up("q")
    lone.wait(10.0)
    assert set(lone.vias().values()) == {"p", "q"}
    assert [origin for origin, via in lone.vias().items() if via == "q"] == ["q"]
    lone = Lone(links, Settings(tie=Tie.HASH))
    lone.accepts = False
    lone.up("p", "q")
    for via in "pq":
        lone.take(lone.core.subscribed(via, via, lone.now))
    lone.accepts = True
    lone.wait()
    assert 10 <= list(lone.vias().values()).count("q") <= 31


def test_hash_ties_make_no_loops() -> None:
    fleet = Fleet(("ab", "ac", "bd", "cd", "de", "df", "eg", "fg"), Settings(tie=Tie.HASH))
    fleet.run(5.0)
    assert fleet.wrong() == []
    mark = fleet.now
    fleet.run(20.0)
    assert fleet.moves(mark) == []


def test_in_a_mesh_everything_comes_directly_and_one_cut_moves_exactly_two() -> None:
    fleet = Fleet(mesh("abcde"))
    fleet.run(5.0)
    assert all(row[3] == "1" for row in fleet.rows())
    mark = fleet.now
    fleet.cut("ad")
    fleet.run(5.0)
    assert len(fleet.moves(mark)) == 2
    assert fleet.wrong() == []
