"""The small devices of a session, one by one: order of chunks, spacing of retries, negotiation, and its states."""

from __future__ import annotations

from itertools import pairwise

import pytest
from sessionsites import World, is_complete

from trunkline.core.ids import START, Position
from trunkline.queues.chunks import MOST_EARLY, InOrder
from trunkline.queues.kinds import Kind
from trunkline.queues.messages import Negotiate, Verdict
from trunkline.queues.negotiation import Case, Choice, Facts, decide
from trunkline.queues.retries import Retry
from trunkline.queues.sessionrows import RequestRow
from trunkline.queues.states import (
    CONNECTION,
    REPLICATION,
    Connection,
    ConnectionEvent,
    Replication,
    ReplicationEvent,
    after,
)

# -- order


def drain(chunks: InOrder[str]) -> list[str]:
    out = []
    while (first := chunks.first()) is not None:
        out.append(first)
        chunks.passed()
    return out


def test_s19_early_chunks_wait_for_those_before_them() -> None:
    chunks: InOrder[str] = InOrder(next=100)
    assert chunks.offer(101, "b")
    assert drain(chunks) == []
    assert chunks.offer(100, "a")
    assert chunks.offer(102, "c")
    assert drain(chunks) == ["a", "b", "c"]
    assert not chunks.offer(101, "b"), "it came before"
    assert chunks.next == 103


def test_s19_the_forty_first_early_chunk_is_dropped_and_nothing_passes_the_hole() -> None:
    chunks: InOrder[str] = InOrder()
    assert MOST_EARLY == 40
    assert all(chunks.offer(n, str(n)) for n in range(1, 41))
    assert not chunks.offer(41, "41")
    assert drain(chunks) == []
    assert chunks.next == 0
    assert chunks.offer(0, "0"), "the one that is waited for always has room"
    assert drain(chunks) == [str(n) for n in range(41)]
    assert chunks.offer(41, "41"), "when it comes again"


# -- retries


def test_s35_retries_are_spaced_by_2_4_8_to_60_seconds() -> None:
    retry, now, waits = Retry(), 0.0, []
    for _ in range(7):
        retry.failed(now)
        waits.append(retry.due - now)
        now = retry.due
        assert not retry.waits(now)
    assert waits == [2, 4, 8, 16, 32, 60, 60]
    retry.failed(now)
    assert retry.waits(now)
    retry.interrupt()
    assert not retry.waits(now)
    retry.succeeded()
    retry.failed(now)
    assert retry.due == now + 2


def test_s35_every_sync_fails_retries_are_spaced_and_a_forced_one_waits_for_nothing() -> None:
    world = World()
    source, a = world.site("s"), world.site("a")
    source.source_tables.providers["pol"], source.source_tables.broken = [b"s0"], True
    source.source_tables.commit("pol", "a")
    times: list[float] = []
    while len(times) < 8:
        known = len(source.asked)
        world.time.until(lambda: len(source.asked) > known, limit=70.0)  # noqa: B023
        times.append(world.time.now)
    gaps = [b - a for a, b in pairwise(times)]
    for gap, step in zip(gaps, [2, 4, 8, 16, 32, 60, 60], strict=True):
        assert step <= gap <= step + 4, gaps
    world.run(5.0)
    (status,) = [s for s in source.source.status(world.time.now) if s.remote == "a"]
    assert status.snapshot == "ERROR"
    assert status.stall.startswith("the snapshot of pol failed; the next one is asked for in 5")
    source.source_tables.broken = False
    forced = source.source_tables.ask("pol", ["a"], "forced", forced=True)
    assert world.time.until(lambda: a.kinds("s")[-1:] == [Kind.START], limit=1.0) <= 1.0
    assert a.queue("s")[-1].request == forced
    world.time.until(lambda: is_complete(a, source))


def test_s35_stopping_ends_the_wait_at_once() -> None:
    world = World()
    source, a = world.site("s"), world.site("a")
    source.source_tables.providers["pol"], source.source_tables.broken = [b"s0"], True
    source.source_tables.commit("pol", "a")
    world.time.until(lambda: len(source.asked) == 3)
    source.lose_lease()
    assert {s.status for s in source.source.status(world.time.now)} == {"STOPPED"}
    world.run(120.0)
    assert len(source.asked) == 3
    assert a.kinds("s") == []


# -- negotiation


def case(
    position: int | None,
    reason: str = "gap",
    lowest: int = 0,
    trimmed: int = 0,
    provided: bool = True,
    request: RequestRow | None = None,
    log_id: str = "log",
    missed: int | None = None,
) -> Case:
    """`missed`: so far it had acknowledged when more was trimmed."""
    at = None if position is None else Position(position, position)
    asked = Negotiate("pol", (1, 1), log_id, at, reason)
    pair = ("a", "pol")
    has = {} if missed is None else {pair: Position(missed, missed)}
    facts = Facts(
        Position(300, 300), Position(lowest, lowest), {pair: trimmed} if trimmed else {}, missed=has, acknowledged=has
    )
    return Case("a", asked, "log", facts, request, provided)


