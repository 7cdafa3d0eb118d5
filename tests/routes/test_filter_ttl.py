"""ttl: how old an event may be."""

from __future__ import annotations

from typing import Any

import pytest

from running_filters import applied, run
from trunkline.routes.event import Event
from trunkline.routes.filters.ttl import TtlConfig, compile_ttl
from trunkline.routes.plugin import Around, Filter

NOW = 1_790_000_000.123


def ttl(now: float = NOW, **config: Any) -> Filter:
    return compile_ttl(TtlConfig.model_validate({"path": ".at", **config}), Around(now=lambda: now))


def passes(time: Any, now: float = NOW, **config: Any) -> bool:
    return applied(ttl(now, **config), [Event(payload={"at": time})]) != []


@pytest.mark.parametrize("written", [int, float])
@pytest.mark.parametrize(("seconds_ago", "expected"), [(299, True), (300, False), (301, False), (0, True), (-60, True)])
def test_s30_ttl_of_300_seconds(seconds_ago: int, expected: bool, written: type) -> None:
    time = written(1_790_000_000_123 - seconds_ago * 1000)
    assert passes(time, ttl=300_000, nanoFactor=1e6) is expected
    assert passes(time) is expected


@pytest.mark.parametrize(("factor", "per_second"), [(1, 10**9), (1000, 10**6), (1_000_000, 1000), (1_000_000_000, 1)])
@pytest.mark.parametrize("now", [1_790_000_000.0, 1_790_000_001.0, 1_823_456_789.0])
def test_the_limit_is_exact_in_every_unit(factor: int, per_second: int, now: float) -> None:
    at = (int(now) - 10) * per_second
    for time in (at, float(at)):
        assert not passes(time, now, ttl=10_000, nanoFactor=factor)
        assert passes(time, now, ttl=10_001, nanoFactor=factor)


@pytest.mark.parametrize("milliseconds", [1_759_222_115_862, 1_865_067_477_638, 1_888_987_606_438])
def test_the_limit_is_exact_where_floats_are_not(milliseconds: int) -> None:
    nanoseconds = (milliseconds - 10_000) * 1_000_000
    assert not passes(nanoseconds, milliseconds / 1000, ttl=10_000, nanoFactor=1)
    assert passes(nanoseconds + 2_000, milliseconds / 1000, ttl=10_000, nanoFactor=1)


def test_a_time_between_two_milliseconds_counts() -> None:
    assert passes(1_790_000_000_123 - 999.9, ttl=1000)
    assert not passes(1_790_000_000_123 - 1000.1, ttl=1000)


@pytest.mark.parametrize(
    ("payload", "found"),
    [({}, "nothing"), ({"at": "1790000000"}, "a text"), ({"at": True}, "true or false"), ({"at": [1]}, "an array")],
)
def test_what_is_no_time_is_refused_by_name(payload: Any, found: str) -> None:
    good, bad = Event(payload={"at": NOW * 1000}), Event(payload=payload)
    out, told = run(ttl(), [bad, good])
    assert out == [good]
    assert (told.events, told.reasons) == ([bad], [f"payload.at: a time as a number is needed, found {found}"])


def test_a_number_beyond_all_times_is_the_future() -> None:
    assert passes(1e308, nanoFactor=1e9)
    assert not passes(-1e308, nanoFactor=1e9)


def test_disabled_lets_everything_pass() -> None:
    batch = [Event(payload={"at": 1}), Event(payload={})]
    assert applied(ttl(disabled=True), batch) == batch


@pytest.mark.parametrize("wrong", [{"ttl": -1}, {"nanoFactor": 0}, {"path": "payload.[", "ttl": 1}, {"ttl": "soon"}])
def test_a_wrong_configuration_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        TtlConfig.model_validate(wrong)
