"""The numbered scenarios of links and sites that fail and return: what moves, in which order, and what must not."""

from __future__ import annotations

from dataclasses import replace

from scenarios import PRODUCTION, ROUND_TRIP, Fleet, direct, rows

from trunkline.net.channels import Channel
from trunkline.net.simhost import DISK_SECONDS
from trunkline.net.simnet import TICK
from trunkline.net.simwires import DELAY, SILENCE
from trunkline.topology.messages import Told
from trunkline.topology.rows import Flag
from trunkline.trunk.messages import Subscribe

MESH = direct("ab", "ac", "bc")
WITHOUT_AC = direct("ab", "bc") | rows("(A,C,B,2)(C,A,B,2)")
HOUSE = "ab ac bc bd ce de"
HOUSE_TABLE = direct("ab", "ac", "bc", "bd", "ce", "de") | rows(
    "(A,D,B,2)(D,A,B,2)(A,E,C,2)(E,A,C,2)(B,E,C,2)(E,B,C,2)(C,D,B,2)(D,C,B,2)"
)
HEARTBEAT = PRODUCTION.topology.heartbeat_seconds
STEP = TICK + DISK_SECONDS[1]


def test_s09_a_loss_is_told_before_what_replaces_it_and_moves_two() -> None:
    fleet = Fleet("ab ac bc").up(MESH)
    begun, moves = fleet.now, fleet.moves()
    fleet.close("ac")
    fleet.settle(WITHOUT_AC)
    assert fleet.moves("forced") == fleet.moves() - moves == 2
    for site, other in ("ac", "ca"):
        said = [s.message for s in fleet.sent if s.site == site and s.at >= begun]
        gone = next(n for n, m in enumerate(said) if isinstance(m, Told) and other in m.gone)
        moved = next(n for n, m in enumerate(said) if isinstance(m, Subscribe) and m.origin == other)
        again = next(n for n, m in enumerate(said) if isinstance(m, Told) and other in [r.source for r in m.rows])
        assert gone < moved < again
        assert min(fleet.link_published(site, other, begun, without=True)) < fleet.told_at(site, other, begun)
        assert fleet.subscribed(site, begun) == [(other, "b")]
    assert [c for c in fleet.changes if c.subscriber == "b" and c.at >= begun] == []
    assert fleet.told_rows("b", begun) == []
    fleet.assert_all_well()


def test_s10_a_link_that_returns_is_taken_after_two_seconds_without_loss_duplicate_or_stall() -> None:
    slow = 0.1
    fleet = Fleet("ab ac bc").up(MESH)
    for pair in ("ab", "ac", "bc"):
        fleet.slow(pair, slow)
    fleet.close("ac")
    fleet.settle(WITHOUT_AC)
    fleet.write_steadily("a", 2_000, 8.0)
    fleet.run(1.0)
    fleet.reopen("ac")
    up = fleet.until(lambda: fleet.linked("ac"), 2.0) + fleet.now
    begun = fleet.now
    fleet.until(lambda: fleet.table() == MESH, 6.0, lambda: fleet.difference(MESH))
    assert fleet.now - begun >= PRODUCTION.topology.first_damping
    assert up
    fleet.run(2.0)
    assert fleet.table() == MESH
    round_trip = 2 * (slow + DELAY[1])
    assert fleet.longest_stall("c", "a", begun, fleet.now) < 2 * round_trip
    fleet.run(4.0)
    fleet.assert_all_well()


def test_s11_a_dead_site_leaves_every_table_and_its_own_rows_end_with_their_lease() -> None:
    pairs = ("ab", "ac", "ad", "bc", "bd", "cd")
    fleet = Fleet(" ".join(pairs)).up(direct(*pairs))
    begun = fleet.now
    fleet.kill("a", told=False)
    rest = direct("bc", "bd", "cd")
    fleet.until(lambda: fleet.table() == rest, SILENCE + 1.0, lambda: fleet.difference(rest))
    last = max(n.at for n in fleet.downs if n.at > begun)
    assert fleet.now - last < 3 * (DELAY[1] + TICK)
    assert max(c.row.depth for c in fleet.changes if c.row is not None) <= 2
    assert {c.source for c in fleet.changes if c.at >= begun} == {"a"}
    fleet.run(300.0 + 5.0)
    for site in "bcd":
        held = fleet.universe.stores[site].table.entries.keys()
        assert {key for key in held if key.startswith(("link:", "rows:"))} == {
            f"{k}:{s}" for k in ("link", "rows") for s in "bcd"
        }
    assert fleet.table() == rest
    assert fleet.witness.failures == []


def test_s13_nobody_takes_a_dead_origin_from_who_took_it_from_him() -> None:
    fleet = Fleet("ab bc").up(direct("ab", "bc") | rows("(A,C,B,2)(C,A,B,2)"))
    begun = fleet.now
    fleet.kill("a")
    fleet.settle(direct("bc"))
    assert ("a", "c") not in fleet.subscribed("b")
    assert [(c.subscriber, c.row) for c in fleet.changes if c.at >= begun and c.source == "a"] == [("b", None), ("c", None)]
    assert [m.gone for m in fleet.told_rows("c", begun)] == [("a",)]
    assert fleet.witness.failures == []


FOUR = ("ab", "ac", "ad", "bc", "bd", "cd")
HALVES = rows("(A,B,B,1)(B,A,A,1)(C,D,D,1)(D,C,C,1)")


