"""Flooding: where a change goes and where not, what waits for whom, and how much of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise

import pytest
from joined import QUICK, Joined

from trunkline.core.bucket import Rate
from trunkline.core.errors import RemoteProtocolError
from trunkline.store.area import Area
from trunkline.store.messages import MOST_HOPS, MOST_RECEIVED, MOST_VALUES, AskRoot, Message, Publish, Same, Send
from trunkline.store.peers import PeerState
from trunkline.store.settings import Settings
from trunkline.store.values import Value, sealed
from trunkline.store.watch import KeyEvent, Kind

NODES = [f"s{number}" for number in range(16)]
RING = [*pairwise(NODES), (NODES[-1], NODES[0])]
MESH = list(combinations(NODES[:8], 2))


def joined(links: Sequence[tuple[str, str]], **settings: object) -> Joined:
    fleet = Joined(*dict.fromkeys(name for link in links for name in link), **settings)
    for link in links:
        fleet.link(*link)
    fleet.run(2.0)
    return fleet


def in_step(area: Area, *names: str, now: float = 100.0) -> None:
    """These are now peers to which changes are flooded."""
    sends = [send for name in names for send in area.link_up(name, now)]
    while sends:
        send = sends.pop(0)
        assert isinstance(send.message, AskRoot)
        sends += area.receive(send.peer, Same(area.name, send.message.id), now)
    assert all(area.peers.by_name[name].state is PeerState.INITIALIZED for name in names)


def value(key: str, version: int = 1, data: bytes = b"x", originator: str = "a", ttl_ms: int = 60_000) -> dict[str, Value]:
    return {key: sealed(key, version, originator, data, ttl_ms)}


def published(sends: Iterable[Send]) -> list[tuple[str, set[str]]]:
    return [(send.peer, set(send.message.values)) for send in sends if isinstance(send.message, Publish)]


# -- 14: paths


def test_s14_a_chain_of_sixteen_carries_the_whole_path() -> None:
    fleet = joined(list(pairwise(NODES)))
    fleet.log.clear()
    fleet.put("s15", "k", b"x")
    fleet.run(1.0)
    (arrived,) = fleet.publications("s0")
    assert (*arrived.path, "s0") == tuple(f"s{number}" for number in range(15, -1, -1))
    assert set(fleet.data("k").values()) == {b"x"}
    assert len(fleet.log) == 15  # once over each link, and never back


@pytest.mark.parametrize("links", [RING, MESH], ids=["a ring of 16", "a mesh of 8"])
def test_s14_a_ring_and_a_mesh_converge_and_go_quiet(links: Sequence[tuple[str, str]]) -> None:
    fleet = joined(links)
    names = list(fleet.areas)
    for number, name in enumerate(names):
        fleet.put(name, f"own{number}", b"x")
        fleet.put(name, "shared", b"%d" % number, version=number % 3 + 1)
    fleet.run(1.0)
    assert all(fleet.contents(name) == fleet.contents(names[0]) for name in names)
    assert len(fleet.contents(names[0])) == len(names) + 1
    roots = {area.table.digest.root() for area in fleet.areas.values()}
    assert len(roots) == 1
    sent = fleet.sent.total()
    fleet.put(names[3], "last", b"x")
    fleet.run(0.5)
    assert set(fleet.data("last").values()) == {b"x"}
    one_change = fleet.sent.total() - sent
    assert len(names) - 1 <= one_change <= 2 * len(links) - len(names) + 1
    fleet.run(1.0)
    assert fleet.sent.total() == sent + one_change


def test_no_node_on_the_path_is_sent_to_again() -> None:
    area = Area("d", "fleet", lambda: 0.5, QUICK)
    in_step(area, "a", "b", "c", "e")
    sends = area.receive("c", Publish("fleet", value("k"), ("a", "b", "c")), 100.0)
    assert [(send.peer, send.message.path) for send in sends if isinstance(send.message, Publish)] == [
        ("e", ("a", "b", "c", "d"))
    ]


def test_a_path_that_is_as_long_as_may_be_begins_anew() -> None:
    area = Area("a", "fleet", lambda: 0.5, QUICK)
    in_step(area, "b", "c")
    longest = (*(f"x{number}" for number in range(MOST_HOPS - 1)), "b")
    (send,) = area.receive("b", Publish("fleet", value("k"), longest), 100.0)
    assert isinstance(send.message, Publish)
    assert (send.peer, send.message.path) == ("c", ("a",))


def test_one_message_is_made_for_all_peers() -> None:
    area = Area("a", "fleet", lambda: 0.5, QUICK)
    in_step(area, "b", "c", "d")
    sends, _ = area.put(value("k"), 100.0)
    assert len(sends) == 3
    assert len({id(send.message) for send in sends}) == 1


# -- 26: one good and one bad key


def test_s26_the_good_key_of_a_mixed_publication_is_taken_and_the_bad_one_makes_a_sync() -> None:
    fleet = Joined("a", "b", "c")
    fleet.chain("a", "b", "c")
    fleet.run(1.0)
    fleet.watched("b")
    armed = fleet["b"].table.armed()
    good = value("good", 7, ttl_ms=3000)
    fleet["a"].table.take(good, fleet.now)
    fleet["a"].table.take(value("bad", 3), fleet.now)
    refresh = {"bad": Value(3, "a", None, 60_000, 1, 0)}
    fleet.say("a", [Send("b", Publish("fleet", good | refresh, ("a",)))])
    fleet.run(0.5)
    stored = fleet.value("b", "good")
    assert stored is not None
    assert stored.version == 7
    assert [e.key for e in fleet.watched("b") if isinstance(e, KeyEvent)] == ["good", "bad"]
    assert fleet.data("good")["c"] == b"x"
    assert fleet["b"].table.armed() == armed + 2
    assert fleet["b"].counters["inconsistencies"] == 1
    assert fleet["b"].peers.by_name["a"].flaps == 2
    assert set(fleet.data("bad").values()) == {b"x"}  # the sync brought it
    fleet.run(3.0)
    assert fleet.data("good") == {"a": None, "b": None, "c": None}
    assert [e.key for e in fleet.watched("b") if isinstance(e, KeyEvent) and e.kind is Kind.EXPIRED] == ["good"]


def test_a_refresh_that_does_not_fit_and_is_not_the_originators_own_makes_no_sync() -> None:
    area = Area("c", "fleet", lambda: 0.5, QUICK)
    in_step(area, "b")
    refresh = {"k": Value(3, "a", None, 60_000, 1, 0)}
    assert area.receive("b", Publish("fleet", refresh, ("a", "b")), 100.0) == []
    assert (area.counters["inconsistencies"], area.peers.by_name["b"].state) == (0, PeerState.INITIALIZED)


# -- 30: the rate limit


def test_s30_a_rate_limit_delays_the_peers_and_loses_nothing() -> None:
    fleet = Joined("s0", "s1", flood_rate=Rate(10, 50))
    fleet.link("s0", "s1")
    fleet.run(10.0)
    begun = len(fleet.publications("s0"))
    fleet.watched("s1")
    for number in range(2000):
        fleet.put("s1", f"key{number}", b"%d" % number)
        assert fleet.watched("s1")[-1] == KeyEvent(
            Kind.VALUE, f"key{number}", fleet["s1"].table.shown(f"key{number}", fleet.now)
        )
        fleet.run(0.0025)
    fleet.run(5.0)
    told = fleet.publications("s0")[begun:]
    assert fleet.contents("s0") == fleet.contents("s1")
    assert len(fleet.contents("s0")) == 2000
    assert 50 < len(told) <= (5 + 5 + 3) * 10 + 50
    assert {message.area for message in told} == {"fleet"}
    assert fleet["s1"].counters["rate_limited"] >= 1
    assert fleet["s1"].peers.by_name["s0"].flaps == 0  # no sync had to help
    assert max(len(message.values) for message in told) <= MOST_VALUES


# -- what waits for a peer


def blocked(most_pending: int = 10_000) -> Area:
    """An area whose link to `b` is full."""
    area = Area("a", "fleet", lambda: 0.5, Settings(most_pending=most_pending))
    in_step(area, "b", "c")
    (send, _) = area.put(value("first"), 100.0)[0]
    area.not_sent("b", send.message, 100.0)
    return area


def test_what_a_full_link_did_not_take_waits_once_per_key_and_goes_when_there_is_room() -> None:
    area = blocked()
    for version in range(1, 6):
        sends, _ = area.put(value("k", version, b"%d" % version), 100.0)
        assert published(sends) == [("c", {"k"})]
    area.refresh("k", 90_000, 100.0)
    area.refresh("first", 90_000, 100.0)
    assert area.peers.by_name["b"].pending == {"first": True, "k": True}
    assert published(area.tick(100.1)) == []
    (send,) = area.has_room("b", 100.2)
    assert isinstance(send.message, Publish)
    assert send.message.path == ("a",)
    assert {key: (v.version, v.data, v.ttl_version) for key, v in send.message.values.items()} == {
        "first": (1, b"x", 1),
        "k": (5, b"5", 1),
    }
    assert area.peers.by_name["b"].pending == {}
    assert area.has_room("b", 100.2) == []
    assert published(area.put(value("next"), 100.3)[0]) == [("b", {"next"}), ("c", {"next"})]


def test_a_refresh_waits_without_the_bytes() -> None:
    area = Area("a", "fleet", lambda: 0.5, QUICK)
    in_step(area, "b")
    area.put(value("k"), 100.0)
    sends, _ = area.refresh("k", 90_000, 100.0)
    area.not_sent("b", sends[0].message, 100.0)
    (send,) = area.has_room("b", 100.1)
    assert isinstance(send.message, Publish)
    assert send.message.values["k"].data is None
    assert send.message.values["k"].ttl_version == 1


def test_what_expired_while_it_waited_is_not_sent() -> None:
    area = blocked()
    area.put(value("short", ttl_ms=1000), 100.0)
    (send,) = area.has_room("b", 101.0)
    assert published([send]) == [("b", {"first"})]


def test_much_that_waited_goes_in_bounded_messages_one_at_a_time() -> None:
    area = blocked()
    area.put({key: v for n in range(2500) for key, v in value(f"k{n}").items()}, 100.0)
    sizes = [len(keys) for _, keys in published(area.has_room("b", 100.1))]
    for tick in range(3):
        sizes += [len(keys) for _, keys in published(area.tick(100.2 + tick / 20))]
    assert sizes == [1000, 1000, 501]


def test_too_much_that_waits_is_dropped_and_a_sync_heals() -> None:
    area = blocked(most_pending=100)
    other = Area("b", "fleet", lambda: 0.5, QUICK)
    peer = area.peers.by_name["b"]
    for number in range(5000):
        area.put(value(f"k{number}"), 100.0)
        assert len(peer.pending) <= 100
    assert (peer.again, peer.pending, area.counters["overruns"]) == (True, {}, 1)
    assert area.tick(100.1) == []  # it has no room for a question either
    sends: list[Send] = area.has_room("b", 100.2)
    assert [type(send.message) for send in sends] == [AskRoot]
    assert not peer.again
    while sends:
        send = sends.pop(0)
        if send.peer == "b":
            for reply in other.receive("a", send.message, 100.2):
                sends += area.receive("b", reply.message, 100.2)
    assert other.table.digest.root() == area.table.digest.root()
    assert len(other.table) == 5001
    assert peer.flaps == 0  # it was in step all the time


def test_too_much_under_a_rate_limit_is_healed_by_a_sync_at_the_next_tick() -> None:
    fleet = Joined("a", "b", flood_rate=Rate(0.001, 1), most_pending=50)
    fleet.link("a", "b")
    fleet.run(1.0)
    fleet.put("a", "uses the one", b"x")
    for number in range(60):
        fleet.put("a", f"k{number}", b"x")
    fleet.run(1.0)
    assert fleet["a"].counters["overruns"] == 1
    assert fleet.contents("a") == fleet.contents("b")


def test_a_question_that_a_full_link_did_not_take_is_one_failure_and_waits_for_room() -> None:
    area = Area("a", "fleet", lambda: 0.5, QUICK)
    (send,) = area.link_up("b", 100.0)
    area.not_sent("b", send.message, 100.0)
    peer = area.peers.by_name["b"]
    assert (peer.state, peer.backoff.failures, peer.reason) == (PeerState.IDLE, 1, "its link is full")
    area.not_sent("b", send.message, 100.0)
    assert peer.backoff.failures == 1
    assert area.tick(110.0) == []
    (again,) = area.has_room("b", 111.0)
    assert isinstance(again.message, AskRoot)
    area.not_sent("b", send.message, 111.0)  # the old one: of no effect on the new
    assert (peer.state, peer.backoff.failures) == (PeerState.SYNCING, 1)


def test_nothing_waits_for_an_idle_peer_and_its_sync_brings_it() -> None:
    fleet = Joined("a", "b")
    fleet.hold("a", "b")
    fleet.link_one("a", "b")
    fleet.run(QUICK.answer_seconds + 0.05)
    peer = fleet["a"].peers.by_name["b"]
    assert peer.state is PeerState.IDLE
    fleet.put("a", "k", b"x")
    assert peer.pending == {}
    fleet.held.clear()
    fleet.run(5.0)
    assert fleet.data("k") == {"a": b"x", "b": b"x"}


@pytest.mark.parametrize("most_pending", [1, 10_000])
def test_what_waited_for_a_peer_is_forgotten_when_its_link_goes(most_pending: int) -> None:
    area = blocked(most_pending)
    area.add_peer("b", 100.0)
    area.put(value("k") | value("l"), 100.0)
    peer = area.peers.by_name["b"]
    assert (set(peer.pending), peer.again) == (({"first", "k", "l"}, False) if most_pending > 1 else (set(), True))
    area.link_down("b", 100.0)
    assert (peer.pending, peer.again, peer.sync) == ({}, False, None)


# -- what is not a publication of ours


@pytest.mark.parametrize(
    ("values", "path"),
    [
        (value("k"), ()),
        (value("k"), ("b", "x")),
        (value("k"), ("a", "x")),
        (value("k"), ("x",) * MOST_HOPS + ("b",)),
        ({f"k{n}": value("k")["k"] for n in range(MOST_RECEIVED + 1)}, ("b",)),
    ],
    ids=["no path", "another last hop", "a loop with another last hop", "too many hops", "too many values"],
)
def test_a_publication_of_a_wrong_form_is_the_peers_fault_and_nothing_is_stored(
    values: dict[str, Value], path: tuple[str, ...]
) -> None:
    area = Area("a", "fleet", lambda: 0.5, QUICK)
    in_step(area, "b", "c")
    message: Message = Publish("fleet", values, path)
    with pytest.raises(RemoteProtocolError, match="publication"):
        area.receive("b", message, 100.0)
    assert len(area.table) == 0
    assert area.counters["received_publications"] == 0
