"""The hazards of carrying, each forced to happen, over fleets of carriers."""

from __future__ import annotations

import pytest
from carriers import Fleet, InMemory

from trunkline.core.ids import START, Position
from trunkline.trunk import asks
from trunkline.trunk.carry import Carrier
from trunkline.trunk.log import LOST, NOTHING_APPLIED
from trunkline.trunk.memory import MemoryLog
from trunkline.trunk.messages import (
    CODEC,
    Ack,
    Awaited,
    Batch,
    Gap,
    Lane,
    Reset,
    Send,
    Stop,
    Stopped,
    Subscribe,
    SubscribeAll,
    Taken,
    TrunkMessage,
    Vector,
    travels_in_stream,
)  # fmt: skip
from trunkline.trunk.streams import Lanes
from trunkline.trunk.taker import WINDOW, WINDOWS
from trunkline.trunk.wants import Opened

MIB = b"x" * (1024 * 1024)
TREE = [("hub", "relay"), ("relay", "leaf-1"), ("relay", "leaf-2")]


def memory(fleet: Fleet, site: str) -> InMemory:
    ends = fleet.ends[site]
    assert isinstance(ends, InMemory)
    return ends


def restore(fleet: Fleet, site: str, log: MemoryLog) -> None:
    memory(fleet, site).log = log
    fleet.replace(site, generation=2)


def copy_of(log: MemoryLog, upto: int) -> MemoryLog:
    copy = MemoryLog(log.log_id)
    for entry in log.read(0, upto, {"leaf-1", "leaf-2", "relay"}).entries:
        copy.commit([(entry.client, entry.destinations, entry.headers, entry.payload)], log.mark_at(entry.seq) or 0)
    return copy


def seqs(numbers: range) -> list[int]:
    return list(numbers)


# -- H11, H12: restored logs


def test_h11_an_origin_that_went_back_with_the_same_log_id_says_reset_and_nothing_is_skipped() -> None:
    fleet = Fleet(TREE)
    for _ in range(5):
        fleet.commit("hub", "leaf-1", "leaf-2")
    fleet.run(2.0)
    restored = copy_of(memory(fleet, "hub").log, 3)
    for n in range(4):
        restored.commit([("policy", ("leaf-1", "leaf-2"), {}, b"new %d" % n)], 7000 + n)
    restore(fleet, "hub", restored)
    fleet.run(10.0)
    for leaf in ("leaf-1", "leaf-2"):
        assert [e.payload for e in fleet.ends[leaf].received("hub")][-4:] == [b"new %d" % n for n in range(4)]
        assert fleet.ends[leaf].sink.applied("hub").clients["policy"] == Position(7, 7003)
    assert {m.destination for _, _, m in fleet.messages(Reset) if isinstance(m, Reset)} == {"leaf-1", "leaf-2", "relay"}
    assert {a for a, _, _ in fleet.messages(Reset)} == {"hub", "relay"}, "the relay only passes it on"


def test_h12_acknowledgements_of_a_lost_future_are_not_believed() -> None:
    fleet = Fleet(TREE)
    for _ in range(5):
        fleet.commit("hub", "leaf-1", "leaf-2")
    fleet.run(3.0)
    assert fleet.acknowledged["hub", "leaf-1"] == {"policy": Position(5, 1004)}
    fleet.acknowledged.clear()
    restore(fleet, "hub", copy_of(memory(fleet, "hub").log, 2))
    fleet.run(10.0)
    for believed in fleet.acknowledged.values():
        assert believed.get("policy", Position(2, 1001)) <= Position(2, 1001)


