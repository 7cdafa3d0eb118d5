"""The numbers are the rules of `trunkline.net.hello`."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.errors import RemoteProtocolError
from trunkline.core.ids import NodeId
from trunkline.net.hello import (
    OLDEST_WIRE,
    WIRE_VERSION,
    Bye,
    Control,
    Credit,
    Heartbeat,
    Hello,
    carries_records,
    check_identity,
    decode_control,
    encode_control,
    hears,
    negotiate,
    rank,
)

A = NodeId("alpha", "node-1")
B = NodeId("beta", "node-1")


def hello(
    identity: NodeId = A,
    incarnation: int = 1,
    versions: tuple[int, int] = (1, 1),
    carries: bool = False,
    follows: bool = False,
) -> Hello:
    return Hello(
        wire=versions[1],
        oldest=versions[0],
        capabilities=("marks",),
        site=identity.site,
        node=identity.node,
        incarnation=incarnation,
        known_incarnation=7,
        log_id="0190-log",
        neighbours=("hub", "relay"),
        heads={"alpha": 12, "hub": 3},
        applied={"hub": 3},
        carries=carries,
        addresses=("127.0.0.1:4000",),
        follows=follows,
    )


@pytest.mark.parametrize("message", [hello(), Heartbeat({"alpha": 13}), Credit(2, 4096), Bye("stopping", "connect again")])
def test_control_messages_survive_the_wire(message: Control) -> None:
    assert decode_control(encode_control(message)) == message


@given(st.binary(max_size=200))
def test_malformed_bytes_are_the_peers_fault_and_nothing_else(body: bytes) -> None:
    try:
        message = decode_control(body)
    except RemoteProtocolError:
        return
    assert isinstance(message, Control)


@given(st.data())
def test_a_hello_cut_or_bent_anywhere_raises_nothing_else(data: st.DataObject) -> None:
    body = bytearray(encode_control(hello()))
    at = data.draw(st.integers(min_value=0, max_value=len(body) - 1))
    body[at] = data.draw(st.integers(min_value=0, max_value=255))
    for candidate in (bytes(body), bytes(body[:at])):
        try:
            decode_control(candidate)
        except RemoteProtocolError:
            continue


def test_nesting_that_exhausts_the_stack_is_malformed() -> None:
    bomb = {**msgspec.to_builtins(hello()), "new_field": 0}
    body = msgspec.msgpack.encode(bomb)[:-1] + b"\x91" * 100_000 + b"\x00"
    with pytest.raises(RemoteProtocolError):
        decode_control(body)


@pytest.mark.parametrize("field", ["incarnation", "known_incarnation", "wire"])
def test_negative_numbers_are_malformed(field: str) -> None:
    body = msgspec.msgpack.encode({**msgspec.to_builtins(hello()), field: -1})
    with pytest.raises(RemoteProtocolError):
        decode_control(body)


@pytest.mark.parametrize("change", [{"size": 0}, {"size": -1}, {"size": 1.5}, {"channel": -1}, {"channel": "trunk"}])
def test_credit_is_a_channel_and_a_positive_number(change: dict[str, object]) -> None:
    body = msgspec.msgpack.encode({**msgspec.to_builtins(Credit(2, 4096)), **change})
    with pytest.raises(RemoteProtocolError):
        decode_control(body)


def test_fields_of_a_newer_node_are_ignored() -> None:
    newer = {**msgspec.to_builtins(hello()), "signature": b"sealed"}
    assert decode_control(msgspec.msgpack.encode(newer)) == hello()


def test_2_hello_speaks_only_for_the_name_in_the_certificate() -> None:
    check_identity(hello(A), A)
    for certified in (B, NodeId("alpha", "node-2"), NodeId("gamma", "node-1")):
        with pytest.raises(RemoteProtocolError, match="alpha/node-1"):
            check_identity(hello(A), certified)


@pytest.mark.parametrize(
    ("mine", "theirs", "spoken"),
    [
        ((1, 1), (1, 1), 1),
        ((1, 2), (1, 1), 1),
        ((2, 3), (1, 2), 2),
        ((1, 3), (2, 4), 3),
        ((2, 3), (1, 1), None),
        ((1, 1), (2, 3), None),
        ((3, 4), (1, 2), None),
    ],
)
def test_3_both_ends_compute_the_same_version(mine: tuple[int, int], theirs: tuple[int, int], spoken: int | None) -> None:
    ends = (hello(A, versions=mine), hello(B, versions=theirs))
    for one, other in (ends, ends[::-1]):
        if spoken is not None:
            assert negotiate(one, other) == spoken
            continue
        with pytest.raises(RemoteProtocolError, match=f"this node speaks {one.oldest} to {one.wire}"):
            negotiate(one, other)


def test_3_an_unreadable_hello_of_an_unknown_version_is_told_what_we_speak() -> None:
    future = {"type": "hello", "wire": 9, "oldest": 8, "who": ["alpha", 1]}
    with pytest.raises(RemoteProtocolError, match=f"speaks {OLDEST_WIRE} to {WIRE_VERSION}, the peer 8 to 9"):
        decode_control(msgspec.msgpack.encode(future))


def test_3_this_version_and_the_one_before_are_spoken() -> None:
    assert max(1, WIRE_VERSION - 1) == OLDEST_WIRE


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.booleans()), min_size=2, max_size=2, unique=True))
def test_4_both_ends_keep_the_same_of_two_links(links: list[tuple[int, int, bool]]) -> None:
    """Each link: A's incarnation, B's incarnation, whether A dialled it."""
    at_a = [rank(hello(A, a), hello(B, b), outgoing=dialled) for a, b, dialled in links]
    at_b = [rank(hello(B, b), hello(A, a), outgoing=not dialled) for a, b, dialled in links]
    assert at_a == at_b
    assert at_a[0] != at_a[1]


@pytest.mark.parametrize(
    ("stays", "goes"),
    [
        ((1, 1, True), (1, 1, False)),
        ((1, 2, False), (1, 1, True)),
        ((2, 1, False), (1, 1, True)),
    ],
)
def test_4_a_higher_incarnation_wins_then_the_smaller_dialler(
    stays: tuple[int, int, bool], goes: tuple[int, int, bool]
) -> None:
    winner, loser = (rank(hello(A, a), hello(B, b), outgoing=dialled) for a, b, dialled in (stays, goes))
    assert winner > loser


NOTHING: dict[str, bool] = {}
EXCHANGE, FOLLOW = {"carries": True}, {"follows": True}


@pytest.mark.parametrize(
    ("mine", "theirs", "i_hear", "they_hear"),
    [
        (NOTHING, NOTHING, False, False),
        (EXCHANGE, NOTHING, True, True),
        (EXCHANGE, EXCHANGE, True, True),
        (FOLLOW, NOTHING, True, False),
        (FOLLOW, FOLLOW, True, True),
        (FOLLOW, EXCHANGE, True, True),
    ],
)
def test_a_link_carries_to_whoever_exchanges_or_follows_and_both_ends_say_the_same(
    mine: dict[str, bool], theirs: dict[str, bool], i_hear: bool, they_hear: bool
) -> None:
    one, two = hello(A, **mine), hello(B, **theirs)
    assert (hears(one, two), hears(two, one)) == (i_hear, they_hear)
    assert carries_records(one, two) is carries_records(two, one) is (i_hear or they_hear)


def test_a_hello_from_before_somebody_could_follow_is_read() -> None:
    older = msgspec.msgpack.decode(encode_control(hello(carries=True)))
    del older["follows"]
    assert decode_control(msgspec.msgpack.encode(older)) == hello(carries=True)
