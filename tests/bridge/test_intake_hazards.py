"""Hazards of intake, over the database: each by its number."""

from __future__ import annotations

from collections import Counter

import pytest
from bridge_hub import Hub, auto

from trunkline.bridge.inbox import Arrived, Batch, Lost, write_batch
from trunkline.core.bundle import Bundle, Mode
from trunkline.core.errors import Fenced

TOPIC = "status.h1@0"


def status(generation: int, value: int = 1, id_: str = "", mode: Mode = Mode.COMPLETE, type_: str = "clusters") -> Bundle:
    return auto("h1", type_, mode, generation, value, [], id_=id_)


def read(hub: Hub, *arrived: Arrived, lost: str = "") -> None:
    counts = Counter(a.bundle.source for a in arrived)
    write_batch(hub.conn, hub.types, Batch(arrived, [], counts, [Lost("h1", lost)] if lost else [], "kafka"))
    hub.conn.commit()


def waits(hub: Hub) -> list[tuple[int, int]]:
    return [(i, g) for i, g in hub.rows("SELECT incarnation, generation FROM bridge.inbox ORDER BY arrival")]


def test_h31_places_are_compared_within_one_topic_only(hub: Hub) -> None:
    """The topic is made anew while the sender goes on: what it sends now stands before the place where its run began."""
    read(hub, Arrived(status(7), TOPIC, 500))
    read(hub, Arrived(status(8), TOPIC, 0), lost="the topic was made anew")
    assert waits(hub) == [(500, 8)]
    assert hub.rows("SELECT type, reason FROM bridge.resync") == [("clusters", "the topic was made anew")]
    read(hub, Arrived(status(0), TOPIC, 1))
    assert waits(hub) == [(501, 0)]


def test_h31_a_lower_place_of_the_same_topic_is_an_older_message(hub: Hub) -> None:
    read(hub, Arrived(status(0), TOPIC, 500))
    read(hub, Arrived(status(99), TOPIC, 499))
    assert waits(hub) == [(500, 0)]
    assert hub.counters("h1")["stale"] == 1


def test_h39_the_incarnation_is_the_offset_of_generation_0_and_stays_for_the_run(hub: Hub) -> None:
    read(hub, Arrived(status(500), TOPIC, 10))
    assert waits(hub) == [(10, 500)]
    read(hub, Arrived(status(0), TOPIC, 20))
    assert waits(hub) == [(20, 0)]
    read(hub, Arrived(status(1), TOPIC, 21))
    assert waits(hub) == [(20, 1)]
    assert hub.rows("SELECT site, type, incarnation, position FROM bridge.run") == [("h1", "clusters", 20, 20)]


def test_h39_runs_are_kept_by_site_and_type(hub: Hub) -> None:
    other = Arrived(status(3, type_="compliance"), TOPIC, 2)
    read(hub, Arrived(status(0), TOPIC, 1), other, Arrived(status(0, type_="hub-info"), TOPIC, 3))
    assert hub.rows("SELECT type, incarnation FROM bridge.run ORDER BY 2") == [
        ("clusters", 1),
        ("compliance", 2),
        ("hub-info", 3),
    ]


def test_h39_a_restart_inside_one_batch_is_not_lost(hub: Hub) -> None:
    restarted = [Arrived(status(n), TOPIC, 10 + at) for at, n in enumerate([499, 500, 0, 1, 0])]
    read(hub, *restarted[::-1])
    assert waits(hub) == [(14, 0)]
    ordered = [Arrived(status(n, mode=Mode.HYBRID, type_="policies"), TOPIC, 30 + at) for at, n in enumerate([7, 8, 0, 1])]
    read(hub, *ordered)
    assert waits(hub) == [(14, 0), (30, 7), (30, 8), (32, 0), (32, 1)]


def test_h39_an_equal_id_is_a_duplicate_and_begins_nothing(hub: Hub) -> None:
    read(hub, Arrived(status(0, id_="first"), TOPIC, 10), Arrived(status(1), TOPIC, 11))
    read(hub, Arrived(status(0, id_="first"), TOPIC, 12))
    assert waits(hub) == [(10, 1)]
    assert hub.counters("h1") == {
        "received": 3, "conflated": 1, "rejected": 0, "stale": 1, "applied": 0, "quarantined": 0,
    }  # fmt: skip


def test_h39_a_run_is_told_in_the_transaction_that_takes_its_bundle_in(hub: Hub) -> None:
    plan, arrived = hub.plan([status(0)])
    hub.take_over()
    with pytest.raises(Fenced):
        hub.write(plan, arrived)
    assert hub.rows("SELECT 1 FROM bridge.run") == []
