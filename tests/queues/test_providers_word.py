"""What tells a provider that works from one that is stuck."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from snapshot_source import CLIENT, Source, source_at

from trunkline.core.errors import Invalid
from trunkline.queues.messages import RECORDS
from trunkline.queues.provider import SnapshotContext, SnapshotProvider
from trunkline.queues.snapshot_chunks import WORD_SECONDS, ChunkWriter, SnapshotCancelled
from waiting import eventually

WATCHERS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'trunkline-provider-pol'"
    " AND query LIKE '%%FROM queues.request WHERE id%%' AND query LIKE '%%state = ''providing''%%'"
)


@pytest.fixture(scope="module")
def dsn(make_databases: Callable[..., str]) -> str:
    return make_databases("queues")


@pytest.fixture
def source(dsn: str) -> Iterator[Source]:
    with source_at(dsn) as source:
        yield source


class Slow:
    """A provider that said something last an hour ago, on a clock of its own."""

    def __init__(self, source: Source) -> None:
        self.source, self.now = source, 0.0
        self.request = source.ask("a")
        source.make_ready([self.request], "1", 5)
        source.site.do("UPDATE queues.request SET state = 'providing', provider = 'slow'")
        conn = source.site.connect()
        conn.autocommit = True
        conn.execute("SELECT pg_advisory_lock(hashtextextended('trunkline.providing ' || %s::uuid, 0))", (self.request,))
        self.writer = ChunkWriter(conn, self.request, "slow", lambda: self.now)
        source.site.do("UPDATE queues.request SET updated_at = now() - interval '1 hour'")

    def stored(self) -> list[list[bytes]]:
        bodies = self.source.site.ask("SELECT body FROM queues.send_snapshot ORDER BY chunk")
        return [[payload for _, payload in RECORDS.decode(body)] for body in bodies]


def test_h18_records_that_fill_no_chunk_are_a_sign_of_life(source: Source) -> None:
    slow = Slow(source)
    slow.writer.add(b"one", {})
    assert slow.stored() == [], "it waits for more"
    slow.now = WORD_SECONDS
    slow.writer.add(b"two", {}, 40)
    slow.writer.add(b"three", {})
    assert slow.stored() == [[b"one", b"two"]]
    assert source.expire() == []
    assert source.row(slow.request).progress == 40
    slow.writer.complete()
    assert slow.stored() == [[b"one", b"two"], [b"three"]]


def test_h18_one_that_says_that_it_works_is_believed_and_one_that_says_nothing_is_not(source: Source) -> None:
    slow = Slow(source)
    slow.now = WORD_SECONDS
    slow.writer.working(7)
    assert (source.expire(), source.row(slow.request).progress) == ([], 7)
    with pytest.raises(Invalid, match="its progress is 101"):
        slow.writer.working(101)
    source.site.do("UPDATE queues.request SET updated_at = now() - interval '1 hour'")
    slow.writer.working(8)
    assert source.expire() == [slow.request], "it said so a moment ago, and a word costs a transaction"
    slow.now = 2 * WORD_SECONDS
    with pytest.raises(SnapshotCancelled):
        slow.writer.working(9)


def test_a_snapshot_outlives_the_connection_that_looks_whether_it_is_wanted(source: Source) -> None:
    going, lost, errors = threading.Event(), threading.Event(), list[BaseException]()

    def provide(context: SnapshotContext) -> None:
        try:
            going.set()
            assert lost.wait(60)
            context.working()
            context.transmit(b"s0")
        except BaseException as error:
            errors.append(error)
            raise

    source.provide_for(CLIENT)
    request = source.ask("a")
    source.export()
    with SnapshotProvider(source.site.dsn, CLIENT, provide):
        assert going.wait(60)
        eventually(lambda: source.site.ask(WATCHERS))
        (first,) = source.site.ask(WATCHERS)
        source.site.do("SELECT pg_terminate_backend(%s)", (first,))
        eventually(lambda: [pid for pid in source.site.ask(WATCHERS) if pid != first], why=lambda: "no other looks")
        lost.set()
        eventually(lambda: source.state(request) == "complete" or errors)
    assert (errors, source.fetch(request)) == ([], [b"s0"])
