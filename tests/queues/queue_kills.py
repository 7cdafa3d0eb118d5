"""kill -9 of sender, relay and receiver at random points while an application writes, and what must hold afterwards."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise, product, takewhile
from operator import gt

import psycopg
from queue_fleet import A, B, Provided, QueueFleet, Row, S, providing, sync

from trunkline.queues.client import QueueClient
from trunkline.queues.kinds import Kind
from trunkline.queues.provider import SnapshotContext
from waiting import eventually

RECORDS = 4


@contextmanager
def writing(fleet: QueueFleet, table: str, clients: Sequence[str]) -> Iterator[None]:
    """A number after the other, to both sites, of every client, in one transaction with the application's own row."""
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(fleet.dsn[S]) as conn:
            for n in count(1):
                conn.execute(f"INSERT INTO {table} VALUES ({n})".encode())
                for client in clients:
                    QueueClient(client).transmit(conn, b"%d" % n, [A, B])
                conn.commit()
                if stop.wait(0.02):
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def check_snapshots(rows: Sequence[Row], last: int) -> None:
    """After each whole snapshot exactly what follows the state it was made of; what was cut short counts for nothing."""
    starts = [n for n, row in enumerate(rows) if row.kind is Kind.START]
    assert starts[0] == 0
    assert len({rows[n].request for n in starts}) == len(starts), "a snapshot began twice"
    for begin, end in pairwise([*starts, len(rows)]):
        part = rows[begin + 1 : end]
        records = list(takewhile(lambda row: row.kind is Kind.SNAPSHOT, part))
        assert {row.request for row in records} <= {rows[begin].request}
        assert [row.payload[:1] for row in records] == [b"%d" % n for n in range(len(records))]
        following = part[len(records) :]
        assert following or end < len(rows), "the last snapshot is not whole"
        if following:
            assert (following[0].kind, following[0].request) == (Kind.LAST, rows[begin].request)
            assert len(records) == RECORDS
            state = int(records[0].payload.rpartition(b" ")[2])
            deltas = following[1:]
            assert {row.kind for row in deltas} <= {Kind.LOG_ENTRY}
            assert [int(row.payload) for row in deltas] == list(range(state + 1, state + 1 + len(deltas)))
            assert end < len(rows) or state + len(deltas) == last


def kill_at_random(fleet: QueueFleet, name: str, kills: int) -> None:
    bare, kept, chance = f"{name}_bare", f"{name}_kept", random.Random(kills)

    def state(context: SnapshotContext) -> None:
        (n,) = context.connection.execute(f"SELECT coalesce(max(n), 0) FROM {name}".encode()).fetchone() or (0,)
        for record in range(RECORDS):
            context.transmit(b"%d" % record + bytes(400_000) + b" %d" % n)

    def arrived() -> list[int]:
        query = "SELECT head FROM queues.queue WHERE client = %s"
        return [sum(fleet.ask(site, query, (client,))) for site in (A, B) for client in (bare, kept)]

    def told() -> object:
        return arrived(), fleet.stalls(), fleet.logs()

    def strikes() -> None:
        for nth in range(kills):
            if nth % 4 == 1:
                sync(fleet, chance.choice((A, B)), kept)
            threading.Event().wait(chance.uniform(0.0, 2.0))
            fleet.strike((S, A, B)[nth % 3])
            if nth % 2:  # every other one finds the sites in the midst of their recovery
                before = arrived()
                eventually(lambda before=before: all(map(gt, arrived(), before)), why=told)

    def has(site: str, client: str, payload: bytes) -> bool:
        return fleet.received(site, S, client)[-1] == payload

    fleet.do(S, f"CREATE TABLE {name} (n int PRIMARY KEY)")
    with providing(fleet, S, kept, Provided(state)):
        with writing(fleet, name, (bare, kept)):
            strikes()
        (last,) = fleet.ask(S, f"SELECT max(n) FROM {name}")
        for site, client in product((A, B), (bare, kept)):
            eventually(lambda site=site, client=client: has(site, client, b"%d" % last), why=told)
    for site in (A, B):
        assert fleet.received(site, S, bare) == [b"%d" % n for n in range(1, last + 1)]
        assert set(fleet.kinds(site, S, bare)) == {Kind.LOG_ENTRY}
        check_snapshots(fleet.rows(site, S, kept), last)
    assert fleet.wrong() == []
