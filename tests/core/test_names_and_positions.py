"""Names, node ids and positions in a log."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.errors import Invalid
from trunkline.core.ids import START, NodeId, Position, check_name


@pytest.mark.parametrize("name", ["a", "0", "hub", "leaf-1", "a.b_c-d", "x" * 63])
def test_a_good_name_is_given_back(name: str) -> None:
    assert check_name("client", name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", ".a", "a.", "_", "A", "a b", "a/b", "a\n", "ä", "*", "x" * 64, "a\0", "٣"])
def test_a_bad_name_is_refused_with_its_kind(name: str) -> None:
    with pytest.raises(Invalid, match="site") as refused:
        check_name("site", name)
    assert repr(name) in refused.value.what


def test_a_node_id_survives_its_text() -> None:
    node = NodeId("hub", "node-1")
    assert NodeId.parse(str(node)) == node


@pytest.mark.parametrize("text", ["hub", "hub/", "/node", "hub/a/b", "Hub/node"])
def test_a_text_that_is_no_node_id_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        NodeId.parse(text)


positions = st.builds(Position, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))


@given(positions, positions)
def test_positions_are_ordered_by_seq_and_equal_only_with_their_mark(one: Position, other: Position) -> None:
    if one.seq != other.seq:
        assert (one < other) is (one.seq < other.seq)
    assert (one == other) is ((one.seq, one.mark) == (other.seq, other.mark))


@given(positions)
def test_nothing_is_before_the_start_and_a_position_survives_the_wire(position: Position) -> None:
    assert position >= START
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(position), type=Position) == position


def test_any_name_may_hold_an_underscore() -> None:
    assert check_name("client", "a_b") == check_name("site", "a_b") == "a_b"
