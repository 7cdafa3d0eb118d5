"""The keys of one area: what a publication changes, and what is seen of it."""

from __future__ import annotations

from random import Random

import pytest
from joined import Joined

from trunkline.store.digest import signature
from trunkline.store.table import Merged, Table
from trunkline.store.values import INFINITE, Reason, Value, refresh_of, sealed

NOW = 50.0


def value(
    version: int = 5, originator: str = "node5", data: bytes = b"dummyValue", ttl_ms: int = 3600, ttl_version: int = 0
) -> Value:
    return sealed("k", version, originator, data, ttl_ms, ttl_version)


def table() -> Table:
    made = Table()
    made.take({"k": value()}, NOW)
    return made


def stored(table: Table, key: str = "k") -> Value:
    return table.entries[key].value


def test_s01_the_higher_version_wins() -> None:
    t = table()
    newer = value(version=6)
    assert t.take({"k": newer}, NOW) == Merged(taken={"k": newer})
    assert stored(t) == newer
    assert t.take({"k": value(version=4)}, NOW) == Merged(refused={"k": Reason.OLD_VERSION})
    assert stored(t) == newer


def test_s02_then_the_greater_originator() -> None:
    t = table()
    greater = value(originator="node55")
    assert t.take({"k": greater}, NOW) == Merged(taken={"k": greater}, overridden={"k": "node5"})
    assert stored(t) == greater
    t = table()
    assert t.take({"k": value(originator="node3")}, NOW) == Merged(refused={"k": Reason.NO_NEED_TO_UPDATE})
    assert stored(t) == value()


def test_s03_then_the_greater_bytes() -> None:
    t = table()
    greater = value(data=b"dummyValueTest")
    assert t.take({"k": greater}, NOW) == Merged(taken={"k": greater})
    assert stored(t) == greater
    t = table()
    for smaller in (value(data=b"dummy"), value(data=b"dummy", ttl_version=1)):
        assert t.take({"k": smaller}, NOW) == Merged(refused={"k": Reason.NO_NEED_TO_UPDATE})
        assert stored(t) == value()


def test_s04_a_refresh_moves_the_ttl_alone_and_goes_on_as_it_came() -> None:
    t = table()
    refresh = Value(5, "node5", None, 123, 1)
    assert t.take({"k": refresh}, NOW) == Merged(taken={"k": refresh}, refreshed={"k"})
    assert stored(t) == value(ttl_ms=123, ttl_version=1)
    assert t.take({"k": refresh}, NOW) == Merged(refused={"k": Reason.NO_NEED_TO_UPDATE})
    assert stored(t) == value(ttl_ms=123, ttl_version=1)


def test_s04_the_same_value_with_a_higher_ttl_version_is_a_refresh_that_carries_its_bytes() -> None:
    t = table()
    again = value(ttl_ms=99, ttl_version=2)
    assert t.take({"k": again}, NOW) == Merged(taken={"k": again}, refreshed={"k"})
    assert stored(t) == again


@pytest.mark.parametrize("ttl_ms", [0, -1, -100])
def test_s05_ttls_that_are_none_change_nothing(ttl_ms: int) -> None:
    t = table()
    bad = {"k": value(version=9, ttl_ms=ttl_ms), "new": sealed("new", 1, "n", b"", ttl_ms)}
    assert t.take(bad, NOW) == Merged(refused=dict.fromkeys(bad, Reason.INVALID_TTL))
    assert dict(t.values()) == {"k": value()}


def test_s05_version_0_is_old_and_an_infinite_ttl_is_taken() -> None:
    t = table()
    zero, infinite = sealed("zero", 0, "n", b"", 1000), sealed("ever", 1, "n", b"", INFINITE)
    assert t.take({"zero": zero, "ever": infinite}, NOW) == Merged(
        taken={"ever": infinite}, refused={"zero": Reason.OLD_VERSION}
    )
    assert dict(t.values()) == {"k": value(), "ever": infinite}
    assert t.get("ever", NOW + 1e9) == infinite


def test_s06_any_order_and_any_repetition_ends_in_the_same() -> None:
    random = Random(6)
    updates = [
        (key, sealed(key, random.randint(1, 4), random.choice("xyz"), random.choice([b"", b"p", b"q"]), 3600))
        for key in random.choices("abcde", k=200)
    ]
    ends = set()
    for _ in range(20):
        t = Table()
        for key, update in random.sample(updates, len(updates)) + random.choices(updates, k=50):
            t.take({key: update}, NOW)
        ends.add((frozenset((key, v.version, v.originator, v.data) for key, v in t.values()), t.digest.root()))
    assert len(ends) == 1
    assert {key for key, *_ in next(iter(ends))[0]} == set("abcde")


def test_s13_a_publication_that_was_here_before_changes_nothing() -> None:
    joined = Joined("node1")
    joined.put("node1", "old", b"v")
    values = {"new": sealed("new", 1, "node2", b"v", 3600), "old": sealed("old", 9, "node2", b"w", 3600)}
    sends, reasons = joined["node1"].put(values, joined.now, path=("node2", "node3", "node1", "node4"))
    assert (sends, reasons) == ([], dict.fromkeys(values, Reason.LOOP))
    assert joined.contents("node1") == {"old": (1, "node1", b"v")}
    assert joined["node1"].counters["looped_publications"] == 1
    assert joined["node1"].counters["received_publications"] == 0


