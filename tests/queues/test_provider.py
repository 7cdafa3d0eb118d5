"""A real provider on a real database: what it is given, what becomes of its records, and how it hears that it is over."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from snapshot_source import CLIENT, Source, source_at

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Invalid
from trunkline.queues import requests
from trunkline.queues.client import QueueClient
from trunkline.queues.log import PostgresLog
from trunkline.queues.provider import SnapshotContext, SnapshotProvider, unregister
from trunkline.queues.snapshot_chunks import CHUNK_BYTES, SnapshotCancelled
from waiting import eventually

KILLED = Path(__file__).with_name("killed_provider.py")
SNAPSHOT = [f"s{n}".encode() for n in range(5)]


@pytest.fixture(scope="module")
def dsn(make_databases: Callable[..., str]) -> str:
    dsn = make_databases("queues")
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE account (id int PRIMARY KEY, value text)")
    return dsn


@pytest.fixture
def source(dsn: str) -> Iterator[Source]:
    with source_at(dsn) as source:
        yield source
        source.site.do("TRUNCATE account")


def write(conn: psycopg.Connection[Any], id_: int) -> None:
    """The application's own row, and the message of it, in one transaction."""
    conn.execute("INSERT INTO account VALUES (%s, 'x')", (id_,))
    QueueClient(CLIENT).transmit(conn, str(id_).encode(), ["hub"])


def send_accounts(context: SnapshotContext) -> None:
    for (id_,) in context.connection.execute("SELECT id FROM account ORDER BY id"):
        context.transmit(str(id_).encode())


def after(source: Source, base: int | None) -> list[bytes]:
    """The log behind the base, all of it stamped."""
    assert base is not None
    source.stamper.round()
    return [e.payload for e in PostgresLog(source.site.pool()).read(base, 100, {"hub"}).entries]


class Application:
    """Its provider, and what that was called with."""

    def __init__(
        self, source: Source, work: Callable[[SnapshotContext], None], pause: float = 0.01, reads_elsewhere: bool = False
    ) -> None:
        self.calls: list[SnapshotContext] = []
        self.errors: list[BaseException] = []
        self._work = work
        backoff = Backoff(pause, pause, lambda: 1.0)
        self.provider = SnapshotProvider(source.site.dsn, CLIENT, self._provide, "app", backoff, reads_elsewhere)
        source.site.stack.enter_context(self.provider)
        eventually(lambda: CLIENT in source.within(requests.providers))

    def _provide(self, context: SnapshotContext) -> None:
        self.calls.append(context)
        try:
            self._work(context)
        except BaseException as error:
            self.errors.append(error)
            raise


def send_all(context: SnapshotContext) -> None:
    for payload in SNAPSHOT:
        context.transmit(payload)


def until_complete(source: Source) -> None:
    eventually(lambda: [r.state for r in source.rows()] == ["complete"], why=source.rows)


def test_s06_the_provider_is_called_once_and_its_records_arrive_in_order_before_the_end_marker(source: Source) -> None:
    application = Application(source, send_all)
    request = source.ask("a", reason="first")
    assert source.export() == [request]
    until_complete(source)
    assert source.fetch(request) == SNAPSHOT
    source.deliver(request, "a")
    (call,) = application.calls
    assert (call.client, call.request_id, call.destinations) == (CLIENT, request, ("a",))
    assert (call.reason, call.forced) == ("first", False)


def test_s08_a_provider_that_sends_nothing_makes_an_empty_snapshot(source: Source) -> None:
    Application(source, lambda context: None)
    request = source.ask("a")
    source.export()
    until_complete(source)
    assert (source.fetch(request), source.row(request).chunks) == ([], 0)


def test_a_request_from_before_the_provider_started_is_served(source: Source) -> None:
    request = source.ask("a", "b", reason="operator", forced=True)
    source.provide_for(CLIENT)
    source.export()
    application = Application(source, send_all)
    until_complete(source)
    assert [(c.destinations, c.reason, c.forced) for c in application.calls] == [(("a", "b"), "operator", True)]
    assert source.fetch(request) == SNAPSHOT
    assert source.stored() == [request]


