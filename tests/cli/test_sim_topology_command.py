"""`trunkline sim topology` as a person uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from typer.testing import CliRunner, Result

from trunkline.cli.sim import app
from trunkline.core.errors import Invalid
from trunkline.node.sim.catalogue import CATALOGUE
from trunkline.node.sim.universe import Universe
from trunkline.node.sim.witness import Failure


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["topology", *words], catch_exceptions=False)


def test_help_says_what_it_shows_and_how() -> None:
    shown = call("--help")
    assert shown.exit_code == 0
    for word in ("--graph", "--events", "--seed", "--universes", "--json", "Example:"):
        assert word in shown.output


def test_it_draws_the_table_and_a_line_per_change_of_a_row() -> None:
    shown = call("--graph", "mesh:3", "--events", "1 cut a<>b for 3", "--seed", "4")
    assert shown.exit_code == 0
    lines = [line.split() for line in shown.output.splitlines()]
    assert ["│", "a", "│", "·", "│", "b", "1", "│", "c", "1", "│"] in lines
    assert ["1.000", "---", "cut", "a<>b", "for", "3.000"] in lines
    changes = [line[1:5] for line in lines if line and re.fullmatch(r"\d+\.\d{3}", line[0]) and line[1] != "---"]
    assert sorted(changes[:2]) == [["a", "b", "-", "-"], ["b", "a", "-", "-"]]
    assert sorted(changes[-2:]) == [["a", "b", "b", "1"], ["b", "a", "a", "1"]]
    assert "all came right" in shown.output


def test_json_has_the_rows_before_between_and_after() -> None:
    shown = call("--graph", "chain:3", "--events", "1 crash c for 1; 2 write a status>c", "--seed", "7", "--json")
    assert shown.exit_code == 0
    document = json.loads(shown.stdout)
    assert document["links"] == [["a", "b"], ["b", "c"]]
    assert document["first"] == document["last"]
    assert {"subscriber": "a", "source": "c", "via": "b", "depth": 2, "path": ["b", "c"]} in document["first"]
    assert {"subscriber": "b", "source": "c", "via": None, "depth": None, "path": None}.items() <= document["changes"][
        0
    ].items()
    assert document["converged"] is True
    assert document["failures"] == []
    assert document["moves"].keys() == {"first", "forced", "voluntary", "watchdog"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--graph", "mush:3"), "there is none of that name"),
        (("--events", "1 cut a<>b"), "it has no end"),
        (("--events", "1 cut a<>z for 1"), "z is not in this universe"),
        (("--events", "1 melt a for 1"), "there is no fault 'melt'"),
        (("--events", "1 put a app:k of 1"), "a is not in this universe"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        call(*words)


def test_a_failing_run_names_its_seed_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(universe: Universe) -> Iterator[Failure]:
        yield Failure("paths", "it is never right")

    broken = replace(CATALOGUE["topology"], checks=(never,), seconds=0.5)
    monkeypatch.setitem(CATALOGUE, "topology", broken)
    shown = call("--graph", "chain:3", "--seed", "11")
    assert shown.exit_code == 1
    assert "seed 11 fails paths" in shown.output
    assert "it is never right" in shown.output


def test_many_universes_are_the_scenario_of_that_name() -> None:
    shown = call("--universes", "3", "--seed", "5", "--jobs", "1", "--json")
    assert shown.exit_code == 0
    document = json.loads(shown.stdout)
    assert (document["scenario"], document["seeds"], document["failed"]) == ("topology", 3, 0)