def test_h12_a_newer_generation_of_a_destination_replaces_by_a_lower_position() -> None:
    fleet = Fleet(TREE)
    for _ in range(5):
        fleet.commit("hub", "leaf-1")
    fleet.run(4.0)
    assert fleet.acknowledged["hub", "leaf-1"] == {"policy": Position(5, 1004)}
    younger = InMemory("leaf-1")
    older = memory(fleet, "leaf-1").sink
    younger.sink.append("hub", "log-hub", older.received["hub"][:2], Position(2, 1001), ["policy"])
    fleet.ends["leaf-1"] = younger
    fleet.hold("leaf-1")
    fleet.replace("leaf-1", generation=2)
    fleet.run(4.0)
    assert fleet.acknowledged["hub", "leaf-1"] == {"policy": Position(2, 1001)}
    fleet.release("leaf-1")
    fleet.run(4.0)
    assert fleet.got("leaf-1", "hub") == [1, 2, 3, 4, 5]
    assert fleet.acknowledged["hub", "leaf-1"] == {"policy": Position(5, 1004)}


# -- H13: the set of destinations changes


def test_h13_a_destination_that_joins_a_running_stream_misses_nothing_and_the_others_notice_nothing() -> None:
    fleet = Fleet([("hub", "relay"), ("relay", "leaf-1"), ("hub", "leaf-2")], delay=0.05)
    for n in range(200):
        fleet.commit("hub", "leaf-1", "leaf-2")
        fleet.run(0.01, step=0.01)
        if n == 100:
            fleet.cut("hub", "leaf-2")
            fleet.join("relay", "leaf-2")
            fleet.route()
    fleet.run(3.0)
    assert fleet.got("leaf-1", "hub") == fleet.got("leaf-2", "hub") == seqs(range(1, 201))
    into = [key for key, number in fleet.crossed.items() for _ in range(number) if key[1] == "leaf-1" and key[2] == "hub"]
    assert len(into) == 200, "leaf-1 is sent everything once"
    assert fleet.carriers["relay"].counters["hub", "stray"] == fleet.carriers["relay"].counters["hub", "hole"] == 0


def test_h13_the_new_set_is_effective_only_after_the_parents_own_upstream_answered() -> None:
    fleet = Fleet([("hub", "relay"), ("relay", "mid"), ("mid", "leaf-1"), ("hub", "leaf-2")], delay=0.05)
    fleet.commit("hub", "leaf-1")
    fleet.run(1.0)
    before = fleet.now
    fleet.cut("hub", "leaf-2")
    fleet.join("mid", "leaf-2")
    fleet.route()
    fleet.run(1.0, step=0.01)
    opens = [
        (at, a, b, m.after)
        for at, a, b, m in fleet.sent
        if at >= before and isinstance(m, Batch) and m.opens and m.origin == "hub"
    ]
    assert [(a, b) for _, a, b, _ in opens] == [("hub", "relay"), ("relay", "mid"), ("mid", "leaf-2")]
    assert [after for _, _, _, after in opens] == [1, 1, -1], "the running streams go on after what they brought"


def test_h13_a_batch_lost_just_before_the_set_changed_is_a_hole_not_a_skip() -> None:
    fleet = Fleet(TREE, delay=0.05)
    fleet.commit("hub", "leaf-1")
    fleet.run(1.0)
    fleet.cut("relay", "leaf-2")
    fleet.run(1.0)
    fleet.lose = lambda sender, to, message: isinstance(message, Batch) and message.origin == "hub" and bool(message.entries)
    fleet.commit("hub", "leaf-1")
    fleet.join("relay", "leaf-2")
    fleet.run(0.07, step=0.01)
    fleet.lose = lambda sender, to, message: False
    fleet.run(8.0)
    fleet.commit("hub", "leaf-1", "leaf-2")
    fleet.run(2.0)
    assert fleet.got("leaf-1", "hub") == [1, 2, 3]
    assert fleet.got("leaf-2", "hub") == [3]


# -- H14: far behind


def far_behind(number: int = 60) -> Fleet:
    """leaf-1 comes back after `number` entries; then both lanes are used."""
    fleet = Fleet(TREE, delay=0.02, lanes=Lanes(near=5, far=20))
    fleet.cut("relay", "leaf-1")
    for _ in range(number):
        fleet.commit("hub", "leaf-1", "leaf-2", payload=MIB)
        fleet.run(0.05, step=0.05)
    fleet.run(1.0)
    fleet.crossed.clear()
    fleet.join("relay", "leaf-1")
    return fleet


