"""The numbered scenarios of graphs that come up and grow: exact tables, and every record once."""

from __future__ import annotations

from collections import Counter

import msgspec
from scenarios import Fleet, direct, rows

from trunkline.topology.messages import Told
from trunkline.trunk.messages import Batch, Subscribe

CHAIN_OF_FOUR = direct("ab", "bc", "cd") | rows("(A,C,B,2)(C,A,B,2)(B,D,C,2)(D,B,C,2)(A,D,B,3)(D,A,C,3)")


def test_s01_who_follows_has_rows_and_who_is_followed_has_none() -> None:
    fleet = Fleet("b>a c>b").up(rows("(B,A,A,1)(C,B,B,1)(C,A,B,2)"))
    assert fleet.rows_of("a") == set()
    fleet.write("c", 5)
    fleet.write("a", 5)
    fleet.until(lambda: fleet.has_all("c", "a"))
    assert fleet.has("a", "c") == fleet.has("b", "c") == fleet.has("a", "b") == []
    fleet.assert_all_well()


def test_s02_a_mesh_of_three_receives_every_record_once() -> None:
    fleet = Fleet("ab ac bc").up(direct("ab", "ac", "bc"))
    for site in "abc":
        fleet.write(site, 1_000)
    fleet.until(fleet.delivered)
    assert [fleet.counted_at(site, "received") for site in "abc"] == [2_000] * 3
    for site in "abc":
        assert sum(sum(fleet.crossed(site, origin).values()) for origin in "abc") == 2_000
    fleet.assert_all_well()


def test_s03_a_mesh_of_five_receives_the_bytes_of_one_copy() -> None:
    pairs = ("ab", "ac", "ad", "ae", "bc", "bd", "be", "cd", "ce", "de")
    fleet = Fleet(" ".join(pairs)).up(direct(*pairs))
    fleet.write("a", 20_000, payload=b"x" * 214)
    fleet.until(fleet.delivered)
    log = fleet.universe.databases["a"].log
    once = sum(len(msgspec.msgpack.encode(entry)) for entry in log.read(0, 20_001, {"b"}).entries)
    assert 4_600_000 < once <= 4_720_000
    for site in "bcde":
        assert fleet.counted_at(site, "received") == 20_000
        assert fleet.crossed(site, "a") == Counter(range(1, 20_001))
        assert sum(len(s.body) for s in fleet.batches(site, "a")) <= 1.02 * 4_720_000
    fleet.assert_all_well()


def test_s04_in_a_chain_nothing_is_echoed() -> None:
    fleet = Fleet("ab bc").up(rows("(A,B,B,1)(A,C,B,2)(B,A,A,1)(B,C,C,1)(C,B,B,1)(C,A,B,2)"))
    fleet.write("a", 500)
    fleet.until(fleet.delivered)
    assert fleet.crossed("b", "a") == fleet.crossed("c", "a") == Counter(range(1, 501))
    assert [s.site for s in fleet.batches("b", "a") if s.message.entries and s.site != "a"] == []
    fleet.assert_all_well()


def test_s05_in_a_one_way_ring_nobody_receives_its_own_record() -> None:
    table = rows("(A,D,D,1)(A,C,D,2)(A,B,D,3)(B,A,A,1)(B,D,A,2)(B,C,A,3)(C,B,B,1)(C,A,B,2)(C,D,B,3)(D,C,C,1)(D,B,C,2)(D,A,C,3)")
    fleet = Fleet("b>a c>b d>c a>d").up(table)
    for site in "abcd":
        fleet.write(site, 200)
    fleet.until(fleet.delivered)
    for site in "abcd":
        assert fleet.crossed(site, site) == Counter()
        for origin in set("abcd") - {site}:
            assert fleet.crossed(site, origin) == Counter(range(1, 201))
    fleet.assert_all_well()


def test_s06_in_a_ring_ties_go_to_who_was_connected_first() -> None:
    table = direct("ab", "bc", "cd", "da") | rows("(A,C,B,2)(B,D,C,2)(C,A,B,2)(D,B,C,2)")
    Fleet("ab bc cd da").up(table).assert_all_well()


