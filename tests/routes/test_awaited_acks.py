"""Which acks a change waits for (A1 to A4)."""

from __future__ import annotations

from trunkline.routes.awaited import Awaited, Outcome
from trunkline.routes.keys import HOUSE
from trunkline.routes.sync.base import Ack, Operation


def ack(instance: str, revision: int = 1, reason: str = "", id: str = "x", session: str = "s") -> Ack:
    return Ack(session, instance, revision, reason, Operation.ADD, HOUSE, id)


def test_it_is_complete_when_all_expected_have_answered() -> None:
    awaited = Awaited()
    awaited.expect("s", ["i2", "i3"], now=0)
    assert not awaited.hear(ack("i2", 7))
    assert awaited.outcome("s") == Outcome("s", {"i2": 7}, {}, ("i3",))
    assert awaited.hear(ack("i3", 7))
    outcome = awaited.outcome("s")
    assert outcome == Outcome("s", {"i2": 7, "i3": 7}, {}, ())
    assert outcome.complete
    assert outcome.everywhere


def test_a_refusal_is_an_answer_with_its_reason() -> None:
    awaited = Awaited()
    awaited.expect("s", ["i2", "i3"], now=0)
    awaited.hear(ack("i3", 7))
    assert awaited.hear(ack("i2", 0, "no such broker"))
    outcome = awaited.outcome("s")
    assert outcome == Outcome("s", {"i3": 7}, {"i2": "no such broker"}, ())
    assert outcome.complete
    assert not outcome.everywhere


def test_doubled_acks_change_nothing_and_the_last_word_counts() -> None:
    awaited = Awaited()
    awaited.expect("s", ["i2", "i3"], now=0)
    assert not awaited.hear(ack("i2", 0, "not yet"))
    assert not awaited.hear(ack("i2", 7))
    assert not awaited.hear(ack("i2", 7))
    assert awaited.hear(ack("i3", 7))
    assert not awaited.hear(ack("i3", 7))
    assert awaited.outcome("s") == Outcome("s", {"i2": 7, "i3": 7}, {}, ())


def test_acks_of_others_and_of_unknown_sessions_do_not_count() -> None:
    awaited = Awaited()
    awaited.expect("s", ["i2"], now=0)
    assert not awaited.hear(ack("i9"))
    assert not awaited.hear(ack("i2", session="another"))
    assert awaited.outcome("s") == Outcome("s", {}, {}, ("i2",))
    assert awaited.outcome("another") is None


def test_where_nobody_else_is_alive_it_is_complete_at_once() -> None:
    awaited = Awaited()
    awaited.expect("s", [], now=0)
    assert awaited.outcome("s") == Outcome("s", {}, {}, ())
    assert awaited.overdue(now=99) == []


def test_each_of_several_deltas_wants_its_ack() -> None:
    awaited = Awaited()
    awaited.expect("s", ["i2"], now=0, deltas=3)
    assert not awaited.hear(ack("i2", 4, id="a"))
    assert not awaited.hear(ack("i2", 4, "bad regex", id="b"))
    assert not awaited.hear(ack("i2", 4, "bad regex", id="b"))
    assert awaited.hear(ack("i2", 4, "bad path", id="c"))
    assert awaited.outcome("s") == Outcome("s", {}, {"i2": "bad regex; bad path"}, ())


def test_who_looked_at_everything_has_answered_for_all() -> None:
    awaited = Awaited()
    awaited.expect("s", ["i2", "i3"], now=0, deltas=5_000)
    assert not awaited.hear(Ack("s", "i2", 0, operation=Operation.ALL))
    assert awaited.hear(Ack("s", "i3", 0, operation=Operation.ALL))
    assert awaited.outcome("s") == Outcome("s", {"i2": 0, "i3": 0}, {}, ())


def test_after_its_time_a_session_says_once_who_is_missing() -> None:
    awaited = Awaited(seconds=10)
    awaited.expect("complete", ["i2"], now=0)
    awaited.expect("s", ["i2", "i3", "i4"], now=1)
    awaited.expect("later", ["i2"], now=5)
    awaited.hear(ack("i2", session="complete"))
    awaited.hear(ack("i2"))
    awaited.hear(ack("i3", 0, "no"))
    assert awaited.overdue(now=10.9) == []
    assert awaited.overdue(now=11) == [Outcome("s", {"i2": 1}, {"i3": "no"}, ("i4",))]
    assert awaited.overdue(now=11) == []
    assert not awaited.hear(ack("i4"))
    assert [outcome.session for outcome in awaited.overdue(now=15)] == ["later"]
    assert len(awaited) == 0


def test_the_oldest_sessions_make_room_and_are_counted_if_somebody_was_missing() -> None:
    awaited = Awaited(most=2)
    awaited.expect("complete", [], now=0)
    awaited.expect("missing", ["i2"], now=0)
    awaited.expect("third", ["i2"], now=0)
    assert (len(awaited), awaited.forgotten) == (2, 0)
    awaited.expect("fourth", ["i2"], now=0)
    assert (len(awaited), awaited.forgotten) == (2, 1)
    assert awaited.outcome("missing") is None


def test_an_instance_that_acks_more_than_was_published_costs_no_memory() -> None:
    awaited = Awaited()
    awaited.expect("s", ["i2"], now=0, deltas=2)
    awaited.hear(ack("i2", id="a"))
    for n in range(1_000):
        awaited.hear(ack("i2", reason=str(n), id=f"r{n}"))
    assert awaited.outcome("s") == Outcome("s", {}, {"i2": "0"}, ())
