"""The one backoff, the clock that is turned by hand, and the shape of errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core import errors
from trunkline.core.backoff import Backoff
from trunkline.core.clock import ManualClock, SystemClock
from trunkline.core.errors import Retryable, Terminal, TrunklineError
from trunkline.core.jsoncodec import dumps, loads


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=60))
def test_a_wait_lies_between_half_and_all_of_its_step(draws: list[float]) -> None:
    drawn = iter(draws)
    backoff = Backoff(0.1, 5.0, random=lambda: next(drawn))
    for n, _ in enumerate(draws):
        step = min(5.0, 0.1 * 2**n)
        assert step / 2 <= backoff.after_failure() <= step


def test_a_thousand_failures_still_wait_the_maximum() -> None:
    backoff = Backoff(0.1, 5.0, random=lambda: 0.999)
    waits = [backoff.after_failure() for _ in range(1000)]
    assert max(waits) <= 5.0
    assert waits[-1] > 4.9


def test_success_begins_anew() -> None:
    backoff = Backoff(1.0, 64.0, random=lambda: 0.0)
    assert [backoff.after_failure() for _ in range(4)] == [0.5, 1.0, 2.0, 4.0]
    backoff.success()
    assert backoff.after_failure() == 0.5


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(start=5, wall=1000)
    assert (clock.monotonic(), clock.wall()) == (5, 1000)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.wall()) == (7.5, 1002.5)


def test_the_systems_clock_goes_on() -> None:
    clock = SystemClock()
    first = clock.monotonic()
    assert clock.monotonic() >= first
    assert clock.wall() > 1_700_000_000


def test_every_error_is_either_retryable_or_terminal() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, TrunklineError)]
    assert len(kinds) > 4
    for kind in set(kinds) - {TrunklineError}:
        assert issubclass(kind, Retryable) != issubclass(kind, Terminal)


def test_an_error_says_what_why_and_what_next() -> None:
    error = Terminal("disk", "it is full", "free some space")
    assert str(error) == "disk: it is full (next: free some space)"
    assert (error.what, error.why, error.next_step) == ("disk", "it is full", "free some space")


def test_equal_values_have_equal_bytes() -> None:
    assert dumps({"b": 1, "a": [{"d": 1, "c": 2}]}) == dumps({"a": [{"c": 2, "d": 1}], "b": 1})
    assert loads(dumps({"a": [1, None, "ä"]})) == {"a": [1, None, "ä"]}


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b"\xff", "nope"])
def test_what_is_not_json_is_named(text: bytes | str) -> None:
    with pytest.raises(errors.Invalid, match="event"):
        loads(text, "event")
