"""Erasing: a key is gone everywhere, and nobody who still holds it brings it back."""

from __future__ import annotations

from typing import Any

import pytest
from joined import Joined

from trunkline.store.area import ERASED_MS, SHORTEST_ERASED_MS
from trunkline.store.values import INFINITE, MAX_TTL, Reason
from trunkline.store.watch import KeyEvent, Kind

NAMES = ("s0", "s1", "s2", "s3", "s4")
NOWHERE = dict.fromkeys(NAMES)


def chain(**changed: Any) -> Joined:
    joined = Joined(*NAMES, **changed)
    joined.chain(*NAMES)
    joined.run(1)
    return joined


def erase(joined: Joined, name: str, key: str = "k") -> None:
    sends, reason = joined[name].erase(key, joined.now)
    assert reason is None
    joined.say(name, sends)


def test_s34_erased_on_one_of_five_it_is_gone_from_all_and_stays_away() -> None:
    joined = chain(sync_seconds=1.0)
    joined.put("s0", "k", b"v", ttl_ms=20_000)
    joined.run(1)
    assert set(joined.data("k").values()) == {b"v"}
    erase(joined, "s3")
    joined.run(2)
    assert joined.data("k") == NOWHERE
    for _ in range(2 * 5):  # two refresh periods, a quarter of the ttl each
        joined.run(1)
        assert joined.data("k") == NOWHERE
        assert all("k" not in dict(joined[name].shown(joined.now)) for name in NAMES)


def test_s34_the_erased_value_leaves_by_its_ttl() -> None:
    joined = chain()
    joined.put("s0", "k", b"v", ttl_ms=20_000)
    joined.run(1)
    erase(joined, "s3")
    joined.run(SHORTEST_ERASED_MS / 1000 - 2)
    assert [joined.contents(name)["k"][2] for name in NAMES] == [b""] * 5
    joined.run(3)
    assert [joined.contents(name) for name in NAMES] == [{}] * 5


@pytest.mark.parametrize("away", [2.0, 45.0])
def test_s34_a_node_that_was_away_does_not_bring_it_back(away: float) -> None:
    joined = chain()
    joined.put("s0", "k", b"v", ttl_ms=50_000)
    joined.run(1)
    joined.unlink("s3", "s4")
    erase(joined, "s0")
    joined.run(away)
    assert joined.data("k") == {**NOWHERE, "s4": b"v"}
    joined.link("s3", "s4")
    joined.run(2)
    assert joined.data("k") == NOWHERE
    joined.run(100)
    assert joined.data("k") == NOWHERE


def test_s34_nor_does_one_that_was_away_with_an_endless_key() -> None:
    joined = chain(sync_seconds=600.0)
    joined.put("s0", "k", b"v", ttl_ms=INFINITE)
    joined.run(1)
    joined.unlink("s3", "s4")
    erase(joined, "s0")
    joined.run(300)
    joined.link("s3", "s4")
    joined.run(2)
    assert joined.data("k") == NOWHERE
    assert joined["s4"].table.entries["k"].value.ttl_ms > ERASED_MS - 310_000


def test_s34_an_owner_that_set_it_lets_it_go_and_one_that_persists_it_writes_it_again() -> None:
    joined = chain(ttl_ms=4000)
    joined["s0"].keep_set("set", b"v", joined.now)
    joined["s0"].persist("persisted", b"v", joined.now)
    joined.run(1)
    erase(joined, "s4", "set")
    erase(joined, "s4", "persisted")
    joined.run(2)
    assert joined.data("set") == NOWHERE
    assert set(joined.data("persisted").values()) == {b"v"}
    joined.run(10)
    assert joined.data("set") == NOWHERE
    assert set(joined.data("persisted").values()) == {b"v"}


def test_s34_an_owner_that_erases_what_it_persisted_lets_it_go() -> None:
    joined = chain(ttl_ms=4000)
    joined["s0"].persist("k", b"v", joined.now)
    joined.run(1)
    erase(joined, "s0")
    joined.run(2)
    assert joined.data("k") == NOWHERE
    joined.run(10)
    assert joined.data("k") == NOWHERE


def test_a_refresh_that_was_on_its_way_does_not_undo_an_erasure() -> None:
    joined = chain()
    joined.put("s0", "k", b"v", ttl_ms=20_000)
    joined.run(1)
    joined.say("s0", joined["s0"].refresh("k", 90_000, joined.now)[0])
    erase(joined, "s4")
    joined.run(1)
    assert joined.data("k") == NOWHERE
    assert {joined[name].table.entries["k"].value.version for name in NAMES} == {2}


def test_an_erased_key_can_be_written_again() -> None:
    joined = chain()
    joined.put("s0", "k", b"v")
    joined.run(1)
    erase(joined, "s3")
    joined.run(1)
    sends, reason = joined["s1"].write("k", b"again", 60_000, joined.now)
    joined.say("s1", sends)
    joined.run(1)
    assert reason is None
    assert set(joined.data("k").values()) == {b"again"}


def test_what_is_not_there_or_not_ours_is_not_erased() -> None:
    joined = Joined("s1/a", "s1/b")
    joined.link("s1/a", "s1/b")
    joined["s1/a"].persist("node:s1/a", b"v", joined.now)
    joined.run(1)
    area = joined["s1/b"]
    assert area.erase("unknown", joined.now) == ([], Reason.NO_NEED_TO_UPDATE)
    assert area.erase("node:s1/a", joined.now) == ([], Reason.NOT_THE_OWNER)
    assert joined.data("node:s1/a") == {"s1/a": b"v", "s1/b": b"v"}
    joined.put("s1/b", "k", b"v")
    erase(joined, "s1/b")
    assert area.erase("k", joined.now) == ([], Reason.NO_NEED_TO_UPDATE)
    assert area.refresh("k", 1000, joined.now) == ([], Reason.INCONSISTENT)


def test_the_longest_ttl_there_is_can_be_erased() -> None:
    joined = Joined("a")
    joined.put("a", "k", b"v", ttl_ms=MAX_TTL)
    erase(joined, "a")
    assert joined.value("a", "k") is None


def test_watchers_are_told_once() -> None:
    joined = chain()
    joined.put("s0", "k", b"v", ttl_ms=20_000)
    joined.run(1)
    before = len(joined.watched("s2"))
    erase(joined, "s4")
    joined.run(100)
    (event,) = joined.watched("s2")[before:]
    assert isinstance(event, KeyEvent)
    assert (event.kind, event.key) == (Kind.ERASED, "k")
