"""Carrying between joined carriers: windows, slow takers, strays and holes. Always a fleet, never one side."""

from __future__ import annotations

import carriers

from trunkline.core.ids import Position
from trunkline.trunk import asks
from trunkline.trunk.messages import Batch
from trunkline.trunk.taker import WINDOW
from trunkline.trunk.window import PATIENCE_SECONDS

MIB = b"x" * (1024 * 1024)


class Fleet(carriers.Fleet):
    """hub — relay — leaf-1, leaf-2: the hub writes. Parents are set all at once, as a leader that begins does."""

    def __init__(self) -> None:
        super().__init__([("hub", "relay"), ("leaf-1", "relay"), ("leaf-2", "relay")])

    def commit(self, *destinations: str, payload: bytes = b"x", client: str = "policy") -> None:
        super().commit("hub", *destinations, payload=payload, client=client)

    def got(self, site: str, origin: str = "hub") -> list[int]:
        return super().got(site, origin)


def test_an_entry_for_two_sites_behind_one_relay_crosses_the_relay_s_link_once() -> None:
    fleet = Fleet()
    for _ in range(10):
        fleet.commit("leaf-1", "leaf-2")
    assert fleet.got("leaf-1") == fleet.got("leaf-2") == list(range(1, 11))
    assert fleet.got("relay") == []
    assert fleet.carriers["hub"].counters["relay", "sent"] == 10
    assert fleet.carriers["relay"].counters["hub", "received"] == 10


def test_a_site_gets_only_what_is_for_it_and_its_position_moves_all_the_same() -> None:
    fleet = Fleet()
    fleet.commit("leaf-1")
    fleet.commit("leaf-2")
    fleet.commit("*")
    fleet.run(3.0)
    assert fleet.got("leaf-1") == [1, 3]
    assert fleet.got("leaf-2") == [2, 3]
    assert fleet.got("relay") == [3]
    assert fleet.ends["relay"].sink.applied("hub").clients == {"policy": Position(3, 1002)}


def test_a_slow_child_soon_holds_up_nobody_and_comes_back_with_everything_once() -> None:
    fleet = Fleet()
    fleet.hold("leaf-1")
    for _ in range(30):
        fleet.commit("leaf-1", "leaf-2", payload=MIB)
    assert len(fleet.got("leaf-2")) < 30
    fleet.run(PATIENCE_SECONDS + 0.2)
    assert fleet.got("leaf-2") == list(range(1, 31))
    assert fleet.carriers["relay"].counters["leaf-1", "lagged"] == 1
    fleet.release("leaf-1")
    fleet.run(10.0)
    assert fleet.got("leaf-1") == list(range(1, 31))
    assert fleet.got("leaf-2") == list(range(1, 31))


def test_a_burst_is_borne_and_crosses_the_link_once() -> None:
    fleet = Fleet()
    for _ in range(3):
        fleet.hold("leaf-1")
        for _ in range(30):
            fleet.commit("leaf-1", "leaf-2", payload=MIB)
        fleet.run(PATIENCE_SECONDS / 2)
        fleet.release("leaf-1")
        fleet.run(PATIENCE_SECONDS * 2)
    assert fleet.got("leaf-1") == fleet.got("leaf-2") == list(range(1, 91))
    assert fleet.carriers["relay"].counters["leaf-1", "lagged"] == 0
    assert fleet.carriers["hub"].counters["relay", "sent"] == 90


def test_g8_a_lone_slow_child_holds_the_origin_back_with_bounded_buffers() -> None:
    fleet = Fleet()
    fleet.hold("leaf-1")
    for _ in range(60):
        fleet.commit("leaf-1", payload=MIB)
    sent = fleet.carriers["hub"].counters["relay", "sent"]
    assert sent * len(MIB) <= 5 * WINDOW
    assert fleet.carriers["relay"].counters["leaf-1", "lagged"] == 0
    fleet.release("leaf-1")
    fleet.run(10.0)
    assert fleet.got("leaf-1") == list(range(1, 61))
    assert fleet.carriers["hub"].counters["relay", "sent"] == 60


