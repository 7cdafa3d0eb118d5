"""The queues between three real sites in a chain: sofia sends, athens receives and relays, berlin receives behind it.

Each scenario has a client of its own, so that all share one fleet.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import psycopg
import pytest
from queue_fleet import FIVE, A, B, Node, Provided, QueueFleet, S, five, numbered, providing, sync, trim, until_acknowledged
from queue_kills import kill_at_random

from trunkline.queues import provider
from trunkline.queues.callbacks import Batch
from trunkline.queues.client import Message, NoRoom, QueueClient
from trunkline.queues.kinds import Kind
from trunkline.queues.listener import Callbacks, QueueListener
from trunkline.queues.provider import SnapshotContext
from trunkline.queues.snapshot_chunks import SnapshotCancelled
from waiting import eventually

pytestmark = pytest.mark.timeout(180)

CAP = 50
MOST_GROWTH = 32 << 20
"""Of a node while another site lacks twice that and more."""
# Sofia keeps as little as may be, so that a megabyte of anything trims its log.
SETTINGS = {S: {"keep_bytes": 1 << 20}, A: {"unacknowledged_entries": CAP}}
SNAPSHOT = [b"", *FIVE, b""]
"""As it lies in the queue: START, its records, LAST."""
_numbers = count(1)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]) -> Iterator[QueueFleet]:
    with QueueFleet(tmp_path_factory.mktemp("fleet"), make_databases, (S, A, B), SETTINGS).running() as fleet:
        yield fleet


@pytest.fixture
def pol() -> str:
    return f"pol_{next(_numbers)}"


def steady(fleet: QueueFleet, client: str, *sites: str) -> None:
    """First contact is over: a whole snapshot is there, the entry that caused it is within it."""
    fleet.transmit(S, client, [b"first"], *sites)
    for site in sites:
        fleet.until_received(site, S, client, SNAPSHOT)
    for site in sites:
        eventually(lambda site=site: fleet.status(S, "source", site, client).get("snapshot") == "COMPLETED", why=fleet.logs)


# -- sending


def test_s01_a_message_goes_with_its_transaction_or_not_at_all(fleet: QueueFleet, pol: str) -> None:
    fleet.do(S, f"CREATE TABLE {pol} (k int)")
    with psycopg.connect(fleet.dsn[S]) as conn:
        for k, payload, end in ((1, b"p1", conn.commit), (2, b"p2", conn.rollback), (3, b"p3", conn.commit)):
            conn.execute(f"INSERT INTO {pol} VALUES ({k})".encode())
            QueueClient(pol).transmit(conn, payload, [A])
            end()
    fleet.until_received(A, S, pol, [b"p1", b"p3"])
    assert fleet.ask(S, f"SELECT k FROM {pol} ORDER BY k") == [1, 3]


def test_s02_a_large_payload_comes_to_each_site_and_is_one_row_where_it_came_from(fleet: QueueFleet, pol: str) -> None:
    payload = os.urandom(1 << 20)
    fleet.transmit(B, pol, [payload], A, S)
    for site in (A, S):
        fleet.until_received(site, B, pol, [payload])
    assert fleet.ask(B, "SELECT octet_length(payload) FROM queues.send_log WHERE client = %s", (pol,)) == [1 << 20]


def test_s03_each_site_gets_what_names_it_in_order_and_no_other_site_s_name(fleet: QueueFleet, pol: str) -> None:
    to = {b"a": [A], b"ab": [A, B], b"b": [B], b"ba": [B, A], b"all": ["*"]}
    with psycopg.connect(fleet.dsn[S]) as conn:
        QueueClient(pol).transmit_messages(conn, [Message(p, sites, {"is": p.decode()}) for p, sites in to.items()])
    fleet.until_received(A, S, pol, [b"a", b"ab", b"ba", b"all"])
    fleet.until_received(B, S, pol, [b"ab", b"b", b"ba", b"all"])
    query = """SELECT row_to_json(r)::text FROM queues.receive r JOIN queues.queue q ON q.id = r.queue WHERE client = %s"""
    for site in (A, B):
        rows = fleet.ask(site, query, (pol,))
        assert len(rows) == 4
        assert not [row for row in rows for name in (S, A, B) if name in row]


def test_s04_what_four_writers_commit_comes_to_a_listener_in_the_order_of_their_commits(fleet: QueueFleet, pol: str) -> None:
    fleet.do(S, f"CREATE TABLE {pol} (n serial, what text); CREATE TABLE {pol}_turn (n int); INSERT INTO {pol}_turn VALUES (0)")
    heard: dict[str, list[bytes]] = {A: [], B: []}

    def write(writer: int) -> None:
        with psycopg.connect(fleet.dsn[S]) as conn:
            for n in range(250):
                QueueClient(pol).transmit(conn, f"{writer} {n}".encode(), [A, B])
                conn.execute(f"UPDATE {pol}_turn SET n = n + 1".encode())  # whoever is past this commits first
                conn.execute(f"INSERT INTO {pol} (what) VALUES (%s)".encode(), (f"{writer} {n}",))
                conn.commit()

    def listening(site: str) -> QueueListener:
        def hear(batch: Batch) -> bool:
            heard[site] += [message.payload for message in batch]
            return True

        return QueueListener(fleet.dsn[site], pol, "ledger", hear)

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    with listening(A), listening(B):
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        committed = [what.encode() for what in fleet.ask(S, f"SELECT what FROM {pol} ORDER BY n")]
        for site in (A, B):
            eventually(lambda site=site: len(heard[site]) >= len(committed), why=fleet.logs)
    assert len(set(committed)) == 1000
    assert heard == {A: committed, B: committed}


# -- snapshots


def test_s06_first_contact_is_one_snapshot_then_its_end_then_deltas(fleet: QueueFleet, pol: str) -> None:
    with providing(fleet, S, pol, Provided()) as provided:
        steady(fleet, pol, A)
        fleet.transmit(S, pol, numbered("d", 3), A)
        fleet.until_received(A, S, pol, [*SNAPSHOT, *numbered("d", 3)])
    assert fleet.kinds(A, S, pol) == [Kind.START, *[Kind.SNAPSHOT] * 5, Kind.LAST, *[Kind.LOG_ENTRY] * 3]
    assert provided.times(A) == 1
    assert {row.request for row in fleet.rows(A, S, pol)[:7]} == {provided.last_for(A)}


def test_a_snapshot_lasts_until_its_provider_reads_it_though_it_is_slow_to_begin(
    fleet: QueueFleet, pol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between saying that it provides and reading, the leader looks at its requests many times."""
    reading = provider._reading

    def late(dsn: str, snapshot: str) -> psycopg.Connection[Any]:
        shown = "SELECT max(updated_at) > %s FROM queues.status"
        [now] = fleet.ask(S, "SELECT clock_timestamp()")
        eventually(lambda: fleet.ask(S, shown, (now,)) == [True], why=fleet.logs)
        return reading(dsn, snapshot)

    monkeypatch.setattr(provider, "_reading", late)
    with providing(fleet, S, pol, Provided()) as provided:
        steady(fleet, pol, A)
        assert provided.times(A) == 1
        assert fleet.ask(S, "SELECT error FROM queues.request WHERE client = %s AND error IS NOT NULL", (pol,)) == []