def test_s07_what_changes_while_the_provider_reads_is_not_in_its_snapshot(source: Source) -> None:
    site = source.site
    site.do("INSERT INTO account VALUES (1, 'old'), (2, 'old')")
    seen: list[list[tuple[int, str]]] = []

    def work(context: SnapshotContext) -> None:
        for change in ("UPDATE account SET value = 'new'", "INSERT INTO account VALUES (3, 'new')"):
            site.do(change)
            rows = context.connection.execute("SELECT id, value FROM account ORDER BY id").fetchall()
            with psycopg.connect(context.dsn) as other:  # as Spark's partitions do
                other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                other.execute(f"SET TRANSACTION SNAPSHOT '{context.snapshot}'".encode())
                seen.extend([rows, other.execute("SELECT id, value FROM account ORDER BY id").fetchall()])
        for id_, value in rows:
            context.transmit(f"{id_} {value}".encode())

    Application(source, work)
    request = source.ask("a")
    site.do("UPDATE account SET value = 'older'")
    source.export()
    site_before_read = [(1, "older"), (2, "older")]
    until_complete(source)
    assert seen == [site_before_read] * 4
    assert source.fetch(request) == [b"1 older", b"2 older"]


def test_h19_a_committed_entry_is_in_the_snapshot_or_after_the_base_and_never_in_both(source: Source) -> None:
    source.site.do("INSERT INTO queues.site (name) VALUES ('hub') ON CONFLICT DO NOTHING")
    Application(source, send_accounts)
    with psycopg.connect(source.site.dsn) as unstamped:
        write(unstamped, 1)
    late = source.site.connect()
    write(late, 2)
    late.execute("SET CONSTRAINTS ALL IMMEDIATE")  # it has its ticket, and has not committed
    request = source.ask("hub")
    with ThreadPoolExecutor(1) as pool, psycopg.connect(source.site.dsn) as holding:
        holding.execute("SELECT FROM queues.request FOR UPDATE")
        exporting = pool.submit(source.export)  # its snapshot is taken; it waits to write the base
        eventually(lambda: source.site.ask("SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"))
        with psycopg.connect(source.site.dsn) as meanwhile:
            write(meanwhile, 3)
        late.commit()
        holding.rollback()
        assert exporting.result(30) == [request]
    with psycopg.connect(source.site.dsn) as later:
        write(later, 4)
    until_complete(source)
    assert source.fetch(request) == [b"1"]
    assert sorted(after(source, source.row(request).base)) == [b"2", b"3", b"4"]


def test_h19_who_reads_elsewhere_ends_when_all_that_it_may_know_is_in_the_log(source: Source) -> None:
    source.site.do("INSERT INTO queues.site (name) VALUES ('hub') ON CONFLICT DO NOTHING")

    def work(context: SnapshotContext) -> None:
        with psycopg.connect(context.dsn) as conn:
            write(conn, 1)
        send_all(context)

    late = source.site.connect()
    write(late, 2)
    late.execute("SET CONSTRAINTS ALL IMMEDIATE")  # its ticket is the older one: a hole of the log until it commits
    Application(source, work, reads_elsewhere=True)
    request = source.ask("hub")
    source.export()
    eventually(lambda: source.site.ask("SELECT FROM queues.ticket"))
    late.commit()
    assert source.state(request) == "providing"
    eventually(lambda: source.stamper.round().stamped or source.state(request) == "complete")
    until_complete(source)
    (reapplied,) = source.site.ask("SELECT reapplied_to - base FROM queues.request WHERE id = %s", (request,))
    assert reapplied == 2
    assert sorted(after(source, source.row(request).base)) == [b"1", b"2"]


def test_h19_who_reads_elsewhere_and_waits_for_the_log_goes_on_when_its_request_is_over(source: Source) -> None:
    source.site.do("INSERT INTO queues.site (name) VALUES ('hub') ON CONFLICT DO NOTHING")

    def work(context: SnapshotContext) -> None:
        with psycopg.connect(context.dsn) as conn:
            QueueClient(CLIENT).transmit(conn, b"unstamped", ["hub"])

    application = Application(source, work, reads_elsewhere=True)
    first = source.ask("hub")
    source.export()
    eventually(lambda: source.site.ask("SELECT FROM queues.ticket"))
    source.within(requests.cancel, first, "the operator said so")
    second = source.ask("hub")
    source.export()
    eventually(lambda: [call.request_id for call in application.calls] == [first, second])
    assert source.state(first) == "cancelled"


def test_s07_snapshot_and_log_written_in_turns_lose_and_repeat_nothing(source: Source) -> None:
    """Entries commit while the provider sends: those of before the request are in the snapshot, the others follow it."""
    source.site.do("INSERT INTO queues.site (name) VALUES ('hub') ON CONFLICT DO NOTHING")

    def work(context: SnapshotContext) -> None:
        for nth, (id_,) in enumerate(context.connection.execute("SELECT id FROM account ORDER BY id").fetchall()):
            with psycopg.connect(context.dsn) as conn:
                write(conn, 10 + nth)
            source.stamper.round()
            context.transmit(str(id_).encode())

    for id_ in range(5):
        with psycopg.connect(source.site.dsn) as conn:
            write(conn, id_)
    Application(source, work)
    request = source.ask("hub")
    source.export()
    until_complete(source)
    assert source.fetch(request) == [b"0", b"1", b"2", b"3", b"4"]
    assert after(source, source.row(request).base) == [b"10", b"11", b"12", b"13", b"14"]


