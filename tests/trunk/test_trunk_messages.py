"""Batches on the wire: each set of destinations once, and packs as they are."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.errors import RemoteProtocolError
from trunkline.core.ids import Position
from trunkline.trunk.log import Entry
from trunkline.trunk.messages import CODEC, PLAIN, Batch, Taken

names = st.text(st.characters(codec="utf-8"), max_size=8)
entries = st.builds(
    Entry, st.integers(1, 2**40), names, st.lists(names, max_size=6).map(tuple), st.dictionaries(names, names), st.binary()
)


def batch(*carried: Entry) -> Batch:
    return Batch(7, "hub", "log", 3, carried, Position(9, 11), ("app",), False, 2)


@given(st.lists(entries, max_size=8))
def test_a_batch_comes_as_it_was(carried: list[Entry]) -> None:
    for codec in (CODEC, PLAIN):
        assert codec.decode(codec.encode(batch(*carried))) == batch(*carried)


def test_a_hundred_destinations_are_said_once_however_many_entries_have_them() -> None:
    sites = tuple(f"site-{n:03}-of-a-large-fleet" for n in range(100))
    large = batch(*(Entry(n, "app", sites, {}, bytes(1024)) for n in range(50)))
    names = sum(map(len, sites))
    assert len(CODEC.encode(large)) < 50 * 1024 * 1.05 + 2 * names
    assert len(PLAIN.encode(large)) > 50 * (1024 + names)
    assert CODEC.decode_many(CODEC.encode_many([large, Taken(1, "hub", 2)])) == [large, Taken(1, "hub", 2)]


def test_an_entry_of_a_set_that_did_not_come_is_the_peer_s_fault() -> None:
    said = msgspec.msgpack.decode(CODEC.encode(batch(Entry(1, "app", ("a", "b", "c"), {}, b""))))
    said[3][0][2] = 5
    with pytest.raises(RemoteProtocolError, match="set of destinations"):
        CODEC.decode(msgspec.msgpack.encode(said))


def pack(ends: tuple[int, ...], payload: bytes = b"abcde", sites: tuple[str, ...] = ("a",)) -> Entry:
    return Entry(9, "app", sites, {}, payload, ends)


@pytest.mark.parametrize("sites", [("a",), ("a", "b", "c")])
def test_a_pack_comes_as_it_was_and_single_messages_to_whom_knows_none(sites: tuple[str, ...]) -> None:
    packed = batch(Entry(6, "app", sites, {"a": "b"}, b"one"), pack((2, 2, 5), sites=sites))
    assert CODEC.decode(CODEC.encode(packed)) == packed
    apart = [Entry(6, "app", sites, {"a": "b"}, b"one")]
    apart += [Entry(n, "app", sites, {}, text) for n, text in ((7, b"ab"), (8, b""), (9, b"cde"))]
    assert PLAIN.decode(PLAIN.encode(packed)) == batch(*apart)
    assert sum(e.messages for e in packed.entries) == len(apart)


@pytest.mark.parametrize("ends", [(2, 4), (2, 6), (3, 2, 5), (-1, 5), (6,)])
@pytest.mark.parametrize("sites", [("a",), ("a", "b", "c")])
def test_a_pack_that_is_not_as_long_as_its_messages_is_the_peer_s_fault(ends: tuple[int, ...], sites: tuple[str, ...]) -> None:
    with pytest.raises(RemoteProtocolError, match="a pack that is not as long"):
        CODEC.decode(CODEC.encode(batch(pack(ends, sites=sites))))
