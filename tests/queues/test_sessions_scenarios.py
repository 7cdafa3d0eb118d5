"""Sessions from first contact to the log, over links that are sound."""

from __future__ import annotations

import pytest
from sessionsites import Site, World, check_queue, is_complete

from trunkline.queues.kinds import Kind
from trunkline.queues.messages import Data, Done, Fetch, Negotiate

FIVE = [b"s0", b"s1", b"s2", b"s3", b"s4"]
WHOLE = [Kind.START, *[Kind.SNAPSHOT] * 5, Kind.LAST]


@pytest.fixture
def world() -> World:
    return World()


def source_of(world: World, name: str = "s") -> Site:
    source = world.site(name)
    source.source_tables.providers["pol"] = list(FIVE)
    return source


def settle(world: World, source: Site, *sinks: Site) -> None:
    world.time.until(lambda: all(is_complete(sink, source) for sink in sinks) and not source.source_tables.rows())
    world.run(8.0)
    for sink in sinks:
        check_queue(sink, source)


def steady(world: World, *names: str) -> tuple[Site, ...]:
    """A source and sinks that have had their first snapshot."""
    source, sinks = source_of(world), [world.site(name) for name in names]
    source.source_tables.commit("pol", *names)
    settle(world, source, *sinks)
    return (source, *sinks)


def in_mid_snapshot(world: World, stored: int) -> tuple[Site, Site]:
    source, a = source_of(world), world.site("a")
    source.source_tables.commit("pol", "a")
    world.time.until(lambda: a.kinds("s").count(Kind.SNAPSHOT) == stored)
    assert a.state("s") == "snapshot"
    return source, a


def test_s06_first_contact_is_one_snapshot_and_then_the_log(world: World) -> None:
    source, a = source_of(world), world.site("a")
    source.source_tables.commit("pol", "a")
    world.time.until(lambda: a.state("s") == "log")
    source.source_tables.commit("pol", "a")
    source.source_tables.commit("pol", "a")
    settle(world, source, a)
    assert source.source_tables.calls == [("pol", ("a",))]
    assert [r.payload for r in a.queue("s")[1:6]] == [b"s%d of r1" % n for n in range(5)]
    assert a.kinds("s") == [*WHOLE, Kind.LOG_ENTRY, Kind.LOG_ENTRY]
    assert a.seqs("s") == [2, 3]
    assert source.source_tables.requests["r1"].over == "done"


def test_s07_entries_committed_while_the_snapshot_is_read_follow_it(world: World) -> None:
    source, a = source_of(world), world.site("a")
    first = source.source_tables.commit("pol", "a")
    world.time.until(lambda: bool(source.source_tables.calls))
    for _ in range(5):
        source.source_tables.commit("pol", "a")
        world.run(0.2)
    settle(world, source, a)
    assert a.kinds("s") == [*WHOLE, *[Kind.LOG_ENTRY] * 5]
    assert a.seqs("s") == [first + n for n in range(1, 6)]


def test_s08_an_empty_snapshot_is_start_and_last(world: World) -> None:
    source, a = source_of(world), world.site("a")
    source.source_tables.providers["pol"] = []
    source.source_tables.commit("pol", "a")
    settle(world, source, a)
    assert a.kinds("s") == [Kind.START, Kind.LAST]
    d1 = source.source_tables.commit("pol", "a")
    settle(world, source, a)
    assert a.kinds("s") == [Kind.START, Kind.LAST, Kind.LOG_ENTRY]
    assert a.seqs("s") == [d1]


def test_s09_data_of_a_superseded_request_does_not_count_nor_does_its_end(world: World) -> None:
    source, a = in_mid_snapshot(world, stored=2)
    source.source_tables.ask("pol", ["a"], "forced", forced=True)
    world.time.until(lambda: a.queue("s")[-1].request == "r2")
    pair, before = (source.source.incarnation, a.sink.incarnation), [r for r in a.queue("s") if r.request == "r1"]
    for late in (Data("pol", pair, "r1", 2, b"\x90"), Data("pol", pair, "r1", 0, b"", last=True)):
        a.receive("s", late)
    source.receive("a", Done("pol", pair, "r1"))
    world.run(0.05)
    assert [r for r in a.queue("s") if r.request == "r1"] == before
    assert (a.state("s"), source.source_tables.requests["r2"].over) == ("snapshot", "")
    settle(world, source, a)
    brought = [r for r in a.queue("s") if r.kind is not Kind.LOG_ENTRY]
    newer = next(n for n, record in enumerate(brought) if record.request == "r2")
    assert newer >= 3, "the older one had begun"
    assert [r.kind for r in brought[newer:]] == WHOLE
    assert {r.request for r in brought[newer:]} == {"r2"}
    assert source.source_tables.requests["r1"].over == "superseded"


