"""The trace says who did what, in words."""

from __future__ import annotations

import re

import pytest
from sim_runs import CHAIN, lines_of, lived

from trunkline.net.simnet import Note
from trunkline.node.sim.catalogue import CATALOGUE, draw
from trunkline.node.sim.trace import concerns, line
from trunkline.node.sim.universe import run_history

EVENTS = (
    "3.000 write leaf status>hub",
    "5.000 crash hub for 2.000",
    "6.000 write leaf policy>*",
    "8.000 cut leaf<>relay for 4.000",
)


def test_a_record_s_journey_can_be_read() -> None:
    _, notes = lived(CHAIN, *EVENTS)
    text = "\n".join(lines_of(notes, lambda note: 3.0 <= note.at < 3.5))
    for step in (
        r"leaf  its application writes status>hub",
        r"leaf > relay  \[\d+\] batch #\d+ of leaf, 0 to 1: 1 status>hub",
        r"relay > hub  \[\d+\] batch #\d+ of leaf, 0 to 1(?: opens)?: 1 status>hub",
        r"hub  stored 1 of leaf, up to 1",
        r"hub > relay  \[\d+\] acks to leaf: .*hub have status:1",
    ):
        assert re.search(step, text), step


def test_faults_and_their_ends_stand_out() -> None:
    _, notes = lived(CHAIN, *EVENTS)
    text = lines_of(notes)
    assert [t[12:] for t in text if "---" in t or "===" in t] == [
        "--- crash hub for 2.000", "--- end of crash hub", "--- cut leaf<>relay for 4.000", "--- end of cut leaf<>relay",
        "=== the faults are over",
    ]  # fmt: skip
    assert any(t.endswith("hub  is gone") for t in text)
    assert any("leaf  link" in t and t.endswith("is down: silent") for t in text)


@pytest.mark.parametrize("name", CATALOGUE)
def test_everything_that_happens_has_words_and_no_bare_bytes(name: str) -> None:
    notes: list[Note] = []
    for seed in range(3):
        run_history(CATALOGUE[name], draw(CATALOGUE[name], seed), notes.append)
    texts = [line(note) for note in notes]
    assert not [text for text in texts if "b'" in text or "\\x" in text or "\n" in text]
    assert {"frame", "lost", "link", "unlink", "fault", "over", "calm"} <= {note.kind for note in notes}


def test_only_what_concerns_somebody() -> None:
    _, notes = lived(CHAIN, *EVENTS)
    about_hub = [n for n in notes if concerns(n, frozenset({"hub"}))]
    assert {n.kind for n in about_hub} >= {"frame", "fault", "over", "crash", "start", "calm"}
    assert not [n for n in about_hub if {n.who, n.to} == {"leaf", "relay"} or n.who == "leaf<>relay"]
    _, notes = lived(CATALOGUE["site"])
    assert {n.who for n in notes if n.kind == "start" and concerns(n, frozenset({"relay"}))} == {
        f"relay/n{n}" for n in (1, 2, 3)
    }
