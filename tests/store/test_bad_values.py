"""Bad input: a reason or a typed error, counted, and everything good that came with it is stored and passed on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from joined import Joined

from trunkline.core.errors import RemoteProtocolError
from trunkline.store.messages import CODEC, MOST_HOPS, MOST_RECEIVED, Publish
from trunkline.store.values import MAX_VALUE, MAX_VERSION, Reason, Value, refresh_of, sealed

GOOD = sealed("good", 1, "s1/a", b"v", 60_000)
FITTING = sealed("k", 1, "s1/a", b"v", 60_000)


def _forged(**changed: object) -> Value:
    return msgspec.structs.replace(FITTING, **changed)


BAD = {
    "negative version": ("k", sealed("k", -1, "s1/a", b"v", 60_000), Reason.OLD_VERSION),
    "version 0": ("k", sealed("k", 0, "s1/a", b"v", 60_000), Reason.OLD_VERSION),
    "ttl 0": ("k", sealed("k", 1, "s1/a", b"v", 0), Reason.INVALID_TTL),
    "negative ttl": ("k", sealed("k", 1, "s1/a", b"v", -1), Reason.INVALID_TTL),
    "endless nonsense": ("k", sealed("k", 1, "s1/a", b"v", 2**63), Reason.INVALID_TTL),
    "10 MB": ("k", sealed("k", 1, "s1/a", bytes(10_000_000), 60_000), Reason.TOO_LARGE),
    "one byte too many": ("k", sealed("k", 1, "s1/a", bytes(MAX_VALUE + 1), 60_000), Reason.TOO_LARGE),
    "empty key": ("", sealed("", 1, "s1/a", b"v", 60_000), Reason.TOO_LARGE),
    "too long a key": ("k" * 257, sealed("k" * 257, 1, "s1/a", b"v", 60_000), Reason.TOO_LARGE),
    "far too long a key": ("k" * 70_000, sealed("k" * 70_000, 1, "s1/a", b"v", 60_000), Reason.TOO_LARGE),
    "too long an originator": ("k", sealed("k", 1, "a" * 70_000, b"v", 60_000), Reason.TOO_LARGE),
    "another node's key": ("node:s1/b", sealed("node:s1/b", 1, "s1/a", b"v", 60_000), Reason.NOT_THE_OWNER),
    "another site's links": ("link:s2", sealed("link:s2", 1, "s1/a", b"v", 60_000), Reason.NOT_THE_OWNER),
    "another site's leader": ("site:s2", sealed("site:s2", 1, "s1/a", b"v", 60_000), Reason.NOT_THE_OWNER),
    "no hash": ("k", _forged(hash=0), Reason.WRONG_HASH),
    "wrong hash": ("k", _forged(hash=FITTING.hash ^ 1), Reason.WRONG_HASH),
    "negative hash": ("k", _forged(hash=-1), Reason.WRONG_HASH),
    "bytes that were changed": ("k", _forged(data=b"w"), Reason.WRONG_HASH),
    "an erasure that was none": ("k", _forged(erased=True), Reason.WRONG_HASH),
    "value of another key": ("l", FITTING, Reason.WRONG_HASH),
    "negative ttl version": ("k", sealed("k", 1, "s1/a", b"v", 60_000, -1), Reason.INVALID_VERSION),
    "refresh of nothing": ("k", refresh_of(FITTING, 60_000), Reason.INCONSISTENT),
    "refresh with ttl 0": ("k", refresh_of(FITTING, 0), Reason.INVALID_TTL),
}


def line() -> Joined:
    joined = Joined("s1/a", "s1/b", "s1/c")
    joined.chain("s1/a", "s1/b", "s1/c")
    joined.run(1)
    return joined


@pytest.mark.parametrize(("key", "bad", "reason"), BAD.values(), ids=BAD.keys())
def test_what_is_bad_is_refused_counted_and_not_passed_on_and_what_is_good_is(key: str, bad: Value, reason: Reason) -> None:
    joined = line()
    message = CODEC.decode(CODEC.encode(Publish("fleet", {key: bad, "good": GOOD}, ("s1/a",))))
    joined.say("s1/b", joined["s1/b"].receive("s1/a", message, joined.now))
    joined.run(0.1)
    assert joined["s1/b"].counters[f"refused_{reason}"] == 1
    assert set(joined["s1/b"].table.entries) == set(joined["s1/c"].table.entries) == {"good"}
    assert [set(m.values) for m in joined.publications("s1/c")] == [{"good"}]


@pytest.mark.parametrize(("key", "bad", "reason"), BAD.values(), ids=BAD.keys())
def test_a_client_is_told_the_reason(key: str, bad: Value, reason: Reason) -> None:
    area = Joined("s1/b")["s1/b"]
    _, reasons = area.put({"good": GOOD, key: bad}, 1.0)
    assert reasons == {key: reason}
    assert area.counters[f"refused_{reason}"] == 1
    assert set(area.table.entries) == {"good"}


@pytest.mark.parametrize(
    "bad",
    [
        sealed("k", MAX_VERSION + 1, "s1/a", b"v", 60_000),
        sealed("k", 1, "s1/a", b"v", 60_000, MAX_VERSION + 1),
    ],
)
def test_a_number_wider_than_the_wire_is_refused_here_and_never_sent(bad: Value) -> None:
    joined = line()
    sends, reasons = joined["s1/a"].put({"k": bad, "good": GOOD}, joined.now)
    joined.say("s1/a", sends)
    joined.run(0.1)
    assert reasons == {"k": Reason.INVALID_VERSION}
    assert [set(joined[name].table.entries) for name in joined.areas] == [{"good"}] * 3


@pytest.mark.parametrize("key", ["node:s1/b", "link:s2", "site:s2"])
def test_nor_is_a_refresh_of_what_belongs_to_another(key: str) -> None:
    joined = line()
    owner = {"node:s1/b": "s1/b", "link:s2": "s2/x", "site:s2": "s2/x"}[key]
    stored = sealed(key, 1, owner, b"v", 60_000)
    joined.say("s1/b", joined["s1/b"].put({key: stored}, joined.now)[0])
    joined.run(0.1)
    before = joined["s1/b"].table.entries[key].value
    forged = Value(1, "s1/a", None, 900_000, 5)
    joined.say("s1/b", joined["s1/b"].receive("s1/a", Publish("fleet", {key: forged}, ("s1/a",)), joined.now))
    assert joined["s1/b"].table.entries[key].value == before
    assert joined["s1/b"].counters["refused_not_the_owner"] == 1


# -- messages that cannot be read at all

VALUE: list[Any] = [1, "s1/a", b"v", 60_000, 0, GOOD.hash, False]


def _publication(value: object, key: object = "k") -> object:
    return ["pub", "fleet", {key: value}, ["s1/a"]]


@pytest.mark.parametrize(
    "raw",
    [
        None,
        17,
        [],
        ["pub"],
        ["nonsense", "fleet"],
        {"area": "fleet"},
        ["pub", 1, {}, ["s1/a"]],
        ["pub", "fleet", [], ["s1/a"]],
        ["pub", "fleet", {}, "s1/a"],
        ["pub", "fleet", {}, [1]],
        _publication(VALUE, key=1),
        _publication(VALUE, key=b"k"),
        _publication(None),
        _publication([]),
        _publication(VALUE[:3]),
        _publication(["1", *VALUE[1:]]),
        _publication([1.5, *VALUE[1:]]),
        _publication([True, *VALUE[1:]]),
        _publication([None, *VALUE[1:]]),
        _publication([1, b"s1/a", *VALUE[2:]]),
        _publication([1, "s1/a", "text", *VALUE[3:]]),
        _publication([*VALUE[:3], "60000", *VALUE[4:]]),
        _publication([*VALUE[:3], None, *VALUE[4:]]),
        _publication([*VALUE[:6], 1]),
        ["root?", "fleet", 1, "root"],
        ["root?", "fleet", None, 1],
        ["leaves?", "fleet", 1, 5],
        ["leaves?", "fleet", 1, ["5"]],
        ["keys?", "fleet", 1, [1], {"k": [1, "n", 5]}],
        ["keys?", "fleet", 1, [1], {"k": [1, 2, 3, 4]}],
        ["ranges", "fleet", 1, [1, 2]],
        ["leaves", "fleet", 1, {"1": b""}],
        ["diff", "fleet", 1, {}, [1], []],
    ],
)
def test_wrong_types_are_the_senders_fault(raw: object) -> None:
    with pytest.raises(RemoteProtocolError):
        CODEC.decode(msgspec.msgpack.encode(raw))


def test_so_are_bytes_that_are_no_message_or_no_text() -> None:
    whole = CODEC.encode(Publish("fleet", {"k": FITTING}, ("s1/a",)))
    for body in (b"", whole[:-1], whole + b"\0", b"\xc1", whole.replace(b"s1/a", b"s1/\xff")):
        with pytest.raises(RemoteProtocolError):
            CODEC.decode(body)


def test_a_message_that_is_right_is_read_as_it_was() -> None:
    message = Publish("fleet", {"k": FITTING, "l": refresh_of(FITTING, 9)}, ("s1/a",))
    assert CODEC.decode(CODEC.encode(message)) == message
    assert CODEC.decode(msgspec.msgpack.encode(_publication(VALUE))) == Publish("fleet", {"k": Value(*VALUE)}, ("s1/a",))


@pytest.mark.parametrize(
    "message",
    [
        Publish("fleet", {"good": GOOD}, ()),
        Publish("fleet", {"good": GOOD}, ("s1/a", "s1/x")),
        Publish("fleet", {"good": GOOD}, (*(f"n{n}" for n in range(MOST_HOPS)), "s1/a")),
        Publish("fleet", dict.fromkeys(map(str, range(MOST_RECEIVED + 1)), GOOD), ("s1/a",)),
    ],
    ids=["no path", "another last hop", "too many hops", "too many values"],
)
def test_a_publication_that_no_node_of_ours_sends_is_a_typed_error_and_changes_nothing(message: Publish) -> None:
    area = line()["s1/b"]
    with pytest.raises(RemoteProtocolError):
        area.receive("s1/a", message, 200.0)
    assert area.table.entries == {}
