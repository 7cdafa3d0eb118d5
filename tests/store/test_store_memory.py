"""A peer or a key that is gone leaves nothing behind."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable

from joined import Joined

from trunkline.core.ids import NodeId
from trunkline.store.area import Area
from trunkline.store.messages import AskRoot, Publish, Same
from trunkline.store.settings import Settings
from trunkline.store.store import Store
from trunkline.store.values import sealed

CYCLES = 1_000


def grown_by(cycle: Callable[[int], None]) -> int:
    """Bytes that a thousand cycles leave, after some to warm up."""
    for number in range(100):
        cycle(number)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100, 100 + CYCLES):
            cycle(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def containers(area: Area) -> dict[str, int]:
    """How much every container of an area and its parts holds."""
    parts = {"area": area, "peers": area.peers, "flood": area._flood, "own": area.own}
    found = {
        f"{part}.{name}": len(value)
        for part, owner in parts.items()
        for name, value in vars(owner).items()
        if isinstance(value, dict | list | set) and not isinstance(value, Counter)
    }
    assert {"peers.by_name", "peers._turn", "own.keys"} <= found.keys()
    return found | {"armed": area.table.armed(), "keys": len(area.table)}


def test_a_thousand_peers_that_came_and_went_leave_nothing() -> None:
    area = Area("a", "fleet", lambda: 0.5, Settings(sync_seconds=0.05))
    area.put({"k": sealed("k", 1, "a", b"x" * 100, 3_600_000)}, 100.0)
    now = 100.0

    def cycle(number: int) -> None:
        nonlocal now
        now += 0.1
        name = f"peer{number}"
        area.add_peer(name, now, (f"10.0.0.1:{number}",))
        (send,) = area.link_up(name, now)
        assert isinstance(send.message, AskRoot)
        area.put({(key := f"while {number % 50}"): sealed(key, number + 1, "a", b"x" * 100, 600)}, now)
        if number % 3:
            area.receive(name, Same("fleet", send.message.id), now)
        area.tick(now + 0.06)
        if number % 2:
            area.link_down(name, now)
        assert area.delete_peer(name, now)

    before = containers(area)
    grown = grown_by(cycle)
    area.tick(now + 1.0)
    area.tick(now + 2.0)
    assert containers(area) == before
    assert grown < 40_000  # a peer alone is over 1,000 bytes


def test_a_thousand_times_the_link_goes_down_and_up() -> None:
    fleet = Joined("a", "b")
    fleet["a"].add_peer("b", fleet.now)
    for name in "ab":
        fleet.put(name, f"of {name}", b"x")
    fleet.put("a", "changing", b"")
    fleet.link("a", "b")
    fleet.run(0.2)
    before = containers(fleet["a"])

    def cycle(number: int) -> None:
        fleet.unlink("a", "b")
        fleet.put("a", "changing", b"%d" % number, version=number + 2)
        fleet.link("a", "b")
        fleet.run(0.01)
        fleet.log.clear()

    grown = grown_by(cycle)
    fleet.run(0.5)
    assert fleet.contents("a") == fleet.contents("b")
    assert containers(fleet["a"]) == before
    assert fleet["a"].peers.by_name["b"].backoff.failures == 0
    assert grown < 100_000


def test_a_store_forgets_a_peer_in_all_its_areas() -> None:
    store = Store(NodeId("a", "1"), lambda: 0.5, areas=("pod",))
    now = 100.0

    def cycle(number: int) -> None:
        nonlocal now
        now += 0.1
        peer = NodeId("a", f"p{number}")
        sends = store.link_up(peer, now)
        assert {send.message.area for send in sends} == {"fleet", "site:a", "pod"}
        for send in sends:
            store.not_sent(peer, send.message, now)
        store.has_room(peer, now)
        store.link_down(peer, now)

    grown = grown_by(cycle)
    assert all(len(area.peers) == 0 for area in store.areas.values())
    assert grown < 40_000


def test_a_peer_that_never_takes_anything_costs_a_bounded_number_of_names() -> None:
    area = Area("a", "fleet", lambda: 0.5, Settings(most_pending=1_000))
    (send,) = area.link_up("b", 100.0)
    assert isinstance(send.message, AskRoot)
    area.receive("b", Same("fleet", send.message.id), 100.0)
    area.not_sent("b", Publish("fleet", {}, ("a",)), 100.0)
    most = 0
    for number in range(20_000):
        area.put({f"k{number}": sealed(f"k{number}", 1, "a", b"x", 60_000)}, 100.0)
        most = max(most, len(area.peers.by_name["b"].pending))
    assert most == 1_000