def test_the_snapshot_lasts_when_the_leader_that_exported_it_is_gone(source: Source) -> None:
    taken, gone = threading.Event(), threading.Event()

    def work(context: SnapshotContext) -> None:
        taken.set()
        assert gone.wait(30)
        with psycopg.connect(context.dsn) as other:
            other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            other.execute(f"SET TRANSACTION SNAPSHOT '{context.snapshot}'".encode())
        send_all(context)

    Application(source, work)
    request = source.ask("a")
    source.export()
    assert taken.wait(30)
    source.exported.pop().close()
    source.new_leader()
    assert source.expire() == []
    gone.set()
    until_complete(source)
    assert source.fetch(request) == SNAPSHOT


def test_records_are_cut_into_dense_chunks_of_at_most_1_mib(source: Source) -> None:
    def work(context: SnapshotContext) -> None:
        for n in range(50):
            context.transmit(bytes([n]) * 100_000, {"n": str(n)}, progress=n)
        context.transmit(b"x" * CHUNK_BYTES, progress=99)

    Application(source, work)
    request = source.ask("a")
    source.export()
    until_complete(source)
    sizes = source.site.ask("SELECT octet_length(body) FROM queues.send_snapshot ORDER BY chunk")
    assert len(sizes) == 6
    assert max(sizes[:-1]) <= CHUNK_BYTES
    assert source.site.ask("SELECT chunk FROM queues.send_snapshot ORDER BY chunk") == list(range(6))
    records = source.fetch_records(request)
    assert records == [*(({"n": str(n)}, bytes([n]) * 100_000) for n in range(50)), ({}, b"x" * CHUNK_BYTES)]
    row = source.row(request)
    assert (row.chunks, row.records, row.progress) == (6, 51, 100)
    assert row.bytes > 50 * 100_000 + CHUNK_BYTES


def test_a_record_that_no_link_could_carry_is_refused_and_the_rest_goes_on(source: Source) -> None:
    refused: list[Invalid] = []

    def work(context: SnapshotContext) -> None:
        tries: list[tuple[bytes, dict[str, str], int]] = [
            (b"x" * (CHUNK_BYTES + 1), {}, 1), (b"", {"h": "x" * 20_000}, 1), (b"", {}, 101),
        ]  # fmt: skip
        for payload, headers, progress in tries:
            with pytest.raises(Invalid) as error:
                context.transmit(payload, headers, progress)
            refused.append(error.value)
        send_all(context)

    Application(source, work)
    request = source.ask("a")
    source.export()
    until_complete(source)
    assert [e.why.split(" bytes")[0] for e in refused] == [
        "its payload of 1048577", "its headers of 20001", "its progress is 101",
    ]  # fmt: skip
    assert source.fetch(request) == SNAPSHOT


