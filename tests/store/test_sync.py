"""The sync: both sides get what they lack, whatever changes meanwhile, in bounded messages; hostile answers change nothing."""

from __future__ import annotations

from time import perf_counter

import pytest
from joined import QUICK, Joined

from costs import no_collection
from trunkline.store.area import Area
from trunkline.store.messages import (
    CODEC,
    MOST_BYTES,
    MOST_VALUES,
    Answer,
    AskKeys,
    AskRoot,
    Difference,
    Message,
    Publish,
    Question,
    Same,
    size_of,
)
from trunkline.store.peers import PeerState
from trunkline.store.settings import Settings
from trunkline.store.values import INFINITE, MAX_VALUE, Value, sealed

IDLE, SYNCING, INITIALIZED = PeerState.IDLE, PeerState.SYNCING, PeerState.INITIALIZED


def fill(
    area: Area, now: float, keys: dict[str, bytes], version: int = 1, originator: str = "o", ttl_ms: int = 300_000
) -> None:
    refused = area.put({key: sealed(key, version, originator, data, ttl_ms) for key, data in keys.items()}, now)[1]
    assert refused == {}


def numbered(first: int, beyond: int, size: int = 8) -> dict[str, bytes]:
    return {f"key{number}": b"%d" % number * (size // 8) for number in range(first, beyond)}


def sent_to(fleet: Joined, receiver: str, kind: type | tuple[type, ...]) -> list[Message]:
    return [message for _, _, to, message in fleet.log if to == receiver and isinstance(message, kind)]


# -- 9: three ways


def test_s09_three_way_sync_of_one_side() -> None:
    fleet = Joined("a", "b")
    for name, versions in (("a", (5, 1, 9, 1, 0)), ("b", (0, 1, 1, 9, 6))):
        for number, version in enumerate(versions):
            if version:
                fleet.put(name, f"k{number}", b"%d" % version, version, originator="node-1")
    fleet.link_one("a", "b")
    fleet.run(1.0)
    both = {f"k{n}": (v, "node-1", b"%d" % v) for n, v in enumerate((5, 1, 9, 9, 6))}
    assert fleet.contents("a") == fleet.contents("b") == both
    counted = ("full_syncs", "full_syncs_ok", "full_syncs_failed", "finalized_syncs")
    assert [fleet["a"].counters[name] for name in counted] == [1, 1, 0, 1]
    assert [fleet["b"].counters[name] for name in counted] == [0, 0, 0, 0]
    (difference,) = sent_to(fleet, "a", Difference)
    assert isinstance(difference, Difference)
    assert (set(difference.values), set(difference.wanted)) == ({"k3", "k4"}, {"k0", "k2"})
    (given,) = fleet.publications("b")
    assert (set(given.values), given.path) == ({"k0", "k2"}, ("a",))


def test_stores_that_are_equal_exchange_one_question_and_one_answer() -> None:
    fleet = Joined("a", "b")
    for name in "ab":
        fill(fleet[name], fleet.now, numbered(0, 500))
    fleet.link_one("a", "b")
    fleet.run(1.0)
    assert [type(message) for *_, message in fleet.log] == [AskRoot, Same]
    assert fleet["a"].counters["finalized_syncs"] == 0


def test_two_sides_that_ask_each_other_at_once_move_every_value_once() -> None:
    fleet = Joined("a", "b")
    fill(fleet["a"], fleet.now, numbered(0, 10_000))
    fill(fleet["b"], fleet.now, numbered(10_000, 20_000))
    fleet.link("a", "b")
    fleet.run(2.0)
    assert fleet.contents("a") == fleet.contents("b")
    assert len(fleet.contents("a")) == 20_000
    moved = sum(len(message.values) for *_, message in fleet.log if isinstance(message, Difference | Publish))
    assert moved < 1.1 * 20_000


# -- 11: a key that is set during the sync


def test_s11_a_key_set_during_the_sync_follows_it_and_nothing_is_flooded_before() -> None:
    fleet = Joined("a", "b")
    fleet.put("a", "before", b"1")
    fleet.put("b", "other", b"2")
    fleet.hold("b", "a")
    fleet.link_one("a", "b")
    fleet.run(0.5)
    peer = fleet["a"].peers.by_name["b"]
    assert peer.state is SYNCING
    fleet.put("a", "kx", b"first")
    fleet.put("a", "kx", b"last", version=2)
    fleet.run(0.5)
    assert fleet.publications("b") == []
    assert fleet.data("kx")["b"] is None
    fleet.release("b", "a")
    fleet.run(0.5)
    assert peer.state is INITIALIZED
    assert fleet.data("kx") == {"a": b"last", "b": b"last"}
    done = max(at for at, _, to, message in fleet.log if to == "a" and isinstance(message, Answer))
    flooded = [at for at, _, to, message in fleet.log if to == "b" and isinstance(message, Publish) and "kx" in message.values]
    assert flooded
    assert min(flooded) > done
    assert fleet.contents("a") == fleet.contents("b")


# -- 25: a refresh that does not fit


@pytest.mark.parametrize(
    ("forced", "after"),
    [(("a", 20), (21, "a")), (None, (1, "a")), (("storeB", 1), (2, "a"))],
    ids=["a higher version", "the key is missing", "another originator"],
)
def test_s25_a_refresh_that_does_not_fit_heals_within_a_second(forced: tuple[str, int] | None, after: tuple[int, str]) -> None:
    fleet = Joined("a", "b", "c", ttl_ms=1000)
    fleet.chain("a", "b", "c")
    fleet["a"].persist("k", b"x", fleet.now)
    fleet.run(1.0)
    assert fleet.data("k") == {"a": b"x", "b": b"x", "c": b"x"}
    flaps = fleet["b"].peers.by_name["a"].flaps
    table = fleet["b"].table
    table._drop("k", table.entries["k"])
    if forced is not None:
        originator, version = forced
        table.take({"k": sealed("k", version, originator, b"y", 1000)}, fleet.now)
    fleet.run(1.0)
    assert {(name, v.version, v.originator, v.data) for name in "abc" if (v := fleet.value(name, "k"))} == {
        (name, *after, b"x") for name in "abc"
    }
    assert (flaps, fleet["b"].peers.by_name["a"].flaps) == (0, 2)
    assert fleet["b"].counters["inconsistencies"] == 1
    fleet.run(10.0)
    assert fleet["b"].peers.by_name["a"].flaps == 2  # it ends there


# -- 37: scale


@pytest.fixture(scope="module")
def many() -> dict[str, Value]:
    data = b"v" * 300
    return {key: sealed(key, 1, "site-1/node-1", data, 3_600_000) for key in (f"{n:060d}" for n in range(100_000))}


def test_s37_one_of_a_hundred_thousand_keys_differs(many: dict[str, Value]) -> None:
    size = sum(len(key) + len(value.data or b"") for key, value in many.items())
    assert size == 36_000_000
    a, b = (Area(name, "fleet", lambda: 0.5, QUICK) for name in "ab")
    for area in (a, b):
        assert area.put(many, 100.0)[1] == {}
    odd = f"{4711:060d}"
    best, moved = 1.0, 0
    for attempt in range(1, 4):
        fill(a, 100.0, {odd: b"w" * 300}, version=1 + attempt)
        with no_collection():
            moved, longest, questions = _sync_by_hand(a, b)
        best = min(best, longest)
        assert b.table.entries[odd].value.version == 1 + attempt
        assert a.table.digest.root() == b.table.digest.root()
        assert questions == 3
    assert moved < 0.002 * size
    assert best < 0.050


def _sync_by_hand(a: Area, b: Area) -> tuple[int, float, int]:
    """Bytes that were moved, the longest step, and how many questions were asked."""
    moved, longest, questions = 0, 0.0, 0
    a.link_down("b", 100.0)
    sends = [("a", send) for send in a.link_up("b", 100.0)]
    while sends:
        sender, send = sends.pop(0)
        begun = perf_counter()
        body = CODEC.encode(send.message)
        receiver = b if sender == "a" else a
        told = receiver.receive(sender, CODEC.decode(body), 100.0)
        longest = max(longest, perf_counter() - begun)
        sends += [("b" if sender == "a" else "a", answer) for answer in told if answer.peer == sender]
        moved += len(body)
        questions += isinstance(send.message, Question)
    return moved, longest, questions


def test_s37_flooding_one_key_costs_the_same_in_a_large_store(many: dict[str, Value]) -> None:
    with no_collection():
        small, large = _cost_of_flooding({}), _cost_of_flooding(many)
    assert large < 10 * small + 0.001  # all keys at once take a hundred times as long


def _cost_of_flooding(values: dict[str, Value]) -> float:
    """Seconds for a flooded key, the best of many."""
    area = Area("a", "fleet", lambda: 0.5, QUICK)
    area.put(values, 100.0)
    (asked,) = area.link_up("b", 100.0)
    assert isinstance(asked.message, AskRoot)
    area.receive("b", Same("fleet", asked.message.id), 100.0)
    costs = []
    for version in range(1, 51):
        value = sealed("new", version, "a", b"x" * 300, 60_000)
        begun = perf_counter()
        sends, _ = area.put({"new": value}, 100.0)
        costs.append(perf_counter() - begun)
        assert [send.peer for send in sends] == ["b"]
    return min(costs)


# -- bounded messages


def test_an_empty_node_gets_two_hundred_thousand_keys_in_bounded_messages() -> None:
    fleet = Joined("a", "b")
    values = {f"key{n}": sealed(f"key{n}", 1, "o", b"%d" % n * 4, 3_600_000) for n in range(200_000)}
    assert fleet["b"].put(values, fleet.now)[1] == {}
    longest = 0
    fleet.link_one("a", "b")
    while fleet["a"].peers.by_name["b"].state is not INITIALIZED:
        assert fleet.now < 160.0
        fleet.run(0.05)
        for _, _, _, message in fleet.log:
            longest = max(longest, _check_bounds(message))
        fleet.log.clear()
    assert len(fleet["a"].table) == 200_000
    assert fleet["a"].table.digest.root() == fleet["b"].table.digest.root()
    assert 0.2 * MOST_BYTES < longest < 2 * MOST_BYTES


def _check_bounds(message: Message) -> int:
    match message:
        case Difference(values=values) | Publish(values=values):
            assert len(values) <= MOST_VALUES
        case AskKeys(headers=headers):
            assert len(headers) <= 2 * MOST_VALUES
    return len(CODEC.encode(message))


def test_values_near_the_bound_go_one_to_a_message_and_none_is_left_out() -> None:
    fleet = Joined("a", "b")
    fill(fleet["b"], fleet.now, {f"key{n}": bytes(MAX_VALUE) for n in range(40)})
    fill(fleet["a"], fleet.now, {f"mine{n}": bytes(MAX_VALUE) for n in range(40)})
    fleet.link_one("a", "b")
    fleet.run(1.0)
    assert fleet.contents("a") == fleet.contents("b")
    assert len(fleet.contents("a")) == 80
    sizes = [sum(size_of(k, v) for k, v in m.values.items()) for *_, m in fleet.log if isinstance(m, Difference | Publish)]
    assert max(sizes) < MOST_BYTES + MAX_VALUE + 1000


def test_a_node_that_joins_by_two_peers_at_once_gets_all_without_a_failure() -> None:
    fleet = Joined("new", "b", "c")
    for name in "bc":
        fill(fleet[name], fleet.now, numbered(0, 20_000))
    fleet.link("new", "b")
    fleet.link("new", "c")
    fleet.run(3.0)
    assert fleet.contents("new") == fleet.contents("b")
    assert [fleet["new"].peers.by_name[name].state for name in "bc"] == [INITIALIZED, INITIALIZED]
    assert fleet["new"].counters["full_syncs_failed"] == 0


# -- what changes meanwhile


def test_keys_change_and_expire_under_a_sync_and_both_sides_are_equal_after_it() -> None:
    fleet = Joined("a", "b", delay=0.02)
    fill(fleet["a"], fleet.now, numbered(0, 3000))
    fill(fleet["b"], fleet.now, numbered(2000, 6000))
    fill(fleet["a"], fleet.now, {f"short{n}": b"x" for n in range(300)}, ttl_ms=800)
    fill(fleet["b"], fleet.now, {f"brief{n}": b"x" for n in range(300)}, ttl_ms=600)
    fleet.link("a", "b")
    for step in range(40):
        fleet.put("a", f"key{step * 70}", b"from a", version=2)
        fleet.put("b", f"key{step * 70 + 35}", b"from b", version=2)
        fleet.put("b" if step % 2 else "a", "contended", b"%d" % step, version=step + 1)
        fleet.run(0.03)
    fleet.run(2.0)
    assert fleet.contents("a") == fleet.contents("b")
    assert fleet.contents("a")["contended"][2] == b"39"
    assert len(fleet.contents("a")) == 6001
    assert fleet["a"].table.digest.root() == fleet["b"].table.digest.root()
    assert fleet["a"].counters["full_syncs_failed"] == fleet["b"].counters["full_syncs_failed"] == 0


def test_values_near_their_end_do_not_make_two_stores_sync_for_ever() -> None:
    fleet = Joined("a", "b")
    fill(fleet["a"], fleet.now, {f"short{n}": b"x" for n in range(3000)}, ttl_ms=1500)
    fleet.run(1.2)
    fleet.link("a", "b")
    fleet.run(0.2)
    assert len(fleet["a"].table) == 3000
    assert len(fleet["b"].table) == 0  # they would be gone on arrival
    for one, other in ("ab", "ba"):
        assert fleet[one].peers.by_name[other].state is INITIALIZED
    assert sum(isinstance(message, AskKeys) for *_, message in fleet.log) < 150
    sent = fleet.sent.total()
    fleet.run(1.0)
    assert fleet.sent.total() == sent
    assert len(fleet["a"].table) == 0


# -- anti-entropy


def test_a_divergence_of_an_infinite_key_two_hops_away_heals_within_periods() -> None:
    fleet = Joined("a", "b", "c", "d", sync_seconds=3.0)
    fleet.chain("a", "b", "c", "d")
    fleet.put("a", "k", b"old", ttl_ms=INFINITE)
    fleet.run(1.0)
    fleet["a"].table.take({"k": sealed("k", 2, "a", b"new", INFINITE)}, fleet.now)  # and the publication is lost
    assert fleet.data("k") == {"a": b"new", "b": b"old", "c": b"old", "d": b"old"}
    fleet.run(2 * 3.0 + 1.0)  # a node has two peers at most, each in its turn
    assert set(fleet.data("k").values()) == {b"new"}
    assert all(peer.flaps == 0 for area in fleet.areas.values() for peer in area.peers.by_name.values())


def test_equal_stores_compare_once_per_period_and_no_more() -> None:
    fleet = Joined("a", "b", sync_seconds=5.0)
    fill(fleet["a"], fleet.now, numbered(0, 100))
    fleet.link("a", "b")
    fleet.run(2.0)
    before = fleet.sent.total()
    fleet.run(50.0)
    assert fleet.sent.total() - before == 2 * 10 * 2  # both sides, ten times, a question and an answer


# -- an inconsistency meanwhile


def test_an_inconsistency_during_a_sync_makes_one_more_afterwards() -> None:
    fleet = Joined("a", "b", settings=Settings(answer_seconds=50.0))
    fleet.hold("b", "a")
    fleet.link_one("a", "b")
    fleet.run(0.1)
    refresh = Value(3, "b", None, 60_000, 1, 0)
    for _ in range(5):
        assert fleet["a"].receive("b", Publish("fleet", {"unknown": refresh}, ("b",)), fleet.now) == []
    assert fleet["a"].peers.by_name["b"].again
    fleet.release("b", "a")
    fleet.run(0.5)
    assert len(sent_to(fleet, "b", AskRoot)) == 2
    peer = fleet["a"].peers.by_name["b"]
    assert (peer.state, peer.again, peer.flaps) == (INITIALIZED, False, 0)