def test_s07_deltas_written_while_the_snapshot_is_made_follow_it_and_none_is_lost(fleet: QueueFleet, pol: str) -> None:
    def alternate(context: SnapshotContext) -> None:
        for n, payload in enumerate(FIVE):
            context.transmit(payload)
            if B in context.destinations:
                fleet.transmit(S, pol, [f"d {n}".encode()], B)

    with providing(fleet, S, pol, Provided(alternate)) as provided:
        fleet.transmit(S, pol, [b"first"], B)
        fleet.until_received(B, S, pol, [*SNAPSHOT, *numbered("d", 5)])
    assert fleet.kinds(B, S, pol) == [Kind.START, *[Kind.SNAPSHOT] * 5, Kind.LAST, *[Kind.LOG_ENTRY] * 5]
    assert provided.times(B) == 1


def test_h19_of_a_provider_that_reads_elsewhere_listeners_hear_which_entries_are_applied_again(
    fleet: QueueFleet, pol: str
) -> None:
    heard: list[tuple[str, int]] = []
    seqs: dict[bytes, int] = {}

    def late(context: SnapshotContext) -> None:
        """What it reads knows entries after the base, the last of which nobody has stamped yet."""
        if B in context.destinations:
            fleet.transmit(S, pol, numbered("d", 5), B)
        for payload in FIVE:
            context.transmit(payload)

    def process(batch: Batch) -> bool:
        seqs.update({message.payload: message.seq for message in batch if message.kind is Kind.LOG_ENTRY})
        return True

    callbacks = Callbacks(on_reapplied=lambda source, upto: heard.append((source, upto)))
    with providing(fleet, S, pol, Provided(late, reads_elsewhere=True)):
        fleet.transmit(S, pol, [b"first"], B)
        fleet.until_received(B, S, pol, [*SNAPSHOT, *numbered("d", 5)])
        fleet.transmit(S, pol, [b"after"], B)
        with QueueListener(fleet.dsn[B], pol, "ledger", process, callbacks=callbacks):
            eventually(lambda: b"after" in seqs, why=lambda: seqs)
    [(source, upto)] = heard
    assert source == S
    assert seqs[b"d 4"] <= upto < seqs[b"after"]


