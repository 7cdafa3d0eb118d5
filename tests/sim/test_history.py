"""A history as text: what is printed is what is run, and any part of it can be taken away."""

from __future__ import annotations

from pathlib import Path

import pytest
from sim_runs import CHAIN

from trunkline.core.errors import Invalid
from trunkline.node.sim.catalogue import CATALOGUE, draw, find
from trunkline.node.sim.faults import KINDS
from trunkline.node.sim.history import (
    EVER,
    Change,
    Fault,
    History,
    Read,
    Verb,
    Write,
    load_history,
    parse_event,
    parse_history,
)
from trunkline.node.sim.universe import CALM, run_history


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_drawn_history_is_read_back_as_it_was_printed(name: str) -> None:
    for seed in range(30):
        drawn = draw(CATALOGUE[name], seed)
        assert parse_history(drawn.text()) == drawn


def test_a_history_that_was_read_back_is_the_same_run() -> None:
    drawn = draw(CHAIN, 21)
    assert run_history(CHAIN, parse_history(drawn.text())) == run_history(CHAIN, drawn)


def test_every_fault_of_a_scenario_is_drawn_and_ends_before_all_is_calm() -> None:
    for scenario in CATALOGUE.values():
        faults = [e for seed in range(80) for e in draw(scenario, seed).events if isinstance(e, Fault)]
        assert {fault.kind for fault in faults} == set(scenario.faults)
        assert all(0 <= fault.at <= fault.end <= CALM + 1e-9 for fault in faults)
    assert {kind for scenario in CATALOGUE.values() for kind in scenario.faults} == set(KINDS)


def test_every_change_of_a_key_is_drawn_and_several_nodes_change_the_same_keys() -> None:
    changes = [e for seed in range(20) for e in draw(CATALOGUE["store"], seed).events if isinstance(e, Change)]
    assert {change.verb for change in changes} == set(Verb)
    assert {EVER, 0.0} < {change.seconds for change in changes if change.verb is Verb.PUT}
    assert len({change.node for change in changes if change.key == "app:k1" and change.verb is Verb.PERSIST}) > 3


def test_faults_come_alone_and_several_at_once() -> None:
    groups = []
    for seed in range(50):
        times = [e.at for e in draw(CHAIN, seed).events if isinstance(e, Fault)]
        groups.append(max(sum(1 for t in times if at <= t <= at + 0.3) for at in times))
    assert min(groups) == 1
    assert max(groups) >= 3


def test_half_a_history_still_runs() -> None:
    drawn = draw(CHAIN, 4)
    for part in (drawn.events[::2], drawn.events[1::2], ()):
        assert run_history(CHAIN, History("chain", 4, 0.02, part)).converged


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("3.250 crash leaf for 4.000", Fault(3.25, "crash", "leaf", 4.0)),
        ("5.000 slow hub<>relay for 3.000 by 0.800", Fault(5.0, "slow", "hub<>relay", 3.0, 0.8)),
        ("5.000 reset a>b by 0.010", Fault(5.0, "reset", "a>b", 0.0, 0.01)),
        ("5.000 wall relay/n1 by -12.500", Fault(5.0, "wall", "relay/n1", 0.0, -12.5)),
        ("6.000 write leaf-1 s>hub,relay p>*", Write(6.0, "leaf-1", (("s", ("hub", "relay")), ("p", ("*",))))),
        ("7.000 put b app:k1 of 3 for 2.000", Change(7.0, Verb.PUT, "b", "app:k1", 3, 2.0)),
        ("7.000 set b app:k1 of 3 for ever", Change(7.0, Verb.SET, "b", "app:k1", 3, EVER)),
        ("7.000 persist b link:b of 4", Change(7.0, Verb.PERSIST, "b", "link:b", 4)),
        ("7.000 unset b app:k1 of 5", Change(7.0, Verb.UNSET, "b", "app:k1", 5)),
        ("7.000 clear b app:k1", Change(7.0, Verb.CLEAR, "b", "app:k1")),
        ("7.000 erase b app:k1", Change(7.0, Verb.ERASE, "b", "app:k1")),
        ("7.000 read b 5", Read(7.0, "b", 5)),
    ],
)  # fmt: skip
def test_the_text_of_an_event(line: str, event: object) -> None:
    assert parse_event(line) == event
    assert str(event) == line


def test_what_cannot_be_read_is_said_with_its_line(tmp_path: Path) -> None:
    text = draw(CHAIN, 1).text().splitlines()
    text[6] = "whenever crash leaf"
    file = tmp_path / "history.txt"
    file.write_text("\n".join(text))
    with pytest.raises(Invalid, match=r"history.txt:7: event 'whenever crash leaf'"):
        load_history(file)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "first line"),
        ("3.000 crash leaf for 1.000", "first line"),
        ("# trunkline sim history 1\nscenario chain\nloss 0.0", "seed"),
        ("# trunkline sim history 1\nscenario chain\nseed one\nloss 0.0", "one"),
    ],
)
def test_a_file_that_is_no_history_is_refused(text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        parse_history(text)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        load_history(tmp_path / "nowhere")


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(Invalid, match="did you mean house"):
        find("hause")
