"""What people see of a session at either end, and why it does not go on."""

from __future__ import annotations

import msgspec
import pytest
from sessionsites import EPOCH, Site, World, is_complete

from trunkline.core.jsoncodec import dumps
from trunkline.queues.kinds import Kind
from trunkline.queues.sessionstatus import SessionStatus


@pytest.fixture
def world() -> World:
    return World()


def joined(world: World) -> tuple[Site, Site]:
    source, a = world.site("s"), world.site("a")
    source.source_tables.providers["pol"] = [b"s0", b"s1", b"s2"]
    source.source_tables.commit("pol", "a")
    return source, a


def at_source(source: Site, site: str = "a") -> SessionStatus:
    return next(s for s in source.source.status(source.now) if s.remote == site)


def at_sink(sink: Site) -> SessionStatus:
    (status,) = sink.sink.status(sink.now)
    return status


def test_s33_status_from_the_first_snapshot_to_the_end(world: World) -> None:
    source, a = joined(world)
    consistent: list[tuple[Kind | None, bool | None]] = []
    while not is_complete(a, source):
        world.run(0.05)
        if a.sink.status(world.time.now):
            consistent.append((a.kinds("s")[-1] if a.kinds("s") else None, at_sink(a).consistent))
    assert {known for kind, known in consistent if kind is not Kind.LAST} == {False}
    assert (consistent[-1], at_sink(a).consistent) == ((Kind.LAST, True), True)
    completed = world.time.now
    world.run(1.0)
    a.full.add(("s", "pol"))
    for _ in range(10):
        source.source_tables.commit("pol", "a")
    world.run(1.0)
    status = at_source(source)
    assert (status.type, status.status, status.remaining) == ("LOG_ENTRY", "ONGOING", 10)
    assert (status.snapshot, status.base, status.request, status.forced) == ("COMPLETED", 1, "r1", False)
    assert status.completed_at == pytest.approx(EPOCH + completed, abs=0.5)
    assert (status.connection, status.state, status.acknowledged) == ("REPLICATING", "IN_LOG_ENTRY_SYNC", 1)
    a.full.clear()
    world.time.until(lambda: is_complete(a, source))
    world.run(1.0)
    assert (at_source(source).remaining, at_source(source).acknowledged) == (0, 11)
    source.lose_lease()
    assert (at_source(source).status, at_source(source).connection) == ("STOPPED", "STOPPED")


def test_s33_a_session_in_a_snapshot_says_which_and_how_it_goes(world: World) -> None:
    source, a = joined(world)
    world.time.until(lambda: a.kinds("s").count(Kind.SNAPSHOT) == 1)
    status, seen = at_source(source), at_sink(a)
    assert (status.type, status.status, status.snapshot, status.request) == ("SNAPSHOT", "ONGOING", "ONGOING", "r1")
    assert (status.connection, status.state, status.base) == ("REPLICATING", "IN_SNAPSHOT_SYNC", 1)
    assert (seen.role, seen.type, seen.snapshot, seen.request, seen.consistent) == ("sink", "SNAPSHOT", "ONGOING", "r1", False)
    assert (status.stall, seen.stall) == ("", "")


def test_a_status_is_json(world: World) -> None:
    source, a = joined(world)
    world.time.until(lambda: is_complete(a, source))
    for status in (at_source(source), at_sink(a)):
        assert msgspec.json.decode(dumps(msgspec.to_builtins(status)))["remote"] in ("a", "s")


def test_stall_at_a_provider_that_does_nothing_is_told_at_both_ends(world: World) -> None:
    source, a = joined(world)
    source.source_tables.held = True
    world.run(13.0)
    assert at_source(source).stall.startswith("waits for the provider of pol since 12 s")
    assert at_sink(a).stall.startswith("waits for the provider of pol since 1")


def test_stall_of_a_forced_snapshot_without_a_provider(world: World) -> None:
    source, a = joined(world)
    source.source_tables.providers.clear()
    world.time.until(lambda: a.state("s") == "log")
    source.source_tables.ask("pol", ["a"], "forced", forced=True)
    world.run(2.0)
    assert at_source(source).stall == "waits for a provider of pol: none is registered"
    assert (a.state("s"), at_sink(a).stall) == ("log", ""), "the log goes on meanwhile"


def test_stall_at_a_full_queue_names_it(world: World) -> None:
    source, a = joined(world)
    world.time.until(lambda: a.kinds("s").count(Kind.SNAPSHOT) == 1)
    a.do(a.sink.full("s", ["pol"], world.time.now))
    world.run(8.0)
    assert at_sink(a).stall == "queue LRQ_Recv_pol_s is full: no consumer reads it fast enough"
    assert at_source(source).stall.startswith("site a fetches nothing since")


def test_stall_without_a_way(world: World) -> None:
    source, a = joined(world)
    world.time.until(lambda: a.kinds("s").count(Kind.SNAPSHOT) == 1)
    world.way("s", "a", False)
    world.run(3.0)
    assert (at_source(source).stall, at_source(source).connection) == ("no way to site a", "WAITING_FOR_CONNECTIVITY")
    assert (at_sink(a).stall, at_sink(a).connection) == ("no way to site s", "DOWN")


def test_stall_at_a_source_that_says_nothing(world: World) -> None:
    source, a = joined(world)
    world.time.until(lambda: a.kinds("s").count(Kind.SNAPSHOT) == 1)
    source.lose_lease()
    world.run(7.0)
    assert at_sink(a).stall.startswith("no chunk of pol came from site s since")
    a.change_leader()
    world.run(7.0)
    assert at_sink(a).stall.startswith("waits for an answer of site s since 7 s")


def test_stall_at_a_sink_that_acknowledges_nothing(world: World) -> None:
    source, a = joined(world)
    world.time.until(lambda: is_complete(a, source))
    world.run(1.0)
    a.full.add(("s", "pol"))
    source.source_tables.commit("pol", "a")
    world.run(9.0)
    assert at_source(source).stall.startswith("site a acknowledges nothing since")


def test_after_a_change_of_leaders_a_quiet_session_is_still_seen_to_replicate(world: World) -> None:
    source, a = joined(world)
    world.time.until(lambda: is_complete(a, source))
    world.run(1.0)
    source.change_leader()
    world.run(1.0)
    assert (at_source(source).connection, at_source(source).state) == ("REPLICATING", "IN_LOG_ENTRY_SYNC")