def test_s08_an_empty_snapshot_is_its_start_and_its_end(fleet: QueueFleet, pol: str) -> None:
    with providing(fleet, S, pol, Provided(lambda context: None)) as provided:
        fleet.transmit(S, pol, [b"first"], A)
        fleet.until_received(A, S, pol, [b"", b""])
        assert fleet.kinds(A, S, pol) == [Kind.START, Kind.LAST]
        eventually(lambda: fleet.status(S, "source", A, pol).get("state") == "IN_LOG_ENTRY_SYNC", why=fleet.stalls)
        fleet.transmit(S, pol, [b"d1"], A)
        fleet.until_received(A, S, pol, [b"", b"", b"d1"])
    assert provided.times(A) == 1


def test_s09_of_a_superseded_request_nothing_counts_not_even_its_end(fleet: QueueFleet, pol: str) -> None:
    entered, pause = threading.Event(), threading.Event()

    def emit_on(context: SnapshotContext) -> None:
        while not pause.wait(0.05):
            context.transmit(b"old" * 100_000)

    def emit(context: SnapshotContext) -> None:
        if entered.is_set() or A not in context.destinations:
            five(context)
            return
        entered.set()
        with pytest.raises(SnapshotCancelled):
            emit_on(context)
        assert context.cancelled
        # It returns as if all was well: an end marker, if it counted.

    with providing(fleet, S, pol, Provided(emit)):
        fleet.transmit(S, pol, [b"first"], A)
        eventually(lambda: Kind.SNAPSHOT in fleet.kinds(A, S, pol), why=lambda: (fleet.stalls(), fleet.logs()))
        newer = sync(fleet, None, pol)
        eventually(lambda: Kind.LAST in fleet.kinds(A, S, pol), why=lambda: (fleet.stalls(), fleet.logs()))
        fleet.transmit(S, pol, [b"d1"], A)
        eventually(lambda: fleet.received(A, S, pol)[-1] == b"d1", why=fleet.logs)
    rows = fleet.rows(A, S, pol)
    older, begin = rows[0].request, next(n for n, row in enumerate(rows) if row.request == newer)
    assert [row.payload for row in rows[begin:]] == [*SNAPSHOT, b"d1"]
    assert {row.request for row in rows[begin:-1]} == {newer}
    assert {(row.kind, row.request) for row in rows[:begin]} == {(Kind.START, older), (Kind.SNAPSHOT, older)}

    def states() -> tuple[str, str]:
        found = dict(fleet.ask(S, "SELECT id::text, state FROM queues.request WHERE client = %s", (pol,)))
        return found[older], found[newer]

    eventually(lambda: states() == ("superseded", "done"), why=states)  # the newer one is for all sites


