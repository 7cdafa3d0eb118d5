"""Sessions over links that lose, double and overtake, and the fences that keep old words out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sessionsites import Site, World, check_queue, is_complete

from trunkline.core.ids import Position
from trunkline.queues.kinds import Kind
from trunkline.queues.messages import RECORDS, Data, Decision, Fetch, Negotiate, SessionMessage, Verdict, Wanted
from trunkline.queues.sessionasks import BeginSnapshot, Say, StoreChunk
from trunkline.queues.sessionrows import SessionRow
from trunkline.queues.sessions_sink import WINDOW, SinkSessions
from trunkline.queues.sessions_source import SourceSessions

ONE = RECORDS.encode([({}, b"x")])


class EveryNth:
    """Loses every nth message of a kind."""

    def __init__(self, **nth: int) -> None:
        self._nth, self._seen = nth, dict.fromkeys(nth, 0)

    def __call__(self, message: SessionMessage) -> int:
        kind = type(message).__name__.lower()
        if kind not in self._nth:
            return 1
        self._seen[kind] += 1
        return int(self._seen[kind] % self._nth[kind] != 0)


def joined(world: World, chunks: int) -> tuple[Site, Site]:
    source, a = world.site("s"), world.site("a")
    source.source_tables.providers["pol"] = [b"s%d" % n for n in range(chunks)]
    source.source_tables.commit("pol", "a")
    return source, a


def test_s20_lost_answers_and_messages_cost_time_only_and_the_window_holds() -> None:
    world = World()
    world.link.copies = EveryNth(fetch=3, data=5)
    source, a = joined(world, 500)
    world.time.until(lambda: is_complete(a, source), limit=3600.0)
    assert [r.payload for r in a.queue("s") if r.kind is Kind.SNAPSHOT] == [b"s%d of r1" % n for n in range(500)]
    assert a.kinds("s") == [Kind.START, *[Kind.SNAPSHOT] * 500, Kind.LAST]
    durable = most = 0
    for _, _, _, message in world.link.said:
        if isinstance(message, Fetch):
            durable = message.chunk
        elif isinstance(message, Data):
            most = max(most, message.chunk - durable + 1)
    assert most == WINDOW, "used to its end, and never beyond"


def test_s20_doubled_and_overtaking_messages_change_nothing() -> None:
    world = World()
    world.link.copies = lambda message: 3
    world.link.delay = lambda: world.random.random()
    source, a = joined(world, 40)
    world.time.until(lambda: is_complete(a, source), limit=600.0)
    world.run(10.0)
    check_queue(a, source)
    assert a.kinds("s") == [Kind.START, *[Kind.SNAPSHOT] * 40, Kind.LAST]
    assert [r.over for r in source.source_tables.requests.values()] == ["done"]


def test_a_partition_in_mid_snapshot_is_waited_out_in_silence() -> None:
    world = World()
    source, a = joined(world, 9)
    world.time.until(lambda: a.kinds("s").count(Kind.SNAPSHOT) == 4)
    world.way("s", "a", False)
    world.run(3.0)
    said = len(world.link.said)
    world.run(600.0)
    assert world.link.said[said:] == []
    assert [s.stall for s in a.sink.status(world.time.now)] == ["no way to site s"]
    world.way("s", "a", True)
    assert world.time.until(lambda: is_complete(a, source)) < 2.0
    check_queue(a, source)
    assert a.kinds("s").count(Kind.START) == 1


# -- fences


def receiving(incarnation: int = 8) -> SinkSessions:
    """A sink in the midst of request r1, which a source of incarnation 5 was asked to go on with."""
    sink = SinkSessions("a", incarnation)
    row = SessionRow("s", "pol", "log", state="snapshot", request="r1", base=Position(9, 9), chunk=2)
    (say,) = sink.sessions([row], 0.0)
    assert isinstance(say, Say)
    assert isinstance(say.message, Negotiate)
    go_on = Decision("pol", (5, incarnation), Verdict.SNAPSHOT, "log", Position(9, 9), "r1", ask=say.message.ask)
    (fetch,) = sink.receive("s", go_on, 0.0)
    assert isinstance(fetch, Say)
    assert fetch.message == Fetch("pol", (5, incarnation), "r1", 2, WINDOW)
    return sink


@pytest.mark.parametrize("pair", [(5, 7), (4, 8), (5, 0), (9, 7)])
def test_s21_h21_what_is_of_another_pair_is_dropped_and_changes_nothing(pair: tuple[int, int]) -> None:
    sink = receiving()
    before = sink.status(1.0)
    assert sink.receive("s", Data("pol", pair, "r1", 2, ONE), 1.0) == []
    assert sink.receive("s", Data("pol", pair, "r1", 2, b"", last=True), 1.0) == []
    assert sink.receive("s", Decision("pol", pair, Verdict.LOG, "log", Position(9, 9), ask=1), 1.0) == []
    assert sink.status(1.0) == before
    stored = sink.receive("s", Data("pol", (5, 8), "r1", 2, ONE), 1.0)
    assert stored == [StoreChunk("s", "pol", "r1", 2, [({}, b"x")])], "of the present pair it goes on"


def test_s21_h21_a_source_answers_an_old_pair_with_the_present_one_and_acts_on_nothing() -> None:
    source = SourceSessions("s", 8, "log")
    for message in (Fetch("pol", (7, 3), "r1", 0, 4), Negotiate("pol", (7, 3), "log", None, "first", ask=1)):
        (say,) = source.receive("a", message, 0.0)
        assert isinstance(say, Say)
        assert isinstance(say.message, Decision)
        assert (say.message.pair, say.message.verdict) == ((8, 3), Verdict.WAIT)
    assert source.receive("a", Negotiate("pol", (9, 3), "log", None, "first"), 0.0) == [], "for a newer leader than this one"
    assert source.receive("a", Negotiate("pol", (8, 2), "log", None, "first"), 0.0) == [], "of an older one than has spoken"
    assert source.status(0.0) == []


def test_h21_a_new_source_makes_every_snapshot_under_way_ask_how_to_go_on() -> None:
    sink = receiving()
    said = sink.receive("s", Decision("other", (6, 8), Verdict.WAIT, "log", Position(0, 0)), 1.0)
    assert [(e.to, e.message.reason, e.message.pair, e.message.chunk) for e in said] == [("s", "resume", (6, 8), 2)]
    assert sink.receive("s", Data("pol", (5, 8), "r1", 2, ONE), 1.0) == [], "its predecessor's word"


def test_h21_a_new_source_is_asked_also_by_a_snapshot_that_only_begins() -> None:
    sink = SinkSessions("a", 8)
    sink.sessions([SessionRow("s", "pol")], 0.0)
    (begin,) = sink.receive("s", Decision("pol", (5, 8), Verdict.SNAPSHOT, "log", Position(9, 9), "r1", ask=1), 0.0)
    assert isinstance(begin, BeginSnapshot)
    assert sink.receive("s", Wanted("pol", (6, 8), "r1"), 0.1) == [], "not before START is written"
    (say,) = sink.begun(begin, True, 0.2)
    assert isinstance(say, Say)
    assert (say.message.reason, say.message.request, say.message.pair) == ("resume", "r1", (6, 8))


def test_h21_entries_are_not_fenced_by_pairs_a_leader_change_is_no_catch_up() -> None:
    world = World()
    source, a = joined(world, 3)
    world.time.until(lambda: is_complete(a, source))
    world.run(8.0)
    said = len(world.link.said)
    for _ in range(5):
        source.source_tables.commit("pol", "a")
        source.change_leader()
        a.change_leader()
        world.run(1.0)
    assert a.seqs("s") == [2, 3, 4, 5, 6]
    assert world.link.said[said:] == []


def test_an_answer_that_comes_late_or_twice_is_not_acted_on() -> None:
    sink = SinkSessions("a", 8)
    (say,) = sink.sessions([SessionRow("s", "pol")], 0.0)
    assert isinstance(say, Say)
    answer = Decision("pol", (5, 8), Verdict.SNAPSHOT, "log", Position(9, 9), "r1", ask=say.message.ask)
    (begin,) = sink.receive("s", answer, 0.0)
    assert isinstance(begin, BeginSnapshot)
    assert sink.receive("s", answer, 0.0) == []
    sink.begun(begin, True, 0.0)
    assert sink.receive("s", answer, 0.1) == []
    sink.receive("s", Wanted("pol", (5, 8), "r2"), 0.2)
    late = Decision("pol", (5, 8), Verdict.SNAPSHOT, "log", Position(4, 4), "r0", ask=answer.ask)
    assert sink.receive("s", late, 0.3) == [], "to a question that was answered"


def test_a_new_leader_of_a_quiet_sink_hears_a_call_that_was_for_the_old_one() -> None:
    world = World()
    source, a = joined(world, 3)
    world.time.until(lambda: is_complete(a, source) and not source.source_tables.rows())
    a.change_leader()
    source.source_tables.ask("pol", ["a"], "forced", forced=True)
    world.time.until(lambda: a.kinds("s").count(Kind.LAST) == 2, limit=10.0)
    check_queue(a, source)


def test_a_lost_done_is_said_again_when_the_source_calls() -> None:
    world = World()
    world.link.copies = lambda message: 0 if type(message).__name__ == "Done" else 1
    source, a = joined(world, 3)
    world.time.until(lambda: is_complete(a, source))
    world.run(20.0)
    assert [row.waiting for row in source.source_tables.rows()] == [("a",)]
    world.link.copies = lambda message: 1
    world.time.until(lambda: not source.source_tables.rows(), limit=10.0)
    assert a.kinds("s").count(Kind.START) == 1


def test_a_gap_after_a_lost_done_costs_another_snapshot_and_no_stall() -> None:
    world = World()
    world.link.copies = lambda message: 0 if type(message).__name__ == "Done" else 1
    source, a = joined(world, 3)
    world.time.until(lambda: is_complete(a, source))
    a.sink_tables.rows["s", "pol"] = replace(a.sink_tables.rows["s", "pol"], state="new", reason="gap", position=Position(0, 0))
    a.do(a.sink.sessions(a.sink_tables.of("s"), world.time.now))
    world.link.copies = lambda message: 1
    source.source_tables.commit("pol", "a")
    world.time.until(lambda: is_complete(a, source), limit=30.0)
    assert not [r for r in source.source_tables.requests.values() if r.over == "failed"]


def test_a_write_that_the_table_does_not_take_makes_the_session_read_it_again() -> None:
    sink = receiving()
    (work,) = sink.receive("s", Data("pol", (5, 8), "r1", 2, ONE), 1.0)
    assert isinstance(work, StoreChunk)
    (reload,) = sink.stored(work, False, 1.0)
    assert reload.origin == "s"
    row = SessionRow("s", "pol", "log", state="new", reason="gap", request="r0")
    (say,) = sink.sessions([row], 1.0)
    assert isinstance(say, Say)
    assert (say.message.reason, say.message.request) == ("gap", "")


def test_a_chunk_that_cannot_be_read_is_not_taken_and_told() -> None:
    sink = receiving()
    assert sink.receive("s", Data("pol", (5, 8), "r1", 2, b"\xc1"), 1.0) == []
    (again,) = sink.tick(4.0)
    assert isinstance(again, Say)
    assert again.message == Fetch("pol", (5, 8), "r1", 2, WINDOW)
    assert sink.status(4.0)[0].stall.startswith("snapshot chunk: it cannot be read")
    assert len(sink.receive("s", Data("pol", (5, 8), "r1", 2, ONE), 4.0)) == 1


def test_while_a_question_is_open_no_chunk_is_written_and_its_answer_waits_for_the_write_under_way() -> None:
    sink = receiving()
    (work,) = sink.receive("s", Data("pol", (5, 8), "r1", 2, ONE), 1.0)
    assert isinstance(work, StoreChunk)
    sink.receive("s", Data("pol", (5, 8), "r1", 3, ONE), 1.0)
    assert sink.receive("s", Wanted("pol", (5, 8), "r2"), 1.0) == [], "not before the write is answered"
    answer = Decision("pol", (5, 8), Verdict.SNAPSHOT, "log", Position(12, 12), "r2", ask=2)
    assert sink.receive("s", answer, 1.1) == []
    (say,) = sink.stored(work, True, 1.2)
    assert isinstance(say, Say)
    assert (say.message.reason, say.message.request, say.message.chunk, say.message.ask) == ("resume", "r1", 3, 2)
    assert sink.tick(1.3) == [], "chunk 3 is here, and is not written"
    assert sink.receive("s", answer, 1.4) == [BeginSnapshot("s", "pol", "log", "r2", Position(12, 12), False)]
