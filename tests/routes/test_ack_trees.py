"""Ack trees: every event of a source is finished exactly once, whatever was made of it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from trunkline.core.errors import LocalProtocolError
from trunkline.routes.acks import Acks, Entered, Node
from trunkline.routes.chain import Chain, Ran, Step
from trunkline.routes.event import Event
from trunkline.routes.filters.js import JsConfig, compile_js
from trunkline.routes.filters.split import SplitConfig, compile_split
from trunkline.routes.outcome import Done, Outcome
from trunkline.routes.plugin import Around, Faults, Filter

NOW, SECONDS = 100.0, 5.0
SPLIT = compile_split(SplitConfig(), Around())
JS_ARRAY = "return [1, 2, 3].map(function (n) { return {payload: n}; });"


def acked(*names: Any) -> list[Done]:
    return [Done(name, Outcome.ACKED) for name in names]


def entered(acks: Acks, filter: Filter, *payloads: Any) -> list[Node]:
    """The events of a source, through a chain of one filter; nodes of what came out."""
    events = [Event(payload) for payload in payloads]
    inside = Entered(acks)
    inside.enter(events, acks.roots([f"event {n}" for n in range(len(events))], NOW, SECONDS))
    return inside.settle(Chain([Step("filter", filter)]).run(events))


@pytest.mark.parametrize("how", ["split", "js array"])
def test_s23_a_split_is_acked_once_after_its_last_part(how: str) -> None:
    acks = Acks()
    parts = entered(acks, SPLIT if how == "split" else compile_js(JsConfig(source=JS_ARRAY), Around()), [1, 2, 3])
    assert len(parts) == 3
    for part in parts[:2]:
        acks.ack(part)
        assert acks.take() == []
    acks.ack(parts[2])
    assert acks.take() == acked("event 0")
    acks.expire(NOW + SECONDS)
    assert acks.take() == []


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0), (2, 0, 1)])
def test_s23_one_nack_of_a_split_is_one_nack_of_its_source(order: tuple[int, ...]) -> None:
    acks = Acks()
    parts = entered(acks, SPLIT, [1, 2, 3])
    for n in order:
        if n == 1:
            acks.nack(parts[n], "no room")
        else:
            acks.ack(parts[n])
    acks.nack(parts[0], "too late to count")
    acks.expire(NOW + SECONDS)
    assert acks.take() == [Done("event 0", Outcome.NACKED, "no room")]


def test_s23_a_second_ack_of_one_part_does_not_stand_for_another() -> None:
    acks = Acks()
    parts = entered(acks, SPLIT, [1, 2, 3])
    for _ in range(5):
        acks.ack(parts[0])
        acks.ack(parts[1])
    assert acks.take() == []
    assert acks.open == 1
    acks.ack(parts[2])
    assert acks.take() == acked("event 0")


def test_s23_what_is_not_acked_by_its_deadline_times_out_once() -> None:
    acks = Acks()
    parts = entered(acks, SPLIT, [1, 2])
    acks.ack(parts[0])
    acks.expire(NOW + SECONDS - 0.001)
    assert acks.take() == []
    acks.expire(NOW + SECONDS)
    acks.expire(NOW + SECONDS + 1)
    acks.ack(parts[1])
    assert acks.take() == [Done("event 0", Outcome.TIMED_OUT, "not done within 5 s")]


def test_s23_a_filter_that_panics_nacks_its_event_at_once_and_no_other() -> None:
    def panics(batch: list[Event], faults: Faults) -> list[Event]:
        return [event.with_content(1 / event.payload, {}) for event in batch]

    acks = Acks()
    sent = entered(acks, panics, 1, 0, 2)
    assert acks.take() == [Done("event 1", Outcome.NACKED, "filter: it raised ZeroDivisionError: division by zero")]
    for node in sent:
        acks.ack(node)
    assert acks.take() == acked("event 0", "event 2")


def test_what_a_filter_drops_is_acked_at_once() -> None:
    acks = Acks()
    (kept,) = entered(acks, lambda batch, _: [event for event in batch if event.payload == 1], 0, 1, 2)
    assert acks.take() == acked("event 0", "event 2")
    acks.ack(kept)
    assert acks.take() == acked("event 1")


def test_an_empty_split_is_acked() -> None:
    acks = Acks()
    assert entered(acks, SPLIT, []) == []
    assert acks.take() == acked("event 0")


def test_a_child_of_several_finishes_all_of_them() -> None:
    for finish, outcome in ((Acks.ack, Outcome.ACKED), (lambda acks, node: acks.nack(node, ""), Outcome.NACKED)):
        acks = Acks()
        members = acks.roots("abc", NOW, SECONDS)
        joined = acks.child(*members)
        for member in members:
            acks.ack(member)
        assert acks.take() == []
        finish(acks, joined)
        assert acks.take() == [Done(name, outcome) for name in "abc"]


def test_what_a_filter_holds_back_is_done_with_what_becomes_of_it() -> None:
    acks = Acks()
    inside, first, second = Entered(acks), Event(1), Event(2)
    inside.enter([first], acks.roots(["first"], NOW, SECONDS))
    assert inside.settle(Ran([], []), held=[first]) == []
    inside.enter([second], acks.roots(["second"], NOW, SECONDS))
    (joined,) = inside.settle(Ran([Event([1, 2], entered=(first, second))], []))
    assert acks.take() == []
    acks.ack(joined)
    assert acks.take() == acked("first", "second")


def test_a_tree_of_two_levels_is_done_from_the_leaves_up() -> None:
    acks = Acks()
    (root,) = acks.roots(["root"], NOW, SECONDS)
    branches = [acks.child(root) for _ in range(100)]
    leaves = [acks.child(branch) for branch in branches for _ in range(10)]
    for node in (root, *branches, *leaves[1:]):
        acks.ack(node)
    assert acks.take() == []
    acks.ack(leaves[0])
    assert acks.take() == acked("root")


def test_a_child_of_an_acked_node_is_a_defect() -> None:
    acks = Acks()
    (root,) = acks.roots(["root"], NOW, SECONDS)
    acks.ack(root)
    with pytest.raises(LocalProtocolError, match="make children first"):
        acks.child(root)


def test_an_event_that_enters_twice_is_a_defect() -> None:
    acks, event = Acks(), Event(1)
    with pytest.raises(LocalProtocolError, match="entered twice"):
        Entered(acks).enter([event, event], acks.roots("ab", NOW, SECONDS))


def test_the_next_deadline_is_that_of_the_oldest_who_is_not_finished() -> None:
    acks = Acks()
    (early,) = acks.roots(["early"], NOW, 1.0)
    (late,) = acks.roots(["late"], NOW, 2.0)
    assert acks.due() == NOW + 1.0
    acks.ack(early)
    assert acks.due() == NOW + 2.0
    acks.ack(late)
    assert acks.due() is None


@pytest.mark.parametrize("seed", range(20))
def test_each_root_is_finished_exactly_once_whatever_happens_in_whatever_order(seed: int) -> None:
    chance, acks = random.Random(seed), Acks()
    nodes: list[Node] = list(acks.roots(range(50), NOW, SECONDS))
    for _ in range(1_000):
        node = chance.choice(nodes)
        match chance.randrange(10):
            case 0:
                acks.nack(node, "chance")
            case 1 | 2:
                acks.ack(node)
            case _ if not node.acked:
                nodes.append(acks.child(node))
    acks.expire(NOW + SECONDS)
    for node in nodes:
        acks.ack(node)
    done = acks.take()
    assert sorted(one.of for one in done) == list(range(50))
    assert Counter(one.outcome for one in done) == Counter({key: n for key, n in acks.counts.items() if n})
    assert acks.open == 0