def test_s11_a_forced_snapshot_comes_once_also_across_a_restart(fleet: QueueFleet, pol: str) -> None:
    def counts(site: str) -> int:
        return fleet.kinds(site, S, pol).count(Kind.SNAPSHOT)

    def until_done(site: str, request: str, snapshots: int) -> None:
        eventually(lambda: counts(site) == snapshots, why=lambda: (fleet.stalls(), fleet.logs()))
        eventually(lambda: fleet.status(S, "source", site, pol).get("snapshot") == "COMPLETED")
        eventually(lambda: fleet.status(S, "source", site, pol).get("request") == request)
        assert fleet.status(S, "source", site, pol)["forced"] is True
        eventually(lambda: fleet.status(site, "sink", S, pol).get("request") == request)
        assert fleet.status(site, "sink", S, pol)["forced"] is True

    with providing(fleet, S, pol, Provided()) as provided:
        steady(fleet, pol, A, B)
        until_done(A, sync(fleet, A, pol), 10)
        assert counts(B) == 5
        to_all = sync(fleet, None, pol)
        until_done(A, to_all, 15)
        until_done(B, to_all, 10)
        calls = len(provided.calls)
        assert provided.calls[-2:] == [(A,), (A, B)]
        fleet.node(S).stop()
        fleet.node(S).start()
        fleet.transmit(S, pol, [b"after"], A, B)
        for site in (A, B):
            eventually(lambda site=site: fleet.received(site, S, pol)[-1] == b"after", why=fleet.logs)
        assert (counts(A), counts(B), len(provided.calls)) == (15, 10, calls)
    assert fleet.ask(S, "SELECT DISTINCT state FROM queues.request WHERE client = %s AND forced", (pol,)) == ["done"]


# -- trimming


def test_s13_s14_after_a_trim_only_who_lacks_something_gets_a_snapshot_and_only_one(fleet: QueueFleet, pol: str) -> None:
    quiet = f"{pol}_quiet"
    with providing(fleet, S, pol, Provided()) as provided, providing(fleet, S, quiet, Provided()) as unneeded:
        steady(fleet, pol, B)
        steady(fleet, quiet, B)
        fleet.transmit(S, quiet, [b"before"], B)
        fleet.until_received(B, S, quiet, [*SNAPSHOT, b"before"])
        until_acknowledged(fleet, B, quiet)
        with fleet.down(B):
            fleet.transmit(S, pol, [b"trimmed"], B)
            trim(fleet)
            query = "SELECT destination FROM queues.needs_snapshot WHERE client = %s"
            assert fleet.ask(S, query, (pol,)) == [B]
            assert fleet.ask(S, query, (quiet,)) == []
            fleet.transmit(S, pol, [b"kept"], B)
        fleet.until_received(B, S, pol, [*SNAPSHOT, *SNAPSHOT])
        # Only now: sofia keeps so little that it may trim what a site which is just back has not asked for yet.
        fleet.transmit(S, quiet, [b"after"], B)
        fleet.until_received(B, S, quiet, [*SNAPSHOT, b"before", b"after"])
        fleet.transmit(S, pol, numbered("d", 3), B)
        fleet.until_received(B, S, pol, [*SNAPSHOT, *SNAPSHOT, *numbered("d", 3)])
        eventually(lambda: not fleet.ask(S, query, (pol,)), why=fleet.stalls)
    assert (provided.times(B), unneeded.times(B)) == (2, 1)
    rows = fleet.rows(B, S, pol)
    assert min(row.seq for row in rows[-3:]) > rows[-4].seq


