"""One value: which of two is stored, which of two a sync sends, and what is not stored at all."""

from __future__ import annotations

import pytest

from trunkline.core.errors import Invalid
from trunkline.store.values import (
    INFINITE,
    MAX_KEY,
    MAX_TTL,
    MAX_VALUE,
    MAX_VERSION,
    Header,
    Order,
    Outcome,
    Reason,
    Value,
    compare,
    difference,
    hashes,
    may_originate,
    merge,
    refresh_of,
    refusal,
    refusals,
    sealed,
)

STORED = sealed("k", 5, "node5", b"dummyValue", 3600)


def value(
    version: int = 5, originator: str = "node5", data: bytes = b"dummyValue", ttl_ms: int = 3600, ttl_version: int = 0
) -> Value:
    return sealed("k", version, originator, data, ttl_ms, ttl_version)


# -- merging


@pytest.mark.parametrize(
    ("incoming", "outcome"),
    [
        (value(version=6, data=b""), Outcome.REPLACED),
        (value(version=4, data=b"z", originator="z", ttl_version=9), Reason.OLD_VERSION),
        (value(originator="node55", data=b""), Outcome.REPLACED),
        (value(originator="node3", data=b"z", ttl_version=9), Reason.NO_NEED_TO_UPDATE),
        (value(data=b"dummyValueTest"), Outcome.REPLACED),
        (value(data=b"dummy"), Reason.NO_NEED_TO_UPDATE),
        (value(data=b"dummy", ttl_version=1), Reason.NO_NEED_TO_UPDATE),
        (value(ttl_version=2, ttl_ms=99), Outcome.REFRESHED),
        (value(ttl_ms=9999), Reason.NO_NEED_TO_UPDATE),
    ],
)
def test_version_then_originator_then_bytes_then_ttl_version_decide(incoming: Value, outcome: Outcome | Reason) -> None:
    assert merge(STORED, incoming) is outcome


def test_erased_wins_over_any_bytes_of_the_same_version_and_originator() -> None:
    erased = sealed("k", 5, "node5", b"", 3600, erased=True)
    assert merge(STORED, erased) is Outcome.REPLACED
    assert merge(erased, STORED) is Reason.NO_NEED_TO_UPDATE
    assert merge(erased, value(version=6)) is Outcome.REPLACED


@pytest.mark.parametrize(
    ("stored", "incoming", "outcome"),
    [
        (STORED, refresh_of(STORED, 123), Outcome.REFRESHED),
        (STORED, Value(5, "node5", None, 123, 1), Outcome.REFRESHED),
        (STORED, Value(5, "node5", None, 123, 0), Reason.NO_NEED_TO_UPDATE),
        (STORED, Value(5, "node5", None, 123, 1, hash=1), Reason.INCONSISTENT),
        (STORED, Value(6, "node5", None, 123, 1), Reason.INCONSISTENT),
        (STORED, Value(4, "node5", None, 123, 1), Reason.INCONSISTENT),
        (STORED, Value(5, "node6", None, 123, 1), Reason.INCONSISTENT),
        (None, Value(5, "node5", None, 123, 1), Reason.INCONSISTENT),
    ],
)
def test_a_refresh_moves_only_exactly_the_value_it_names(
    stored: Value | None, incoming: Value, outcome: Outcome | Reason
) -> None:
    assert merge(stored, incoming) is outcome


# -- comparing


def _unhashed(data: bytes | None, ttl_version: int = 0) -> Value:
    return Value(1, "node1", data, 3600, ttl_version)


@pytest.mark.parametrize(
    ("first", "second", "order"),
    [
        (Header(1, "n", 7, 124), Header(1, "n", 7, 123), Order.FIRST),
        (Header(1, "n", 7, 123), Header(1, "n", 7, 124), Order.SECOND),
        (_unhashed(None), _unhashed(b"dummyValue"), Order.UNKNOWN),
        (_unhashed(b"dummyValue1"), _unhashed(b"dummyValue"), Order.FIRST),
        (_unhashed(b"dummyValue"), _unhashed(b"dummyValue1"), Order.SECOND),
        (_unhashed(b"dummyValue", 1), _unhashed(b"dummyValue"), Order.TIED),
        (STORED, STORED, Order.TIED),
        (STORED, sealed("k", 5, "node5", b"dummyValue", 3600, erased=True), Order.SECOND),
        (sealed("k", 5, "node5", b"", 3600, erased=True), STORED, Order.FIRST),
        (Header(2, "a", 1, 0), Header(1, "b", 9, 9), Order.FIRST),
        (Header(1, "a", 9, 9), Header(1, "b", 1, 0), Order.SECOND),
        (Header(1, "a", 9, 0), Header(1, "a", 1, 0), Order.UNKNOWN),
        (Header(1, "a", 0, 0), Header(1, "a", 0, 0), Order.UNKNOWN),
    ],
)
def test_s07_compare(first: Value | Header, second: Value | Header, order: Order) -> None:
    assert compare(first, second) is order


def test_s08_difference() -> None:
    mine = {key: sealed(key, version, "n", b"mine", 3600) for key, version in {"a": 2, "b": 1, "c": 1}.items()}
    theirs = {
        "a": Header(1, "n", 1, 0),
        "b": Header(2, "n", 2, 0),
        "c": Header(1, "n", mine["c"].hash + 1, 0),
        "d": Header(1, "n", 4, 0),
    }
    give, want = difference(mine, theirs)
    assert (sorted(give), sorted(want)) == (["a", "c"], ["b", "c", "d"])


def test_a_difference_looks_only_at_the_keys_it_is_told_of() -> None:
    mine = {key: sealed(key, 1, "n", b"", 3600) for key in "abc"}
    give, want = difference(mine, {"c": Header(1, "n", mine["c"].hash, 0)}, ["b", "c"])
    assert (give, want) == (["b"], [])


