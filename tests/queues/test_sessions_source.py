"""What a source promises, sends and calls for, step by step."""

from __future__ import annotations

from dataclasses import replace

from trunkline.core.ids import Position
from trunkline.queues.messages import Data, Decision, Done, Fetch, Negotiate, Verdict, Wanted
from trunkline.queues.negotiation import Facts
from trunkline.queues.sessionasks import AskSnapshot, Delivered, ReadChunk, Say, SourceEffect, Supersede
from trunkline.queues.sessionrows import RequestRow
from trunkline.queues.sessions_source import CALL_SECONDS, SEEN_SECONDS, SourceSessions

PAIR = (8, 3)
BASE = Position(250, 250)
R1 = RequestRow("r1", "pol", ("a",), "complete", base=BASE, chunks=10)
FIRST = Negotiate("pol", PAIR, "log", None, "first", ask=1)


def source_with(*rows: RequestRow) -> SourceSessions:
    source = SourceSessions("s", 8, "log")
    source.facts(Facts(Position(300, 300)), 0.0)
    source.requests(rows, {"pol"}, 0.0)
    return source


def promised() -> SourceSessions:
    source = source_with(R1)
    assert verdicts(source.receive("a", FIRST, 0.0)) == [(Verdict.SNAPSHOT, "r1", BASE)]
    return source


def verdicts(effects: list[SourceEffect]) -> list[tuple[Verdict, str, Position]]:
    said = [e.message for e in effects if isinstance(e, Say)]
    return [(m.verdict, m.request, m.base) for m in said if isinstance(m, Decision)]


def reads(effects: list[SourceEffect]) -> list[int]:
    assert all(isinstance(e, ReadChunk) for e in effects), effects
    return [e.chunk for e in effects if isinstance(e, ReadChunk)]


def fetch(chunk: int, request: str = "r1", window: int = 4) -> Fetch:
    return Fetch("pol", PAIR, request, chunk, window)


def test_chunks_go_out_as_far_as_the_window_and_a_fetch_that_was_overtaken_changes_nothing() -> None:
    source = promised()
    assert reads(source.receive("a", fetch(0), 0.0)) == [0, 1, 2, 3]
    assert reads(source.receive("a", fetch(2), 0.1)) == [4, 5]
    assert [source.receive("a", fetch(0), 9.0) for _ in range(2)] == [[], []]
    assert source.receive("a", fetch(2), 0.2) == [], "the same message twice"
    assert reads(source.receive("a", fetch(2), 2.1)) == [2, 3, 4, 5], "asked again after silence"
    assert reads(source.receive("a", fetch(6, window=99), 2.2)) == [6, 7, 8, 9], "a window beyond the own one is cut"
    (end,) = source.receive("a", fetch(7), 2.3)
    assert isinstance(end, Say)
    assert end.message == Data("pol", PAIR, "r1", 10, b"", last=True)


def test_chunks_that_are_not_there_yet_go_out_when_they_are() -> None:
    source = source_with(replace(R1, state="providing", chunks=1))
    source.receive("a", FIRST, 0.0)
    assert reads(source.receive("a", fetch(0), 0.0)) == [0]
    assert reads(source.requests([replace(R1, state="providing", chunks=3)], {"pol"}, 0.2)) == [1, 2]
    effects = source.requests([replace(R1, chunks=3)], {"pol"}, 0.4)
    assert [e.message.last for e in effects] == [True]
    assert source.requests([replace(R1, chunks=3)], {"pol"}, 0.6) == []


def test_who_was_promised_nothing_is_called_and_sent_nothing() -> None:
    source = source_with(R1)
    source.receive("a", replace_ask(FIRST, 1, client="other"), 0.0)
    assert source.receive("a", fetch(0), 0.0) == [Say("a", Wanted("pol", PAIR, ""))], "it must ask first"
    source = promised()
    assert source.receive("a", fetch(0, "r0"), 0.0) == [Say("a", Wanted("pol", PAIR, "r1"))]


def replace_ask(asked: Negotiate, ask: int, client: str = "pol", request: str = "", chunk: int = 0) -> Negotiate:
    return Negotiate(
        client, asked.pair, asked.log_id, asked.position, "resume" if request else asked.reason, request, chunk, ask
    )


def test_a_new_question_begins_where_it_says_and_a_late_one_is_not_heard() -> None:
    source = promised()
    assert reads(source.receive("a", fetch(4), 0.0)) == [4, 5, 6, 7]
    source.receive("a", replace_ask(FIRST, 2, request="r1", chunk=2), 0.1)
    assert source.receive("a", FIRST, 0.2) == [], "overtaken"
    assert source.receive("a", fetch(1), 0.2) == [], "overtaken"
    assert reads(source.receive("a", fetch(2), 0.3)) == [2, 3, 4, 5]
    source.receive("a", replace_ask(FIRST, 2, request="r1", chunk=2), 0.4)
    assert source.receive("a", fetch(2), 0.5) == [], "the same question twice begins nothing anew"
    source.receive("a", replace_ask(FIRST, 3, request="r0", chunk=5), 0.6)
    assert reads(source.receive("a", fetch(0), 0.7)) == [0, 1, 2, 3], "another request's chunks are not of this one"


def test_a_new_leader_of_the_sink_begins_its_own_count_of_questions() -> None:
    source = promised()
    source.receive("a", replace_ask(FIRST, 7), 0.0)
    anew = Negotiate("pol", (0, 4), "log", None, "resume", "r1", 6, 1)
    (say,) = source.receive("a", anew, 0.1)
    assert isinstance(say, Say)
    assert (say.message.pair, say.message.ask) == ((8, 4), 1)
    assert source.receive("a", fetch(0), 0.2) == [], "of its predecessor"