def test_a_hole_is_seen_and_mended_by_subscribing_again() -> None:
    fleet = Fleet()
    fleet.commit("leaf-1")
    fleet.lose = lambda sender, to, message: isinstance(message, Batch)
    fleet.commit("leaf-1")
    fleet.lose = lambda sender, to, message: False
    fleet.commit("leaf-1")
    fleet.run(6.0)
    assert fleet.got("leaf-1") == [1, 2, 3]
    assert fleet.carriers["relay"].counters["hub", "hole"] + fleet.carriers["relay"].counters["hub", "silence"] >= 1


def test_a_batch_under_an_old_subscription_is_a_stray_and_changes_nothing() -> None:
    fleet = Fleet()
    fleet.commit("leaf-1")
    before = fleet.got("leaf-1")
    stray = Batch(999, "hub", "log-hub", 1, (), Position(7, 7), ("policy",), False)
    effects = fleet.carriers["leaf-1"].receive("relay", stray, fleet.now)
    assert [type(e.message).__name__ for e in effects if isinstance(e, asks.Send)] == ["Stop"]
    assert fleet.got("leaf-1") == before


def test_a_child_that_leaves_and_returns_resumes_behind_its_own_position() -> None:
    fleet = Fleet()
    fleet.commit("leaf-1", "leaf-2")
    fleet.cut("relay", "leaf-1")
    for _ in range(5):
        fleet.commit("leaf-1", "leaf-2")
    fleet.run(2.0)
    assert fleet.got("leaf-1") == [1]
    fleet.join("relay", "leaf-1")
    fleet.run(3.0)
    assert fleet.got("leaf-1") == fleet.got("leaf-2") == [1, 2, 3, 4, 5, 6]
    received = fleet.carriers["leaf-2"].counters["relay", "received"]
    assert received == 6, "the sibling is sent nothing again"


# -- looking


def test_cursors_say_how_far_a_site_has_each_origin_also_what_was_not_for_it() -> None:
    fleet = Fleet()
    fleet.commit("leaf-1")
    fleet.commit("leaf-2")
    fleet.run(2.0)
    assert fleet.carriers["relay"].cursors() == {"hub": 2, "leaf-1": 0, "leaf-2": 0}
    assert fleet.carriers["leaf-1"].cursors() == {"hub": 2, "relay": 0, "leaf-2": 0}
    assert fleet.carriers["hub"].cursors() == {"relay": 0, "leaf-1": 0, "leaf-2": 0}


def test_the_view_names_links_streams_and_children_with_their_counters() -> None:
    fleet = Fleet()
    fleet.commit("leaf-1", payload=b"1234")
    fleet.run(2.0)
    view = fleet.carriers["relay"].view()
    assert view["links"]["hub"].items() >= {
        "received": 1, "bytes": 4, "duplicate": 0, "stray": 0, "catch_up": 0, "sent": 0, "relayed": 0,
    }.items()  # fmt: skip
    assert view["links"]["leaf-1"]["relayed"] == 1
    (stream,) = (s for s in view["streams"] if s["origin"] == "hub")
    assert stream.pop("id") > 0
    assert stream == {
        "origin": "hub", "from": "hub", "lane": "live", "cursor": 1,
        "received": 1, "duplicate": 0, "stray": 0, "catch_up": 0, "bytes": 4,
    }  # fmt: skip
    children = [c for c in view["children"] if c["origin"] == "hub"]
    assert sorted((c["site"], c["lane"], c["sent"], c["queued"], c["lagging"]) for c in children) == [
        ("leaf-1", "live", 1, 0, False),
        ("leaf-2", "live", 1, 0, False),
    ]


def test_what_was_counted_on_a_link_does_not_vanish_while_it_is_down() -> None:
    fleet = carriers.Fleet([("a", "b")])
    fleet.commit("a", "b")
    fleet.run(1.0)
    before = fleet.carriers["b"].view()["links"]["a"]
    assert before["received"] == 1
    fleet.cut("a", "b")
    assert fleet.carriers["b"].view()["links"]["a"]["received"] == 1
