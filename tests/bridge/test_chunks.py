"""Bundles in chunks: whole when nothing is left out, and once, in whatever order and how often the parts come."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from bridge_hub import AT, Hub, auto
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trunkline.bridge.batch import Arrived
from trunkline.bridge.chunks import LARGEST_WHOLE, chain, flaw, join_chunks, message_of
from trunkline.core.bundle import Bundle, Chunk, Dependency, Mode, Version


def part(data: bytes, end: int, size: int, site: str = "a", generation: int = 1, id_: str = "x", **more: Any) -> Bundle:
    return Bundle(id=id_, source=site, type="clusters", time=AT, mode=Mode.COMPLETE, version=Version(1, generation),
                  chunk=Chunk(end, size), data=data, **more)  # fmt: skip


def cut(payload: bytes, cuts: list[int], site: str = "a", generation: int = 1) -> list[Bundle]:
    """The payload in parts that end at `cuts`; every part has an id of its own."""
    places = sorted({0, len(payload), *(c % len(payload) for c in cuts)})
    return [
        part(payload[start:end], end, len(payload), site, generation, f"{site}{generation}-{end}")
        for start, end in pairwise(places)
    ]


@pytest.mark.parametrize(
    ("lengths", "ends"),
    [
        ({10: 10}, [10]),
        ({4: 4, 10: 6}, [4, 10]),
        ({4: 4, 7: 3, 10: 3}, [4, 7, 10]),
        ({4: 4}, None),
        ({10: 6}, None),
        ({4: 3, 10: 6}, None),
        ({10: 11}, None),
        ({4: 4, 5: 5, 10: 6}, [4, 10]),
        ({}, None),
    ],
)
def test_k3_whole_when_the_parts_leave_nothing_out(lengths: dict[int, int], ends: list[int] | None) -> None:
    assert chain(lengths, 10) == ends


@settings(deadline=None)
@given(payload=st.binary(min_size=1, max_size=60), cuts=st.lists(st.integers(0, 60), max_size=6), data=st.data())
def test_k2_k3_parts_in_any_order_make_the_payload_when_the_last_is_there(
    payload: bytes, cuts: list[int], data: st.DataObject
) -> None:
    parts = cut(payload, cuts)
    order = data.draw(st.permutations(parts + data.draw(st.lists(st.sampled_from(parts), max_size=4))))
    bodies: dict[int, bytes] = {}
    for one in order:
        assert one.chunk is not None
        bodies[one.chunk.end] = one.data
        ends = chain({end: len(body) for end, body in bodies.items()}, len(payload))
        assert (ends is not None) == (len(bodies) == len(parts))
    assert ends is not None
    assert b"".join(bodies[end] for end in ends) == payload


def test_k1_parts_belong_together_by_what_they_are_of_and_not_by_their_ids() -> None:
    one = message_of(part(b"x", 1, 9, id_="one"))
    assert one == message_of(part(b"y", 5, 9, id_="two"))
    others = [
        part(b"x", 1, 8), part(b"x", 1, 9, site="b"), part(b"x", 1, 9, generation=2), part(b"x", 1, 9, value=1),
        part(b"x", 1, 9, value=0), part(b"x", 1, 9, dependency=Dependency("clusters", Version(0, 1))),
    ]  # fmt: skip
    assert len({one, *map(message_of, others)}) == 7


@pytest.mark.parametrize(
    ("bundle", "reason"),
    [
        (part(b"", 3, 9), "has 0 bytes"),
        (part(b"four", 3, 9), "has 4 bytes, which do not end there"),
        (part(b"x", 1, LARGEST_WHOLE + 1), "larger than 268435456 bytes"),
    ],
)
def test_a_part_that_cannot_be_one_has_a_flaw(bundle: Bundle, reason: str) -> None:
    assert reason in (flaw(bundle) or "")


def test_a_part_with_a_flaw_is_refused(hub: Hub) -> None:
    bundle = part(b"four", 3, 9)
    hub.take_in(bundle)
    assert hub.rows("SELECT site, headers, payload FROM bridge.quarantine") == [("a", bundle.headers(), bundle.data)]
    assert hub.rows("SELECT 1 FROM bridge.chunk") == []
    assert (hub.counters("a")["rejected"], hub.counters("a")["received"]) == (1, 1)


def test_a_part_that_is_right_has_no_flaw() -> None:
    assert [flaw(part(b"abc", 3, 9)), flaw(part(b"abc", 9, 9)), flaw(auto("a", "clusters", Mode.COMPLETE, 1, 1, b""))] == [
        None
    ] * 3


def test_k3_a_whole_bundle_has_the_id_of_its_first_part_and_the_place_of_the_last_to_come(hub: Hub) -> None:
    first, second, third = cut(b"[0123456789]", [4, 8])
    joined = join_chunks(hub.conn, [Arrived(third, "q", 5), Arrived(first, "q", 6)])
    assert (joined.wholes, dict(joined.kept)) == ([], {"a": 2})
    joined = join_chunks(hub.conn, [Arrived(second, "q", 7, at=9.0), Arrived(first, "q", 8)])
    [whole] = joined.wholes
    assert (whole.bundle.id, whole.bundle.data, whole.bundle.chunk) == (first.id, b"[0123456789]", None)
    assert (whole.queue, whole.position) == ("q", 8)
    assert (dict(joined.kept), dict(joined.taken)) == ({"a": 1}, {"a": 3})
    assert hub.conn.execute("SELECT 1 FROM bridge.chunk").fetchall() == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    messages=st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(2, 40), st.lists(st.integers(0, 40), max_size=3)), max_size=4
    ),
    data=st.data(),
)
def test_k2_interleaved_and_doubled_parts_become_each_bundle_once(
    hub: Hub, messages: list[tuple[str, int, list[int]]], data: st.DataObject
) -> None:
    """Against a model: what has come of each message, and which are whole."""
    hub.conn.rollback()
    cuts = [cut(bytes([n] * size), where, site, generation=n) for n, (site, size, where) in enumerate(messages)]
    order = data.draw(st.permutations([one for parts in cuts for one in parts]))
    waiting: dict[object, set[str]] = {}
    for position, one in enumerate(order, 1):
        again = data.draw(st.integers(1, 2))
        joined = join_chunks(hub.conn, [Arrived(one, "q", 2 * position + n) for n in range(again)])
        mine = waiting.setdefault(message_of(one), set())
        mine.add(one.id)
        parts = cuts[one.version.generation]
        is_whole = len(mine) == len(parts)
        assert [w.bundle.data for w in joined.wholes] == ([b"".join(p.data for p in parts)] if is_whole else [])
    assert hub.conn.execute("SELECT 1 FROM bridge.chunk").fetchall() == []
    hub.conn.rollback()