# -- hashes


def test_the_hash_covers_every_field_but_the_ttl_and_no_two_fields_run_together() -> None:
    same = {sealed("k", 1, "n", b"v", 1).hash, sealed("k", 1, "n", b"v", 2, 7).hash}
    others = {
        sealed("l", 1, "n", b"v", 1).hash,
        sealed("k", 2, "n", b"v", 1).hash,
        sealed("k", 1, "m", b"v", 1).hash,
        sealed("k", 1, "n", b"w", 1).hash,
        sealed("k", 1, "n", b"v", 1, erased=True).hash,
        sealed("kn", 1, "", b"v", 1).hash,
        sealed("", 1, "kn", b"v", 1).hash,
        sealed("k", 1, "nv", b"", 1).hash,
    }
    assert len(same) == 1
    assert len(same | others) == 9


def test_the_hash_is_the_same_on_every_machine() -> None:
    assert f"{sealed('app:a', 7, 's1/n1', b'bytes', 1).hash:016x}" == "506efa8aaef035c0"


def test_a_refresh_has_no_hash_of_its_own() -> None:
    assert hashes({"k": Value(1, "n", None, 1)}) == [0]
    assert refresh_of(STORED, 9) == Value(5, "node5", None, 9, 1, STORED.hash)


# -- what may be stored at all

GOOD = sealed("k", 1, "n", b"v", 1000)


@pytest.mark.parametrize(
    ("key", "bad", "reason"),
    [
        ("k", sealed("k", 1, "n", b"v", 0), Reason.INVALID_TTL),
        ("k", sealed("k", 1, "n", b"v", -1), Reason.INVALID_TTL),
        ("k", sealed("k", 1, "n", b"v", -100), Reason.INVALID_TTL),
        ("k", sealed("k", 1, "n", b"v", MAX_TTL + 1), Reason.INVALID_TTL),
        ("k", sealed("k", 1, "n", b"v", 10**400), Reason.INVALID_TTL),
        ("k", Value(1, "n", None, 0, 1), Reason.INVALID_TTL),
        ("k", sealed("k", 0, "n", b"v", 1000), Reason.OLD_VERSION),
        ("k", sealed("k", -5, "n", b"v", 1000), Reason.OLD_VERSION),
        ("k", sealed("k", MAX_VERSION + 1, "n", b"v", 1000), Reason.INVALID_VERSION),
        ("k", Value(MAX_VERSION + 1, "n", None, 1000), Reason.INVALID_VERSION),
        ("k", sealed("k", 1, "n", b"v", 1000, -1), Reason.INVALID_VERSION),
        ("k", sealed("k", 1, "n", b"v", 1000, MAX_VERSION + 1), Reason.INVALID_VERSION),
        ("k", Value(1, "n", None, 1000, -1), Reason.INVALID_VERSION),
        ("", sealed("", 1, "n", b"v", 1000), Reason.TOO_LARGE),
        ("k" * (MAX_KEY + 1), sealed("k" * (MAX_KEY + 1), 1, "n", b"v", 1000), Reason.TOO_LARGE),
        ("k" * 100_000, sealed("k" * 100_000, 1, "n", b"v", 1000), Reason.TOO_LARGE),
        ("k", sealed("k", 1, "n" * (MAX_KEY + 1), b"v", 1000), Reason.TOO_LARGE),
        ("k", sealed("k", 1, "n", bytes(MAX_VALUE + 1), 1000), Reason.TOO_LARGE),
        ("node:s1/a", sealed("node:s1/a", 1, "s1/b", b"v", 1000), Reason.NOT_THE_OWNER),
        ("node:s1/a", Value(1, "s1/b", None, 1000, 1), Reason.NOT_THE_OWNER),
    ],
)
def test_what_is_not_stored(key: str, bad: Value, reason: Reason) -> None:
    assert refusal(key, bad) is reason
    assert refusals({key: bad, "good": GOOD}) == {key: reason}


@pytest.mark.parametrize(
    ("key", "good"),
    [
        ("k", GOOD),
        ("k", sealed("k", 1, "n", b"", INFINITE)),
        ("k", sealed("k", MAX_VERSION, "n", b"v", MAX_TTL, MAX_VERSION)),
        ("k" * MAX_KEY, sealed("k" * MAX_KEY, 1, "n" * MAX_KEY, bytes(MAX_VALUE), 1)),
        ("node:s1/a", sealed("node:s1/a", 1, "s1/a", b"v", 1000)),
        ("k", Value(0, "n", None, 1000)),
    ],
)
def test_what_may_be_stored(key: str, good: Value) -> None:
    assert refusal(key, good) is None
    assert refusals({key: good}) == {}


@pytest.mark.parametrize(
    ("key", "originator", "may"),
    [
        ("node:s1/a", "s1/a", True),
        ("node:s1/a", "s1/b", False),
        ("node:s1/a", "s1", False),
        ("node:", "s1/a", False),
        ("link:s1", "s1/a", True),
        ("link:s1", "s1/b", True),
        ("link:s1", "s10/a", False),
        ("link:s10", "s1/a", False),
        ("site:s1", "s1/a", True),
        ("site:s1", "s2/a", False),
        ("site:s1/a", "s1/a", False),
        ("sites:s1", "anybody", True),
        ("Node:s1/a", "anybody", True),
        ("app:node:s1/a", "anybody", True),
    ],
)
def test_bound_keys_belong_to_their_owner(key: str, originator: str, may: bool) -> None:
    assert may_originate(key, originator) is may


def test_a_name_that_is_not_text_is_a_typed_error() -> None:
    with pytest.raises(Invalid, match="not text"):
        sealed("k\ud800", 1, "n", b"v", 1000)
