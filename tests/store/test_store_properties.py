"""What holds for any values in any order: of merging, of digests, and of stores that are parted and joined again."""

from __future__ import annotations

from itertools import permutations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from joined import Joined

from trunkline.store.digest import LEAVES, MASK, Digest, signature, word
from trunkline.store.table import Table
from trunkline.store.values import (
    INFINITE,
    Header,
    Order,
    Outcome,
    Reason,
    Value,
    compare,
    merge,
    refresh_of,
    sealed,
)

TTL = 100_000
KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.builds(
    lambda version, originator, data, ttl_version, erased: sealed(
        "k", version, originator, b"" if erased else data, TTL, ttl_version, erased
    ),
    st.integers(1, 3),
    st.sampled_from(["x", "xy", "y", "ÿ"]),
    st.sampled_from([b"", b"p", b"pp", b"q"]),
    st.integers(0, 2),
    st.booleans(),
)


def best(stored: Value | None, incoming: Value) -> Value | None:
    """What one value is after the other came."""
    return incoming if isinstance(merge(stored, incoming), Outcome) else stored


def header(value: Value) -> Header:
    return Header(value.version, value.originator, value.hash, value.ttl_version)


# -- merging


@settings(max_examples=300)
@given(VALUES, VALUES, VALUES)
def test_merging_is_commutative_associative_and_idempotent(a: Value, b: Value, c: Value) -> None:
    assert best(a, a) == a
    assert best(a, b) == best(b, a)
    ends = {best(best(one, two) or one, three) for one, two, three in permutations((a, b, c))}
    assert len(ends) == 1
    ab, bc = best(a, b), best(b, c)
    assert ab is not None
    assert bc is not None
    assert best(ab, c) == best(a, bc)


@settings(max_examples=300)
@given(VALUES, VALUES)
def test_what_a_sync_sends_is_what_the_other_side_takes(a: Value, b: Value) -> None:
    taken, refused = isinstance(merge(b, a), Outcome), merge(a, b) in (Reason.NO_NEED_TO_UPDATE, Reason.OLD_VERSION)
    expected = Order.TIED if a == b else Order.FIRST if taken else Order.SECOND
    assert refused or expected is Order.SECOND
    assert compare(a, b) is expected
    assert compare(header(a), header(b)) in (expected, Order.UNKNOWN)
    assert (compare(header(a), header(b)) is Order.UNKNOWN) == (
        (a.version, a.originator) == (b.version, b.originator) and a.hash != b.hash
    )


UPDATES = st.lists(st.tuples(KEYS, VALUES), max_size=12)


def rekeyed(key: str, value: Value) -> Value:
    v = value
    return sealed(key, v.version, v.originator, v.data or b"", v.ttl_ms, v.ttl_version, v.erased)


@settings(max_examples=150)
@given(UPDATES, st.data())
def test_any_order_of_values_and_of_the_refreshes_of_known_ones_ends_in_the_same(
    updates: list[tuple[str, Value]], data: st.DataObject
) -> None:
    updates = [(key, rekeyed(key, value)) for key, value in updates]
    one, two = Table(), Table()
    for key, value in updates:
        one.take({key: value}, 0.0)
    for key, value in data.draw(st.permutations(updates)):
        two.take({key: value}, 0.0)
        two.take({key: value}, 0.0)
    refreshes = [
        (key, Value(v.version, v.originator, None, TTL, v.ttl_version + n, v.hash)) for key, v in one.values() for n in (1, 2)
    ]
    for key, refresh in refreshes:
        one.take({key: refresh}, 1.0)
    for key, refresh in data.draw(st.permutations(refreshes * 2)):
        two.take({key: refresh}, 1.0)
    assert dict(one.values()) == dict(two.values())
    assert one.digest.root() == two.digest.root()


# -- exchanging


@settings(max_examples=150)
@given(UPDATES, UPDATES)
def test_two_stores_that_exchanged_everything_are_equal(ours: list[tuple[str, Value]], theirs: list[tuple[str, Value]]) -> None:
    one, two = Table(decrement_ms=0), Table(decrement_ms=0)
    for table, updates in ((one, ours), (two, theirs)):
        for key, value in updates:
            table.take({key: rekeyed(key, value)}, 0.0)
    of_one = {key: out for key in one.entries if (out := one.outgoing(key, 0.0)) is not None}
    of_two = {key: out for key in two.entries if (out := two.outgoing(key, 0.0)) is not None}
    one.take(of_two, 0.0)
    two.take(of_one, 0.0)
    assert dict(one.values()) == dict(two.values())
    assert one.digest.ranges() == two.digest.ranges()
    assert not one.take(of_two, 0.0).taken
    assert not two.take(of_one, 0.0).taken


