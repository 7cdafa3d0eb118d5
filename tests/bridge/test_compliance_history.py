"""Events and the history they tell: each once, days by UTC, the worst state, changes from one event to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from fleet_words import Fleet, part, policy_event, work
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trunkline.core.errors import Invalid

WORD = {"Compliant": 0, "Pending": 1, "Unknown": 2, "NonCompliant": 3}
STATE = ("compliant", "pending", "unknown", "non_compliant")


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("queues", "bridge")


@pytest.fixture
def fleet(database: str) -> Iterator[Fleet]:
    with psycopg.connect(database) as conn:
        yield Fleet(conn)


def _history(fleet: Fleet, site: str = "h1") -> list[tuple[Any, ...]]:
    query = "SELECT cluster_name, day, state, changes FROM fleet.compliance_history WHERE site = %s ORDER BY 1, 2"
    return fleet.rows(query, site)


def test_a_day_is_of_utc_and_counts_only_its_own_changes(fleet: Fleet) -> None:
    fleet.send(
        "h1",
        "policy-events",
        [
            policy_event("e1", "NonCompliant", "2026-01-05T23:59:59Z"),
            policy_event("e2", "Compliant", "2026-01-06T00:00:00Z"),
            policy_event("e3", "Compliant", "2026-01-06T22:30:00-02:00"),  # the 7th
        ],
    )
    assert _history(fleet) == [
        ("c1", date(2026, 1, 5), "non_compliant", 0),
        ("c1", date(2026, 1, 6), "compliant", 0),
        ("c1", date(2026, 1, 7), "compliant", 0),
    ]


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["Compliant", "Pending"], "pending"),
        (["Pending", "Unknown", "Compliant"], "unknown"),
        (["Unknown", "NonCompliant", "Pending"], "non_compliant"),
        (["Compliant"], "compliant"),
        (["non_compliant"], "non_compliant"),
    ],
)
def test_the_state_of_a_day_is_its_worst(fleet: Fleet, words: list[str], state: str) -> None:
    events = [policy_event(f"e{n}", word, f"2026-01-05T1{n}:00:00Z") for n, word in enumerate(words)]
    fleet.send("h1", "policy-events", events)
    assert _history(fleet) == [("c1", date(2026, 1, 5), state, len(words) - 1)]


def test_sites_policies_and_clusters_have_histories_of_their_own(fleet: Fleet) -> None:
    at = "2026-01-05T10:00:00Z"
    first, second = policy_event("e", "Compliant", at), policy_event("e", "NonCompliant", at, clusterName="c2", count=2)
    fleet.write("policy-events", work("h1", part([first, second])), work("h2", part(first)))
    assert _history(fleet) == [("c1", date(2026, 1, 5), "compliant", 0), ("c2", date(2026, 1, 5), "non_compliant", 0)]
    assert _history(fleet, "h2") == [("c1", date(2026, 1, 5), "compliant", 0)]


def test_an_event_without_a_state_a_policy_or_a_cluster_is_kept_and_tells_nothing(fleet: Fleet) -> None:
    at = "2026-01-05T10:00:00Z"
    events = [policy_event("e1", "", at), policy_event("e2", "Compliant", at, policyId=""),
              policy_event("e3", "Compliant", at, clusterName=None)]  # fmt: skip
    assert fleet.send("h1", "policy-events", events).written == 3
    assert _history(fleet) == []


EVENT = st.tuples(st.sampled_from(sorted(WORD)), st.integers(0, 47), st.integers(1, 2))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bundles=st.lists(st.lists(EVENT, min_size=1, max_size=5), max_size=4))
def test_any_bundles_in_any_order_tell_what_the_events_sorted_tell(fleet: Fleet, bundles: list[list[Any]]) -> None:
    fleet.conn.execute("TRUNCATE fleet.policy_event, fleet.compliance_history")
    kept: dict[tuple[int, int], str] = {}  # of events with one key the first counts
    for bundle in bundles:
        told = [
            policy_event("e", word, f"2026-01-{5 + hour // 24:02}T{hour % 24:02}:00:00Z", count=count)
            for word, hour, count in bundle
        ]
        fleet.send("h1", "policy-events", told)
        for word, hour, count in bundle:
            kept.setdefault((hour, count), word)
    expected = []
    for day in (0, 1):
        states = [WORD[kept[key]] for key in sorted(kept) if key[0] // 24 == day]
        changes = sum(one != other for one, other in pairwise(states))
        expected += [("c1", date(2026, 1, 5 + day), STATE[max(states)], changes)] if states else []
    assert _history(fleet) == expected


def test_cluster_events_come_once_by_name_and_time(fleet: Fleet) -> None:
    event = {"eventName": "e1", "clusterName": "c1", "message": "tab\tand \\", "createdAt": "2026-01-05T10:00:00Z"}
    later = event | {"createdAt": "2026-01-05T10:00:01.5Z"}
    assert fleet.send("h1", "cluster-events", [event, event, later]).written == 2
    assert fleet.send("h1", "cluster-events", [later], 2).written == 0
    assert fleet.send("h2", "cluster-events", event).written == 1
    times = fleet.rows("SELECT created_at, message, reason FROM fleet.cluster_event WHERE site = 'h1' ORDER BY 1")
    assert times == [
        (datetime(2026, 1, 5, 10, tzinfo=UTC), "tab\tand \\", ""),
        (datetime(2026, 1, 5, 10, 0, 1, 500_000, tzinfo=UTC), "tab\tand \\", ""),
    ]


def test_of_root_policy_events_with_one_key_the_first_stays(fleet: Fleet) -> None:
    at = "2026-01-05T10:00:00Z"
    fleet.send("h1", "root-policy-events", [policy_event("e", "Compliant", at), policy_event("e", "NonCompliant", at)])
    fleet.send("h1", "root-policy-events", [policy_event("e", "Unknown", at), policy_event("e", "Unknown", at, count=2)])
    states = fleet.rows("SELECT count, state FROM fleet.root_policy_event ORDER BY 1")
    assert states == [(1, "compliant"), (2, "unknown")]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"createdAt": ""}, "field createdAt of row 0 of policy-events: it is missing or empty"),
        ({"createdAt": "yesterday"}, "field createdAt of row 0"),
        ({"createdAt": "0001-01-01T00:00:00+10:00"}, "field createdAt of row 0"),
        ({"createdAt": 7}, "it is not a time"),
        ({"eventName": None}, "field eventName of row 0 of policy-events: it is missing or empty"),
        ({"count": "many"}, "it is not a whole number"),
        ({"compliance": "maybe"}, "it is none of compliant, pending, unknown, non_compliant"),
        ({"message": {"a": 1}}, "it is an object or a list"),
    ],
)
def test_an_event_that_cannot_be_read_is_refused_with_the_field_and_the_reason(
    fleet: Fleet, change: dict[str, Any], why: str
) -> None:
    with pytest.raises(Invalid, match=why):
        fleet.send("h1", "policy-events", [policy_event("e", "Compliant", "2026-01-05T10:00:00Z") | change])
    fleet.conn.rollback()