def test_s11_a_forced_snapshot_comes_once_and_not_again_after_a_restart(world: World) -> None:
    source, a, b = steady(world, "a", "b")

    def counts() -> tuple[int, int]:
        return tuple(site.kinds("s").count(Kind.SNAPSHOT) for site in (a, b))

    assert counts() == (5, 5)
    one = source.source_tables.ask("pol", ["a"], "forced", forced=True)
    world.time.until(lambda: a.state("s") == "snapshot")
    under_way = next(s for s in source.source.status(world.time.now) if s.remote == "a")
    assert (under_way.type, under_way.forced, under_way.request) == ("SNAPSHOT", True, one)
    settle(world, source, a, b)
    assert counts() == (10, 5)
    at_sink = a.sink.status(world.time.now)[0]
    assert (at_sink.forced, at_sink.request, at_sink.snapshot) == (True, one, "COMPLETED")
    source.source_tables.ask("pol", ["a", "b"], "forced", forced=True)
    settle(world, source, a, b)
    assert counts() == (15, 10)
    source.change_leader()
    a.change_leader()
    world.run(30.0)
    assert counts() == (15, 10)
    assert [to for _, to in source.source_tables.calls][-2:] == [("a",), ("a", "b")], "both were served by one"


def test_s13_a_trim_of_what_a_sink_lacks_costs_one_snapshot(world: World) -> None:
    source, a = steady(world, "a")
    world.way("s", "a", False)
    for _ in range(4):
        source.source_tables.commit("pol", "a")
    source.source_tables.trim(3)
    world.run(2.0)
    world.way("s", "a", True)
    settle(world, source, a)
    assert len(source.source_tables.calls) == 2
    assert [ask.reason for ask in source.asked] == ["first", "gap"]
    base = a.queue("s")[-1].seq
    last = source.source_tables.commit("pol", "a")
    settle(world, source, a)
    assert a.kinds("s") == [*WHOLE, *WHOLE, Kind.LOG_ENTRY]
    assert (base, a.seqs("s")) == (last - 1, [last])


def test_s14_a_trim_of_what_was_for_others_costs_nothing(world: World) -> None:
    source, a, b = steady(world, "a", "b")
    world.way("s", "a", False)
    for _ in range(60):
        source.source_tables.commit("pol", "b")
    settle(world, source, b)
    source.source_tables.trim(60)
    world.way("s", "a", True)
    last = source.source_tables.commit("pol", "a")
    settle(world, source, a, b)
    assert a.kinds("s") == [*WHOLE, Kind.LOG_ENTRY]
    assert a.seqs("s") == [last]


def test_s15_an_interrupted_transfer_goes_on_where_it_stood(world: World) -> None:
    source, a = in_mid_snapshot(world, stored=3)
    world.way("s", "a", False)
    world.run(30.0)
    stored, said = a.sink_tables.rows["s", "pol"].chunk, len(world.link.said)
    world.way("s", "a", True)
    settle(world, source, a)
    chunks = [m.chunk for _, _, _, m in world.link.said[said:] if isinstance(m, Data) and not m.last]
    assert chunks == list(range(stored, 5)), "nothing that is stored travels again"
    assert a.kinds("s") == WHOLE


def test_s15_an_interrupted_transfer_whose_request_is_over_begins_anew(world: World) -> None:
    source, a = in_mid_snapshot(world, stored=3)
    source.source_tables.end(source.source_tables.requests["r1"], "failed")
    settle(world, source, a)
    begun = a.kinds("s").index(Kind.START, 1)
    assert a.kinds("s")[:begun] == [Kind.START, *[Kind.SNAPSHOT] * (begun - 1)]
    assert a.kinds("s")[begun:] == WHOLE
    assert len(source.source_tables.calls) == 2


def test_s15_a_transfer_that_only_lacks_its_end_travels_no_more(world: World) -> None:
    source, a = source_of(world), world.site("a")
    world.link.copies = lambda message: 0 if isinstance(message, Data) and message.last else 1
    source.source_tables.commit("pol", "a")
    world.time.until(lambda: a.kinds("s").count(Kind.SNAPSHOT) == 5)
    world.link.copies, said = lambda message: 1, len(world.link.said)
    a.change_leader()
    settle(world, source, a)
    assert [m.last for _, _, _, m in world.link.said[said:] if isinstance(m, Data)] == [True]
    assert a.kinds("s") == WHOLE
    assert len(source.source_tables.calls) == 1


