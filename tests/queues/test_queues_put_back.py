"""A site whose database was put back to an earlier state, while the other sites remember what it forgot.

An application at sofia says things to the others and keeps them in a table. What another site knows is read from its queue:
START empties it, records and entries add to it. In the end all know what is in the table: nothing is skipped, and nothing is
left of what a restore undid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

import psycopg
import pytest
from queue_fleet import A, B, Provided, QueueFleet, S, numbered, providing, trim, until_acknowledged

from trunkline.queues.client import QueueClient
from trunkline.queues.kinds import Kind
from trunkline.queues.provider import SnapshotContext
from waiting import eventually

pytestmark = pytest.mark.timeout(180)

_ADDS = (Kind.SNAPSHOT, Kind.LOG_ENTRY)
_numbers = count(1)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]) -> Iterator[QueueFleet]:
    settings = {S: {"keep_bytes": 1 << 20}}
    with QueueFleet(tmp_path_factory.mktemp("fleet"), make_databases, (S, A, B), settings).running() as fleet:
        yield fleet


class Application:
    def __init__(self, fleet: QueueFleet, client: str) -> None:
        self.fleet, self.client = fleet, client
        fleet.do(S, f"CREATE TABLE {client} (n serial, what bytea)")

    def say(self, sentences: Sequence[bytes]) -> None:
        with psycopg.connect(self.fleet.dsn[S]) as conn:
            for what in sentences:
                conn.execute(f"INSERT INTO {self.client} (what) VALUES (%s)".encode(), (what,))
                QueueClient(self.client).transmit(conn, what, [A, B])
                conn.commit()

    def provide(self, context: SnapshotContext) -> None:
        for (what,) in context.connection.execute(f"SELECT what FROM {self.client} ORDER BY n".encode()):
            context.transmit(what)

    def provided(self) -> Provided:
        return Provided(self.provide)

    def said(self) -> list[bytes]:
        return self.fleet.ask(S, f"SELECT what FROM {self.client} ORDER BY n")

    def known(self, site: str) -> list[bytes]:
        known: list[bytes] = []
        for row in self.fleet.rows(site, S, self.client):
            assert row.kind is not Kind.LOST
            known = [] if row.kind is Kind.START else known + [row.payload] * (row.kind in _ADDS)
        return known

    def until_known(self) -> None:
        for site in (A, B):
            eventually(lambda site=site: self.known(site) == self.said(), why=lambda: (self.fleet.stalls(), self.fleet.logs()))

    def snapshots(self, site: str) -> list[int]:
        kinds = self.fleet.kinds(site, S, self.client)
        return [kinds.count(kind) for kind in (Kind.START, Kind.LAST)]


@pytest.fixture
def application(fleet: QueueFleet) -> Application:
    return Application(fleet, f"told_{next(_numbers)}")


@pytest.mark.parametrize("more", [pytest.param(0, marks=pytest.mark.soak), 20])
def test_h11_h12_a_source_that_was_put_back_gives_one_snapshot_and_skips_nothing(
    fleet: QueueFleet, application: Application, more: int
) -> None:
    """With more than it lost, its log is longer again than what others have of it: only marks tell the two apart."""
    node = fleet.node(S)
    with providing(fleet, S, application.client, application.provided()):
        application.say(numbered("first", 5))
        application.until_known()
    with fleet.down(S):
        kept = fleet.copy(S)
    with providing(fleet, S, application.client, application.provided()) as unneeded:
        application.say(numbered("lost", 10))
        application.until_known()
        for site in (A, B):
            until_acknowledged(fleet, site, application.client)
    node.stop()
    fleet.put_back(S, kept)
    assert application.said() == numbered("first", 5)
    application.say(numbered("more", more))
    with providing(fleet, S, application.client, application.provided()) as provided:
        node.start()
        application.until_known()
        application.say(numbered("after", 5))
        application.until_known()
    assert unneeded.calls == []
    assert [(provided.times(site), application.snapshots(site)) for site in (A, B)] == [(1, [2, 2])] * 2
    assert fleet.wrong() == []


@pytest.mark.parametrize("trimmed", [pytest.param(False, marks=pytest.mark.soak), True])
def test_h12_a_destination_that_was_put_back_gets_again_what_it_lacks_or_one_snapshot_if_that_is_gone(
    fleet: QueueFleet, application: Application, trimmed: bool
) -> None:
    with providing(fleet, S, application.client, application.provided()) as provided:
        application.say(numbered("first", 5))
        application.until_known()
        with fleet.down(B):
            kept = fleet.copy(B)
        application.say(numbered("forgotten", 10))
        application.until_known()
        until_acknowledged(fleet, B, application.client)
        if trimmed:
            trim(fleet)
        with fleet.down(B):
            fleet.put_back(B, kept)
            assert application.known(B) == numbered("first", 5)
        application.until_known()
        application.say(numbered("after", 5))
        application.until_known()
    assert (provided.times(A), provided.times(B)) == (1, 1 + trimmed)
    assert (application.snapshots(A), application.snapshots(B)) == ([1, 1], [1 + trimmed] * 2)
    assert fleet.wrong() == []
