"""When keys end: per hop, near the end, at the end, and in crowds."""

from __future__ import annotations

from itertools import pairwise

from joined import TICK, Joined

from trunkline.store.expiry import MOST_LEFT_BEHIND, NEVER, SPANS_PER_SECOND, Wheel, span_of
from trunkline.store.table import EXPIRE_AT_ONCE, Table
from trunkline.store.values import INFINITE, Value, refresh_of, sealed
from trunkline.store.watch import KeyEvent, Kind


def published_ttls(joined: Joined, receiver: str, key: str) -> list[int]:
    return [message.values[key].ttl_ms for message in joined.publications(receiver) if key in message.values]


# -- over hops


def test_s17_each_hop_takes_its_decrement_off_the_ttl() -> None:
    joined = Joined("s0", "s1", decrement_ms=300)
    joined.link("s0", "s1")
    joined.run(1)
    joined.put("s1", "k", b"v", ttl_ms=6000)
    joined.put("s1", "short", b"v", ttl_ms=299)
    assert joined.data("short") == {"s0": None, "s1": None}
    joined.run(0.1)
    (ttl_ms,) = published_ttls(joined, "s0", "k")
    assert 5600 < ttl_ms <= 5700
    assert joined.data("k") == {"s0": b"v", "s1": b"v"}
    assert joined.data("short") == {"s0": None, "s1": None}


def test_s17_by_default_a_hop_takes_at_least_a_millisecond() -> None:
    names = [f"s{n}" for n in range(5)]
    joined = Joined(*names, delay=0.0)
    joined.chain(*names)
    joined.run(1)
    joined.put("s0", "k", b"v", ttl_ms=6000)
    joined.run(0.1)
    ttls = [6000, *(ttl_ms for name in names[1:] for ttl_ms in published_ttls(joined, name, "k"))]
    assert len(ttls) == len(names)
    assert all(1 <= before - after <= 2 for before, after in pairwise(ttls))


def test_s18_what_is_about_to_end_is_not_told_only_its_end_and_only_here() -> None:
    joined = Joined("a", "b")
    joined.link("a", "b")
    joined.run(1)
    joined.watched("a"), joined.watched("b")
    before = len(joined.log), len(joined.watched("a")), len(joined.watched("b"))
    joined.put("a", "k", b"v", ttl_ms=1)
    joined.run(1)
    assert joined.watched("a")[before[1] :] == [KeyEvent(Kind.EXPIRED, "k")]
    assert joined.watched("b")[before[2] :] == []
    assert len(joined.log) == before[0]
    assert "k" not in joined.contents("a")
    assert joined["a"].counters["expired_key_vals"] == 1


def test_s18_a_ttl_of_400_is_not_flooded() -> None:
    joined = Joined("a", "b")
    joined.link("a", "b")
    joined.run(1)
    joined.put("a", "k", b"v", ttl_ms=400)
    joined.put("a", "l", b"v", ttl_ms=600)
    joined.run(0.05)
    assert joined.data("k") == {"a": b"v", "b": None}
    assert joined.data("l") == {"a": b"v", "b": b"v"}
    joined.run(1)
    assert [key for message in joined.publications("b") for key in message.values] == ["l"]
    assert joined.contents("a") == joined.contents("b") == {}


def test_s20_a_sync_brings_what_remains_and_leaves_the_ttl_of_what_is_there() -> None:
    joined = Joined("a", "b")
    for name, key in (("a", "k1"), ("a", "k2"), ("b", "k2")):
        joined.put(name, key, b"v", ttl_ms=1000, originator="x")
    ends = joined["b"].table.entries["k2"].ends
    joined.run(0.2)
    joined.link("a", "b")
    joined.run(0.05)
    k1, k2 = joined.value("b", "k1"), joined.value("b", "k2")
    assert k1 is not None
    assert 500 < k1.ttl_ms <= 800
    assert k2 is not None
    assert joined["b"].table.entries["k2"].ends == ends


def test_a_ring_does_not_keep_a_dead_key_alive() -> None:
    joined = Joined("a", "b", "c", sync_seconds=0.2)
    joined.chain("a", "b", "c", "a")
    joined.run(1)
    joined.put("a", "k", b"v", ttl_ms=2000)
    joined.run(1)
    assert set(joined.data("k").values()) == {b"v"}
    joined.run(1.2)
    assert set(joined.data("k").values()) == {None}
    assert [joined.contents(name) for name in "abc"] == [{}, {}, {}]
    joined.run(5)
    assert [joined.contents(name) for name in "abc"] == [{}, {}, {}]


# -- here


def test_a_key_ends_when_its_ttl_does_and_not_before() -> None:
    table = Table()
    table.take({"k": sealed("k", 1, "n", b"v", 1000)}, 7.0)
    assert table.get("k", 7.99) is not None
    assert table.expire(7.999) == {}
    assert table.get("k", 8.0) is None
    assert set(table.expire(8.0 + 1 / SPANS_PER_SECOND)) == {"k"}
    assert len(table) == table.armed() == 0


