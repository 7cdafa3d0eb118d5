"""The same carriers over durable ends in Postgres: a relay, a restart of a leader, and a gap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from carriers import Fleet

from trunkline.core.ids import START, Position
from trunkline.db.lease import acquire, connect_fenced
from trunkline.db.pool import open_pool
from trunkline.queues.client import QueueClient
from trunkline.queues.log import PostgresLog
from trunkline.queues.reader import heads, read
from trunkline.queues.receive import PostgresSink
from trunkline.queues.registry import remember_site
from trunkline.queues.slots import forget
from trunkline.queues.stamper import Stamper
from trunkline.trunk.log import LOST, UNLISTED, Applied, Entry
from trunkline.trunk.memory import Message
from trunkline.trunk.messages import Ack, Vector

SITES = ("hub", "relay", "leaf")
CLIENT = "policy"


class Unprovided(PostgresSink):
    """No client has a snapshot: a session begins with the log, and what it lacks there is put on record."""

    def applied(self, origin: str) -> Applied:
        has = super().applied(origin)
        return Applied(has.log_id, has.clients, (*has.held, UNLISTED))

    def append(self, origin: str, log_id: str, entries: Sequence[Entry], upto: Position, clients: Sequence[str]) -> bool:
        changed = super().append(origin, log_id, entries, upto, clients)
        for row in self.sessions():
            if (row.origin, row.state) == (origin, "new"):
                assert self.use_log(origin, row.client, log_id, START)
        return changed

    def lost(self, origin: str, log_id: str, upto: Position, clients: Sequence[str]) -> None:
        super().lost(origin, log_id, upto, clients)
        has = super().applied(origin).clients
        for client in clients:
            assert self.use_log(origin, client, log_id, upto, (has.get(client, START).seq + 1, upto.seq))


@dataclass
class InPostgres:
    log: PostgresLog
    sink: PostgresSink
    app: psycopg.Connection[Any]
    stamper: Stamper

    def commit(self, messages: list[Message]) -> Position:
        for client, destinations, headers, payload in messages:
            QueueClient(client).transmit(self.app, payload, destinations, headers)
        self.app.commit()
        return self.stamper.round().head

    def received(self, origin: str) -> list[Entry]:
        name = f"LRQ_Recv_{CLIENT}_{origin}"
        head = heads(self.app, CLIENT).get(name, 0)
        found = list(read(self.app, name, 0, head)) if head else []
        self.app.commit()
        return [Entry(r.seq, CLIENT, (), r.headers, r.payload) for r in found]


@pytest.fixture
def fleet(make_database: Callable[..., str]) -> Iterator[Fleet]:
    with ExitStack() as stack:

        def ends(site: str) -> InPostgres:
            dsn = make_database("queues")
            pool = stack.enter_context(closing(open_pool(dsn, 2, "test")))
            app = stack.enter_context(closing(psycopg.connect(dsn)))
            fenced = stack.enter_context(closing(connect_fenced(dsn)))
            for known in SITES:
                remember_site(app, known)
            app.commit()
            grant = acquire(app, "leader", 60)
            assert grant is not None
            marks = iter(range(1000, 2000))
            return InPostgres(PostgresLog(pool), Unprovided(pool, grant), app, Stamper(fenced, grant, lambda: next(marks)))

        yield Fleet([("hub", "relay"), ("relay", "leaf")], ends=ends)


def trim(fleet: Fleet, site: str, seq: int) -> None:
    ends = fleet.ends[site]
    assert isinstance(ends, InPostgres)
    forget(ends.app, seq)
    ends.app.commit()


def test_entries_cross_a_relay_once_and_a_new_leader_of_the_destination_goes_on(fleet: Fleet) -> None:
    fleet.commit("hub", "leaf", "relay", payload=b"meet")
    fleet.run(3.0)  # each meets the client in its own time
    for n in range(3):
        fleet.commit("hub", "leaf", "relay", payload=b"%d" % n)
    fleet.run(3.0)
    fleet.replace("leaf", generation=2)
    fleet.run(2.0)
    fleet.commit("hub", "*", payload=b"3")
    fleet.run(3.0)
    for site in ("relay", "leaf"):
        assert [e.payload for e in fleet.ends[site].received("hub")] == [b"meet", b"0", b"1", b"2", b"3"]
        assert fleet.acknowledged["hub", site] == {CLIENT: fleet.ends["hub"].log.head()}
    assert {seq for *_, seq in fleet.twice()} <= {1}


def test_s17_what_the_sink_has_and_the_source_does_not_know_of_is_not_applied_again(fleet: Fleet) -> None:
    for n in range(3):
        fleet.commit("hub", "leaf", payload=b"%d" % n)
        fleet.run(1.0)
    known = fleet.acknowledged["hub", "leaf"]
    fleet.lose = lambda sender, to, message: isinstance(message, Ack | Vector)
    for n in range(3, 6):
        fleet.commit("hub", "leaf", payload=b"%d" % n)
    fleet.run(3.0)
    assert fleet.got("leaf", "hub") == [1, 2, 3, 4, 5, 6]
    assert fleet.acknowledged["hub", "leaf"] == known, "no word of it came back"
    fleet.replace("hub", generation=2)
    for n in range(6, 8):
        fleet.commit("hub", "leaf", payload=b"%d" % n)
    fleet.lose = lambda sender, to, message: False
    fleet.run(5.0)
    assert [e.payload for e in fleet.ends["leaf"].received("hub")] == [b"%d" % n for n in range(8)]
    assert fleet.got("leaf", "hub") == list(range(1, 9))
    assert {seq for *_, seq in fleet.twice()} <= {1}, "it was not sent again either: the sink says where it stands"
    assert fleet.acknowledged["hub", "leaf"] == {CLIENT: fleet.ends["hub"].log.head()}


def test_h20_over_postgres_too_a_gap_is_on_record_and_the_rest_follows(fleet: Fleet) -> None:
    fleet.commit("hub", "leaf")
    fleet.run(2.0)
    fleet.cut("relay", "leaf")
    for _ in range(3):
        fleet.commit("hub", "leaf")
    trim(fleet, "hub", 3)
    fleet.join("relay", "leaf")
    fleet.run(5.0)
    came = [(e.seq, e.headers) for e in fleet.ends["leaf"].received("hub")]
    assert came == [(1, {}), (3, {LOST: "2-3"}), (4, {})]
    fleet.commit("hub", "leaf")
    fleet.run(3.0)
    assert fleet.got("leaf", "hub") == [1, 3, 4, 5]
    assert fleet.acknowledged["hub", "leaf"] == {CLIENT: fleet.ends["hub"].log.head()}