def test_a_chunk_that_was_read_for_another_promise_is_not_sent() -> None:
    source = promised()
    first, second, *_ = source.receive("a", fetch(0), 0.0)
    assert isinstance(first, ReadChunk)
    assert isinstance(second, ReadChunk)
    assert source.chunk(first, b"body", 0.1) == [Say("a", Data("pol", PAIR, "r1", 0, b"body"))]
    assert source.chunk(second, None, 0.1) == [], "it is no longer there"
    source.receive("a", Negotiate("pol", (8, 4), "log", None, "first", ask=1), 0.2)
    assert source.chunk(second, b"body", 0.3) == [], "for an older leader of the sink"
    source = promised()
    (late, *_) = source.receive("a", fetch(0), 0.0)
    assert isinstance(late, ReadChunk)
    source.requests([R1, replace(R1, id="r2")], {"pol"}, 0.1)
    source.receive("a", replace_ask(FIRST, 2), 0.2)
    assert source.chunk(late, b"body", 0.3) == [], "of a request that is superseded"


def test_what_was_delivered_is_over_even_while_the_table_still_shows_it() -> None:
    source = promised()
    effects = source.receive("a", Done("pol", PAIR, "r1"), 1.0)
    assert effects[0] == Delivered("r1", "a")
    assert verdicts(effects) == [(Verdict.LOG, "", BASE)]
    assert source.receive("a", Done("pol", PAIR, "r1"), 1.1) == []
    assert source.requests([R1], {"pol"}, 1.2) == []
    assert source.tick(60.0) == []
    asked = source.receive("a", replace_ask(FIRST, 2), 60.0)
    assert asked[0] == AskSnapshot("pol", "a", "first", False)


def test_one_request_is_asked_for_at_a_time() -> None:
    source = source_with()
    work, _ = source.receive("a", FIRST, 0.0)
    assert work == AskSnapshot("pol", "a", "first", False)
    assert isinstance(work, AskSnapshot)
    assert len(source.receive("a", FIRST, 0.1)) == 1, "it is being written"
    source.asked(work, "r1", 0.2)
    assert len(source.receive("a", FIRST, 0.3)) == 1, "it is written, and not seen yet"
    source.requests([], {"pol"}, 0.4)
    assert len(source.receive("a", FIRST, 0.5)) == 1, "the table was read before"
    source.requests([], {"pol"}, 0.3 + SEEN_SECONDS)
    assert len(source.receive("a", FIRST, 0.4 + SEEN_SECONDS)) == 1, "it failed before anybody saw it: that is waited out"
    assert source.receive("a", FIRST, 2.4 + SEEN_SECONDS)[0] == work


def test_a_sink_is_called_when_there_is_something_to_fetch_and_again_while_it_is_silent() -> None:
    call = [Say("a", Wanted("pol", (8, 0), "r1"))]
    source = SourceSessions("s", 8, "log")
    assert source.requests([replace(R1, state="ready", chunks=0)], {"pol"}, 0.0) == []
    assert source.requests([replace(R1, state="providing", chunks=1)], {"pol"}, 10.0) == call
    assert source.requests([R1], {"pol"}, 10.2) == []
    assert source.tick(10.0 + CALL_SECONDS / 2) == []
    assert source.tick(10.0 + CALL_SECONDS) == call
    source.reachable("a", False, 16.0)
    assert source.tick(60.0) == []
    assert source.reachable("a", True, 61.0) == call


def test_an_older_request_is_superseded_when_nobody_waits_for_it_any_more() -> None:
    old = replace(R1, waiting=("a", "b"))
    source = source_with(old)
    newer = replace(R1, id="r2", waiting=("a",))
    assert Supersede("r1") not in source.requests([old, newer], {"pol"}, 0.2)
    newest = replace(R1, id="r3", waiting=("b",))
    assert Supersede("r1") in source.requests([old, newer, newest], {"pol"}, 0.4)
    assert Supersede("r1") not in source.requests([old, newer, newest], {"pol"}, 0.6), "said once"


def test_after_stop_nobody_is_answered() -> None:
    source = promised()
    source.stop()
    assert source.receive("a", fetch(0), 0.0) == []
    assert source.receive("a", FIRST, 0.0) == []
    assert source.tick(60.0) == []


def test_over_a_slow_link_chunks_are_not_sent_again_while_they_are_on_their_way() -> None:
    """A chunk takes eight seconds, and the sink asks for it every two."""
    source, sent = promised(), list[int]()
    for now in range(0, 64, 2):
        arrived = now // 8
        sent += reads(source.receive("a", fetch(arrived), float(now))) if arrived < 6 else []
    assert set(sent) == set(range(9)), "all that fits the window went out"
    assert [n for n in range(5, 9) if sent.count(n) > 1] == [], "once it knew how long a chunk takes, none went twice"
    assert sent.count(0) <= 3


def test_what_a_lost_way_took_with_it_is_sent_again_soon() -> None:
    source = promised()
    for now in range(0, 16, 2):
        source.receive("a", fetch(0), float(now))
    assert source.receive("a", fetch(0), 15.0) == [], "by now it waits long"
    source.reachable("a", False, 15.0)
    source.reachable("a", True, 16.0)
    assert reads(source.receive("a", fetch(0), 17.0)) == [0, 1, 2, 3]