def _halves() -> Fleet:
    fleet = Fleet(" ".join(FOUR)).up(direct(*FOUR))
    fleet.write("a", 10)
    fleet.until(fleet.delivered)
    for pair in ("ac", "ad", "bc", "bd"):
        fleet.cut(pair)
    fleet.settle(HALVES)
    for site in "abcd":
        fleet.write(site, 50)
    fleet.until(lambda: all(fleet.has_all(x, y) for x, y in ("ab", "ba", "cd", "dc")), 5.0)
    return fleet


def test_s14_two_halves_have_rows_of_their_own_only_and_go_on() -> None:
    fleet = _halves()
    assert fleet.table() == HALVES
    assert fleet.has("c", "a") == fleet.has("d", "a") == list(range(1, 11))
    assert fleet.has("a", "c") == fleet.has("b", "d") == []
    assert fleet.witness.failures == []


def test_s15_one_link_joins_the_halves_and_everything_arrives_once_from_where_it_stood() -> None:
    fleet = _halves()
    begun = fleet.now
    fleet.mend("bc")
    table = HALVES | rows("(A,C,B,2)(A,D,B,3)(B,C,C,1)(B,D,C,2)(C,B,B,1)(C,A,B,2)(D,B,C,2)(D,A,C,3)")
    fleet.settle(table)
    fleet.until(fleet.delivered)
    for site in "cd":
        first = next(m for m in fleet.said(site, Subscribe, since=begun) if m.origin == "a")
        assert [p.seq for p in first.wants[site].clients.values()] == [10], "from what had arrived before"
    for site in "ad":
        for origin in set("abcd") - {site}:
            assert max(fleet.crossed(site, origin).values()) == 1, "who relays to nobody is sent nothing twice"
    fleet.assert_all_well()


def test_s17_in_a_house_a_closed_link_moves_six_and_leaves_fourteen() -> None:
    fleet = Fleet(HOUSE).up(HOUSE_TABLE)
    begun, moves = fleet.now, fleet.moves()
    fleet.close("bd")
    new = rows("(A,D,C,3)(B,D,C,3)(C,D,E,2)(D,A,E,3)(D,B,E,3)(D,C,E,2)")
    moved = {(subscriber, source) for subscriber, source, _, _ in new}
    unchanged = {row for row in HOUSE_TABLE if row[:2] not in moved}
    assert len(unchanged) == 14
    fleet.settle(unchanged | new)
    assert fleet.moves() - moves == 6
    assert {(c.subscriber, c.source) for c in fleet.changes if c.at >= begun} == moved
    fleet.assert_all_well()


def test_s23_a_silent_link_is_gone_round_within_four_heartbeats_and_a_round_trip() -> None:
    fleet = Fleet("ab ac bc").up(MESH)
    fleet.write_steadily("a", 2_000, 8.0)
    fleet.run(1.0)
    begun = fleet.now
    fleet.mute("ac")
    fleet.until(lambda: ("c", "a", "b", 2) in fleet.table(), 5.0)
    fleet.run(0.5)
    rerouted = min(s.at for s in fleet.batches("c", "a", begun) if s.site == "b" and s.message.entries)
    assert rerouted - begun <= 4 * HEARTBEAT + 2 * ROUND_TRIP + STEP, "a round trip to the origin, over two links"
    fleet.run(8.0)
    assert [fleet.counted_at(site, what) for site in "ac" for what in ("duplicate", "stray")] == [0, 0, 0, 0]
    fleet.assert_all_well(exact=False)


def test_s28_a_link_that_flaps_is_damped() -> None:
    fleet = Fleet("ab ac bc").up(MESH)
    fleet.write_steadily("a", 200, 14.0, every=0.05)
    begun = fleet.now
    for n in range(10):
        fleet.net.at(begun + n, fleet.close, "ac")
        fleet.net.at(begun + n + 0.3, fleet.reopen, "ac")
    fleet.run(10.0)
    ups = [n for n in fleet.ups if n.at > begun and (n.who, n.to) == ("a", "c")]
    assert len(ups) >= 8, "it does come up"
    for site, other in ("ac", "ca"):
        returns = [c.at for c in fleet.changes if c.at >= begun and (c.subscriber, c.source) == (site, other) and c.is_direct]
        assert len(returns) <= 3
        assert len(fleet.link_published(site, other, begun)) == len(returns), "no row for a return that does not count"
    fleet.run(4.0)
    assert fleet.longest_stall("c", "a", begun, fleet.now) < 4 * ROUND_TRIP + 2 * STEP, "a closed link is noticed at once"
    fleet.settle(MESH, 60.0)
    fleet.assert_all_well()


def test_s30_without_the_store_nothing_changes_and_rows_are_flagged_stale() -> None:
    lease = 12.0
    settings = replace(PRODUCTION, store=replace(PRODUCTION.store, ttl_ms=round(1000 * lease)))
    fleet = Fleet(HOUSE, settings=settings).up(HOUSE_TABLE)
    begun, moves = fleet.now, fleet.moves("first", "forced", "voluntary", "watchdog")
    fleet.silent_channels = {Channel.STORE}
    for _ in range(3):
        fleet.run(lease)
        for site in "abcde":
            fleet.write(site, 5)
    deep = [row for site in fleet.universe.sites.values() for row in site.core.topology.rows.values() if row.depth > 1]
    assert len(deep) == 8
    assert all(Flag.STALE in row.flags for row in deep)
    fleet.silent_channels = set()
    fleet.run(lease)
    fleet.settle(HOUSE_TABLE)
    assert not [r for s in fleet.universe.sites.values() for r in s.core.topology.rows.values() if Flag.STALE in r.flags]
    assert fleet.moves("first", "forced", "voluntary", "watchdog") == moves
    assert [asked for site in "abcde" for asked in fleet.subscribed(site, begun)] == []
    fleet.assert_all_well()
