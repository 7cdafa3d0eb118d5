"""Snapshot requests as rows: who joins, who leaves, what is stored once, and what happens when nobody works on one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from queue_site import Site
from snapshot_source import Source, source_at

from trunkline.core.errors import Invalid
from trunkline.core.ids import START, Position
from trunkline.queues import requests
from trunkline.queues.sessionrows import RequestRow
from trunkline.queues.snapshots import StoredChunk
from waiting import eventually


@pytest.fixture(scope="module")
def dsn(make_databases: Callable[..., str]) -> str:
    return make_databases("queues")


@pytest.fixture
def source(dsn: str) -> Iterator[Source]:
    with source_at(dsn) as source:
        yield source


def waiting_for_a_lock(site: Site) -> bool:
    return bool(site.ask("SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"))


def test_one_snapshot_serves_all_who_ask_before_it_begins(source: Source) -> None:
    first = source.ask("a")
    assert source.ask("b", "a") == first
    other = source.ask("a", client="inv")
    assert other != first
    row = source.row(first)
    assert (row.client, row.destinations, row.reason, row.forced, row.state) == (
        "pol",
        ["a", "b"],
        "first",
        False,
        "wanted",
    )
    assert (row.base, row.chunks, row.delivered) == (None, 0, [])


def test_s11_who_forces_one_that_is_wanted_makes_it_forced(source: Source) -> None:
    first = source.ask("a")
    assert source.ask("b", reason="operator", forced=True) == first
    source.ask("c")
    row = source.row(first)
    assert (row.forced, row.reason, row.destinations) == (True, "operator", ["a", "b", "c"])


@pytest.mark.parametrize("destinations", [(), ("*",), ("a", "*")])
def test_a_request_names_its_sites(source: Source, destinations: tuple[str, ...]) -> None:
    with pytest.raises(Invalid, match="name each of them"):
        source.ask(*destinations)
    assert source.rows() == []


def test_two_who_ask_in_one_instant_share_one_request(source: Source) -> None:
    with ThreadPoolExecutor(1) as pool, psycopg.connect(source.site.dsn) as conn:
        first = requests.ask(conn, "pol", ["a"], "first")
        second = pool.submit(source.ask, "b")
        eventually(lambda: waiting_for_a_lock(source.site))
        conn.commit()
        assert second.result(20) == first
    assert source.row(first).destinations == ["a", "b"]


def test_h19_nobody_joins_a_request_that_becomes_ready_meanwhile(source: Source) -> None:
    first = source.ask("a")
    with ThreadPoolExecutor(1) as pool, psycopg.connect(source.site.dsn) as exporting:
        exporting.execute("UPDATE queues.request SET state = 'ready', base = 1, base_mark = 7, incarnation = 1")
        second = pool.submit(source.ask, "b")
        eventually(lambda: waiting_for_a_lock(source.site))
        exporting.commit()
        assert second.result(20) != first
    assert [(r.destinations, r.state) for r in source.rows()] == [(["a"], "ready"), (["b"], "wanted")]


def test_s09_who_asks_anew_leaves_the_older_request_and_its_data_ends_nothing(source: Source) -> None:
    source.provide_for("pol")
    r1 = source.ask("a", "b")
    source.export()
    source.fill(r1, [b"old"])
    r2 = source.ask("a")
    assert r2 != r1
    assert (source.row(r1).destinations, source.row(r2).destinations) == (["b"], ["a"])
    source.deliver(r1, "a")  # r1's end marker, which came too late
    assert source.row(r1).delivered == []
    assert source.fetch(r1) == [b"old"]  # b still gets it
    source.deliver(r1, "b")
    assert (source.state(r1), source.state(r2)) == ("done", "wanted")
    source.export()
    source.fill(r2, [b"new"])
    assert source.fetch(r2) == [b"new"]
    source.deliver(r2, "a")
    assert source.rows() == []


@pytest.mark.parametrize("state", ["ready", "providing", "complete"])
def test_s09_a_request_that_everybody_left_is_superseded_and_its_data_deleted(source: Source, state: str) -> None:
    r1 = source.ask("a", "b")
    source.fill(r1, [b"s0"], [b"s1"])
    source.site.do("UPDATE queues.request SET state = %s", (state,))
    r2 = source.ask("b", "a", reason="operator", forced=True)
    assert (source.state(r1), source.state(r2)) == ("superseded", "wanted")
    assert source.stored() == []
    assert source.within(requests.read_chunk, r1, 0) == StoredChunk(None)
    assert source.within(requests.read_chunk, r1, 2) == StoredChunk(None)  # nor an end marker


def test_n_destinations_are_served_from_what_is_stored_once(source: Source) -> None:
    request = source.ask("a", "b", "c")
    source.fill(request, [b"s0", b"s1"], [b"s2"])
    assert source.stored() == [request, request]
    for destination in ("a", "b"):
        assert source.fetch(request) == [b"s0", b"s1", b"s2"]
        source.deliver(request, destination, destination)
        assert source.state(request) == "complete"
    assert source.row(request).delivered == ["a", "b"]
    source.deliver(request, "c")
    assert source.state(request) == "done"
    assert source.stored() == []


def test_a_session_sees_of_a_request_who_still_waits_for_it(source: Source) -> None:
    request = source.ask("a", "b", reason="operator", forced=True)
    assert source.within(requests.open_requests) == [
        RequestRow(str(request), "pol", ("a", "b"), "wanted", True, START, 0, "operator")
    ]
    source.make_ready([request], "1", 5)
    source.fill(request, [b"s0"], [b"s1"])
    source.deliver(request, "a")
    assert source.within(requests.open_requests) == [
        RequestRow(str(request), "pol", ("b",), "complete", True, Position(5, 7), 2, "operator")
    ]


def test_a_chunk_that_is_not_there_yet_is_no_end(source: Source) -> None:
    request = source.ask("a")
    source.fill(request, [b"s0"])
    source.site.do("UPDATE queues.request SET state = 'providing'")
    assert source.within(requests.read_chunk, request, 0).body is not None
    assert source.within(requests.read_chunk, request, 1) == StoredChunk(None)
    source.site.do("UPDATE queues.request SET state = 'complete'")
    assert source.within(requests.read_chunk, request, 1) == StoredChunk(None, last=True)
    assert source.within(requests.read_chunk, request, 2) == StoredChunk(None)


def test_a_snapshot_that_is_not_complete_is_delivered_to_nobody(source: Source) -> None:
    request = source.ask("a")
    source.deliver(request, "a")
    assert (source.row(request).delivered, source.state(request)) == ([], "wanted")


def test_s11_a_forced_snapshot_is_made_once_also_across_restarts(source: Source) -> None:
    source.provide_for("pol")
    forced = source.ask("a", "b", reason="operator", forced=True)
    assert source.export() == [forced]
    source.new_leader()  # the leader changed before anybody took it up: it is asked for again, still forced
    assert source.expire() == [forced]
    (second,) = source.open_ids()
    assert (source.row(second).forced, source.row(second).destinations, source.row(second).state) == (
        True,
        ["a", "b"],
        "wanted",
    )
    assert source.export() == [second]
    source.fill(second, [b"s0"])
    source.new_leader()
    assert source.expire() == []  # what is complete outlives its leader
    source.deliver(second, "a", "b")
    for _ in range(3):
        source.new_leader()
        assert (source.expire(), source.within(requests.wanted_for_export), source.rows()) == ([], [], [])
    assert sorted([source.state(forced), source.state(second)]) == ["done", "failed"]


def test_only_for_providers_that_are_there_and_idle_is_a_snapshot_exported(source: Source) -> None:
    pol, inv = source.ask("a"), source.ask("a", client="inv")
    assert source.within(requests.wanted_for_export) == []
    source.provide_for("pol", "inv")
    assert source.within(requests.wanted_for_export) == [pol, inv]
    source.site.do("UPDATE queues.provider SET seen_at = now() - interval '1 hour' WHERE client = 'inv'")
    assert source.export() == [pol]
    assert source.row(pol).base == 0
    seen = source.within(requests.providers)
    assert seen["pol"] < 60 < seen["inv"]
    later = source.ask("b")
    assert source.within(requests.wanted_for_export) == []  # one at a time, and whoever asks meanwhile joins
    source.fill(pol, [b"s0"])
    assert source.within(requests.wanted_for_export) == [later]


def test_h18_what_must_begin_anew_is_another_request_with_another_base(source: Source) -> None:
    request = source.ask("a", "b")
    source.make_ready([request], "gone", 5)
    source.fill(request, [b"s0"])
    source.site.do("UPDATE queues.request SET state = 'providing', provider = 'dead'")
    assert source.expire() == [request]
    (anew,) = source.rows()
    assert anew.id != request
    assert (anew.state, anew.base, anew.chunks, anew.destinations) == ("wanted", None, 0, ["a", "b"])
    assert source.stored() == []
    assert source.site.ask("SELECT error FROM queues.request WHERE id = %s", (request,)) == [
        "its provider dead is gone or does nothing"
    ]


def test_who_was_served_already_is_not_served_again_when_the_others_begin_anew(source: Source) -> None:
    request = source.ask("a", "b")
    source.fill(request, [b"s0"])
    source.deliver(request, "a")
    again = source.within(requests.again, request, "a test")
    assert again is not None
    assert source.row(again).destinations == ["b"]
    assert source.within(requests.again, request, "a test") is None


def test_h18_a_request_that_nobody_works_on_does_not_hold_up_trimming_for_ever(source: Source) -> None:
    ready, complete = source.ask("a"), source.ask("a", client="inv")
    source.make_ready([ready], "1", 5)
    source.fill(complete, [b"s0"])
    assert source.expire() == []
    source.site.do("UPDATE queues.request SET updated_at = now() - interval '2 hours'")
    source.within(requests.read_chunk, complete, 0)  # somebody reads it
    assert source.expire(complete=3600) == [ready]
    source.site.do("UPDATE queues.request SET updated_at = now() - interval '2 hours'")
    assert source.expire(complete=3600) == [complete]
    assert (source.state(ready), source.state(complete), source.stored()) == ("failed", "failed", [])
    assert [(r.client, r.state) for r in source.rows()] == [("pol", "wanted")]


def test_s11_a_forced_snapshot_that_nobody_fetched_is_made_when_its_site_is_reached_again(source: Source) -> None:
    source.provide_for("pol", "inv")
    forced, unforced = source.ask("a", "b", reason="operator", forced=True), source.ask("a", client="inv")
    source.export()
    for request in (forced, unforced):
        source.fill(request, [b"s0"])
    source.deliver(forced, "b")
    source.site.do("UPDATE queues.request SET updated_at = now() - interval '2 days'")
    assert source.expire() == [unforced, forced]
    (later,) = source.rows()
    assert (later.client, later.destinations, later.forced, later.state, later.base) == ("pol", ["a"], True, "wanted", None)
    assert source.stored() == [], "and it holds up no trimming"
    assert source.within(requests.wanted_for_export, ["b"]) == [], "it would be for nobody"
    assert source.within(requests.wanted_for_export, ["a"]) == [later.id]
    assert source.ask("c", reason="operator", forced=True) == later.id
    assert source.within(requests.wanted_for_export) == [later.id], "who forces one now does not wait for the other"


def test_after_providers_that_died_the_next_one_is_asked_ever_later(source: Source) -> None:
    source.provide_for("pol", "inv")
    source.ask("a")

    def pause(client: str = "pol") -> float:
        """Seconds after its last word at which one that died is followed by the next."""
        source.export()
        (request,) = [row.id for row in source.rows() if row.client == client]
        source.site.do("UPDATE queues.request SET state = 'providing', provider = 'dead' WHERE id = %s", (request,))
        for seconds in (0, 2, 4, 8, 16, 32, 60):
            source.site.do(
                "UPDATE queues.request SET updated_at = now() - %s * interval '1 s' WHERE id = %s", (seconds, request)
            )
            if source.expire() == [request]:
                return seconds
        raise AssertionError("none followed")

    assert [pause() for _ in range(8)] == [0, 2, 4, 8, 16, 32, 60, 60]
    (request,) = source.export()
    source.fill(request, [b"s0"])
    source.deliver(request, "a")
    source.ask("a")
    assert [pause() for _ in range(2)] == [0, 2], "one that was provided ends it"
    source.ask("a", client="inv")
    assert pause("inv") == 0, "other clients have a count of their own"


def test_cancel_ends_it_for_all_and_asks_for_nothing(source: Source) -> None:
    request = source.ask("a", "b")
    source.fill(request, [b"s0"])
    source.within(requests.cancel, request, "an operator said so")
    assert (source.state(request), source.stored(), source.rows()) == ("cancelled", [], [])


def test_what_is_over_is_forgotten_in_time(source: Source) -> None:
    over, open_ = source.ask("a"), source.ask("b", client="inv")
    source.fill(over, [b"s0"])
    source.deliver(over, "a")
    source.site.do("UPDATE queues.request SET updated_at = now() - interval '2 days'")
    source.expire(over=3600)
    assert source.site.ask("SELECT id FROM queues.request") == [open_]
    assert source.site.ask("SELECT * FROM queues.delivery") == []
