"""When a leader that stumbles leaves the lease to others (H04), and which links carry (H02)."""

from __future__ import annotations

import msgspec
import pytest

from trunkline.core.backoff import Backoff
from trunkline.net.hello import OLDEST_WIRE, WIRE_VERSION, Hello
from trunkline.node.peers import CARRIES, carries
from trunkline.node.roles import STUMBLE_SECONDS, STUMBLES, Stumbles


def stumbles() -> Stumbles:
    return Stumbles(Backoff(10.0, 120.0, lambda: 1.0))


def test_h04_a_few_failures_begin_anew_more_of_them_within_a_minute_come_to_rest() -> None:
    one = stumbles()
    assert [one.failed(float(n)) for n in range(STUMBLES)] == [0.0] * (STUMBLES - 1) + [10.0]


def test_h04_failures_far_apart_never_come_to_rest() -> None:
    one = stumbles()
    assert {one.failed(n * STUMBLE_SECONDS) for n in range(1, 20)} == {0.0}


def test_h04_each_rest_is_longer_until_all_was_well_for_long() -> None:
    one = stumbles()
    rests = [one.failed(float(n)) for n in range(3 * STUMBLES)]
    assert [rest for rest in rests if rest] == [10.0, 20.0, 40.0]
    much_later = 100 * STUMBLE_SECONDS
    assert [one.failed(much_later + n) for n in range(STUMBLES)][-1] == 10.0


LEADER = Hello(
    wire=WIRE_VERSION, oldest=OLDEST_WIRE, capabilities=("store", CARRIES), site="a", node="n1", incarnation=7,
    known_incarnation=5, log_id="log", neighbours=(), heads={}, applied={}, carries=True, addresses=(),
)  # fmt: skip
NEIGHBOUR = msgspec.structs.replace(LEADER, site="b", incarnation=5, known_incarnation=7, carries=False)


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ({}, {}, True),
        ({"carries": False}, {}, False),
        ({"capabilities": ("store",)}, {}, False),
        ({}, {"capabilities": ("store",)}, False),
        ({}, {"known_incarnation": 8}, False),
        ({"known_incarnation": 6}, {}, False),
        ({}, {"known_incarnation": 0}, True),
    ],
    ids=["two leaders", "unwanted", "I follow", "they follow", "they know more of me", "I know more of them", "unknown yet"],
)
def test_h02_a_link_carries_between_two_present_leaders_and_both_ends_say_the_same(
    mine: dict[str, object], theirs: dict[str, object], expected: bool
) -> None:
    one, two = msgspec.structs.replace(LEADER, **mine), msgspec.structs.replace(NEIGHBOUR, **theirs)
    assert carries(one, two) is expected
    assert carries(two, one) is expected