def test_s08_a_new_link_is_subscribed_before_it_is_published_and_moves_nothing_else() -> None:
    fleet = Fleet("ab bc cd", later="da").up(CHAIN_OF_FOUR)
    begun, moves = fleet.now, fleet.moves()
    fleet.connect("da")
    fleet.settle((CHAIN_OF_FOUR - rows("(A,D,B,3)(D,A,C,3)")) | direct("da"))
    assert fleet.moves() - moves == 2
    assert {(c.subscriber, c.source) for c in fleet.changes if c.at >= begun} == {("a", "d"), ("d", "a")}
    for site, other in ("da", "ad"):
        asked = next(s.at for s in fleet.sent if s.site == site and s.at >= begun and _subscribes(s.message, other, s.to))
        accepted = min(s.at for s in fleet.batches(site, other, begun) if s.site == other and s.message.opens)
        published = min(fleet.link_published(site, other, begun))
        told = min(s.at for s in fleet.sent if s.site == site and s.at >= begun and _tells(s.message, other))
        assert asked < accepted < published
        assert accepted < told
    fleet.assert_all_well()


def _subscribes(message: object, origin: str, to: str) -> bool:
    return isinstance(message, Subscribe) and message.origin == origin == to


def _tells(message: object, source: str) -> bool:
    return isinstance(message, Told) and any(row.source == row.via == source for row in message.rows)


def test_s19_a_newcomer_moves_nothing_and_its_first_record_reaches_all_once() -> None:
    mesh = direct("ab", "ac", "bc")
    fleet = Fleet("ab ac bc", later="cd").up(mesh)
    fleet.write("d")
    begun, moves = fleet.now, fleet.moves()
    fleet.connect("cd")
    fleet.until(lambda: all(fleet.has(site, "d") == [1] for site in "abc"), 2.0)
    fleet.settle(mesh | direct("cd") | rows("(A,D,C,2)(B,D,C,2)(D,A,C,2)(D,B,C,2)"))
    assert fleet.moves() == moves
    old = {(c.subscriber, c.source) for c in fleet.changes if c.at >= begun and "d" not in (c.subscriber, c.source)}
    assert old == set()
    assert fleet.crossed("a", "d") == fleet.crossed("b", "d") == Counter([1])
    assert [fleet.has(site, "d") for site in "abc"] == [[1]] * 3
    fleet.assert_all_well()


def test_s19_an_origin_that_no_link_row_names_comes_from_the_first_neighbour() -> None:
    """To a the store does not say that there is a d; its neighbours' heads do."""
    fleet = Fleet("ab ac bc", later="cd").up(direct("ab", "ac", "bc"))
    fleet.hidden = {"a": {"link:c", "link:d"}}
    fleet.write("d")
    fleet.connect("cd")
    fleet.until(lambda: fleet.has("a", "d") == [1], 5.0)
    fleet.run(1.0)
    assert ("d", "b") in fleet.subscribed("a")
    assert fleet.crossed("a", "d") == Counter([1])
    fleet.hidden = {}
    fleet.settle(direct("ab", "ac", "bc", "cd") | rows("(A,D,C,2)(B,D,C,2)(D,A,C,2)(D,B,C,2)"), 60.0)
    fleet.assert_all_well()


def test_s21_a_hub_receives_every_record_once() -> None:
    leaves = rows(
        "(B,C,A,2)(B,D,A,2)(B,E,A,2)(C,B,A,2)(C,D,A,2)(C,E,A,2)(D,B,A,2)(D,C,A,2)(D,E,A,2)(E,B,A,2)(E,C,A,2)(E,D,A,2)"
    )
    fleet = Fleet("ab ac ad ae").up(direct("ab", "ac", "ad", "ae") | leaves)
    fleet.write("b", 1_000)
    fleet.until(fleet.delivered)
    assert [fleet.counted_at(site, "received") for site in "abcde"] == [1_000, 0, 1_000, 1_000, 1_000]
    assert [fleet.crossed(site, "b") for site in "acde"] == [Counter(range(1, 1_001))] * 4
    assert not any(isinstance(s.message, Batch) and s.message.entries for s in fleet.sent if s.to == "b")
    fleet.assert_all_well()