def test_h14_one_far_behind_comes_in_the_catch_up_and_live_entries_do_not_wait_for_it() -> None:
    fleet = far_behind()
    for _ in range(20):
        fleet.commit("hub", "leaf-1", "leaf-2")
        fleet.run(0.1, step=0.02)
        assert fleet.got("leaf-2", "hub")[-1] == fleet.ends["hub"].log.head().seq, "within two links' delay"
    fleet.run(10.0)
    assert fleet.got("leaf-1", "hub") == fleet.got("leaf-2", "hub") == seqs(range(1, 81))
    relay = fleet.carriers["relay"].counters
    assert 40 <= relay["hub", "catch_up"] <= 80
    assert relay["hub", "received"] >= 80, "the live ones are counted apart"
    assert all(number == 1 for key, number in fleet.crossed.items() if key[3] <= 60), "what was missed crosses once"
    assert all(number <= 2 for number in fleet.crossed.values()), "once live, once in the catch-up"


def test_h14_it_joins_the_live_stream_when_it_is_near() -> None:
    fleet = far_behind()
    fleet.run(10.0)
    assert [s["lane"] for s in fleet.carriers["relay"].view()["streams"] if s["origin"] == "hub"] == ["live"]
    fleet.crossed.clear()
    for _ in range(5):
        fleet.commit("hub", "leaf-1", "leaf-2")
        fleet.run(0.1)
    assert fleet.got("leaf-1", "hub") == seqs(range(1, 66))
    assert set(fleet.crossed.values()) == {1}
    assert len(fleet.crossed) == 15


def test_h14_one_that_lagged_leaves_the_live_set_and_its_entries_come_once_in_the_catch_up() -> None:
    fleet = Fleet(TREE, lanes=Lanes(near=2, far=5))
    fleet.hold("leaf-1")
    for _ in range(40):
        fleet.commit("hub", "leaf-1", payload=MIB)
        fleet.commit("hub", "leaf-2")
        fleet.run(0.1)
    assert fleet.got("leaf-2", "hub") == seqs(range(2, 81, 2))
    assert fleet.carriers["relay"].counters["leaf-1", "lagged"] >= 1
    live = sum(key[:2] == ("hub", "relay") and key[3] % 2 == 1 for key in fleet.crossed)
    assert live < 20, "while it lags nothing more is sent for it"
    fleet.release("leaf-1")
    fleet.run(10.0)
    assert fleet.got("leaf-1", "hub") == seqs(range(1, 81, 2))
    assert fleet.twice() == {}
    assert fleet.carriers["relay"].counters["hub", "catch_up"] >= 20


def test_h14_two_far_behind_share_one_catch_up() -> None:
    links = [*TREE, ("relay", "leaf-3")]
    fleet = Fleet(links, delay=0.02, lanes=Lanes(near=5, far=20))
    for leaf in ("leaf-1", "leaf-2"):
        fleet.cut("relay", leaf)
    for _ in range(60):
        fleet.commit("hub", "*", payload=MIB)
        fleet.run(0.05, step=0.05)
    fleet.crossed.clear()
    for leaf in ("leaf-1", "leaf-2"):
        fleet.join("relay", leaf)
    fleet.run(10.0)
    assert all(fleet.got(leaf, "hub") == seqs(range(1, 61)) for leaf in ("leaf-1", "leaf-2", "leaf-3"))
    upstream = {key: number for key, number in fleet.crossed.items() if key[1] == "relay"}
    assert set(upstream.values()) == {1}, "one merged catch-up"


def test_h14_the_catch_up_has_a_smaller_window() -> None:
    assert WINDOWS[Lane.CATCH_UP] * 4 == WINDOWS[Lane.LIVE] == WINDOW
    fleet = far_behind()
    fleet.lose = lambda sender, to, message: isinstance(message, Taken) and (sender, to) == ("relay", "hub")
    fleet.run(1.0)
    assert sum(key[:2] == ("hub", "relay") for key in fleet.crossed) <= 2, "what fits into it, and no more until it is taken"
    fleet.lose = lambda sender, to, message: False
    fleet.run(10.0)
    assert fleet.got("leaf-1", "hub") == seqs(range(1, 61))