# -- receiving


def test_s24_a_late_listener_gets_what_is_stored_kind_by_kind_then_what_comes(fleet: QueueFleet, pol: str) -> None:
    got: list[tuple[Kind, list[bytes]]] = []
    told: list[tuple[Any, ...]] = []

    def process(batch: Batch) -> bool:
        got.append((batch[0].kind, [message.payload for message in batch]))
        return True

    def waits() -> tuple[int, int]:
        query = """SELECT head - coalesce(position, 0), head - tail FROM queues.queue q
                   LEFT JOIN queues.consumed c ON c.queue = q.id WHERE q.client = %s AND q.remote = %s"""
        (left,) = fleet.ask(B, query, (pol, S))
        return left[0], left[1]

    with providing(fleet, S, pol, Provided()) as provided:
        steady(fleet, pol, B)
        fleet.transmit(S, pol, numbered("d", 10), B)
        fleet.until_received(B, S, pol, [*SNAPSHOT, *numbered("d", 10)])
        assert waits() == (17, 17)
        callbacks = Callbacks(
            on_new_site=lambda site: told.append(("site", site)),
            on_snapshot_start=lambda *what: told.append(("start", *what)),
            on_snapshot_complete=lambda *what: told.append(("complete", *what)),
        )
        with QueueListener(fleet.dsn[B], pol, "ledger", process, callbacks=callbacks):
            eventually(lambda: len(got) == 3, why=lambda: got)
            assert got == [(Kind.SNAPSHOT, FIVE), (Kind.LAST, [b""]), (Kind.LOG_ENTRY, numbered("d", 10))]
            fleet.transmit(S, pol, [b"live"], B)
            eventually(lambda: got[3:] == [(Kind.LOG_ENTRY, [b"live"])], why=lambda: got)
            eventually(lambda: waits() == (0, 0), why=waits)
    request = provided.last_for(B)
    assert told == [("site", S), ("start", S, request, False), ("complete", S, request)]


def isolate(fleet: QueueFleet, client: str, size: int, seconds: float) -> None:
    """Berlin sends to its neighbour and to a site behind it that is down. What that one lacks is on disk, not in memory."""
    payloads, source, near, far = [line.ljust(size, b".") for line in numbered("d", 1000)], B, A, S

    def count(site: str) -> int:
        (head,) = fleet.ask(site, "SELECT head FROM queues.queue WHERE (client, remote) = (%s, %s)", (client, source))
        return int(head)

    fleet.transmit(source, client, [b"first"], near, far)
    for site in (near, far):
        fleet.until_received(site, source, client, [b"first"])
        until_acknowledged(fleet, site, client, source)
    before = {site: fleet.node(site).memory() for site in (source, near)}
    with fleet.down(far):
        gone = time.monotonic()
        fleet.transmit(source, client, payloads, near, far)
        eventually(lambda: count(near) == 1001, 10, fleet.logs)
        eventually(lambda: fleet.status(source, "source", far, client).get("remaining") == 1000, why=fleet.stalls)
        assert count(far) == 1
        threading.Event().wait(seconds - (time.monotonic() - gone))
        grown = {site: fleet.node(site).memory() - before[site] for site in before}
    eventually(lambda: count(far) == 1001, why=lambda: (fleet.stalls(), fleet.logs()))
    for site in (near, far):
        assert fleet.received(site, source, client) == [b"first", *payloads]
    assert {site: n for site, n in grown.items() if n > MOST_GROWTH} == {}


def test_s27_a_site_that_is_down_holds_up_no_other_and_catches_up(fleet: QueueFleet, pol: str) -> None:
    isolate(fleet, pol, 64 << 10, 0)


