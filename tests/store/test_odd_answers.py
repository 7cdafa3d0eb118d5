"""Answers and questions that no node of ours would send: the peer's fault, and nothing comes of them."""

from __future__ import annotations

import pytest
from joined import QUICK

from trunkline.core.errors import RemoteProtocolError
from trunkline.store.area import Area
from trunkline.store.digest import LEAVES, ROW_BYTES, WIDTH
from trunkline.store.messages import (
    CODEC,
    MOST_BYTES,
    MOST_RECEIVED,
    MOST_VALUES,
    Answer,
    AskKeys,
    AskLeaves,
    AskRoot,
    Difference,
    Leaves,
    Message,
    Publish,
    Question,
    Ranges,
    Refused,
    Same,
)
from trunkline.store.peers import PeerState
from trunkline.store.values import Header, Value, sealed


def fill(area: Area, keys: int) -> None:
    values = {f"key{number}": sealed(f"key{number}", 1, "o", b"%d" % number, 300_000) for number in range(keys)}
    assert area.put(values, 100.0)[1] == {}


class Asking:
    """An area with a sync open towards `b`, at the kind of question wanted."""

    def __init__(self, at: type[AskRoot | AskLeaves | AskKeys]) -> None:
        self.area = Area("a", "fleet", lambda: 0.5, QUICK)
        fill(self.area, 50)
        self.root = self.area.table.digest.root()
        (send,) = self.area.link_up("b", 100.0)
        self.question = send.message
        if at is not AskRoot:
            self.say(Ranges("fleet", self.id, bytes(ROW_BYTES)))
        if at is AskKeys:
            assert isinstance(self.question, AskLeaves)
            self.say(Leaves("fleet", self.id, dict.fromkeys(self.question.ranges, bytes(ROW_BYTES))))
        assert type(self.question) is at

    @property
    def id(self) -> int:
        assert isinstance(self.question, Question)
        return self.question.id

    def say(self, answer: Message) -> None:
        (send,) = self.area.receive("b", answer, 100.0)
        self.question = send.message

    def unchanged(self) -> bool:
        return self.area.table.digest.root() == self.root and "evil" not in self.area.table.entries


EVIL = {"evil": sealed("evil", 1, "b", b"x", 60_000)}
TOO_MANY = {f"evil{n}": EVIL["evil"] for n in range(MOST_RECEIVED + 1)}
FULL = bytes(ROW_BYTES)


@pytest.mark.parametrize(
    ("at", "kind", "fields"),
    [
        (AskRoot, Leaves, ({0: FULL},)),
        (AskRoot, Difference, (EVIL, (), ())),
        (AskLeaves, Same, ()),
        (AskLeaves, Ranges, (FULL,)),
        (AskLeaves, Difference, (EVIL, (), ())),
        (AskKeys, Same, ()),
        (AskKeys, Ranges, (FULL,)),
        (AskKeys, Leaves, ({0: FULL},)),
        (AskRoot, Ranges, (b"",)),
        (AskRoot, Ranges, (FULL + b"x",)),
        (AskRoot, Ranges, (FULL[:-1],)),
        (AskLeaves, Leaves, ({63: b"short"},)),
        (AskLeaves, Leaves, ({-1: FULL},)),
        (AskLeaves, Leaves, ({WIDTH: FULL},)),
        (AskKeys, Difference, (EVIL, (), (-1,))),
        (AskKeys, Difference, (EVIL, (), (LEAVES,))),
        (AskKeys, Difference, (EVIL, (), tuple(range(LEAVES)))),
        (AskKeys, Difference, (EVIL, ("never told",), ())),
        (AskKeys, Difference, ({}, (), tuple(range(64)))),
        (AskKeys, Difference, (EVIL, ("key0",) * 1000, ())),
        (AskKeys, Difference, (TOO_MANY, (), ())),
    ],
)
def test_an_answer_to_something_else_or_of_a_wrong_form_is_the_peers_fault(
    at: type[AskRoot | AskLeaves | AskKeys], kind: type[Answer], fields: tuple[object, ...]
) -> None:
    asking = Asking(at)
    with pytest.raises(RemoteProtocolError, match="store message"):
        asking.area.receive("b", kind("fleet", asking.id, *fields), 100.0)
    assert asking.unchanged()


