"""Who missed something, or comes in the midst of a snapshot, gets a whole one; between two real sites."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest
from queue_fleet import FIVE, A, Provided, QueueFleet, Row, S, five, providing, sync

from trunkline.queues.consumers import advance, attach, positions, reattach
from trunkline.queues.kinds import Kind
from trunkline.queues.provider import SnapshotContext
from waiting import eventually

pytestmark = pytest.mark.timeout(180)

WHOLE = [Kind.START, *[Kind.SNAPSHOT] * 5, Kind.LAST]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]) -> Iterator[QueueFleet]:
    with QueueFleet(tmp_path_factory.mktemp("fleet"), make_databases, (S, A), {}).running() as fleet:
        yield fleet


class Reader:
    """A consumer at athens of what sofia sends."""

    def __init__(self, fleet: QueueFleet, client: str, name: str) -> None:
        self.fleet, self.client, self.name = fleet, client, name

    def attach(self) -> None:
        with psycopg.connect(self.fleet.dsn[A]) as conn:
            attach(conn, self.client, self.name)

    def reattach(self) -> None:
        with psycopg.connect(self.fleet.dsn[A]) as conn:
            reattach(conn, self.client, self.name)

    def at(self) -> int:
        with psycopg.connect(self.fleet.dsn[A]) as conn:
            return next(p.position for p in positions(conn, self.client, self.name) if p.remote == S)

    def to_read(self) -> list[Row]:
        return self.fleet.rows(A, S, self.client)[self.at() :]

    def pass_all(self) -> None:
        at = len(self.fleet.rows(A, S, self.client))
        with psycopg.connect(self.fleet.dsn[A]) as conn:
            for place in positions(conn, self.client, self.name):
                advance(conn, self.client, self.name, place.queue, at)
        eventually(lambda: self.fleet.ask(A, "SELECT tail FROM queues.queue WHERE client = %s", (self.client,)) == [at])

    def until_a_whole_snapshot(self) -> list[Row]:
        """What it reads: no more than one snapshot, from its beginning to its end."""
        eventually(lambda: Kind.LAST in [row.kind for row in self.to_read()], 30, why=self.fleet.logs)
        rows = self.to_read()
        assert [row.kind for row in rows][: len(WHOLE)] == WHOLE
        assert len({row.request for row in rows[: len(WHOLE)]}) == 1
        return rows


def test_h23_a_consumer_that_returns_is_brought_up_by_a_snapshot(fleet: QueueFleet) -> None:
    with providing(fleet, S, "pol", Provided()) as provided:
        fleet.transmit(S, "pol", [b"first"], A)
        fleet.until_received(A, S, "pol", [b"", *FIVE, b""])
        busy, idle = Reader(fleet, "pol", "busy"), Reader(fleet, "pol", "idle")
        busy.attach()
        idle.attach()
        fleet.do(A, "UPDATE queues.consumer SET detached_at = now() WHERE name = 'idle'")
        busy.pass_all()
        idle.reattach()
        assert [row.payload for row in idle.until_a_whole_snapshot()] == [b"", *FIVE, b""]
        assert provided.times(A) == 2
        fleet.transmit(S, "pol", [b"after"], A)
        eventually(lambda: [row.payload for row in idle.to_read()][-2:] == [b"", b"after"], 30, why=fleet.logs)


@pytest.mark.parametrize("returns", [True, False])
def test_a_consumer_that_comes_in_mid_snapshot_gets_a_whole_one(fleet: QueueFleet, returns: bool) -> None:
    client, rest = f"half_{returns}".lower(), threading.Event()

    def work(context: SnapshotContext) -> None:
        for payload in FIVE[:4]:
            context.transmit(payload + bytes(600_000))
        assert rest.wait(60)
        context.transmit(FIVE[4])

    with providing(fleet, S, client, Provided(work)):
        fleet.transmit(S, client, [b"first"], A)
        busy, late = Reader(fleet, client, "busy"), Reader(fleet, client, "late")
        busy.attach()
        if returns:
            late.attach()
            fleet.do(A, "UPDATE queues.consumer SET detached_at = now() WHERE name = 'late'")
        eventually(lambda: len(fleet.rows(A, S, client)) >= 3, 30, why=fleet.logs)
        busy.pass_all()
        late.reattach() if returns else late.attach()
        rest.set()
        rows = late.until_a_whole_snapshot()
        assert [row.payload[:2] for row in rows[:7]] == [b"", *FIVE, b""]


def test_a_consumer_that_comes_in_the_midst_of_a_snapshot_that_is_complete_begins_behind_it(fleet: QueueFleet) -> None:
    with providing(fleet, S, "passed", Provided(five)):
        fleet.transmit(S, "passed", [b"first"], A)
        busy, late = Reader(fleet, "passed", "busy"), Reader(fleet, "passed", "late")
        busy.attach()
        fleet.until_received(A, S, "passed", [b"", *FIVE, b""])
        with psycopg.connect(fleet.dsn[A]) as conn:
            (place,) = positions(conn, "passed", "busy")
            advance(conn, "passed", "busy", place.queue, 3)
        eventually(lambda: fleet.ask(A, "SELECT tail FROM queues.queue WHERE client = 'passed'") == [3])
        late.attach()
        late.until_a_whole_snapshot()


def test_s11_a_forced_snapshot_waits_for_a_site_that_is_away_for_long_and_is_of_the_day_it_returns(fleet: QueueFleet) -> None:
    def until_state(request: str, state: str) -> None:
        query = "SELECT 1 FROM queues.request WHERE id = %s AND state = %s"
        eventually(lambda: fleet.ask(S, query, (request, state)), why=fleet.logs)

    def last() -> int:
        (seq,) = fleet.ask(S, "SELECT max(last_seq) FROM queues.stamp WHERE 'away' = ANY (set_clients)")
        return int(seq)

    def wanted() -> list[str]:
        return fleet.ask(S, "SELECT id::text FROM queues.request WHERE client = 'away' AND state = 'wanted' AND forced")

    with providing(fleet, S, "away", Provided()) as provided:
        fleet.transmit(S, "away", [b"first"], A)
        fleet.until_received(A, S, "away", [b"", *FIVE, b""])
        with fleet.down(A):
            eventually(lambda: fleet.status(S, "source", A, "away").get("stall") == f"no way to site {A}", why=fleet.stalls)
            forced = sync(fleet, A, "away")
            until_state(forced, "complete")
            fleet.do(S, f"UPDATE queues.request SET updated_at = now() - interval '2 days' WHERE id = '{forced}'")
            until_state(forced, "failed")
            (later,) = wanted()
            before = last()
            fleet.transmit(S, "away", [b"while it was away"], A)
            eventually(lambda: last() > before)
            assert wanted() == [later]
        until_state(later, "done")
        assert fleet.kinds(A, S, "away").count(Kind.LAST) == 2
        (base,) = fleet.ask(S, "SELECT base FROM queues.request WHERE id = %s", (later,))
        assert (base >= last(), provided.times(A)) == (True, 3)