@pytest.mark.soak
def test_s27_a_site_that_is_down_for_a_minute(fleet: QueueFleet, pol: str) -> None:
    isolate(fleet, pol, 256 << 10, 60)


def test_s28_two_ways_and_two_sources_stay_apart(fleet: QueueFleet, pol: str) -> None:
    ways = {(S, A): numbered("sa", 20), (A, S): numbered("as", 20), (B, A): numbered("ba", 20)}
    for (source, sink), payloads in ways.items():
        fleet.transmit(source, pol, payloads, sink)
    for (source, sink), payloads in ways.items():
        fleet.until_received(sink, source, pol, payloads)
    query = "SELECT remote FROM queues.queue WHERE client = %s AND head > 0 ORDER BY remote"
    assert {site: fleet.ask(site, query, (pol,)) for site in (S, A, B)} == {S: [A], A: [B, S], B: []}


# -- leaders


def killed(fleet: QueueFleet, first: Node, until_taken: Callable[[], None]) -> None:
    first.kill()
    until_taken()


def overtaken(fleet: QueueFleet, first: Node, until_taken: Callable[[], None]) -> None:
    """It wakes up in the midst of its work, and another one has its lease."""
    with first.frozen():
        fleet.do(first.id.site, "UPDATE site.lease SET expires_at = '-infinity'")
        until_taken()
    eventually(lambda: first.view("status").get("leads") is False, why=first.log)


@pytest.mark.parametrize("loses", [killed, overtaken])
def test_s31_when_the_sink_s_leader_loses_its_lease_in_mid_delta_another_node_goes_on(
    fleet: QueueFleet, pol: str, loses: Callable[[QueueFleet, Node, Callable[[], None]], None]
) -> None:
    first, other = fleet.node(B), fleet.add(B, f"n{next(_numbers)}")
    written, stop = list[bytes](), threading.Event()

    def write() -> None:
        while not stop.wait(0.002):
            fleet.transmit(S, pol, [b"%d" % len(written)], B)
            written.append(b"%d" % len(written))

    def until_more(count: int) -> None:
        wanted = len(fleet.received(B, S, pol)) + count
        eventually(lambda: len(fleet.received(B, S, pol)) >= wanted, why=fleet.logs)

    other.start()
    writer = threading.Thread(target=write)
    try:
        eventually(lambda: other.view("status"), why=other.log)
        eventually(first.leads, why=first.log)
        with providing(fleet, S, pol, Provided()) as provided:
            steady(fleet, pol, B)
            writer.start()
            until_more(50)
            loses(fleet, first, lambda: eventually(other.leads, why=fleet.logs))
            until_more(50)
            stop.set()
            writer.join()
            fleet.until_received(B, S, pol, [*SNAPSHOT, *written])
            assert other.leads()
        assert provided.times(B) == 1
    finally:
        stop.set()
        if first.process is not None and first.process.poll() is not None:
            first.start()
        other.stop()
        fleet.nodes.remove(other)
        eventually(first.leads, why=first.log)


def test_s32_roles_switch_and_each_way_has_only_its_own(fleet: QueueFleet, pol: str) -> None:
    with providing(fleet, S, pol, Provided()), providing(fleet, A, pol, Provided()) as provided:
        steady(fleet, pol, A)
        fleet.transmit(S, pol, numbered("sa", 8), A)
        fleet.until_received(A, S, pol, [*SNAPSHOT, *numbered("sa", 8)])
        fleet.node(A).stop()  # a new leader there, and with it a new pair of incarnations
        fleet.node(A).start()
        fleet.transmit(A, pol, [b"first"], S)
        fleet.until_received(S, A, pol, SNAPSHOT)
        fleet.transmit(A, pol, numbered("as", 5), S)
        fleet.until_received(S, A, pol, [*SNAPSHOT, *numbered("as", 5)])
    assert provided.times(S) == 1
    assert fleet.received(A, S, pol) == [*SNAPSHOT, *numbered("sa", 8)]