@settings(max_examples=60)
@given(UPDATES, UPDATES)
def test_two_stores_that_synced_are_equal(ours: list[tuple[str, Value]], theirs: list[tuple[str, Value]]) -> None:
    joined = Joined("one", "two")
    for name, updates in (("one", ours), ("two", theirs)):
        for key, value in updates:
            joined[name].put({key: rekeyed(key, value)}, joined.now)
    joined.link("one", "two")
    joined.run(0.2)
    one, two = joined["one"].table, joined["two"].table
    assert [(key, header(value), value.erased) for key, value in sorted(one.values())] == [
        (key, header(value), value.erased) for key, value in sorted(two.values())
    ]
    assert one.digest.ranges() == two.digest.ranges()


# -- digests

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, VALUES, st.sampled_from([1, 1000, 5000, INFINITE])),
        st.tuples(st.just("refresh"), KEYS, st.sampled_from([1, 1000, 5000, INFINITE])),
        st.tuples(st.just("expire"), st.sampled_from([0.1, 2.0, 10.0])),
    ),
    max_size=30,
)


def from_scratch(table: Table) -> Digest:
    digest = Digest()
    for key, value in table.values():
        leaf = digest.leaf_of(key)
        leaf.entries[key] = table.entries[key]
        leaf.sum = (leaf.sum + word(value)) & MASK
    return digest


@settings(max_examples=150)
@given(STEPS)
def test_the_digest_is_always_that_of_what_is_stored_and_keys_end_in_time(
    steps: list[tuple[str, object, object, object]],
) -> None:
    table, now = Table(), 0.0
    for name, *arguments in steps:
        match name, arguments:
            case "put", [str(key), Value() as v, int(ttl_ms)]:
                table.take({key: sealed(key, v.version, v.originator, v.data or b"", ttl_ms, v.ttl_version, v.erased)}, now)
            case "refresh", [str(key), int(ttl_ms)] if key in table.entries:
                table.take({key: refresh_of(table.entries[key].value, ttl_ms)}, now)
            case "expire", [float(seconds)]:
                now += seconds
                table.expire(now)
                assert all(entry.ends > now - 1 / 64 for entry in table.entries.values())
        fresh = from_scratch(table)
        assert table.digest.root() == fresh.root()
        assert table.digest.ranges() == fresh.ranges()
        assert table.bytes == sum(len(value.data or b"") for _, value in table.values())
        assert sorted(table.digest.keys(range(LEAVES))) == sorted(table.entries)
        finite = sum(entry.value.ttl_ms != INFINITE for entry in table.entries.values())
        assert finite <= table.armed() <= finite + len(steps)


# -- stores that are parted and joined again

NAMES = ("a", "b", "c")
NODES = st.sampled_from(NAMES)
PAIRS = st.sampled_from([("a", "b"), ("b", "c"), ("a", "c")])
BYTES = st.sampled_from([b"1", b"2", b"3"])
SHARED = st.sampled_from(["k", "l"])
LONG = 10_000_000
SHORT = 1500
KEPT = 20_000


