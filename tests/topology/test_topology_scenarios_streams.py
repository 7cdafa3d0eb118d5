"""The numbered scenarios of streams that stand still, fall behind, arrive in another order, or weigh on one neighbour."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from oldsite import OldSite
from scenarios import PRODUCTION, Fleet, direct, rows

from trunkline.core.ids import ALL_SITES
from trunkline.topology.rows import Flag
from trunkline.trunk.log import LOST
from trunkline.trunk.messages import Gap

MESH = direct("ab", "ac", "bc")
TOPOLOGY = PRODUCTION.topology


# -- 25: order across origins

Version = tuple[int, bytes]


def _merged(fleet: Fleet, site: str) -> dict[bytes, Version]:
    """The state of a site: of each key the highest version, its own and others' alike."""
    state: dict[bytes, Version] = {}
    own = fleet.universe.databases[site].log.read(0, 10_000, {ALL_SITES}).entries
    for entry in [*own, *(e for received in fleet.universe.databases[site].sink.received.values() for e in received)]:
        key, version, value = entry.payload.split(b" ")
        state[key] = max(state.get(key, (0, b"")), (int(version), value))
    return state


def test_s25_records_with_versions_need_no_order_across_origins() -> None:
    fleet = Fleet("ab ac bc").up(MESH)
    fleet.slow("ac", 0.3)
    first: dict[bytes, str] = {}
    changed: set[bytes] = set()
    for n in range(200):
        fleet.net.at(fleet.now + 0.01 * n, fleet.write, "a", 1, b"k%d 1 inserted" % n)
    end = fleet.now + 5.0
    while fleet.now < end:
        fleet.run(0.01)
        for entry in fleet.universe.databases["b"].sink.received.get("a", ()):
            key = entry.payload.split(b" ")[0]
            if key not in changed:
                changed.add(key)
                fleet.write("b", 1, key + b" 2 changed")
        for origin in "ab":
            for entry in fleet.universe.databases["c"].sink.received.get(origin, ()):
                first.setdefault(entry.payload.split(b" ")[0], origin)
    fleet.until(fleet.delivered)
    assert Counter(first.values())["b"] == 200, "c sees every change before the insert it changes"
    assert len(_merged(fleet, "c")) == 200
    assert set(_merged(fleet, "c").values()) == {(2, b"changed")}
    assert _merged(fleet, "a") == _merged(fleet, "b") == _merged(fleet, "c")
    assert fleet.table() == MESH
    fleet.assert_all_well()


# -- 24: far behind


def _far_behind() -> Fleet:
    """c takes nothing in for a while; then its link with a closes while it is 10,000 behind."""
    fleet = Fleet("ab ac bc").up(MESH)
    fleet.write("a", 10)
    fleet.until(fleet.delivered)
    fleet.net.disks["c"].stall()
    fleet.write("a", 10_000, payload=b"x" * 2_000)
    fleet.until(lambda: fleet.has_all("b", "a"), 60.0)
    assert fleet.has("c", "a") == list(range(1, 11))
    return fleet


def test_s24_a_relay_asks_upstream_from_the_position_of_who_is_far_behind() -> None:
    fleet = _far_behind()
    fleet.close("ac")
    fleet.run(1.0)
    fleet.net.disks["c"].go_on()
    fleet.until(lambda: fleet.has_all("c", "a"), 60.0, lambda: len(fleet.has("c", "a")))
    assert fleet.witness.failures == []
    assert fleet.said("a", Gap) == []
    fleet.settle(direct("ab", "bc") | rows("(A,C,B,2)(C,A,B,2)"))
    fleet.assert_all_well(exact=False)


def test_s24_what_the_origin_trimmed_is_reported_as_lost_and_never_skipped_in_silence() -> None:
    fleet = _far_behind()
    fleet.close("ac")
    held = max(fleet.crossed("c", "a"))
    lowest = fleet.universe.databases["a"].log.trim(9_010).seq
    fleet.run(1.0)
    fleet.kill("c")
    fleet.net.disks["c"].go_on()
    fleet.net.restart("c")
    fleet.until(lambda: fleet.has("c", "a")[-1:] == [10_010], 60.0, lambda: fleet.has("c", "a")[-1:])
    assert held < lowest == 9_010
    records = fleet.universe.databases["c"].sink.received["a"]
    gaps = {(m.origin, m.destination, m.lowest.seq) for m in fleet.said("a", Gap)}
    assert gaps == {("a", "c", lowest)}
    (lost,) = [n for n, entry in enumerate(records) if LOST in entry.headers]
    assert records[lost].headers == {LOST: f"{lost + 1}-{lowest}"}
    assert [e.seq for e in records[:lost]] == list(range(1, lost + 1))
    assert [e.seq for e in records[lost + 1 :]] == list(range(lowest + 1, 10_011))
    assert fleet.has_all("b", "a")
    assert fleet.witness.failures == []


# -- 22: a neighbour that cannot choose