def test_a_longer_or_endless_life_puts_the_end_off_and_a_shorter_one_brings_it_on() -> None:
    table = Table()
    value = sealed("k", 1, "n", b"v", 1000)
    table.take({"k": value}, 0.0)
    for ttl_version, ttl_ms, at in ((1, 5000, 0.5), (2, INFINITE, 4.0), (3, 10_000, 20.0), (4, 1000, 21.0)):
        table.take({"k": Value(1, "n", None, ttl_ms, ttl_version)}, at)
        assert table.expire(at + 0.9) == {}
        assert table.get("k", at + 0.9) is not None
    assert set(table.expire(22.1)) == {"k"}
    assert table.expire(100.0) == {}
    assert table.armed() == 0


def test_a_life_made_finite_again_ends() -> None:
    table = Table()
    table.take({"k": sealed("k", 1, "n", b"v", INFINITE)}, 0.0)
    assert table.armed() == 0
    table.take({"k": sealed("k", 2, "n", b"v", 1000)}, 5.0)
    assert set(table.expire(7.0)) == {"k"}


# -- the wheel


def test_the_wheel_hands_out_what_is_due_in_portions_and_in_the_order_of_time() -> None:
    wheel = Wheel()
    for n in range(10):
        wheel.arm(f"late{n}", span_of(2.0))
        wheel.arm(f"soon{n}", span_of(1.0))
    assert wheel.due(1.0, 100) == []
    [(span, first)] = wheel.due(3.0, 7)
    assert (span, len(first)) == (span_of(1.0), 7)
    assert [(span, len(keys)) for span, keys in wheel.due(3.0, 7)] == [(span_of(1.0), 3), (span_of(2.0), 4)]
    assert len(wheel) == 6
    assert [(span, len(keys)) for span, keys in wheel.due(3.0, 7)] == [(span_of(2.0), 6)]
    assert (wheel.due(1e9, 7), len(wheel), wheel.spans) == ([], 0, 0)


def test_nothing_due_is_handed_out_twice_or_left_behind() -> None:
    wheel = Wheel()
    for n in range(100):
        wheel.arm(f"k{n}", span_of(n / 10))
    found: list[str] = []
    while portion := wheel.due(20.0, 7):
        found += [key for _, keys in portion for key in keys]
    assert sorted(found) == sorted(f"k{n}" for n in range(100))


def test_a_wheel_made_anew_holds_what_counts_and_what_was_overdue() -> None:
    wheel = Wheel()
    for n in range(5):
        wheel.arm("k", span_of(n))
    wheel.arm("l", span_of(0))
    [(_, [_])] = wheel.due(10.0, 1)
    wheel.renew([("k", span_of(0)), ("l", span_of(0)), ("m", NEVER)])
    assert (len(wheel), wheel.left_behind) == (2, 0)
    assert {key for _, keys in wheel.due(10.0, 9) for key in keys} == {"k", "l"}


# -- many


def test_a_hundred_thousand_refreshes_of_a_few_keys_do_not_grow_the_wheel() -> None:
    table = Table()
    keys = [f"k{n}" for n in range(5)]
    table.take({key: sealed(key, 1, "n", b"v", 300_000) for key in keys}, 0.0)
    ttls = [300_000, 299_000, INFINITE, 1_000_000, 600]
    for n in range(20_000):
        now = n / 100
        table.take({key: refresh_of(table.entries[key].value, ttls[(n + i) % 5]) for i, key in enumerate(keys)}, now)
        assert table.expire(now) == {}
    assert all(table.entries[key].value.ttl_version == 20_000 for key in keys)
    assert table.armed() <= 2 * len(keys) + MOST_LEFT_BEHIND
    assert table._wheel.spans <= table.armed()


def test_steady_refreshes_leave_one_place_per_key() -> None:
    table = Table()
    table.take({"k": sealed("k", 1, "n", b"v", 300_000)}, 0.0)
    for n in range(10_000):
        table.take({"k": refresh_of(table.entries["k"].value, 300_000)}, n * 0.1)
        table.expire(n * 0.1)
        assert table.armed() == table._wheel.spans == 1


def test_ever_shorter_lives_do_not_grow_the_wheel_and_the_last_one_counts() -> None:
    table = Table()
    table.take({"k": sealed("k", 1, "n", b"v", 10_000_000)}, 0.0)
    for n in range(1, 20_000):
        table.take({"k": refresh_of(table.entries["k"].value, 10_000_000 - 400 * n)}, 0.0)
        assert table.armed() <= 2 + MOST_LEFT_BEHIND
    assert table.expire(2000.3) == {}
    assert set(table.expire(2000.5)) == {"k"}


def test_a_crowd_ends_in_portions_and_is_never_seen_meanwhile() -> None:
    joined = Joined("a")
    area, count = joined["a"], 200_000
    crowd = {f"k{n}": sealed(f"k{n}", 1, "a", b"v", 1000) for n in range(count)}
    area.put({"stays": sealed("stays", 1, "a", b"v", 60_000)}, joined.now)
    area.put(crowd, joined.now)
    joined.run(1)
    ticks = 0
    while len(area.table) > 1:
        joined.run(TICK)
        ticks += 1
        assert count - len(area.table) + 1 <= EXPIRE_AT_ONCE * (ticks + 1)
        if ticks % 16 == 1:
            assert [key for key, _ in area.shown(joined.now)] == ["stays"]
            assert not any(area.get(key, joined.now) or area.table.outgoing(key, joined.now) for key in list(crowd)[::97])
    assert ticks >= count // EXPIRE_AT_ONCE - 1
    assert area.counters["expired_key_vals"] == count
    assert area.get("stays", joined.now) is not None