class Fleet(RuleBasedStateMachine):
    """The model: every write there was. After all is joined again, the greatest of each key is what all have."""

    @initialize()
    def begin(self) -> None:
        self.joined = Joined(*NAMES, ttl_ms=KEPT, sync_seconds=5.0)
        self.joined.chain("a", "b", "c", "a")
        self.joined.run(0.5)
        self.writes: dict[str, set[tuple[int, str, bool, bytes]]] = {"k": set(), "l": set()}
        self.kept: dict[str, bytes] = {}
        self.left: dict[str, tuple[bytes, float]] = {}
        self.was_erased: set[str] = set()
        self.ends: dict[str, float] = {}

    # -- what clients do

    @rule(name=NODES, key=SHARED, data=BYTES)
    def write(self, name: str, key: str, data: bytes) -> None:
        sends, reason = self.joined[name].write(key, data, LONG, self.joined.now)
        assert reason is None
        self.joined.say(name, sends)
        self.writes[key].add((self.joined[name].table.entries[key].value.version, name, False, data))

    @rule(name=NODES, key=SHARED, version=st.integers(1, 4), originator=st.sampled_from("xy"), data=BYTES)
    def put(self, name: str, key: str, version: int, originator: str, data: bytes) -> None:
        value = sealed(key, version, originator, data, LONG)
        sends, _ = self.joined[name].put({key: value}, self.joined.now)
        self.joined.say(name, sends)
        self.writes[key].add((version, originator, False, data))

    @rule(name=NODES, key=SHARED)
    def erase(self, name: str, key: str) -> None:
        was_there = self.joined.value(name, key) is not None
        sends, reason = self.joined[name].erase(key, self.joined.now)
        self.joined.say(name, sends)
        assert (reason is None) == was_there
        if reason is None:
            self.writes[key].add((self.joined[name].table.entries[key].value.version, name, True, b""))

    @rule(name=NODES, key=SHARED)
    def refresh(self, name: str, key: str) -> None:
        self.joined.say(name, self.joined[name].refresh(key, LONG, self.joined.now)[0])

    @rule(name=NODES, data=BYTES)
    def persist(self, name: str, data: bytes) -> None:
        self.joined[name].persist(f"of:{name}", data, self.joined.now)
        self.kept[name] = data
        self.left.pop(name, None)
        self.was_erased.discard(name)
        self.joined.run(0.3)

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def clear(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.kept)))
        self.joined[name].clear(f"of:{name}")
        self.left[name] = self.kept.pop(name), self.joined.now

    @rule(name=NODES, owner=NODES)
    def erase_what_is_kept(self, name: str, owner: str) -> None:
        sends, _ = self.joined[name].erase(f"of:{owner}", self.joined.now)
        self.joined.say(name, sends)
        if name == owner and owner in self.kept:
            self.left[owner] = self.kept.pop(owner), self.joined.now
        self.was_erased.add(owner)

    @rule(name=NODES)
    def put_what_ends(self, name: str) -> None:
        key = f"short{len(self.ends)}"
        self.joined.put(name, key, b"v", ttl_ms=SHORT)
        self.ends[key] = self.joined.now + SHORT / 1000

    # -- what happens

    @rule(pair=PAIRS)
    def part(self, pair: tuple[str, str]) -> None:
        if frozenset(pair) in self.joined.links:
            self.joined.unlink(*pair)

    @rule(pair=PAIRS)
    def heal(self, pair: tuple[str, str]) -> None:
        if frozenset(pair) not in self.joined.links:
            self.joined.link(*pair)

    @rule(seconds=st.sampled_from([0.05, 0.5, 3.0]))
    def run(self, seconds: float) -> None:
        self.joined.run(seconds)

    # -- what holds

    @invariant()
    def nothing_is_seen_after_its_end(self) -> None:
        over = [key for key, end in self.ends.items() if self.joined.now > end + 0.02]
        assert not any(self.joined.value(name, key) for name in NAMES for key in over)

    def teardown(self) -> None:
        if not hasattr(self, "joined"):
            return
        for pair in (("a", "b"), ("b", "c"), ("a", "c")):
            if frozenset(pair) not in self.joined.links:
                self.joined.link(*pair)
        self.joined.run(12)
        self._all_have_the_same()
        for key, writes in self.writes.items():
            *_, erased, data = max(writes, default=(0, "", True, b""))
            assert self.joined.data(key) == dict.fromkeys(NAMES, None if erased else data)
        for name, data in self.kept.items():
            assert self.joined.data(f"of:{name}") == dict.fromkeys(NAMES, data)
        for name, (data, since) in self.left.items():
            found, age = set(self.joined.data(f"of:{name}").values()), self.joined.now - since
            assert found <= {data, None}
            assert found == {data} or name in self.was_erased or age > KEPT * 3 / 4000 - 0.5
            assert found == {None} or age < KEPT / 1000 + 0.5
        self.joined.run(3)
        assert not any(key.startswith("short") for name in NAMES for key in self.joined.contents(name))

    def _all_have_the_same(self) -> None:
        """Own keys apart: a refresh of one may be under way."""
        tables = [self.joined[name].table for name in NAMES]
        stored = [{key: (header(v), v.erased) for key, v in table.values() if key in self.writes} for table in tables]
        assert stored[0] == stored[1] == stored[2]
        shown = [dict(self.joined[name].shown(self.joined.now)) for name in NAMES]
        assert len({signature(values[key] for key in self.writes if key in values) for values in shown}) == 1


def test_stores_that_are_parted_and_joined_again_have_the_greatest_of_all_writes() -> None:
    """Not made smaller when it fails: that would take longer than a test may."""
    run_state_machine_as_test(Fleet, settings=settings(max_examples=60, stateful_step_count=25, phases=[Phase.generate]))