def _with_an_old_one(lag_limit: int) -> tuple[Fleet, OldSite]:
    settings = replace(PRODUCTION, topology=replace(TOPOLOGY, lag_limit=lag_limit))
    fleet = Fleet("ab ac bc", settings=settings, makes={"b": OldSite})
    fleet.write("a")
    fleet.until(lambda: ("c", "a", "b", 2) in fleet.table(), 30.0, fleet.table)
    fleet.run(2.0)
    old = fleet.net.hosts["b"].process
    assert isinstance(old, OldSite)
    return fleet, old


def test_s22_what_a_peer_without_the_capability_sends_anyway_is_taken_there_and_nowhere_else() -> None:
    fleet, _ = _with_an_old_one(lag_limit=10_000)
    row = fleet.universe.sites["c"].core.topology.rows["a"]
    assert (row.via, row.depth, row.flags) == ("b", 2, (Flag.ALL,))
    begun = fleet.now
    before = fleet.counted_at("c", "received"), fleet.counted_at("c", "duplicate")
    fleet.write("a", 1_000)
    fleet.until(lambda: fleet.has_all("c", "a"))
    fleet.run(1.0)
    assert (fleet.counted_at("c", "received") - 1_000, fleet.counted_at("c", "duplicate")) == before
    assert [s for s in fleet.batches("c", "a", begun) if s.message.entries] == [], "nothing of it on the link of c and a"
    assert fleet.witness.failures == []


def test_s22_one_that_is_too_far_behind_is_no_parent_and_costs_a_second_copy_at_most() -> None:
    fleet, old = _with_an_old_one(lag_limit=100)
    begun, received = fleet.now, fleet.counted_at("c", "received")
    old.behind = True
    fleet.write("a", 1_000)
    fleet.until(lambda: ("c", "a", "a", 1) in fleet.table(), 10.0, fleet.table)
    fleet.until(lambda: fleet.has_all("c", "a"))
    assert fleet.crossed("c", "a", begun) == Counter(range(2, 1_002))
    old.behind = False
    fleet.run(10.0)
    assert fleet.counted_at("c", "received") - received <= 2 * 1_000
    assert fleet.has_all("c", "a")
    assert fleet.witness.failures == []


# -- 26: a parent that stands still


def test_s26_a_parent_that_stands_still_is_left_for_one_that_is_ahead() -> None:
    table = direct("op", "oq", "pc", "qc") | rows("(C,O,P,2)(O,C,P,2)(P,Q,O,2)(Q,P,O,2)")
    fleet = Fleet("op oq pc qc").up(table)
    fleet.write_steadily("o", 100, 20.0, every=0.05)
    fleet.run(1.0)
    counts = fleet.universe.sites["c"].core.topology.counts
    begun, before = fleet.now, Counter(counts)
    fleet.deaf = {("p", "o")}
    stall = TOPOLOGY.stall_heartbeats * TOPOLOGY.heartbeat_seconds
    took = fleet.until(lambda: ("c", "o", "q", 2) in fleet.table(), 10.0)
    assert ("p", "o", "o", 1) in fleet.table(), "its row is there all the same"
    assert took <= stall + 3 * TOPOLOGY.heartbeat_seconds
    assert {kind: n for kind, n in (counts - before).items() if kind != "computed"} == {"watchdog": 1}
    fleet.run(TOPOLOGY.hold_seconds)
    fleet.deaf = set()
    fleet.run(TOPOLOGY.hold_seconds)
    assert [c for c in fleet.changes if c.at > begun + took and (c.subscriber, c.source) == ("c", "o")] == []
    fleet.run(20.0)
    fleet.assert_all_well(exact=False)


# -- 31: many leaves on one parent

LEAVES = "uvwxyz"


def _leaves(rebalance: bool) -> Fleet:
    settings = replace(PRODUCTION, topology=replace(TOPOLOGY, rebalance=rebalance))
    early = "p>o " + " ".join(f"p{leaf}" for leaf in LEAVES)
    fleet = Fleet(early + " q>o " + " ".join(f"q{leaf}" for leaf in LEAVES), settings=settings)
    fleet.run(12.0)
    fleet.until(lambda: _children(fleet) == (6, 0), 20.0, fleet.table)
    return fleet


def _children(fleet: Fleet) -> tuple[int, int]:
    via = Counter(via for subscriber, source, via, _ in fleet.table() if source == "o" and subscriber in LEAVES)
    return via["p"], via["q"]


def _of_o(fleet: Fleet, since: float) -> int:
    return len([c for c in fleet.changes if c.at > since and c.source == "o" and c.subscriber in LEAVES])


def test_s31_rebalancing_spreads_leaves_over_equal_parents() -> None:
    fleet = _leaves(rebalance=True)
    begun = fleet.now
    for _ in range(30):
        fleet.write("o", 5)
        fleet.run(10.0)
    assert _children(fleet) in ((2, 4), (3, 3), (4, 2))
    assert _of_o(fleet, begun) <= 3
    fleet.assert_all_well()


def test_s31_without_rebalancing_the_first_parent_keeps_them() -> None:
    fleet = _leaves(rebalance=False)
    begun = fleet.now
    for _ in range(30):
        fleet.write("o", 5)
        fleet.run(10.0)
    assert _children(fleet) == (6, 0)
    assert _of_o(fleet, begun) == 0
    fleet.assert_all_well()