@pytest.mark.parametrize(
    "question",
    [
        AskLeaves("fleet", 1, (-1,)),
        AskLeaves("fleet", 1, (WIDTH,)),
        AskKeys("fleet", 1, (-1,), {}),
        AskKeys("fleet", 1, (LEAVES,), {}),
        AskKeys("fleet", 1, (), {f"k{n}": Header(1, "b", 1, 0) for n in range(300_000)}),
    ],
    ids=["range -1", "no such range", "leaf -1", "no such leaf", "too many headers"],
)
def test_a_question_about_what_there_is_not_is_the_peers_fault(question: Question) -> None:
    with pytest.raises(RemoteProtocolError, match="store message"):
        Area("a", "fleet", lambda: 0.5, QUICK).receive("b", question, 100.0)


def test_a_question_for_too_much_is_answered_in_part() -> None:
    area = Area("a", "fleet", lambda: 0.5, QUICK)
    fill(area, 30_000)
    (leaves,) = area.receive("b", AskLeaves("fleet", 1, tuple(range(WIDTH)) * 100), 100.0)
    (keys,) = area.receive("b", AskKeys("fleet", 1, tuple(range(LEAVES)) * 10, {}), 100.0)
    assert isinstance(leaves.message, Leaves)
    assert isinstance(keys.message, Difference)
    assert len(CODEC.encode(leaves.message)) < MOST_BYTES
    assert len(keys.message.values) <= MOST_VALUES


def test_a_peer_whose_values_cannot_be_taken_does_not_make_an_endless_sync() -> None:
    asking = Asking(AskKeys)
    area = asking.area
    bad = {"key0": Value(9, "b", b"x", 60_000, 0, 1234)}  # its hash does not fit
    peer = area.peers.by_name["b"]
    answered = 0
    while peer.sync is not None and answered < 500:
        answered += 1
        if isinstance(asking.question, AskLeaves):
            reply: Message = Leaves("fleet", asking.id, dict.fromkeys(asking.question.ranges, FULL))
        else:
            assert isinstance(asking.question, AskKeys)
            reply = Difference("fleet", asking.id, bad, (), asking.question.leaves)
        sends = area.receive("b", reply, 100.0)
        asking.question = sends[-1].message if sends else asking.question
    assert peer.sync is None
    assert peer.state is PeerState.INITIALIZED
    assert asking.unchanged()
    assert 1 <= area.counters["refused_wrong_hash"] <= answered < 60  # one leaf of fifty after the other


def test_values_that_came_meanwhile_from_elsewhere_are_no_reason_to_leave_a_leaf() -> None:
    asking = Asking(AskKeys)
    assert isinstance(asking.question, AskKeys)
    leaves = asking.question.leaves
    known = {key: asking.area.table.entries[key].value for key in asking.question.headers}
    asking.say(Difference("fleet", asking.id, known, (), leaves))
    assert isinstance(asking.question, AskKeys)
    assert asking.question.leaves == leaves


def test_a_peer_that_refuses_every_value_does_not_make_an_endless_sync() -> None:
    area = Area("a", "fleet", lambda: 0.5, QUICK)
    fill(area, 50)
    empty = Area("b", "fleet", lambda: 0.5, QUICK)
    sends = area.link_up("b", 100.0)
    asked = given = 0
    while sends:
        send = sends.pop(0)
        if isinstance(send.message, Publish):
            given += len(send.message.values)  # and it takes none of them
        else:
            asked += 1
            sends += area.receive("b", empty.receive("a", send.message, 100.0)[0].message, 100.0)
    assert (given, area.peers.by_name["b"].state) == (50, PeerState.INITIALIZED)
    assert asked < 10
    assert area.tick(100.1) == []


def test_a_refusal_is_a_failure_with_its_reason() -> None:
    asking = Asking(AskRoot)
    assert asking.area.receive("b", Refused("fleet", asking.id, "not in that area"), 100.0) == []
    peer = asking.area.peers.by_name["b"]
    assert (peer.state, peer.reason, peer.backoff.failures) == (PeerState.IDLE, "it refuses: not in that area", 1)
