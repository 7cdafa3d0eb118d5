"""A destination that takes nothing of one client for a while: the others go on, and nothing crosses a link in vain."""

from __future__ import annotations

from carriers import Fleet, InMemory

from trunkline.trunk.log import UNLISTED
from trunkline.trunk.memory import MemorySink


def sink_of(fleet: Fleet, site: str) -> MemorySink:
    ends = fleet.ends[site]
    assert isinstance(ends, InMemory)
    return ends.sink


def set_held(fleet: Fleet, site: str, origin: str, *clients: str) -> None:
    sink = sink_of(fleet, site)
    sink.held[origin] = set(clients)
    fleet.do(site, fleet.carriers[site].loaded(origin, sink.applied(origin)))
    fleet.run(3.0)


def write(fleet: Fleet, number: int) -> None:
    for n in range(number):
        for client in ("status", "policy"):
            fleet.commit("a", "b", "c", payload=f"{client} {n}".encode(), client=client)
        fleet.run(0.1)
    fleet.run(3.0)


def received(fleet: Fleet, site: str, client: str) -> list[int]:
    return [e.seq for e in fleet.ends[site].received("a") if e.client == client]


def test_h15_a_held_client_stops_neither_the_others_nor_other_sites_and_comes_whole_when_it_is_let_go() -> None:
    fleet = Fleet([("a", "b"), ("b", "c")])
    write(fleet, 3)
    set_held(fleet, "c", "a", "policy")
    write(fleet, 20)
    assert len(received(fleet, "c", "status")) == 23
    assert len(received(fleet, "c", "policy")) == 3
    assert len(received(fleet, "b", "policy")) == 23
    in_vain = [crossed for crossed in fleet.crossed if crossed[:3] == ("b", "c", "a")]
    assert len(in_vain) == 23 + 3
    assert fleet.acknowledged["a", "c"]["policy"] < fleet.acknowledged["a", "c"]["status"]
    set_held(fleet, "c", "a")
    write(fleet, 1)
    for client in ("status", "policy"):
        assert received(fleet, "c", client) == received(fleet, "b", client)
        assert len(received(fleet, "c", client)) == 24
    assert max(fleet.crossed[c] for c in fleet.crossed if c[:2] == ("b", "c")) == 1


def test_a_client_held_from_its_first_entry_on_is_not_sent_at_all() -> None:
    fleet = Fleet([("a", "b"), ("b", "c")])
    set_held(fleet, "c", "a", "policy")
    write(fleet, 5)
    assert received(fleet, "c", "policy") == []
    assert all(crossed[3] % 2 for crossed in fleet.crossed if crossed[:3] == ("b", "c", "a"))
    set_held(fleet, "c", "a")
    assert received(fleet, "c", "policy") == received(fleet, "b", "policy") == [2, 4, 6, 8, 10]


def test_h16_a_client_that_nobody_named_is_made_known_also_where_the_stream_begins_behind_its_entries() -> None:
    fleet = Fleet([("a", "b"), ("b", "c")])
    set_held(fleet, "c", "a", UNLISTED)
    write(fleet, 5)
    assert received(fleet, "c", "policy") == []
    fleet.hold("c")
    fleet.replace("c", generation=2)
    fleet.run(3.0)
    met = next(append for append in fleet.held["c"] if append.origin == "a")
    assert (met.entries, set(met.clients)) == ((), {"status", "policy"})
    assert not [crossed for crossed in fleet.crossed if crossed[1] == "c"]
