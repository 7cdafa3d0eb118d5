"""A bucket is a function of time: whatever the order of requests, no more get through than rate and burst allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.bucket import Bucket, Buckets, Rate, take

RATES = st.builds(Rate, st.floats(0.1, 1000), st.floats(1, 2000))
GAPS = st.lists(st.floats(0, 5), max_size=200)


@given(RATES, GAPS)
def test_never_more_than_burst_and_rate_times_the_time(rate: Rate, gaps: list[float]) -> None:
    bucket: Bucket | None = None
    now, through = 0.0, 0
    for gap in gaps:
        now += gap
        bucket, wait = take(bucket, rate, now)
        through += wait == 0
        assert 0 <= bucket.level <= rate.burst
        assert through <= rate.burst + rate.per_second * now + 0.01


@given(RATES, GAPS)
def test_who_waits_as_long_as_told_gets_through(rate: Rate, gaps: list[float]) -> None:
    bucket: Bucket | None = None
    now = 0.0
    for gap in gaps:
        now += gap
        bucket, wait = take(bucket, rate, now)
        if wait:
            now += wait
            bucket, wait = take(bucket, rate, now)
            assert wait == 0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    empty, _ = take(Bucket(0.0, 100.0), Rate(10, 10), 50.0)
    assert empty.level == 0


def test_each_has_a_bucket_of_its_own() -> None:
    buckets = Buckets(Rate(1, 2))
    assert [buckets.wait("a", 0) for _ in range(3)] == [0, 0, pytest.approx(1)]
    assert buckets.wait("b", 0) == 0


@pytest.mark.parametrize("seen", [10, 1000])
def test_memory_is_bounded_and_the_one_used_longest_ago_is_forgotten(seen: int) -> None:
    buckets = Buckets(Rate(0.001, 1), most=5)
    buckets.wait("busy", 0)
    for n in range(seen):
        buckets.wait(f"other-{n}", 0)
        assert buckets.wait("busy", 0) > 0
    assert len(buckets) == 5
    assert buckets.wait("other-0", 0) == 0
