"""Messages for one site: hop by hop, at most once, and dropped where nobody knows the way."""

from __future__ import annotations

from carriers import Fleet

from trunkline.trunk.carry import MAX_HOPS
from trunkline.trunk.messages import Send

CHAIN = [("a", "b"), ("b", "c"), ("c", "d")]


def send(fleet: Fleet, source: str, to: str, body: bytes) -> None:
    fleet.do(source, fleet.carriers[source].unicast(to, body))
    fleet.settle()


def test_a_message_goes_along_the_path_and_arrives_once_with_its_sender() -> None:
    fleet = Fleet(CHAIN)
    send(fleet, "a", "d", b"hello")
    send(fleet, "d", "a", b"hello to you")
    send(fleet, "b", "b", b"to myself")
    assert fleet.delivered == [("d", "a", b"hello"), ("a", "d", b"hello to you"), ("b", "b", b"to myself")]
    assert [(a, b) for a, b, _ in fleet.messages(Send)][:3] == [("a", "b"), ("b", "c"), ("c", "d")]


def test_it_finds_a_site_whose_records_nobody_here_takes_by_who_takes_for_it() -> None:
    fleet = Fleet(CHAIN)
    fleet.move("b", "d", None)
    fleet.run(1.0)
    send(fleet, "b", "d", b"hello")
    assert fleet.delivered == [("d", "b", b"hello")]


def test_without_a_way_it_is_dropped_and_counted() -> None:
    fleet = Fleet(CHAIN)
    send(fleet, "a", "nowhere", b"hello")
    assert fleet.delivered == []
    assert fleet.carriers["a"].counters["nowhere", "no_way"] == 1


def test_it_is_sent_at_most_once() -> None:
    fleet = Fleet(CHAIN)
    fleet.lose = lambda sender, to, message: isinstance(message, Send) and sender == "b"
    send(fleet, "a", "d", b"hello")
    fleet.lose = lambda sender, to, message: False
    fleet.run(10.0)
    assert fleet.delivered == []


def test_in_a_circle_it_ends_after_a_bounded_number_of_hops() -> None:
    fleet = Fleet([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")])
    fleet.cut("c", "d")
    fleet.run(6.0)
    for site, via in (("a", "b"), ("b", "c"), ("c", "a")):
        fleet.move(site, "d", via, gently=False)
    before = fleet.now
    send(fleet, "a", "d", b"hello")
    assert len(fleet.messages(Send, before)) == MAX_HOPS
    assert sum(c.counters["d", "no_way"] for c in fleet.carriers.values()) == 1
    assert fleet.delivered == []
