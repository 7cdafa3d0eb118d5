"""Peers: their states, the hard limit of syncs at a time, backoff, and what becomes of a connection that broke."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from joined import QUICK, Joined

from trunkline.core.backoff import Backoff
from trunkline.core.errors import LocalProtocolError
from trunkline.store.area import Area
from trunkline.store.messages import CODEC, AskRoot, Publish, Ranges, Refused, Same, Send
from trunkline.store.peers import HIGHEST_LIMIT, Peer, PeerEvent, Peers, PeerState
from trunkline.store.settings import Settings
from trunkline.store.values import sealed
from trunkline.store.watch import Signal, SignalKind

IDLE, SYNCING, INITIALIZED = PeerState.IDLE, PeerState.SYNCING, PeerState.INITIALIZED
ADD, DELETE, DONE, ERROR, INCONSISTENT = PeerEvent
TABLE = {
    (IDLE, ADD): SYNCING, (IDLE, ERROR): IDLE, (IDLE, INCONSISTENT): IDLE,
    (SYNCING, DONE): INITIALIZED, (SYNCING, ERROR): IDLE, (SYNCING, INCONSISTENT): IDLE,
    (INITIALIZED, DONE): INITIALIZED, (INITIALIZED, ERROR): IDLE, (INITIALIZED, INCONSISTENT): IDLE,
}  # fmt: skip
UNDEFINED = [pair for pair in product(PeerState, PeerEvent) if pair not in TABLE]


def peer_in(state: PeerState) -> Peer:
    return Peer("b", Backoff(0.1, 4.0, Random(1).random), linked=True, state=state)


# -- 10: the state machine


@pytest.mark.parametrize(("state", "event"), TABLE, ids=str)
def test_s10_a_defined_event_gives_the_state_of_the_table(state: PeerState, event: PeerEvent) -> None:
    peer = peer_in(state)
    peer.step(event, 7.0)
    assert peer.state is TABLE[state, event]
    assert (peer.since == 7.0) is (peer.state is not state)


@pytest.mark.parametrize(("state", "event"), UNDEFINED, ids=str)
def test_s10_an_undefined_event_raises_and_changes_nothing(state: PeerState, event: PeerEvent) -> None:
    peer = peer_in(state)
    with pytest.raises(LocalProtocolError, match=f"{event} while it is {state}"):
        peer.step(event, 7.0)
    assert (peer.state, peer.flaps, peer.since) == (state, -1, 0.0)


def test_s10_there_are_nine_defined_cells_and_six_undefined_ones() -> None:
    assert (len(TABLE), len(UNDEFINED)) == (9, 6)


def test_s10_flaps_are_minus_one_then_zero_then_two() -> None:
    fleet = Joined("a", "b")
    fleet["a"].add_peer("b", fleet.now)
    peer = fleet["a"].peers.by_name["b"]
    assert peer.flaps == -1
    fleet.link("a", "b")
    fleet.run(1.0)
    assert (peer.state, peer.flaps) == (INITIALIZED, 0)
    fleet.unlink("a", "b")
    assert (peer.state, peer.flaps) == (IDLE, 1)
    fleet.link("a", "b")
    fleet.run(1.0)
    assert (peer.state, peer.flaps) == (INITIALIZED, 2)


# -- 27: a dead peer, and one broken connection


def test_s27_a_dead_peer_at_its_longest_backoff_does_not_delay_a_new_one() -> None:
    fleet = Joined("a", "dead", "new", settings=Settings(first_backoff=4.0, longest_backoff=256.0, answer_seconds=2.5))
    fleet.hold("a", "dead")
    fleet.link("a", "dead")
    dead = fleet["a"].peers.by_name["dead"]
    fleet.run(1800.0)
    assert dead.retry_at - dead.since > 128.0
    dead_steps = dead.backoff.failures
    assert dead_steps >= 7
    fleet.link("a", "new")
    fleet.run(1.0)
    assert fleet["a"].peers.by_name["new"].state is INITIALIZED
    assert fleet["new"].peers.by_name["a"].state is INITIALIZED
    assert (dead.state, dead.backoff.failures) == (IDLE, dead_steps)


def test_s27_many_dead_peers_that_are_asked_again_leave_room_for_a_new_one() -> None:
    fleet = Joined("a", "d1", "d2", "d3", "d4", "new")
    for dead in ("d1", "d2", "d3", "d4"):
        fleet.hold("a", dead)
        fleet.link("a", dead)
    fleet.run(20.0)
    peers = fleet["a"].peers
    fleet.now += QUICK.longest_backoff + QUICK.answer_seconds  # all are due at once
    fleet.run(0.0)
    assert peers.running() == peers.limit // 2 == 1
    fleet.link("a", "new")
    fleet.run(1.0)
    assert fleet["a"].peers.by_name["new"].state is INITIALIZED


def test_s27_a_broken_connection_with_much_in_flight_is_one_step_of_backoff() -> None:
    fleet = Joined("a", "b", longest_backoff=256.0)
    fleet["a"].add_peer("b", fleet.now)
    fleet.link("a", "b")
    fleet.run(1.0)
    fleet.hold("a", "b")
    for number in range(20):
        fleet.put("a", f"key{number}", b"x")
    peer = fleet["a"].peers.by_name["b"]
    assert (len(fleet.held["a", "b"]), peer.backoff.failures) == (20, 0)
    fleet.unlink("a", "b")
    for number in range(20):  # those that are told only now
        fleet["a"].not_sent("b", Publish("fleet", {f"key{number}": sealed("k", 1, "a", b"x", 1000)}, ("a",)), fleet.now)
    assert fleet["a"].link_down("b", fleet.now) == []
    assert (peer.backoff.failures, peer.failures, peer.pending) == (1, 1, {})
    assert fleet.now < peer.retry_at <= fleet.now + QUICK.first_backoff
    fleet.held.clear()
    fleet.link("a", "b")
    fleet.run(1.0)
    assert (peer.state, peer.backoff.failures, peer.reason) == (INITIALIZED, 0, "")
    assert fleet.contents("a") == fleet.contents("b")


def test_a_failure_is_a_step_of_that_peer_alone_and_grows() -> None:
    fleet = Joined("a", "b", "c")
    fleet.hold("a", "b")
    fleet.link("a", "b")
    fleet.link("a", "c")
    fleet.run(30.0)
    b, c = fleet["a"].peers.by_name["b"], fleet["a"].peers.by_name["c"]
    assert (b.reason, c.reason) == ("it did not answer in time", "")
    assert (c.state, c.backoff.failures) == (INITIALIZED, 0)
    assert b.backoff.failures >= 5
    asked = [body for body in fleet.held["a", "b"] if isinstance(CODEC.decode(body), AskRoot)]
    assert 5 <= len(asked) < 12  # 0.1, 0.2, 0.4 … 4 s, each after two seconds without an answer


# -- the limit


class Silent:
    """One area with many peers that answer when the test wants."""

    def __init__(self, peers: int) -> None:
        self.area = Area("a", "fleet", Random(1).random, QUICK)
        self.now = 100.0
        self.open: dict[str, AskRoot] = {}
        for number in range(peers):
            self.take(self.area.link_up(f"p{number}", self.now))

    def take(self, sends: list[Send]) -> None:
        for send in sends:
            assert isinstance(send.message, AskRoot)
            assert send.peer not in self.open
            self.open[send.peer] = send.message

    def answer(self, name: str) -> None:
        question = self.open.pop(name)
        self.take(self.area.receive(name, Same("fleet", question.id), self.now))

    def refuse(self, name: str) -> None:
        question = self.open.pop(name)
        self.take(self.area.receive(name, Refused("fleet", question.id, "no"), self.now))


def test_the_limit_begins_at_two_doubles_with_every_success_and_is_never_passed() -> None:
    silent = Silent(100)
    seen = []
    while silent.open:
        seen.append(len(silent.open))
        assert len(silent.open) == silent.area.peers.running() <= silent.area.peers.limit
        silent.answer(next(iter(silent.open)))
        silent.take(silent.area.tick(silent.now))
    assert seen[:6] == [2, 4, 8, 16, 32, 32]
    assert max(seen) == HIGHEST_LIMIT == 32
    assert all(peer.state is INITIALIZED for peer in silent.area.peers.by_name.values())


def test_failures_do_not_raise_the_limit_and_free_their_place() -> None:
    silent = Silent(10)
    refused = []
    while silent.open:
        assert len(silent.open) <= 2
        refused.append(next(iter(silent.open)))
        silent.refuse(refused[-1])
    assert sorted(refused) == sorted(f"p{n}" for n in range(10))  # each once: all are in backoff now
    assert silent.area.peers.limit == 2
    silent.now += QUICK.first_backoff
    silent.take(silent.area.tick(silent.now))
    assert len(silent.open) == 1  # those that failed take half of it


def test_a_deleted_peer_frees_its_place() -> None:
    silent = Silent(3)
    assert set(silent.open) == {"p0", "p1"}
    assert silent.area.delete_peer("p0", silent.now)
    assert not silent.area.delete_peer("p0", silent.now)
    silent.take(silent.area.tick(silent.now))
    assert set(silent.open) == {"p0", "p1", "p2"}
    assert silent.area.peers.running() == 2
    assert silent.area.receive("p0", Same("fleet", silent.open["p0"].id), silent.now) == []
    assert set(silent.area.peers.by_name) == {"p1", "p2"}


# -- late answers


def test_an_answer_of_an_old_sync_or_an_old_connection_has_no_effect() -> None:
    silent = Silent(1)
    area, first = silent.area, silent.open.pop("p0")
    peer = area.peers.by_name["p0"]
    area.add_peer("p0", silent.now)
    area.link_down("p0", silent.now)
    silent.take(area.link_up("p0", silent.now))
    second = silent.open["p0"]
    assert second.id != first.id
    for late in (Same("fleet", first.id), Ranges("fleet", first.id, b"what ever"), Refused("fleet", first.id, "no")):
        assert area.receive("p0", late, silent.now) == []
    assert (peer.state, area.counters["late_answers"], peer.backoff.failures) == (SYNCING, 3, 1)
    silent.answer("p0")
    assert area.receive("p0", Same("fleet", second.id), silent.now) == []
    assert (peer.state, peer.flaps, area.counters["full_syncs_ok"]) == (INITIALIZED, 0, 1)


def test_an_answer_that_comes_after_its_time_has_no_effect() -> None:
    silent = Silent(1)
    question = silent.open.pop("p0")
    silent.now += QUICK.answer_seconds
    assert silent.area.tick(silent.now) == []
    peer = silent.area.peers.by_name["p0"]
    assert (peer.state, peer.reason) == (IDLE, "it did not answer in time")
    assert silent.area.receive("p0", Same("fleet", question.id), silent.now) == []
    assert peer.state is IDLE


# -- addresses


def test_several_addresses_are_one_peer_and_a_changed_address_keeps_the_session() -> None:
    fleet = Joined("a", "b")
    fleet["a"].add_peer("b", fleet.now, ("10.0.0.1:7400", "10.1.0.1:7400"))
    fleet.link("a", "b")
    fleet.run(1.0)
    peer = fleet["a"].peers.by_name["b"]
    before = (peer.state, peer.flaps, peer.since, fleet["a"].counters["full_syncs"])
    assert before == (INITIALIZED, 0, before[2], 1)
    fleet["a"].add_peer("b", fleet.now, ("10.2.0.1:7400",))
    fleet.run(5.0)
    assert len(fleet["a"].peers) == 1
    assert fleet["a"].peers.by_name["b"] is peer
    assert peer.addresses == ("10.2.0.1:7400",)
    assert (peer.state, peer.flaps, peer.since, fleet["a"].counters["full_syncs"]) == before
    fleet.put("a", "k", b"x")
    fleet.run(0.1)
    assert fleet.data("k") == {"a": b"x", "b": b"x"}


def test_a_peer_that_was_added_stays_without_its_link_and_one_that_only_linked_goes() -> None:
    fleet = Joined("a", "b", "c")
    fleet["a"].add_peer("b", fleet.now)
    fleet.link("a", "b")
    fleet.link("a", "c")
    fleet.run(1.0)
    fleet.unlink("a", "b")
    fleet.unlink("a", "c")
    assert set(fleet["a"].peers.by_name) == {"b"}
    assert not fleet["a"].peers.by_name["b"].linked


def test_peers_that_are_in_step_are_compared_in_turn() -> None:
    peers = Peers(0.1, 4.0, Random(1).random)
    for name in "abcd":
        peers.add(name, 0.0).state = INITIALIZED
    peers.by_name["c"].state = IDLE
    assert [_next_of(peers) for _ in range(6)] == ["a", "b", "d", "a", "b", "d"]
    peers.delete("b")
    assert [_next_of(peers) for _ in range(3)] == ["a", "d", "a"]


def _next_of(peers: Peers) -> str:
    peer = peers.in_turn()
    assert peer is not None
    return peer.name


# -- 29: the synced signal


def signals(fleet: Joined, name: str) -> list[SignalKind]:
    return [event.kind for event in fleet.watched(name) if isinstance(event, Signal)]


def test_s29_no_peers_and_an_empty_first_event_signal_within_a_second_and_once() -> None:
    fleet = Joined("a")
    assert SignalKind.SYNCED not in signals(fleet, "a")
    fleet.run(5.0)
    assert not fleet["a"].synced  # nobody has said yet whether there are peers
    fleet["a"].peers_known(fleet.now)
    fleet.run(0.99)
    assert signals(fleet, "a").count(SignalKind.SYNCED) == 1
    fleet["a"].peers_known(fleet.now)
    fleet.run(100.0)
    assert signals(fleet, "a").count(SignalKind.SYNCED) == 1


def test_s29_no_peers_and_a_time_of_two_seconds_signal_after_two_seconds() -> None:
    fleet = Joined("a", synced_seconds=2.0)
    fleet["a"].peers_known(fleet.now)
    fleet.run(1.99)
    assert SignalKind.SYNCED not in signals(fleet, "a")
    fleet.run(0.21)
    assert signals(fleet, "a").count(SignalKind.SYNCED) == 1


def test_s29_of_two_peers_one_is_dead_the_signal_comes_after_its_first_error() -> None:
    fleet = Joined("a", "b", "dead", link_seconds=1000.0)
    fleet["a"].add_peer("b", fleet.now)
    fleet["a"].add_peer("dead", fleet.now)
    fleet["a"].peers_known(fleet.now)
    fleet.hold("a", "dead")
    fleet.link("a", "b")
    fleet.run(1.0)
    assert fleet["a"].peers.by_name["b"].state is INITIALIZED
    fleet.link("a", "dead")
    fleet.run(QUICK.answer_seconds - 0.1)
    assert SignalKind.SYNCED not in signals(fleet, "a")
    fleet.run(0.2)
    assert fleet["a"].peers.by_name["dead"].failures == 1
    assert signals(fleet, "a").count(SignalKind.SYNCED) == 1


def test_s29_a_peer_that_never_links_delays_the_signal_for_a_bounded_time() -> None:
    fleet = Joined("a", link_seconds=3.0)
    fleet["a"].add_peer("nowhere", fleet.now)
    fleet["a"].peers_known(fleet.now)
    fleet.run(2.9)
    assert not fleet["a"].synced
    fleet.run(0.2)
    assert fleet["a"].synced


def test_s29_the_signal_comes_after_the_keys_of_the_sync() -> None:
    fleet = Joined("a", "b")
    for number in range(3000):
        fleet.put("b", f"key{number}", b"x")
    fleet.watched("a")
    fleet["a"].add_peer("b", fleet.now)
    fleet["a"].peers_known(fleet.now)
    fleet.link("a", "b")
    fleet.run(2.0)
    told = fleet.watched("a")
    kinds = [event.kind if isinstance(event, Signal) else None for event in told]
    assert kinds[-2:] == [SignalKind.PEER_SYNCED, SignalKind.SYNCED]
    assert kinds.count(None) == 3000
    late = Joined("a")
    late["a"].peers_known(late.now)
    assert signals(late, "a") == [SignalKind.SNAPSHOT_DONE, SignalKind.SYNCED]  # one that watches later is told, too


def test_s29_deleting_the_only_unfinished_peer_completes_it() -> None:
    fleet = Joined("a", "b", "dead", link_seconds=1000.0)
    fleet["a"].add_peer("b", fleet.now)
    fleet["a"].add_peer("dead", fleet.now)
    fleet["a"].peers_known(fleet.now)
    fleet.link("a", "b")
    fleet.run(10.0)
    assert SignalKind.SYNCED not in signals(fleet, "a")
    fleet["a"].delete_peer("dead", fleet.now)
    assert signals(fleet, "a").count(SignalKind.SYNCED) == 1


def test_a_peer_is_told_as_synced_when_it_comes_into_step_and_not_at_every_comparison() -> None:
    fleet = Joined("a", "b", sync_seconds=1.0)
    fleet.watched("a")
    fleet.link("a", "b")
    fleet.run(20.0)
    assert fleet["a"].counters["comparisons"] >= 15
    assert signals(fleet, "a").count(SignalKind.PEER_SYNCED) == 1