def test_s33_status_says_what_remains_and_what_the_last_snapshot_was(fleet: QueueFleet, pol: str) -> None:
    gate = threading.Event()
    gate.set()

    def gated(context: SnapshotContext) -> None:
        for _ in range(0 if gate.is_set() else 3):
            context.transmit(bytes(700_000))  # a first chunk is on its way
        five(context)
        assert gate.wait(60)

    def source() -> dict[str, Any]:
        return fleet.status(S, "source", B, pol)

    def sink() -> dict[str, Any]:
        return fleet.status(B, "sink", S, pol)

    with providing(fleet, S, pol, Provided(gated)) as provided:
        steady(fleet, pol, B)
        eventually(lambda: sink().get("consistent") is True, why=sink)
        with fleet.down(B):
            fleet.transmit(S, pol, numbered("d", 10), B)
            eventually(lambda: source()["remaining"] == 10, why=source)
            query = (
                "SELECT base, extract(epoch FROM completed_at)::float8 FROM queues.session WHERE (client, origin) = (%s, %s)"
            )
            ((base, at),) = fleet.ask(B, query, (pol, S))
            said = source()
            assert (said["type"], said["status"], said["snapshot"]) == ("LOG_ENTRY", "ONGOING", "COMPLETED")
            assert (said["base"], said["request"], said["forced"]) == (base, provided.last_for(B), False)
            assert abs(said["completed_at"] - at) < 5
        eventually(lambda: source()["remaining"] == 0, why=lambda: (source(), fleet.logs()))
        gate.clear()
        sync(fleet, B, pol)
        eventually(lambda: sink()["consistent"] is False, why=sink)
        assert (sink()["type"], sink()["status"], sink()["snapshot"]) == ("SNAPSHOT", "ONGOING", "ONGOING")
        eventually(lambda: (source()["type"], source()["snapshot"]) == ("SNAPSHOT", "ONGOING"), why=source)
        gate.set()
        eventually(lambda: sink()["consistent"] is True, why=sink)
        assert sink()["base"] > base
        with fleet.down(S):
            assert source()["status"] == "STOPPED"
        eventually(lambda: source()["status"] == "ONGOING", why=source)


def test_s36_a_destination_over_its_cap_refuses_and_no_other_does(fleet: QueueFleet, pol: str) -> None:
    client, over = QueueClient(pol), numbered("d", CAP + 20)
    fleet.transmit(A, pol, [b"first"], S, B)
    for site in (S, B):
        fleet.until_received(site, A, pol, [b"first"])
    with fleet.down(B):
        fleet.transmit(A, pol, over, B)
        eventually(lambda: fleet.ask(A, "SELECT 1 FROM queues.needs_snapshot WHERE client = %s AND over_cap", (pol,)))
        with psycopg.connect(fleet.dsn[A]) as conn:
            with pytest.raises(NoRoom):
                client.transmit(conn, b"refused", [B])
            conn.rollback()
            client.transmit(conn, b"to S", [S])
            client.transmit(conn, b"to both", [S, B])
        fleet.until_received(S, A, pol, [b"first", b"to S", b"to both"])
    fleet.until_received(B, A, pol, [b"first", *over, b"to both"])
    with psycopg.connect(fleet.dsn[A]) as conn:
        client.wait_for_room(conn, [B], 30)
        client.transmit(conn, b"welcome", [B])
    fleet.until_received(B, A, pol, [b"first", *over, b"to both", b"welcome"])


# -- kill -9 at random points


def test_g1_ten_kills_of_sender_relay_and_receiver_lose_repeat_and_reorder_nothing(fleet: QueueFleet) -> None:
    kill_at_random(fleet, "ten", 10)


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_g1_two_hundred_kills_of_sender_relay_and_receiver(fleet: QueueFleet) -> None:
    kill_at_random(fleet, "many", 200)