WANTED = RequestRow("r", "pol", ("a",))
THERE = RequestRow("r", "pol", ("a",), "providing", base=Position(250, 250), chunks=1)
LOG, SNAPSHOT, WAIT = Verdict.LOG, Verdict.SNAPSHOT, Verdict.WAIT
NEGOTIATIONS = {
    "s06 first contact: a snapshot": (case(None, "first"), Choice(WAIT, ask=True)),
    "s12 resume within the log": (case(200, lowest=150, trimmed=150), Choice(LOG, Position(200, 200))),
    "s13 what it lacks was trimmed": (case(200, lowest=260, trimmed=230), Choice(WAIT, ask=True)),
    "s14 what was trimmed was not for it": (case(200, lowest=260, trimmed=200), Choice(LOG, Position(200, 200))),
    "s15 in mid snapshot, and its request is over": (case(200, "resume"), Choice(WAIT, ask=True)),
    "s15 in mid snapshot, and its request is there": (case(200, "resume", request=THERE), Choice(SNAPSHOT, Position(250, 250))),
    "a snapshot that is coming is waited for": (case(200, request=WANTED), Choice(WAIT)),
    "a snapshot that is there comes first": (case(200, "forced", request=THERE), Choice(SNAPSHOT, Position(250, 250))),
    "called for nothing, the log goes on": (case(200, "forced"), Choice(LOG, Position(200, 200))),
    "h23 it lacks nothing, and a consumer of it does": (case(200, "resync"), Choice(WAIT, ask=True)),
    "h23 without a provider, the log goes on": (case(200, "resync", provided=False), Choice(LOG, Position(200, 200))),
    "h11 below the trim a position counts as far as it was acknowledged": (
        case(200, lowest=250, trimmed=160, missed=150),
        Choice(WAIT, ask=True),
    ),
    "h11 without a provider it is on record what it cannot be known to have": (
        case(200, lowest=250, trimmed=160, missed=150, provided=False),
        Choice(LOG, Position(250, 250), lost=(151, 160)),
    ),
    "h11 at the trim's mark it is of this log": (
        case(250, lowest=250, trimmed=160, missed=150),
        Choice(LOG, Position(250, 250)),
    ),
    "of another log": (case(200, log_id="older"), Choice(WAIT, ask=True)),
    "ahead of the log": (case(301), Choice(WAIT, ask=True)),
    "reset": (case(None, "reset"), Choice(WAIT, ask=True)),
    "h20 no provider, nothing trimmed": (case(None, "first", lowest=90, provided=False), Choice(LOG, START)),
    "h20 no provider, never had any": (
        case(None, "first", lowest=90, trimmed=80, provided=False),
        Choice(LOG, Position(90, 90), lost=(1, 80)),
    ),
    "h20 no provider, a gap": (
        case(50, lowest=90, trimmed=80, provided=False),
        Choice(LOG, Position(90, 90), lost=(51, 80)),
    ),
    "in mid snapshot without a provider: never the log": (case(50, "resume", provided=False), Choice(WAIT)),
}


@pytest.mark.parametrize("name", NEGOTIATIONS)
def test_negotiation(name: str) -> None:
    asked, expected = NEGOTIATIONS[name]
    assert decide(asked) == expected


def test_s12_a_session_that_goes_on_by_the_log_calls_no_provider() -> None:
    world = World()
    source, a = world.site("s"), world.site("a")
    source.source_tables.providers["pol"] = [b"s0"]
    source.source_tables.commit("pol", "a")
    world.time.until(lambda: is_complete(a, source) and not source.source_tables.rows())
    for _ in range(200):
        source.source_tables.commit("pol", "a")
    world.time.until(lambda: len(a.seqs("s")) > 100)
    source.source_tables.trim(50)
    world.way("s", "a", False)
    a.change_leader()
    source.change_leader()
    world.run(10.0)
    world.way("s", "a", True)
    world.time.until(lambda: is_complete(a, source))
    assert a.seqs("s") == list(range(2, 202))
    assert len(source.source_tables.calls) == 1


# -- states


def test_the_connection_goes_up_by_its_steps_and_down_from_each() -> None:
    state, steps = Connection.WAITING_FOR_CONNECTIVITY, []
    for event in (ConnectionEvent.UP, ConnectionEvent.LEADER_FOUND, ConnectionEvent.COMPLETE):
        state = after(CONNECTION, state, event)
        steps.append(state)
        assert after(CONNECTION, state, ConnectionEvent.DOWN) is Connection.WAITING_FOR_CONNECTIVITY
        assert after(CONNECTION, state, ConnectionEvent.LEADER_LOSS) is Connection.VERIFYING_REMOTE_LEADER
    assert steps == [Connection.VERIFYING_REMOTE_LEADER, Connection.NEGOTIATING, Connection.REPLICATING]


@pytest.mark.parametrize("ended", [Connection.STOPPED, Connection.UNRECOVERABLE])
def test_a_connection_that_ended_stays_so(ended: Connection) -> None:
    assert {after(CONNECTION, ended, event) for event in ConnectionEvent} == {ended}


def test_a_cancelled_sync_begins_again_as_a_snapshot_and_a_stopped_one_from_the_beginning() -> None:
    syncing = (Replication.SNAPSHOT, Replication.WAIT_APPLY, Replication.LOG_ENTRY)
    assert {after(REPLICATION, state, ReplicationEvent.CANCEL) for state in syncing} == {Replication.SNAPSHOT}
    assert {after(REPLICATION, state, ReplicationEvent.STOP) for state in syncing} == {Replication.INITIALIZED}
    assert {after(REPLICATION, state, ReplicationEvent.SHUTDOWN) for state in syncing} == {Replication.ERROR}
    assert {after(REPLICATION, Replication.ERROR, event) for event in ReplicationEvent} == {Replication.ERROR}


def test_log_entries_never_follow_a_snapshot_that_was_not_applied() -> None:
    before_apply = (Replication.SNAPSHOT, Replication.WAIT_APPLY)
    to_log = {e for (s, e), then in REPLICATION.items() if s in before_apply and then is Replication.LOG_ENTRY}
    assert to_log == {ReplicationEvent.APPLY_COMPLETE}
