"""Watches: what is there, then every change, without a gap, at any pace of the reader."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joined import Joined

from trunkline.store.area import Area
from trunkline.store.digest import LEAVES
from trunkline.store.filters import Filter, filter_of
from trunkline.store.values import INFINITE, Value, sealed
from trunkline.store.watch import (
    MOST_LOOKS,
    MOST_SIGNALS,
    MOST_WAITING,
    KeyEvent,
    Kind,
    Missed,
    Signal,
    SignalKind,
    Watch,
    WatchEvent,
)

DONE = Signal(SignalKind.SNAPSHOT_DONE)


class Watched:
    """One store and one watcher of it."""

    def __init__(self, wanted: Filter | None = None, with_ttl: bool = False, most: int = MOST_WAITING) -> None:
        self.area = Area("a", "fleet", lambda: 0.5)
        self.now = 10.0
        self.wakes = 0
        self.watch = Watch(wanted or Filter(), with_ttl, self._wake, most)

    def _wake(self) -> None:
        self.wakes += 1

    def begin(self) -> Watched:
        self.area.watch(self.watch)
        return self

    def put(self, key: str, data: bytes = b"v", ttl_ms: int = 60_000, originator: str = "a") -> None:
        stored = self.area.table.entries.get(key)
        version = 1 if stored is None else stored.value.version + 1
        _, refused = self.area.put({key: sealed(key, version, originator, data, ttl_ms)}, self.now)
        assert not refused

    def refresh(self, key: str, ttl_ms: int = 60_000) -> None:
        self.area.refresh(key, ttl_ms, self.now)

    def erase(self, key: str) -> None:
        self.area.erase(key, self.now)

    def run(self, seconds: float) -> None:
        self.now += seconds
        self.area.tick(self.now)

    def read(self, most: int = 1000) -> list[WatchEvent]:
        return self.area.read(self.watch, most, self.now)

    def told(self, most: int = 1000) -> list[tuple[str, str]]:
        return [(event.kind, event.key) for event in self.read(most) if isinstance(event, KeyEvent)]


# -- snapshot and changes


def test_what_is_there_comes_first_then_what_changes() -> None:
    w = Watched()
    w.put("a")
    w.put("b")
    w.begin()
    assert w.told() == [("value", "a"), ("value", "b")]
    w.put("b", b"new")
    w.put("c")
    w.erase("a")
    assert w.read() == [
        KeyEvent(Kind.VALUE, "b", sealed("b", 2, "a", b"new", 59_999)),
        KeyEvent(Kind.VALUE, "c", sealed("c", 1, "a", b"v", 59_999)),
        KeyEvent(Kind.ERASED, "a", sealed("a", 2, "a", b"", 120_000, erased=True)),
    ]
    assert w.read() == []
    assert w.watch.is_empty


def test_the_end_of_the_snapshot_is_told_also_of_an_empty_store() -> None:
    assert Watched().begin().read() == [DONE]
    w = Watched()
    w.put("a")
    w.put("b")
    w.begin()
    assert w.told(1) == [("value", "a")]
    assert w.told(1) == [("value", "b")]
    assert w.read(1) == [DONE]
    assert w.read(1) == []


def test_a_change_during_the_snapshot_is_told_once_as_it_is_then() -> None:
    w = Watched()
    for key in "abc":
        w.put(key)
    w.begin()
    assert w.told(1) == [("value", "a")]
    w.put("a", b"new")
    w.put("b", b"new")
    w.put("d", b"new")
    events = w.read()
    assert [(e.kind, e.key, e.value and e.value.data) for e in events if isinstance(e, KeyEvent)] == [
        ("value", "b", b"new"),
        ("value", "c", b"v"),
        ("value", "a", b"new"),
        ("value", "d", b"new"),
    ]
    assert events.index(DONE) == 2


@pytest.mark.parametrize("seen", [True, False])
def test_a_key_that_ends_or_is_erased_while_the_snapshot_is_read_is_not_left_with_the_client(seen: bool) -> None:
    w = Watched()
    w.put("ends", ttl_ms=1000)
    w.put("erased")
    w.put("stays")
    w.begin()
    client = Client()
    if seen:
        client.apply(w.read(2))
        assert client.keys() == {"ends", "erased"}
    w.erase("erased")
    w.run(2)
    client.apply(w.read())
    assert client.keys() == {"stays"}


def test_ttl_events_are_told_to_those_who_want_them() -> None:
    quiet, loud = Watched().begin(), Watched(with_ttl=True).begin()
    for w in (quiet, loud):
        w.put("a")
        w.read()
        w.refresh("a", 90_000)
    assert quiet.read() == []
    assert loud.read() == [
        KeyEvent(Kind.TTL, "a", Value(1, "a", b"v", 89_999, 1, sealed("a", 1, "a", b"v", 1).hash)),
    ]


def test_a_longer_life_does_not_hide_that_a_value_is_new() -> None:
    w = Watched(with_ttl=True).begin()
    w.read()
    w.put("a")
    w.refresh("a", 90_000)
    (event,) = w.read()
    assert isinstance(event, KeyEvent)
    assert event.value is not None
    assert (event.kind, event.value.ttl_version, event.skipped) == (Kind.VALUE, 1, 1)


def test_the_end_is_told_once_and_of_an_erased_key_only_the_erasure() -> None:
    w = Watched().begin()
    w.put("a", ttl_ms=1000)
    w.put("b", ttl_ms=1000)
    w.erase("b")
    assert sorted(w.told()) == [("erased", "b"), ("value", "a")]
    w.run(2)
    assert w.read() == [KeyEvent(Kind.EXPIRED, "a")]
    w.run(100)
    assert w.area.table.entries == {}
    assert w.read() == []


def test_a_longer_life_of_an_erased_key_is_nothing_to_tell() -> None:
    w = Watched(with_ttl=True).begin()
    w.put("a")
    w.erase("a")
    w.read()
    stored = w.area.table.entries["a"].value
    w.area.put({"a": Value(stored.version, "a", None, 900_000, 1)}, w.now)
    assert w.area.table.entries["a"].value.ttl_version == 1
    assert w.read() == []


def test_a_short_erasure_is_told_although_it_is_about_to_end() -> None:
    w = Watched().begin()
    w.put("a")
    w.read()
    w.area.put({"a": sealed("a", 2, "a", b"", 100, erased=True)}, w.now)
    assert w.told() == [("erased", "a")]


@pytest.mark.parametrize("ttl_ms", [10, 400])
def test_a_value_that_a_refresh_saves_from_its_near_end_is_told_as_a_value(ttl_ms: int) -> None:
    w = Watched()
    w.put("before", ttl_ms=ttl_ms)
    w.begin()
    w.put("after", ttl_ms=ttl_ms)
    assert w.told() == []
    w.refresh("before", 450)
    w.refresh("after", 450)
    assert w.told() == []
    w.refresh("before")
    w.refresh("after")
    assert w.told() == [("value", "before"), ("value", "after")]
    w.refresh("before")
    assert w.told() == []


# -- filters


def test_a_watch_by_originator_is_told_when_a_key_gets_another_one() -> None:
    w = Watched(filter_of(originators=["x"])).begin()
    w.put("a", originator="x")
    w.put("b", originator="y")
    assert w.told() == [("value", "a")]
    w.put("a", originator="y")
    assert w.read() == [KeyEvent(Kind.ERASED, "a")]
    w.put("a", originator="z")
    w.put("b", originator="x")
    assert w.told() == [("value", "b")]
    w.put("b", originator="y", ttl_ms=100)
    assert w.told() == [("erased", "b")]


def test_ends_are_told_to_whoever_was_told_of_the_value_and_to_nobody_else() -> None:
    w = Watched(filter_of(["k"], ["x"])).begin()
    w.put("k", originator="y", ttl_ms=1000)
    w.put("other", originator="x", ttl_ms=1000)
    w.put("foreign", originator="y", ttl_ms=1000)
    assert w.told() == [("value", "k"), ("value", "other")]
    w.run(2)
    assert sorted(w.told()) == [("expired", "k"), ("expired", "other")]


def test_a_filter_that_matches_little_in_a_large_store_costs_many_short_reads_and_no_long_one() -> None:
    w = Watched(filter_of(prefixes=["needle"]))
    values = {f"k{n}": sealed(f"k{n}", 1, "a", b"", INFINITE) for n in range(2 * MOST_LOOKS + 5)}
    w.area.put(values, w.now)
    last = next(reversed(w.area.table.digest.by_index))
    needle = next(name for n in count() if crc32((name := f"needle{n}").encode()) % LEAVES == last)
    w.put(needle)
    w.begin()
    for wakes in (2, 3):
        assert w.read() == []
        assert not w.watch.is_empty
        assert w.wakes == wakes
    assert w.told() == [("value", needle)]
    assert w.watch.is_empty


# -- slow readers


def test_a_slow_reader_sees_the_last_step_and_how_many_it_stands_for() -> None:
    w = Watched().begin()
    w.read()
    for n in range(5):
        w.put("a", b"%d" % n)
    (event,) = w.read()
    assert isinstance(event, KeyEvent)
    assert event.value is not None
    assert (event.kind, event.value.data, event.skipped) == (Kind.VALUE, b"4", 4)


def test_a_key_that_never_rests_keeps_no_other_one_waiting() -> None:
    w = Watched().begin()
    w.read()
    told = []
    for _ in range(4):
        w.put("a")
        w.put("b")
        told += w.told(1)
    assert [key for _, key in told] == ["a", "b", "a", "b"]


def test_a_reader_that_is_too_slow_is_told_so_and_begins_anew() -> None:
    w = Watched(most=3).begin()
    w.put("early")
    client = Client()
    client.apply(w.read())
    w.erase("early")
    for key in ("a", "a", "b", "c", "d"):
        w.put(key)
    assert w.watch.waiting == 0
    events = w.read()
    assert events[0] == Missed(6)
    assert events[-1] == DONE
    client.apply(events)
    assert client.keys() == {"a", "b", "c", "d"}
    w.put("a")
    assert w.told() == [("value", "a")]


def test_a_reader_that_never_reads_holds_a_bounded_number_of_events() -> None:
    w = Watched().begin()
    most = 0
    for n in range(100_000):
        w.watch.tell(KeyEvent(Kind.VALUE, f"k{n % 20_011}"))
        most = max(most, w.watch.waiting)
    assert most == MOST_WAITING
    assert w.wakes == 1
    assert w.read()[0] == Missed(100_000)


def test_so_does_one_that_is_told_through_its_store() -> None:
    w = Watched().begin()
    for n in range(100):
        values = {
            f"k{m}": sealed(f"k{m}", n + 1, "a", b"", INFINITE) for m in range(n * 1000 % 20_000, n * 1000 % 20_000 + 1000)
        }
        w.area.put(values, w.now)
        assert w.watch.waiting <= MOST_WAITING
    events = w.read(50_000)
    assert isinstance(events[0], Missed)
    assert events[0].changes == 100_000
    assert len(events) == 1 + 10_000


# -- signals and wakes


def test_a_signal_comes_after_the_keys_that_changed_before_it_and_survives_a_miss() -> None:
    synced, peer = Signal(SignalKind.SYNCED), Signal(SignalKind.PEER_SYNCED, "b")
    w = Watched(most=3).begin()
    w.read()
    w.put("a")
    w.watch.signal(peer)
    w.put("b")
    w.watch.signal(synced)
    w.put("a")
    assert [e.key if isinstance(e, KeyEvent) else e for e in w.read()] == ["a", peer, "b", synced]
    w.put("a")
    w.watch.signal(peer)
    for key in "bcd":
        w.put(key)
    events = w.read()
    assert events[0] == Missed(4)
    assert events[-2:] == [DONE, peer]


def test_signals_are_bounded_and_the_same_one_waits_once() -> None:
    w = Watched().begin()
    w.read()
    for n in range(5 * MOST_SIGNALS):
        w.watch.signal(Signal(SignalKind.PEER_SYNCED, f"p{n}"))
        w.watch.signal(Signal(SignalKind.SYNCED))
    assert w.watch.waiting == MOST_SIGNALS
    events = w.read(2 * MOST_SIGNALS)
    assert events[-1] == Signal(SignalKind.SYNCED)
    assert events.count(Signal(SignalKind.SYNCED)) == 1


def test_a_watch_wakes_its_reader_once_per_time_that_there_was_nothing() -> None:
    w = Watched().begin()
    assert w.wakes == 1
    w.put("a")
    w.read()
    assert w.wakes == 1
    w.put("a")
    w.put("b")
    assert w.wakes == 2
    w.read()
    w.area.unwatch(w.watch)
    w.put("c")
    assert (w.wakes, w.read()) == (2, [])


def test_a_watch_that_ends_leaves_one_like_it_alone_and_may_end_twice() -> None:
    w = Watched()
    first, second = Watch(Filter()), Watch(Filter())
    for watch in (first, second):
        w.area.watch(watch)
    w.area.unwatch(second)
    w.area.unwatch(second)
    w.put("a")
    assert not w.area.read(second, 10, w.now)[1:]
    assert len(w.area.read(first, 10, w.now)) == 2
    assert len(w.area.watches) == 1


def test_whoever_comes_after_the_area_is_synced_is_told_so_after_the_snapshot() -> None:
    joined = Joined("a")
    joined["a"].peers_known(joined.now)
    joined.put("a", "k", b"v")
    assert [type(e).__name__ if isinstance(e, KeyEvent) else e for e in joined.watched("a")] == [
        "KeyEvent",
        DONE,
        Signal(SignalKind.SYNCED),
    ]


# -- no gap


class Client:
    """Applies what it is told, and nothing else."""

    def __init__(self) -> None:
        self.held: dict[str, Value] = {}

    def keys(self) -> set[str]:
        return set(self.held)

    def apply(self, events: list[WatchEvent]) -> None:
        for event in events:
            if isinstance(event, Missed):
                self.held.clear()
            elif isinstance(event, KeyEvent) and event.kind in (Kind.VALUE, Kind.TTL):
                assert event.value is not None
                self.held[event.key] = event.value
            elif isinstance(event, KeyEvent):
                self.held.pop(event.key, None)


def assert_no_gap(w: Watched, client: Client) -> None:
    """What is shown, the client has; what it has beyond that is about to end."""
    shown = {key: value for key, value in w.area.shown(w.now) if w.watch.filter.matches(key, value)}
    for key, value in shown.items():
        held = client.held.get(key)
        assert held is not None
        assert (held.version, held.originator, held.data) == (value.version, value.originator, value.data)
        assert not w.watch.with_ttl or held.ttl_version == value.ttl_version
    for key in client.held.keys() - shown.keys():
        entry = w.area.table.entries[key]
        assert not entry.value.erased
        assert entry.ends - w.now < 0.51
        assert w.watch.filter.matches(key, entry.value)


KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
TTLS = st.sampled_from([300, 1500, 100_000, INFINITE])
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.sampled_from([b"1", b"2"]), TTLS, st.sampled_from(["x", "y"])),
    st.tuples(st.just("refresh"), KEYS, TTLS),
    st.tuples(st.just("erase"), KEYS),
    st.tuples(st.just("run"), st.sampled_from([0.1, 0.6, 2.0])),
    st.tuples(st.just("read"), st.integers(1, 4)),
    st.tuples(st.just("read_all")),
)
FILTERS = st.sampled_from(
    [
        Filter(),
        filter_of(["[abc]"]),
        filter_of(originators=["x"]),
        filter_of(["[ab]"], ["x"]),
        filter_of(["[ab]"], ["x"], every=True),
    ]
)


@settings(max_examples=400)
@given(st.lists(STEPS, max_size=40), st.integers(0, 10), FILTERS, st.booleans(), st.sampled_from([1, 3, 100]))
def test_a_reader_at_any_pace_ends_with_exactly_what_is_shown(
    steps: list[tuple[object, ...]], begin: int, wanted: Filter, with_ttl: bool, most: int
) -> None:
    w, client = Watched(wanted, with_ttl, most), Client()

    def read_all() -> None:
        while not w.watch.is_empty:
            client.apply(w.read(3))
        assert_no_gap(w, client)

    actions: dict[str, Callable[..., object]] = {
        "put": w.put,
        "refresh": w.refresh,
        "erase": w.erase,
        "run": w.run,
        "read": lambda count: client.apply(w.read(count)),
        "read_all": read_all,
    }
    for n, (name, *arguments) in enumerate([*steps[:begin], ("begin",), *steps[begin:]]):
        if name == "begin":
            w.begin()
        elif not (n < begin and str(name).startswith("read")):
            actions[str(name)](*arguments)
    w.run(3)
    read_all()
    assert all(value.ttl_ms > 500 or value.ttl_ms == INFINITE for value in client.held.values())