def test_s09_a_superseded_request_ends_in_the_provider_and_only_the_newer_ones_data_is_there(source: Source) -> None:
    superseded = threading.Event()

    def work(context: SnapshotContext) -> None:
        if len(application.calls) == 1:
            context.transmit(b"r1" * (CHUNK_BYTES // 2))
            context.transmit(b"r1" * (CHUNK_BYTES // 2))
            assert superseded.wait(30)
            for _ in range(10_000):
                context.transmit(b"r1")  # raises before it has sent them all
            context.transmit(b"r1" * (CHUNK_BYTES // 2))
        send_all(context)

    application = Application(source, work)
    r1 = source.ask("a")
    source.export()
    eventually(lambda: source.stored() == [r1])
    r2 = source.ask("a", reason="operator", forced=True)
    superseded.set()
    eventually(lambda: source.export() == [r2])
    until_complete(source)
    assert [type(e) for e in application.errors] == [SnapshotCancelled]
    assert (source.state(r1), source.stored()) == ("superseded", [r2])
    assert source.fetch(r2) == SNAPSHOT
    source.deliver(r1, "a")
    assert source.state(r2) == "complete"  # r1's end does not end r2
    source.deliver(r2, "a")
    assert [c.request_id for c in application.calls] == [r1, r2]


def test_cancel_reaches_a_provider_that_sends_nothing(source: Source) -> None:
    heard = threading.Event()

    def work(context: SnapshotContext) -> None:
        eventually(lambda: context.cancelled, 30)
        heard.set()  # and returns, as if all were well

    Application(source, work)
    request = source.ask("a")
    source.export()
    eventually(lambda: source.state(request) == "providing")
    source.within(requests.cancel, request, "an operator said so")
    assert heard.wait(30)
    eventually(lambda: not source.site.ask("SELECT FROM pg_locks WHERE locktype = 'advisory'"))
    assert (source.state(request), source.rows()) == ("cancelled", [])


def test_a_provider_that_hides_the_cancel_and_goes_on_completes_nothing(source: Source) -> None:
    def work(context: SnapshotContext) -> None:
        if len(application.calls) == 1:
            eventually(lambda: context.cancelled, 30)
            for _ in range(3):
                with pytest.raises(SnapshotCancelled):
                    context.transmit(b"lost")
            again.set()

    again = threading.Event()
    application = Application(source, work)
    source.ask("a")
    source.export()
    eventually(lambda: len(application.calls) == 1)
    application.provider.__exit__()  # told to stop, with its request still open
    assert again.is_set()
    (row,) = source.rows()
    assert (row.state, row.id == application.calls[0].request_id) == ("wanted", False)


def test_h18_a_provider_killed_in_mid_snapshot_leads_to_a_new_base_and_complete_data(source: Source) -> None:
    process = subprocess.Popen([sys.executable, str(KILLED), source.site.dsn, CLIENT])
    try:
        eventually(lambda: CLIENT in source.within(requests.providers))
        r1 = source.ask("a", "b")
        source.export()
        eventually(lambda: source.stored() == [r1, r1])
        assert source.expire() == []  # it lives
    finally:
        process.kill()
        process.wait(20)
    eventually(lambda: source.expire() == [r1])
    assert (source.state(r1), source.stored()) == ("failed", [])
    application = Application(source, send_all)
    (r2,) = source.export()
    until_complete(source)
    assert [c.destinations for c in application.calls] == [("a", "b")]
    assert source.fetch(r2) == SNAPSHOT
    assert r1 != r2


def test_s35_a_provider_that_fails_is_tried_again_with_a_new_base_and_says_why(source: Source) -> None:
    def work(context: SnapshotContext) -> None:
        send_all(context)
        if len(application.calls) < 3:
            raise RuntimeError(f"no luck {len(application.calls)}")

    application = Application(source, work)
    first = source.ask("a", reason="operator", forced=True)
    eventually(lambda: (source.export(), [r.state for r in source.rows()] == ["complete"])[1])
    tried = [c.request_id for c in application.calls]
    assert len(set(tried)) == 3
    assert tried[0] == first
    assert source.site.ask("SELECT state FROM queues.request ORDER BY created_at") == ["failed", "failed", "complete"]
    assert source.site.ask("SELECT error FROM queues.request ORDER BY created_at") == [
        "RuntimeError: no luck 1", "RuntimeError: no luck 2", None,
    ]  # fmt: skip
    assert source.row(tried[2]).forced
    assert source.fetch(tried[2]) == SNAPSHOT


def test_s35_the_reason_is_seen_during_the_pause_and_a_newer_request_ends_it(source: Source) -> None:
    def work(context: SnapshotContext) -> None:
        if len(application.calls) == 1:
            raise RuntimeError("no luck")

    application = Application(source, work, pause=600.0)
    r1 = source.ask("a")
    source.export()
    eventually(lambda: source.row(r1).error == "RuntimeError: no luck")
    r2 = source.ask("a", reason="operator", forced=True)
    eventually(lambda: source.export() == [r2])
    until_complete(source)
    assert [c.request_id for c in application.calls] == [r1, r2]


def test_h19_a_provider_that_ends_the_snapshots_transaction_is_not_believed(source: Source) -> None:
    def work(context: SnapshotContext) -> None:
        if len(application.calls) == 1:
            context.connection.commit()
        send_all(context)

    application = Application(source, work)
    r1 = source.ask("a")
    source.export()
    eventually(lambda: source.state(r1) == "failed")
    eventually(lambda: (source.export(), [r.state for r in source.rows()] == ["complete"])[1])
    (error,) = source.site.ask("SELECT error FROM queues.request WHERE id = %s", (r1,))
    assert "the provider ended the transaction that it was given" in error


def test_a_provider_outlives_its_connections(source: Source) -> None:
    application = Application(source, send_all)
    source.site.do(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'trunkline-provider-pol'"
    )
    request = source.ask("a")
    source.export()
    until_complete(source)
    assert source.fetch(request) == SNAPSHOT
    assert len(application.calls) == 1


def test_a_client_can_give_up_having_snapshots(source: Source) -> None:
    source.provide_for(CLIENT, "inv")
    source.within(unregister, CLIENT)
    assert set(source.within(requests.providers)) == {"inv"}