def test_s35_one_call_tells_a_reason_for_each_key_that_was_not_taken() -> None:
    joined = Joined("a")
    joined.put("a", "older", b"v", version=2)
    joined.put("a", "same", b"v")
    _sends, reasons = joined["a"].put(
        {
            "new": sealed("new", 1, "a", b"v", 3600),
            "older": sealed("older", 1, "a", b"v", 3600),
            "ttl": sealed("ttl", 1, "a", b"v", -1),
            "same": sealed("same", 1, "a", b"v", 300_000),
        },
        joined.now,
    )
    assert reasons == {"older": Reason.OLD_VERSION, "ttl": Reason.INVALID_TTL, "same": Reason.NO_NEED_TO_UPDATE}
    assert set(joined.contents("a")) == {"new", "older", "same"}


def test_what_is_refused_leaves_the_rest_untouched() -> None:
    t = table()
    good = sealed("good", 1, "n", b"v", 1000)
    forged = Value(1, "n", b"other", 1000, 0, sealed("forged", 1, "n", b"v", 1000).hash)
    merged = t.take({"forged": forged, "unknown": Value(1, "n", None, 1000, 1), "good": good}, NOW)
    assert merged == Merged(taken={"good": good}, refused={"forged": Reason.WRONG_HASH, "unknown": Reason.INCONSISTENT})
    assert dict(t.values()) == {"k": value(), "good": good}


def test_a_value_comes_and_goes_with_what_remains_of_its_ttl() -> None:
    t = Table(decrement_ms=10)
    t.take({"k": value(ttl_ms=4000)}, NOW)
    for read in (t.get, t.shown, t.outgoing):
        seen = read("k", NOW + 1)
        assert seen == value(ttl_ms=2990)
    assert t.onward("k", refresh_of(value(), 1), NOW + 1) == Value(5, "node5", None, 2990, 1, value().hash)


def test_an_erased_key_is_passed_on_and_not_seen() -> None:
    t = table()
    erased = sealed("k", 6, "n", b"", 60_000, erased=True)
    t.take({"k": erased}, NOW)
    assert t.get("k", NOW) is None
    assert t.shown("k", NOW) is None
    assert t.outgoing("k", NOW) == sealed("k", 6, "n", b"", 59_999, erased=True)


def test_a_value_that_has_ended_stands_in_nobodys_way() -> None:
    t = table()
    lower = value(version=1, originator="a", data=b"")
    assert t.take({"k": lower}, NOW + 3.599).refused == {"k": Reason.OLD_VERSION}
    assert t.take({"k": lower}, NOW + 3.6) == Merged(taken={"k": lower}, overridden={"k": "node5"})
    assert t.get("k", NOW + 3.6) is not None
    assert t.expire(NOW + 5) == {}
    assert t.expire(NOW + 8) == {"k": lower}


def test_a_client_cannot_refresh_what_has_ended() -> None:
    joined = Joined("a")
    joined.put("a", "k", b"v", ttl_ms=1000)
    assert joined["a"].refresh("k", 60_000, joined.now + 1) == ([], Reason.INCONSISTENT)
    assert joined["a"].refresh("k", 60_000, joined.now + 0.9) == ([], None)
    assert joined["a"].get("k", joined.now + 1) is not None


# -- signatures


def signature_at(joined: Joined, name: str) -> int:
    return signature(value for _, value in joined[name].shown(joined.now))


def test_s38_the_signature_is_equal_on_all_nodes_until_one_changes_alone() -> None:
    names = [f"s{n}" for n in range(16)]
    joined = Joined(*names)
    joined.chain(*names)
    joined.put("s15", "k", b"v")
    joined.put("s7", "l", b"v")
    joined.run(1)
    joined["s0"].persist("kept", b"v", joined.now, ttl_ms=4000)
    joined.run(1)
    assert {signature_at(joined, name) for name in names} == {signature_at(joined, "s0")}
    before = signature_at(joined, "s0")
    joined.run(4)
    refreshed = joined.value("s9", "kept")
    assert refreshed is not None
    assert refreshed.ttl_version >= 3
    assert {signature_at(joined, name) for name in names} == {before}
    joined.unlink("s14", "s15")
    joined.put("s15", "k", b"w", version=2)
    joined.run(1)
    assert signature_at(joined, "s15") != before
    assert {signature_at(joined, name) for name in names[:-1]} == {before}
    joined.link("s14", "s15")
    joined.run(1)
    assert {signature_at(joined, name) for name in names} == {signature_at(joined, "s15")} != {before}


def test_s38_the_signature_covers_names_and_adds_up_in_portions() -> None:
    values = [sealed(key, 1, "n", b"v", 3600) for key in "abcdef"]
    whole = signature(values)
    assert signature(values[4:], signature(values[:4])) == whole
    assert signature(reversed(values)) == whole
    assert signature([*values[:-1], sealed("g", 1, "n", b"v", 3600)]) != whole
    assert signature([sealed(key, 1, "n", b"v", 1, 9) for key in "abcdef"]) == whole
    assert signature(()) == 0 < whole < 2**64


def test_s38_erased_and_unshown_keys_are_not_in_the_signature() -> None:
    joined = Joined("a")
    joined.put("a", "k", b"v")
    before = signature_at(joined, "a")
    joined.put("a", "l", b"v")
    joined["a"].erase("l", joined.now)
    joined.put("a", "ending", b"v", ttl_ms=400)
    assert signature_at(joined, "a") == before
