"""What a look at the broker means: a table of cases, and the plan that comes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.errors import Terminal
from trunkline.pipeline.kafka.judge import Change, Gap, Move, Seen, Span, Standing, judge
from trunkline.pipeline.kafka.plan import Plan, stand_of

OLD, NEW = "id-old", "id-new"


def seen(topic_id: str, *spans: tuple[int, int]) -> Seen:
    return Seen(topic_id, {partition: Span(*span) for partition, span in enumerate(spans)})


def stood(*following: int) -> Standing:
    return Standing(OLD, dict(enumerate(following)))


@pytest.mark.parametrize(
    ("before", "now", "moves", "changed"),
    [
        pytest.param(None, seen(OLD, (0, 5)), [(0, None, 0, 5)], False, id="a new topic starts at its earliest"),
        pytest.param(None, seen(OLD, (3, 5)), [(0, None, 3, 5)], False, id="what was trimmed before it was known is no loss"),
        pytest.param(None, seen(OLD, (0, 0)), [(0, None, 0, 0)], False, id="where an empty new topic stands is kept"),
        pytest.param(stood(5), seen(OLD, (0, 9)), [(0, 5, 5, 9)], False, id="a known partition goes on"),
        pytest.param(stood(5), seen(OLD, (0, 5)), [], False, id="nothing new"),
        pytest.param(stood(5), seen(OLD, (0, 5), (0, 2)), [(1, None, 0, 2)], False, id="a grown one starts at its earliest"),
        pytest.param(stood(5), seen(OLD, (5, 9)), [(0, 5, 5, 9)], False, id="trimmed just up to the offset: nothing lost"),
        pytest.param(stood(5), seen(OLD, (7, 9)), [(0, 5, 7, 9)], False, id="trimmed past the offset"),
        pytest.param(stood(5), seen(OLD, (9, 9)), [(0, 5, 9, 9)], False, id="trimmed to the end"),
        pytest.param(stood(5), seen(NEW, (0, 2)), [(0, None, 0, 2)], True, id="made anew, shorter"),
        pytest.param(stood(5), seen(NEW, (0, 5)), [(0, None, 0, 5)], True, id="made anew, of the same length"),
        pytest.param(stood(5), seen(NEW, (1, 9)), [(0, None, 1, 9)], True, id="made anew, longer"),
        pytest.param(stood(5, 5), seen(NEW, (0, 1)), [(0, None, 0, 1)], True, id="made anew with fewer partitions"),
        pytest.param(stood(5), seen(NEW), [], True, id="made anew and not yet readable"),
    ],
)  # fmt: skip
def test_where_to_read_on(
    before: Standing | None, now: Seen, moves: list[tuple[int, int | None, int, int]], changed: bool
) -> None:
    found, change = judge("t", before, now)
    assert found == [Move("t", partition, now.id, *where) for partition, *where in moves]
    assert change == (Change("t", before, NEW) if changed and before else None)


def test_h28_an_end_before_the_offset_is_refused_within_one_identity() -> None:
    with pytest.raises(Terminal, match="t/0: it goes backward: read up to 5, but it ends at 4"):
        judge("t", stood(5), seen(OLD, (0, 4)))


def test_what_bears_to_be_read_twice_begins_again_with_all_of_the_topic() -> None:
    now = seen(OLD, (2, 4), (0, 9))
    moves, change = judge("t", stood(5, 6), now, again=True)
    assert moves == [Move("t", 0, OLD, None, 2, 4), Move("t", 1, OLD, None, 0, 9)]
    assert change == Change("t", stood(5, 6), OLD)
    assert Plan("s", tuple(moves), (change,)).applied_to({"t": stood(5, 6, 7)}) == {"t": Standing(OLD, {0: 4, 1: 9})}
    assert judge("t", stood(5, 6), seen(OLD, (2, 5), (0, 9)), again=True) == ([Move("t", 1, OLD, 6, 6, 9)], None)


def test_losses_are_said_exactly_and_only_where_something_was_promised() -> None:
    moves = [Move("t", 0, OLD, 5, 7, 9), Move("t", 1, OLD, None, 3, 9), Move("t", 2, OLD, 5, 5, 6), Move("u", 0, OLD, 0, 4, 4)]
    assert list(Plan("s", tuple(moves)).gaps()) == [Gap("t", 0, OLD, 5, 7), Gap("u", 0, OLD, 0, 4)]


def test_h31_a_plan_replaces_the_standing_of_a_topic_made_anew_and_forgets_a_deleted_one() -> None:
    offsets = {"a": stood(5, 6), "b": stood(2), "gone": stood(1), "idle": stood(8)}
    moves = (Move("a", 0, NEW, None, 0, 3), Move("b", 1, OLD, None, 0, 4))
    plan = Plan("s", moves, (Change("a", stood(5, 6), NEW), Change("gone", stood(1), None)))
    assert plan.applied_to(offsets) == {"a": Standing(NEW, {0: 3}), "b": Standing(OLD, {0: 2, 1: 4}), "idle": stood(8)}
    assert offsets["b"] == stood(2)


@pytest.mark.parametrize(
    ("now", "holds"),
    [
        pytest.param(Move("t", 0, OLD, 5, 5, 12), True, id="there is more by now"),
        pytest.param(Move("t", 0, OLD, 5, 7, 12), False, id="its beginning was trimmed"),
        pytest.param(Move("t", 0, OLD, 5, 5, 8), False, id="its end was lost"),
        pytest.param(Move("t", 0, NEW, None, 0, 12), False, id="made anew"),
    ],
)
def test_h29_a_plan_is_repeated_only_if_all_of_it_can_still_be_read(now: Move, holds: bool) -> None:
    assert Plan("s", (Move("t", 0, OLD, 5, 5, 9),)).still_holds([now], []) is holds


def test_h29_a_plan_that_forgets_a_topic_holds_while_it_is_gone() -> None:
    gone = Change("t", stood(5), None)
    assert Plan("s", (), (gone,)).still_holds([], [gone])
    assert not Plan("s", (), (gone,)).still_holds([], [Change("t", stood(5), NEW)])


OFFSETS = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(Standing, st.sampled_from([OLD, NEW]), st.dictionaries(st.integers(0, 12), st.integers(0, 9))),
)


@given(OFFSETS, OFFSETS)
def test_equal_offsets_and_no_others_have_the_same_stand(one: dict[str, Standing], other: dict[str, Standing]) -> None:
    assert (stand_of(one) == stand_of(other)) == (one == other)
    assert stand_of(dict(reversed(one.items()))) == stand_of(one)