def test_h14_the_origin_reads_less_at_once_for_the_catch_up() -> None:
    sizes = {lane: _reading(lane).size for lane in Lane}
    assert sizes == {Lane.LIVE: WINDOW // 2, Lane.CATCH_UP: WINDOW // 4}


def _reading(lane: Lane) -> asks.Read:
    origin = Carrier("hub", 1, "log", Position(9, 1))
    origin.link_up("shop")
    (opening,) = origin.receive("shop", Subscribe(1, "hub", {"shop": NOTHING_APPLIED}, lane), 0.0)
    assert isinstance(opening, asks.Open)
    effects = origin.opened("shop", opening.id, Opened(START, (), ()), 0.0)
    return next(effect for effect in effects if isinstance(effect, asks.Read))


# -- H15: control needs no data credit


@pytest.mark.parametrize(
    ("message", "in_stream"),
    [
        (Batch(1, "hub", "log", 0, (), Position(1, 1), (), True), True),
        (Stopped(1, "hub", 5), True),
        (Subscribe(1, "hub", {}), False),
        (SubscribeAll({}), False),
        (Stop(1, "hub"), False),
        (Taken(1, "hub", 5), False),
        (Ack("hub", "log", "leaf", 1, {}), False),
        (Vector("hub", "log", 1, {}, {}), False),
        (Awaited("hub", ("leaf",), 1.0), False),
        (Reset(1, "hub", "log", "leaf"), False),
        (Gap(1, "hub", "log", "leaf", Position(1, 1), ()), False),
        (Send("leaf", "hub", b"", 3), False),
    ],
)
def test_h15_only_data_travels_in_stream(message: TrunkMessage, in_stream: bool) -> None:
    assert travels_in_stream(message) is in_stream
    assert CODEC.decode(CODEC.encode(message)) == message


def test_h15_an_origin_whose_window_this_site_holds_closed_is_named_and_others_go_on() -> None:
    fleet = Fleet(TREE)
    fleet.hold("leaf-1")
    for _ in range(30):
        fleet.commit("hub", "leaf-1", payload=MIB)
    assert fleet.carriers["leaf-1"].withheld() == {"hub"}
    assert fleet.carriers["relay"].withheld() == {"hub"}
    fleet.held.clear()  # the appends of the hub's entries stay under way; those of others are done
    fleet.commit("leaf-2", "leaf-1")
    assert fleet.got("leaf-1", "leaf-2") == [1]


# -- H16, H17


def test_h16_a_client_nobody_named_comes_from_its_first_entry() -> None:
    fleet = Fleet(TREE)
    fleet.commit("hub", "leaf-1", client="policy")
    fleet.run(2.0)
    fleet.cut("relay", "leaf-1")
    fleet.commit("hub", "leaf-1", client="unheard-of")
    fleet.join("relay", "leaf-1")
    fleet.run(3.0)
    assert [(e.client, e.seq) for e in fleet.ends["leaf-1"].received("hub")] == [("policy", 1), ("unheard-of", 2)]


def test_h17_the_position_of_a_destination_follows_what_is_for_it_and_what_is_for_all() -> None:
    fleet = Fleet(TREE)
    fleet.commit("hub", "leaf-1")
    fleet.commit("hub", "*")
    fleet.commit("hub", "leaf-2")
    fleet.run(4.0)
    assert fleet.got("leaf-1", "hub") == [1, 2]
    assert fleet.got("leaf-2", "hub") == [2, 3]
    for site in ("relay", "leaf-1", "leaf-2"):
        assert fleet.acknowledged["hub", site] == {"policy": Position(3, 1002)}


# -- H20: trimmed


def test_h20_what_was_trimmed_is_put_on_record_and_never_passed_over_in_silence() -> None:
    fleet = Fleet(TREE)
    fleet.commit("hub", "leaf-1", "leaf-2")
    fleet.run(2.0)
    fleet.cut("relay", "leaf-1")
    for client in ("policy", "status", "policy", "policy"):
        fleet.commit("hub", "leaf-1", "leaf-2", client=client)
    fleet.run(2.0)
    memory(fleet, "hub").log.trim(4)
    fleet.join("relay", "leaf-1")
    fleet.run(5.0)
    came = [(e.client, e.seq, e.headers.get(LOST)) for e in fleet.ends["leaf-1"].received("hub")]
    assert came[0] == ("policy", 1, None)
    assert sorted(came[1:3]) == [("policy", 4, "2-4"), ("status", 4, "1-4")]
    assert came[3:] == [("policy", 5, None)]
    assert fleet.got("leaf-2", "hub") == [1, 2, 3, 4, 5], "nobody else lost anything"
    assert [(a, b) for a, b, _ in fleet.messages(Gap)] == [("hub", "relay"), ("relay", "leaf-1")]
    fleet.commit("hub", "leaf-1")
    assert fleet.got("leaf-1", "hub")[-1] == 6


# -- H21, H22


def test_h21_a_new_leader_with_the_same_log_causes_no_catch_up() -> None:
    fleet = Fleet(TREE)
    for _ in range(10):
        fleet.commit("hub", "leaf-1", "leaf-2")
    fleet.run(4.0)
    fleet.crossed.clear()
    fleet.replace("hub", generation=2)
    fleet.replace("leaf-1", generation=2)
    fleet.run(4.0)
    assert not fleet.crossed
    fleet.commit("hub", "leaf-1", "leaf-2")
    fleet.run(1.0)
    assert fleet.got("leaf-1", "hub") == fleet.got("leaf-2", "hub") == seqs(range(1, 12))
    assert fleet.messages(Reset) == []


def test_h22_one_that_never_acknowledges_holds_back_nobody_else() -> None:
    fleet = Fleet(TREE)
    fleet.hold("leaf-1")
    for _ in range(50):
        fleet.commit("hub", "*")
        fleet.run(0.1)
    fleet.run(4.0)
    head = fleet.ends["hub"].log.head()
    assert fleet.got("leaf-2", "hub") == fleet.got("relay", "hub") == seqs(range(1, 51))
    assert fleet.acknowledged["hub", "leaf-2"] == fleet.acknowledged["hub", "relay"] == {"policy": head}
    assert ("hub", "leaf-1") not in fleet.acknowledged


# -- H24: volume of acknowledgements


def test_h24_two_hundred_destinations_in_step_behind_one_relay_cost_one_small_message() -> None:
    leaves = [f"leaf-{n:03}" for n in range(200)]
    fleet = Fleet([("hub", "relay")])
    for leaf in leaves:  # all of them take the hub's records only
        fleet.ends[leaf], fleet.parents[leaf] = InMemory(leaf), {}
        fleet.carriers[leaf] = fleet._carrier(leaf)
        fleet.join("relay", leaf)
        fleet.move(leaf, "hub", "relay", gently=False)
    fleet.run(8.0)
    fleet.commit("hub", "*")
    fleet.run(7.0)
    before = fleet.now
    for _ in range(10):
        fleet.commit("hub", "*")
        fleet.run(0.1)
    fleet.run(4.0)
    assert all(fleet.acknowledged["hub", leaf]["policy"].seq == 11 for leaf in leaves)
    up = [m for a, b, m in fleet.messages(Vector, before) if (a, b) == ("relay", "hub")]
    deltas = [m for m in up if isinstance(m, Vector) and m.members is None]
    assert len(up) <= 5
    assert len(up) - len(deltas) <= 2
    assert deltas
    assert max(len(CODEC.encode(m)) for m in deltas) < 100
    assert max(len(CODEC.encode(m)) for m in up) < 200 * 16


def test_h24_those_somebody_waits_for_are_acknowledged_every_tenth_of_a_second() -> None:
    fleet = Fleet(TREE)
    fleet.commit("hub", "*")
    fleet.run(4.05)
    fleet.do("hub", fleet.carriers["hub"].awaits(["leaf-1"], 10.0, fleet.now))
    fleet.settle()
    fleet.commit("hub", "*")
    fleet.run(0.5)
    assert fleet.acknowledged["hub", "leaf-1"]["policy"].seq == 2
