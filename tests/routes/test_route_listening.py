"""H41: LISTEN loses nothing that its listener does not look for, and acks are rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from route_ears import Ear, listening, until
from trunkline.core.clock import ManualClock
from trunkline.routes.sync.base import Ack, Answer, Delta, Operation
from trunkline.routes.sync.postgres import MOST_BYTES, SWEEP_SECONDS, PostgresCarrier, PostgresSyncer, packed
from trunkline.routes.sync.waiting import Load

_LISTENERS = "SELECT pid, state, backend_xmin FROM pg_stat_activity WHERE application_name = 'trunkline-routes-listen'"
_KILL = f"SELECT count(pg_terminate_backend(pid)) FROM ({_LISTENERS}) AS listeners"


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    dsn = make_databases("routes")
    run(dsn, "CREATE TABLE numbers (n int)")
    return dsn


@pytest.fixture
def dsn(database: str) -> str:
    run(database, "TRUNCATE numbers, routes.ack")
    return database


def run(dsn: str, query: str, *args: object) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        done = conn.execute(query.encode(), args)
        return done.fetchall() if done.description else []


class Reader(Ear):
    """Has a number of its own, and reads all that are newer, from a table that others write before they publish."""

    def __init__(self, syncer: PostgresSyncer, dsn: str) -> None:
        super().__init__(syncer)
        self.dsn, self.known = dsn, set[int]()
        self.while_reading: list[int] = []

    async def on_gap(self, answer: Answer) -> None:
        await super().on_gap(answer)
        found = {row[0] for row in run(self.dsn, "SELECT n FROM numbers WHERE n > %s", max(self.known, default=0))}
        for number in self.while_reading:
            write(self.dsn, number)
        self.known |= found

    async def on_delta(self, delta: Delta) -> None:
        await super().on_delta(delta)
        self.known.add(int(delta.id))


def write(dsn: str, number: int) -> None:
    """As another instance: stored, and published at once."""
    with psycopg.connect(dsn) as conn:
        conn.execute("INSERT INTO numbers VALUES (%s)", (number,))
        conn.execute("SELECT pg_notify('routes_sync', %s)", (f"add,{number},other,s{number}",))


async def test_h41_it_listens_before_it_reads_so_what_comes_in_between_is_heard(dsn: str) -> None:
    run(dsn, "INSERT INTO numbers VALUES (1), (2)")
    reader = Reader(PostgresSyncer(dsn, "i1"), dsn)
    reader.while_reading = [3, 4]
    async with listening(reader):
        await until(lambda: reader.known == {1, 2, 3, 4})
        assert reader.ids == ["3", "4"]


async def test_h41_after_each_lost_connection_it_listens_again_and_reads_what_it_missed(dsn: str) -> None:
    reader = Reader(PostgresSyncer(dsn, "i1"), dsn)
    with capture_logs() as logs:
        async with listening(reader):
            for number in range(1, 6):
                assert run(dsn, _KILL) == [(1,)]
                write(dsn, number * 10)  # nobody listens
                write(dsn, number * 10 + 1)
                await until(lambda number=number: reader.gaps == number + 1)
                write(dsn, number * 10 + 2)
                await until(lambda number=number: reader.known == {n * 10 + m for n in range(1, number + 1) for m in (0, 1, 2)})
    assert [line["event"] for line in logs] == [
        "route changes of others are not heard", "route changes of others are heard again",
    ] * 5  # fmt: skip


async def test_h41_the_listening_connection_is_in_no_transaction(dsn: str) -> None:
    ear = Ear(PostgresSyncer(dsn, "i1"))
    async with listening(ear):
        [(_, state, xmin)] = run(dsn, _LISTENERS)
        assert (state, xmin) == ("idle", None)


async def test_h41_acks_are_rows_and_who_was_away_reads_them(dsn: str) -> None:
    first, second = Ear(PostgresSyncer(dsn, "i1")), Ear(PostgresSyncer(dsn, "i2"))
    async with listening(second, first):
        session = first.publish("x", "y")
        await until(lambda: len(second.deltas) == 2)
        await first.syncer.stop()
        second.syncer.ack(Ack.of(second.deltas[0], "i2", 5))
        second.syncer.ack(Ack.of(second.deltas[1], "i2", 0, "no such \x00 plugin"))
        await until(lambda: len(run(dsn, "SELECT 1 FROM routes.ack")) == 2)
        await first.start()
        await until(lambda: len(first.acks) == 2, lambda: first.acks)
    rows = run(dsn, "SELECT session, instance, operation, item, org, app, id, revision, reason FROM routes.ack ORDER BY id")
    who = (session, "i2", "add", "route", "myorg", "myapp")
    assert rows == [(*who, "x", 5, ""), (*who, "y", 0, "no such ␀ plugin")]
    assert sorted((ack.id, ack.revision, ack.reason) for ack in first.acks) == [("x", 5, ""), ("y", 0, "no such ␀ plugin")]


async def test_the_last_ack_of_an_instance_on_a_delta_is_the_one_that_stays(dsn: str) -> None:
    carrier = PostgresCarrier(dsn, ManualClock())
    again = [Ack("s1", "i1", revision, reason, id="x") for revision, reason in ((1, "not yet"), (2, "nor now"))]
    await carrier.send(Load([], again))
    await carrier.send(Load([], [Ack("s1", "i1", 3, id="x")]))
    await carrier.close()
    assert run(dsn, "SELECT id, revision, reason FROM routes.ack") == [("x", 3, "")]


async def test_old_acks_are_removed_now_and_then(dsn: str) -> None:
    clock = ManualClock()
    carrier = PostgresCarrier(dsn, clock, keep_seconds=3600)

    async def kept_after(session: str) -> list[str]:
        await carrier.send(Load([], [Ack(session, "i1", 1, id="x")]))
        return [row[0] for row in run(dsn, "SELECT session FROM routes.ack ORDER BY session")]

    assert await kept_after("s1") == ["s1"]
    run(dsn, "UPDATE routes.ack SET at = at - interval '61 minutes'")
    assert await kept_after("s2") == ["s1", "s2"]
    clock.advance(SWEEP_SECONDS)
    assert await kept_after("s3") == ["s2", "s3"]
    await carrier.close()


async def test_acks_that_cannot_be_kept_are_counted_and_deltas_go_on(dsn: str) -> None:
    first, second = Ear(PostgresSyncer(dsn, "i1")), Ear(PostgresSyncer(dsn, "i2"))
    with capture_logs() as logs:
        async with listening(first, second):
            run(dsn, "ALTER TABLE routes.ack RENAME TO away")
            second.syncer.ack(Ack("s1", "i2", 1))
            await until(lambda: second.syncer.counts.unsent == 1)
            second.publish("x")
            await until(lambda: first.ids == ["x"])
    run(dsn, "ALTER TABLE routes.away RENAME TO ack")
    assert [line["log_level"] for line in logs] == ["error"]


def test_texts_share_a_notification_as_long_as_there_is_room() -> None:
    texts = [f"{n:0100}" for n in range(200)]
    packs = packed(texts)
    assert [text for pack in packs for text in pack.split("\n")] == texts
    assert all(len(pack) <= MOST_BYTES for pack in packs)
    assert [len(pack) for pack in packs[:-1]] == [78 * 101 - 1] * 2
    assert packed([]) == []
    assert packed(["a" * MOST_BYTES, "b"]) == ["a" * MOST_BYTES, "b"]


async def test_a_delta_with_no_room_in_a_notification_is_a_look_at_everything(dsn: str) -> None:
    first, second = Ear(PostgresSyncer(dsn, "i1")), Ear(PostgresSyncer(dsn, "i2"))
    async with listening(first, second):
        session = first.publish("x" * 9_000, "y")
        await until(lambda: second.ids == ["y"] and first.acks)
        assert second.gaps == 2
        assert [(ack.session, ack.operation) for ack in first.acks] == [(session, Operation.ALL)]
