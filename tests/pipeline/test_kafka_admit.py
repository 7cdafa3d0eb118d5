"""How much goes into a batch, and which task reads what."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from trunkline.pipeline.kafka.admit import Limits, admit, pack
from trunkline.pipeline.kafka.judge import Move


def waiting(*rows: int, topic: str = "t") -> list[Move]:
    return [Move(topic, p, "id", 10, 10, 10 + n) for p, n in enumerate(rows) if n]


def rows(moves: Sequence[Move]) -> list[int]:
    return [m.rows for m in moves]


MOVES = st.lists(st.integers(0, 60), max_size=8).map(lambda counts: waiting(*counts))
SIZES = st.integers(1, 500).map(lambda size: {"t": size})


@given(MOVES, SIZES, st.integers(1, 5000), st.integers(1, 200), st.integers(0, 9))
def test_limits_hold_something_always_goes_and_nothing_is_left_out_that_fits(
    moves: list[Move], sizes: dict[str, int], most_bytes: int, most_rows: int, turn: int
) -> None:
    admitted = admit(moves, sizes, Limits(most_rows, most_bytes), turn)
    total = sum(rows(admitted))
    assert total <= most_rows
    assert total * sizes["t"] <= max(most_bytes, sizes["t"])
    assert bool(total) == bool(moves)
    if sum(rows(moves)) * sizes["t"] <= most_bytes and sum(rows(moves)) <= most_rows:
        assert admitted == moves


def test_without_limits_all_of_it_goes() -> None:
    assert admit(waiting(5, 700), {}, Limits()) == waiting(5, 700)


def test_a_small_partition_does_not_wait_for_a_large_one() -> None:
    assert rows(admit(waiting(1000, 3), {"t": 10}, Limits(None, 200))) == [17, 3]


def test_large_records_of_many_partitions_take_turns() -> None:
    served = [admit(waiting(5, 5, 5, 5), {"t": 60}, Limits(None, 150), turn) for turn in range(4)]
    assert [[m.partition for m in moves] for moves in served] == [[0, 1], [1, 2], [2, 3], [0, 3]]


def test_a_partition_that_stands_anew_does_so_without_records() -> None:
    empty, lost = Move("t", 0, "id", None, 0, 0), Move("t", 1, "id", 2, 9, 9)
    assert admit([empty, lost, *waiting(0, 0, 4)], {"t": 10}, Limits(1, 10)) == [empty, lost, Move("t", 2, "id", 10, 10, 11)]


@given(MOVES, st.integers(1, 5))
def test_tasks_are_few_balanced_and_keep_partitions_whole(moves: list[Move], tasks: int) -> None:
    packed = pack(moves, tasks)
    assert sorted(piece for task in packed for piece in task) == [(m.topic, m.partition, m.first, m.end) for m in moves]
    assert len(packed) == min(tasks, len(moves))
    loads = [sum(end - first for _, _, first, end in task) for task in packed]
    assert not loads or max(loads) - min(loads) <= max(rows(moves))