@pytest.mark.parametrize("side", ["sink", "source"])
def test_s31_a_new_leader_goes_on_with_the_snapshot_from_the_table(world: World, side: str) -> None:
    source, a = in_mid_snapshot(world, stored=2)
    (a if side == "sink" else source).lose_lease()
    world.run(5.0)
    before, said = list(a.queue("s")), len(world.link.said)
    (a if side == "sink" else source).lead()
    settle(world, source, a)
    asked = [m for _, _, _, m in world.link.said[said:] if isinstance(m, Negotiate)]
    fetched = [m.chunk for _, _, _, m in world.link.said[said:] if isinstance(m, Fetch)]
    stored = len(before) - 1  # START
    assert (asked[-1].reason, asked[-1].request, asked[-1].chunk) == ("resume", "r1", stored)
    assert [chunk for chunk in fetched if chunk < stored] == []
    assert a.kinds("s") == WHOLE
    assert len(source.source_tables.calls) == 1


def test_s31_a_new_leader_in_mid_log_asks_nothing(world: World) -> None:
    source, a = steady(world, "a")
    for _ in range(9):
        source.source_tables.commit("pol", "a")
    world.time.until(lambda: len(a.seqs("s")) >= 3)
    said = len(world.link.said)
    a.change_leader()
    settle(world, source, a)
    assert a.seqs("s") == list(range(2, 11))
    assert world.link.said[said:] == []


def test_s32_after_a_switch_of_roles_the_other_direction_runs_and_old_words_are_dropped(world: World) -> None:
    source, a = steady(world, "a")
    old = (source.source.incarnation, a.sink.incarnation)
    a.source_tables.providers["pol"] = list(FIVE)
    source.change_leader()
    a.change_leader()
    a.source_tables.commit("pol", "s")
    settle(world, a, source)
    for _ in range(5):
        a.source_tables.commit("pol", "s")
    settle(world, a, source)
    assert source.kinds("a") == [*WHOLE, *[Kind.LOG_ENTRY] * 5]
    before, said = list(a.queue("s")), len(world.link.said)
    a.receive("s", Data("pol", old, "r1", 0, b"\x90"))
    a.receive("s", Data("pol", old, "r1", 0, b"", last=True))
    world.run(0.1)
    assert a.queue("s") == before
    assert world.link.said[said:] == []


def test_a_log_that_begins_anew_is_a_reset_and_a_new_snapshot(world: World) -> None:
    source, a = steady(world, "a")
    source.source_tables.log_id = "log-2"
    source.change_leader()
    settle(world, source, a)
    assert a.kinds("s") == [*WHOLE, *WHOLE]
    assert [ask.reason for ask in source.asked] == ["first", "reset"]


def test_h16_a_client_nobody_named_is_negotiated_for(world: World) -> None:
    source, a = steady(world, "a")
    source.source_tables.providers["inv"] = [b"i0"]
    source.source_tables.commit("inv", "*")
    world.time.until(lambda: is_complete(a, source, "inv"))
    asked = [m for _, _, _, m in world.link.said if isinstance(m, Negotiate) and m.client == "inv"]
    assert (asked[0].reason, asked[0].position) == ("first", None)
    assert a.kinds("s", "inv") == [Kind.START, Kind.SNAPSHOT, Kind.LAST]


def test_h20_without_a_provider_a_trim_is_on_record_and_nothing_else_is_lost(world: World) -> None:
    source, a = world.site("s"), world.site("a")
    for _ in range(3):
        source.source_tables.commit("pol", "a")
    world.time.until(lambda: a.seqs("s") == [1, 2, 3])
    assert a.kinds("s") == [Kind.LOG_ENTRY] * 3, "the log from its beginning"
    world.way("s", "a", False)
    for _ in range(4):
        source.source_tables.commit("pol", "a")
    source.source_tables.trim(5)
    world.way("s", "a", True)
    world.time.until(lambda: a.seqs("s") == [1, 2, 3, 6, 7])
    assert [r.lost for r in a.queue("s") if r.kind is Kind.LOST] == [(4, 5)]
    check_queue(a, source)


def test_one_snapshot_serves_all_who_ask_for_it_together(world: World) -> None:
    source, sinks = source_of(world), [world.site(name) for name in ("a", "b", "c")]
    source.source_tables.commit("pol", "*")
    settle(world, source, *sinks)
    assert [site.kinds("s") for site in sinks] == [WHOLE] * 3
    assert len(source.source_tables.requests) < 3


def test_a_full_queue_takes_no_chunk_and_goes_on_when_there_is_room(world: World) -> None:
    source, a = in_mid_snapshot(world, stored=2)
    a.do(a.sink.full("s", ["pol"], world.time.now))
    world.run(0.1)
    before, said = list(a.queue("s")), len(world.link.of_kind(Fetch))
    world.run(20.0)
    assert a.queue("s") == before
    assert len(world.link.of_kind(Fetch)) == said
    a.do(a.sink.full("s", [], world.time.now))
    settle(world, source, a)
    assert a.kinds("s") == WHOLE
