"""Keys a node keeps alive: set, persisted, overridden, cleared."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from joined import TICK, Joined

from trunkline.core.errors import Invalid
from trunkline.store.expiry import MOST_LEFT_BEHIND
from trunkline.store.messages import Publish
from trunkline.store.own import LONGEST_BACKOFF, QUIET, OwnKeys
from trunkline.store.table import Table
from trunkline.store.values import INFINITE, MAX_VALUE, MAX_VERSION, Reason, Value, sealed


def pair(**changed: Any) -> Joined:
    joined = Joined("a", "b", **changed)
    joined.link("a", "b")
    joined.run(1)
    return joined


def of(joined: Joined, name: str, key: str = "k") -> tuple[int, int, str, bytes | None]:
    value = joined.value(name, key)
    assert value is not None
    return value.version, value.ttl_version, value.originator, value.data


def writes(joined: Joined, key: str = "k") -> list[tuple[float, str, Value]]:
    """Publications of the key with its bytes, from the node that wrote it."""
    return [
        (at, sender, m.values[key])
        for at, sender, _, m in joined.log
        if isinstance(m, Publish) and key in m.values and m.values[key].data is not None and m.values[key].originator == sender
    ]


# -- persisted


def test_s21_a_persisted_key_is_written_at_once_and_refreshed_at_a_quarter_of_its_ttl() -> None:
    joined = pair(ttl_ms=2000)
    joined["a"].persist("k", b"v", joined.now)
    joined.run(0.2)
    assert of(joined, "a") == of(joined, "b") == (1, 0, "a", b"v")
    begun = joined.now
    joined.run(4)
    version, ttl_version, *_ = of(joined, "b")
    assert version == 1
    assert ttl_version >= 4
    refreshes = [at for at, _, to, m in joined.log if to == "b" and isinstance(m, Publish) and at > begun]
    assert all(0.49 < after - before < 0.5 + 2 * TICK for before, after in pairwise(refreshes))
    assert all(m.values["k"].data is None for m in joined.publications("b")[1:])


def test_s21_a_new_value_is_the_next_version_and_the_same_one_no_publication() -> None:
    joined = pair()
    joined["a"].persist("k", b"v", joined.now)
    joined.run(0.2)
    before = len(joined.log)
    joined["a"].persist("k", b"v", joined.now)
    joined.run(1)
    assert len(joined.log) == before
    joined["a"].persist("k", b"w", joined.now)
    joined.run(0.2)
    assert of(joined, "a") == of(joined, "b") == (2, 0, "a", b"w")


def test_a_value_of_an_earlier_life_is_refreshed_and_another_one_written_over() -> None:
    joined = pair()
    joined.put("b", "same", b"v", version=7, originator="a", ttl_version=5)
    joined.put("b", "other", b"old", version=7, originator="a", ttl_version=5)
    joined.run(0.1)
    joined["a"].persist("same", b"v", joined.now)
    joined["a"].persist("other", b"new", joined.now)
    joined.run(0.2)
    assert of(joined, "b", "same") == (7, 6, "a", b"v")
    assert of(joined, "b", "other") == (8, 0, "a", b"new")


def test_another_ttl_of_the_same_value_is_told_at_once_as_a_refresh() -> None:
    joined = pair()
    joined["a"].persist("k", b"v", joined.now)
    joined.run(0.2)
    joined["a"].persist("k", b"v", joined.now, ttl_ms=900_000)
    joined.run(0.2)
    value = joined.value("b", "k")
    assert value is not None
    assert value.ttl_ms > 800_000
    assert of(joined, "b") == (1, 1, "a", b"v")


def test_an_endless_key_is_written_once() -> None:
    joined = pair()
    joined["a"].persist("k", b"v", joined.now, ttl_ms=INFINITE)
    joined.run(0.2)
    before = len(joined.publications("b"))
    joined.run(1000)
    assert len(joined.publications("b")) == before
    assert of(joined, "b") == (1, 0, "a", b"v")


def test_changes_of_one_key_go_out_at_most_once_in_a_tenth_of_a_second() -> None:
    joined = pair()
    for n in range(40):
        joined["a"].persist("k", b"%d" % n, joined.now)
        joined.run(TICK)
    joined.run(0.2)
    times = [at for at, *_ in writes(joined)]
    assert all(after - before >= 0.099 for before, after in pairwise(times))
    assert 15 <= len(times) <= 21
    assert of(joined, "b")[3] == b"39"


def test_a_key_that_ended_while_the_process_slept_is_written_anew_with_its_bytes() -> None:
    joined = pair(ttl_ms=2000)
    area = joined["a"]
    area.persist("k", b"v", joined.now)
    joined.run(0.2)
    late = joined.now + 60
    (send,) = (send for send in area.tick(late) if isinstance(send.message, Publish))
    assert isinstance(send.message, Publish)
    assert send.message.values["k"].data == b"v"
    assert send.message.values["k"].version == 2
    assert area.get("k", late) is not None


def test_a_lower_version_that_came_while_ours_had_ended_is_written_over_and_not_refreshed() -> None:
    own = OwnKeys("a", 2000, Random(1).random)
    own.keep("k", b"v", None, 10.0, persisted=True, floor=5)
    assert own.due(lambda _: None, 10.0)["k"].version == 5
    other = sealed("k", 1, "z", b"other", 60_000)
    own.notice("k", other, 20.0)
    written = own.due(lambda _: other, 20.1)
    assert written["k"] == sealed("k", 6, "a", b"v", 2000)


def test_only_a_value_that_is_right_is_refreshed() -> None:
    own = OwnKeys("a", 2000, Random(1).random)
    own.keep("k", b"v", None, 10.0, persisted=True)
    own.due(lambda _: None, 10.0)
    other = sealed("k", 7, "z", b"other", 60_000)
    assert own.due(lambda _: other, 10.6)["k"] == sealed("k", 8, "a", b"v", 2000)


# -- overridden


def overridden(**more: Any) -> Joined:
    """`a` persists "a" at version 1; `b` writes over it."""
    joined = pair()
    joined["a"].persist("k", b"a", joined.now)
    joined.run(0.2)
    joined.put("b", "k", **more)
    joined.run(0.5)
    return joined


@pytest.mark.parametrize(
    ("override", "after"),
    [
        ({"data": b"x", "version": 2}, 3),
        ({"data": b"x", "version": 20}, 21),
        ({"data": b"z", "version": 1, "originator": "a"}, 2),
        ({"data": b"a", "version": 1, "originator": "z"}, 2),
        ({"data": b"", "version": 2, "erased": True}, 3),
    ],
)
def test_s22_whatever_overrides_a_persisted_key_is_raised_above(override: dict[str, object], after: int) -> None:
    joined = overridden(**override)
    assert of(joined, "a") == of(joined, "b") == (after, 0, "a", b"a")


def test_s22_a_lower_version_is_ignored() -> None:
    joined = pair()
    joined["a"].persist("k", b"a", joined.now, version=5)
    joined.run(0.2)
    _, reasons = joined["b"].put({"k": sealed("k", 4, "z", b"z", 60_000)}, joined.now)
    assert reasons == {"k": Reason.OLD_VERSION}
    joined.run(1)
    assert of(joined, "a") == of(joined, "b") == (5, 0, "a", b"a")


def test_s22_two_nodes_that_persist_one_key_make_no_storm() -> None:
    joined = pair()
    joined["a"].persist("k", b"a", joined.now)
    joined["b"].persist("k", b"b", joined.now)
    counts = []
    for _ in range(6):
        begun = joined.now
        joined.run(100)
        counts.append(sum(at > begun for at, *_ in writes(joined)))
    most_in_step = 100 / (LONGEST_BACKOFF / 2)
    assert 8 <= counts[0] <= 2 * (7 + most_in_step)
    assert all(100 / LONGEST_BACKOFF - 2 <= count <= most_in_step + 2 for count in counts[1:])
    version, *_ = of(joined, "a")
    assert version <= sum(counts) + 2


def test_s22_after_a_quiet_time_an_override_is_answered_quickly_again() -> None:
    joined = overridden(data=b"x", version=2)
    for n in range(5):
        joined.put("b", "k", b"x", version=100 * (n + 1))
        joined.run(5)
    joined.run(QUIET)
    joined.put("b", "k", b"x", version=1000)
    joined.run(0.064 + 2 * TICK + 0.01)
    assert of(joined, "a") == of(joined, "b") == (1001, 0, "a", b"a")


def test_s22_one_who_overrides_without_rest_does_not_keep_the_owner_from_writing() -> None:
    joined = pair()
    joined["a"].persist("k", b"a", joined.now)
    joined.run(0.2)
    for n in range(400):
        value = joined.value("b", "k")
        assert value is not None
        joined.put("b", "k", b"x%d" % n, version=value.version + 1)
        joined.run(TICK)
    assert sum(sender == "a" for _, sender, _ in writes(joined)) >= 6


def test_a_version_that_cannot_be_raised_leaves_the_key_as_it_is_without_a_storm() -> None:
    joined = overridden(data=b"x", version=MAX_VERSION)
    before = len(joined.log)
    joined.run(20)
    assert of(joined, "a") == (MAX_VERSION, 0, "b", b"x")
    assert len(joined.log) == before


def test_a_ttl_version_that_cannot_be_raised_is_written_over() -> None:
    joined = pair(ttl_ms=2000)
    joined["a"].persist("k", b"v", joined.now)
    joined.run(0.2)
    joined.put("b", "k", b"v", originator="a", ttl_version=MAX_VERSION, ttl_ms=2000)
    joined.run(5)
    version, ttl_version, originator, data = of(joined, "b")
    assert (version, originator, data) == (2, "a", b"v")
    assert ttl_version >= 5


def test_a_life_that_somebody_else_made_shorter_is_made_longer_in_time() -> None:
    joined = pair()
    joined["a"].persist("k", b"v", joined.now)
    joined.run(0.2)
    joined.say("b", joined["b"].refresh("k", 2000, joined.now)[0])
    joined.run(1)
    value = joined.value("b", "k")
    assert value is not None
    assert value.ttl_ms > 290_000
    assert of(joined, "b") == (1, 2, "a", b"v")


def test_two_processes_of_one_name_that_keep_the_same_value_do_not_refresh_in_turn_without_rest() -> None:
    twins = [OwnKeys("a", 4000, Random(n).random) for n in range(2)]
    table, refreshes = Table(), 0
    for own in twins:
        own.keep("k", b"v", None, 0.0, persisted=True)
    for tick in range(400):
        now = tick * TICK
        for own, other in (twins, twins[::-1]):
            written = own.due(lambda key: table.entries[key].value if key in table.entries else None, now)
            if table.take(written, now).taken:
                other.notice("k", table.entries["k"].value, now)
            refreshes += len(written)
    assert 20 <= refreshes <= 2 * 20 + 2


def test_a_set_key_is_refreshed_until_somebody_else_writes_it() -> None:
    joined = pair(ttl_ms=2000)
    joined["a"].keep_set("k", b"v", joined.now)
    joined.run(5)
    assert of(joined, "b")[0] == 1
    assert of(joined, "b")[1] >= 5
    joined.put("b", "k", b"x", version=2, ttl_ms=2000)
    joined.run(1)
    assert of(joined, "a") == (2, 0, "b", b"x")
    assert "k" not in joined["a"].own.keys
    joined.run(2)
    assert joined.data("k") == {"a": None, "b": None}


def test_what_comes_between_a_set_and_its_tick_does_not_undo_it() -> None:
    joined = Joined("a")
    joined["a"].keep_set("k", b"v", joined.now)
    joined.put("a", "k", b"x", version=4, originator="b")
    joined.run(0.2)
    assert of(joined, "a") == (5, 0, "a", b"v")


# -- cleared


def test_s23_a_cleared_key_is_readable_until_its_ttl_ends_and_never_refreshed() -> None:
    joined = pair(ttl_ms=2000)
    joined["a"].persist("k", b"v", joined.now)
    joined.run(0.2)
    joined["a"].clear("k")
    before = len(joined.publications("b"))
    joined.run(1.4)
    assert joined.data("k") == {"a": b"v", "b": b"v"}
    joined.run(1)
    assert joined.data("k") == {"a": None, "b": None}
    assert len(joined.publications("b")) == before


def test_s23_an_unset_key_has_its_last_bytes_until_its_ttl_ends() -> None:
    joined = pair(ttl_ms=300_000)
    joined["a"].persist("k", b"v", joined.now, ttl_ms=2000)
    joined.run(0.2)
    joined["a"].unset("k", b"y")
    joined["a"].unset("k", b"x")
    joined.run(0.2)
    assert of(joined, "a") == of(joined, "b") == (2, 0, "a", b"x")
    joined.run(2.1)
    assert joined.data("k") == {"a": None, "b": None}


def test_s23_persisted_and_unset_within_a_tick_never_appears() -> None:
    joined = pair()
    before = len(joined.log)
    joined["a"].persist("k", b"v", joined.now)
    joined["a"].unset("k", b"x")
    joined.run(1)
    assert joined.data("k") == {"a": None, "b": None}
    assert len(joined.log) == before


def test_s23_unset_and_persisted_within_a_tick_stays() -> None:
    joined = pair(ttl_ms=2000)
    joined["a"].persist("k", b"v", joined.now)
    joined.run(0.2)
    joined["a"].unset("k", b"x")
    joined["a"].persist("k", b"v", joined.now)
    joined.run(4)
    version, ttl_version, originator, data = of(joined, "b")
    assert (version, originator, data) == (1, "a", b"v")
    assert ttl_version >= 4
    assert [value.data for _, _, value in writes(joined)] == [b"v"]


def test_an_erased_key_is_not_unset_into_being() -> None:
    joined = pair()
    joined["a"].persist("k", b"v", joined.now)
    joined.run(0.2)
    joined.say("a", joined["a"].erase("k", joined.now)[0])
    joined["a"].unset("k", b"x")
    joined.run(1)
    assert joined.data("k") == {"a": None, "b": None}


# -- bounds


@pytest.mark.parametrize(
    ("key", "data", "ttl_ms"),
    [
        ("", b"v", None),
        ("k" * 300, b"v", None),
        ("k", bytes(MAX_VALUE + 1), None),
        ("k", b"v", 0),
        ("k", b"v", -1),
        ("node:s1/other", b"v", None),
        ("k\ud800", b"v", None),
    ],
)
def test_what_no_store_would_take_is_refused_when_it_is_asked_for(key: str, data: bytes, ttl_ms: int | None) -> None:
    area = Joined("a")["a"]
    for keep in (area.persist, area.keep_set):
        with pytest.raises(Invalid):
            keep(key, data, 1.0, ttl_ms)
    assert area.own.keys == {}


def test_a_hundred_thousand_changes_do_not_grow_the_wheel_of_own_keys() -> None:
    own = OwnKeys("a", 300_000, Random(1).random)
    stored: dict[str, Value] = {}
    for n in range(25_000):
        now = n / 20
        for key in ("k0", "k1", "k2", "k3"):
            own.keep(key, b"%d" % n, stored.get(key), now, persisted=True)
            if n % 7 == 0:
                own.clear(key)
        stored |= own.due(stored.get, now)
    assert own.armed() <= 2 * len(own.keys) + MOST_LEFT_BEHIND
    own.keep("k0", b"last", stored["k0"], 2000.0, persisted=True)
    assert own.due(stored.get, 2000.1)["k0"].data == b"last"


def test_nor_do_keys_that_are_kept_and_cleared_in_turn() -> None:
    own = OwnKeys("a", 300_000, Random(1).random)
    for _ in range(10_000):
        own.keep("k", b"v", None, 0.0, persisted=True)
        own.clear("k")
        assert own.armed() <= 2 + MOST_LEFT_BEHIND
    own.keep("k", b"v", None, 0.0, persisted=True)
    assert set(own.due(lambda _: None, 0.1)) == {"k"}


def test_a_hundred_thousand_refreshes_keep_one_place_per_own_key() -> None:
    own = OwnKeys("a", 300_000, Random(1).random)
    own.keep("k", b"v", None, 0.0, persisted=True)
    stored = own.due(lambda _: None, 0.1)
    refreshes = 0
    for n in range(1, 100_001):
        refreshes += len(own.due(stored.get, n * 75.1))
        assert own.armed() == 1
    assert refreshes == 100_000
