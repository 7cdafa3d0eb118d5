from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trunkline.pipeline.spread import pack, share_out

BACKLOGS = st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 500))


@given(BACKLOGS, st.integers(0, 2000))
def test_shares_use_all_there_is_up_to_the_limit_and_nobody_gets_more_than_waits(backlog: dict[str, int], most: int) -> None:
    shares = share_out(backlog, most)
    assert sum(shares.values()) == min(most, sum(backlog.values()))
    assert all(0 <= shares[q] <= backlog[q] for q in backlog)


@given(BACKLOGS, st.integers(0, 2000))
def test_a_queue_that_gets_less_than_it_has_gets_no_less_than_any_other(backlog: dict[str, int], most: int) -> None:
    shares = share_out(backlog, most)
    for queue in backlog:
        if shares[queue] < backlog[queue]:
            assert shares[queue] >= max(shares.values()) - 1


@given(st.dictionaries(st.sampled_from("abcdefg"), st.tuples(st.integers(1, 99), st.integers(0, 400))), st.integers(1, 8))
def test_packing_covers_every_position_once_in_balanced_tasks(spans: dict[str, tuple[int, int]], tasks: int) -> None:
    ranges = {queue: range(first, first + length) for queue, (first, length) in spans.items()}
    packed = pack(ranges, tasks)
    covered = sorted((q, p) for task in packed for q, first, end in task for p in range(first, end))
    assert covered == sorted((q, p) for q, span in ranges.items() for p in span)
    assert len(packed) <= tasks
    assert all(packed)
    longest = -(-len(covered) // tasks) if covered else 0
    assert all(sum(end - first for _, first, end in task) <= 2 * longest for task in packed)
