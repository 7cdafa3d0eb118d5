"""`trunkline trace` over two real databases: what it says of a record at each place where that may be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main
import yaml
from click.testing import CliRunner
from psycopg.types.json import Jsonb

from filled_queues import copy_of
from trunkline.cli.main import app
from trunkline.core.bundle import Bundle, Dependency, Mode, Version
from trunkline.core.errors import Invalid
from trunkline.core.ids import Position
from trunkline.db.lease import Grant, acquire, connect_fenced
from trunkline.db.pool import open_pool
from trunkline.pipeline.jobs.tracing import KafkaPlace, kafka_place
from trunkline.queues import tracing as queues_tracing
from trunkline.queues.acks import acknowledge
from trunkline.queues.client import QueueClient
from trunkline.queues.consumers import advance, attach, positions
from trunkline.queues.receive import PostgresSink
from trunkline.queues.registry import remember_site
from trunkline.queues.sessionstatus import SessionStatus, SyncStatus, SyncType
from trunkline.queues.stamper import Stamper, random_mark
from trunkline.queues.statuses import write_statuses
from trunkline.routes.counted import GroupRow, write_groups
from trunkline.routes.keys import HOUSE, RouteKey, Tenant
from trunkline.routes.tracing import record_id
from trunkline.trunk.log import Entry

COMMAND = typer.main.get_command(app)
TOPIC_ID = "5d1c9a2e-0000-4000-8000-000000000000"
GROUP = "routes:kafka:broker:9092"
SOURCE = "orders@5d1c9a2e/2/150"
MESSAGE = f"{SOURCE}:{HOUSE}/to-hub:0"
QUEUE = "LRQ_Recv_status_edge"


class Sites:
    def __init__(self, folder: Path, edge: str, hub: str) -> None:
        self.dsn = {"edge": edge, "hub": hub}
        self.grant: Grant | None = None
        self.files = {site: folder / f"{site}.yaml" for site in self.dsn}
        for site, dsn in self.dsn.items():
            self.files[site].write_text(yaml.safe_dump({"site": site, "database": dsn}))

    def do(self, site: str, statement: str, *values: Any) -> None:
        with psycopg.connect(self.dsn[site], autocommit=True) as conn:
            conn.execute(statement.encode(), values)

    def run(self, record: str, *words: str, sites: Sequence[str] = ("edge", "hub")) -> Any:
        configs = [word for site in sites for word in ("--config", str(self.files[site]))]
        done = CliRunner().invoke(COMMAND, ["trace", record, *configs, *words])
        if isinstance(done.exception, Exception) and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    def trace(self, record: str) -> list[tuple[str, str, str]]:
        """Site, place and state of each step."""
        return [(one["site"], one["place"], one["state"]) for one in self.document(record)["steps"]]

    def document(self, record: str) -> Any:
        return json.loads(self.run(record, "--json").stdout)

    def why(self, record: str, place: str) -> str:
        [found] = [one["why"] for one in self.document(record)["steps"] if one["place"] == place]
        return str(found)

    # -- edge

    def read_up_to(self, offset: int) -> None:
        query = """INSERT INTO pipeline.kafka_offset (reader_group, topic, partition, topic_id, next_offset)
                   VALUES (%s, 'orders', 2, %s, %s)"""
        self.do("edge", query, GROUP, TOPIC_ID, offset)

    def batch(self, number: int, first: int, end: int) -> None:
        query = """INSERT INTO pipeline.job_batch (reader_group, moves, revision, body, events, planned_at, done_at)
                   VALUES (%s, %s, 7, %s, 10, to_timestamp(100), to_timestamp(101.5))"""
        self.do("edge", query, GROUP, number, _body(first, end))

    def plan(self, first: int, end: int) -> None:
        query = """INSERT INTO pipeline.job_plan (reader_group, epoch, revision, moves, body, waiting)
                   VALUES (%s, 1, 7, 3, %s, '{}')"""
        self.do("edge", query, GROUP, _body(first, end))

    def job(self, failing: str) -> None:
        with psycopg.connect(self.dsn["edge"]) as conn:
            conn.execute(
                "INSERT INTO site.instance (id, kind, heartbeat_at) VALUES ('p1', 'pipeline', now() + interval '1 hour')"
            )
            write_groups(conn, "p1", [GroupRow(GROUP, True, 0, 0, 0.0, 0, failing)])

    def transmit(self, headers: dict[str, str], stamped: bool = True) -> None:
        with psycopg.connect(self.dsn["edge"]) as conn:
            remember_site(conn, "hub")
            QueueClient("status").transmit(conn, b"[]", ["hub"], headers)
        if stamped:
            self.stamp()

    def stamp(self) -> None:
        if self.grant is None:
            with psycopg.connect(self.dsn["edge"]) as conn:
                self.grant = acquire(conn, "leader", 60)
        assert self.grant is not None
        with closing(connect_fenced(self.dsn["edge"])) as conn:
            Stamper(conn, self.grant, random_mark).round()

    def session(self, acknowledged: int, stall: str = "") -> None:
        status = SessionStatus("source", "hub", "status", "REPLICATING", "LOG", SyncType.LOG_ENTRY, SyncStatus.ONGOING,
                               sent=acknowledged, acknowledged=acknowledged, stall=stall)  # fmt: skip
        with psycopg.connect(self.dsn["edge"]) as conn:
            acknowledge(conn, "hub", "status", 1, Position(acknowledged, 1))
            write_statuses(conn, [status])

    # -- hub

    def receive(self, headers: dict[str, str], seq: int = 1) -> None:
        with psycopg.connect(self.dsn["hub"]) as conn:
            grant = acquire(conn, "leader", 60)
        assert grant is not None
        log = "6f9d3a52-5d0c-4b5b-9d0e-1f0c6d1d5a11"
        with closing(open_pool(self.dsn["hub"], 2, "test")) as pool:
            sink = PostgresSink(pool, grant)
            sink.append("edge", log, [], Position(0, 1), ["status"])
            sink.use_log("edge", "status", log, Position(0, 1))
            sink.applied("edge")
            sink.append("edge", log, [Entry(seq, "status", (), headers, b"[]")], Position(seq, 1), ["status"])

    def intake(self, reads_on_at: int) -> None:
        query = "INSERT INTO status.transport (reader_group, queue, payload) VALUES ('bridge', %s, %s)"
        self.do("hub", query, QUEUE, Jsonb({"next": reads_on_at}))

    def waiting(self, bundle: Bundle) -> None:
        self.do(
            "hub", "INSERT INTO bridge.site (site, transport, first_seen, last_seen) VALUES ('edge', 'queues', now(), now())"
        )
        needs = bundle.dependency
        query = """INSERT INTO bridge.inbox (site, type, key, incarnation, generation, dependency_type, dependency_incarnation,
                          dependency_generation, headers, data, queue, position)
                   VALUES ('edge', %s, '', %s, %s, %s, %s, %s, %s, '[]', %s, 1)"""
        version = needs.version if needs else None
        self.do("hub", query, bundle.type, bundle.version.incarnation, bundle.version.generation, needs.type if needs else None,
                version.incarnation if version else None, version.generation if version else None, Jsonb(bundle.headers()),
                QUEUE)  # fmt: skip

    def ledger(self, incarnation: int, generation: int) -> None:
        query = """INSERT INTO bridge.ledger (site, type, incarnation, generation, value, applied_at)
                   VALUES ('edge', 'clusters', %s, %s, 1, to_timestamp(200))"""
        self.do("hub", query, incarnation, generation)


def _body(first: int, end: int) -> Jsonb:
    return Jsonb({"stand": "s", "moves": [["orders", 1, TOPIC_ID, 0, 0, 999], ["orders", 2, TOPIC_ID, first, first, end]],
                  "changes": [], "epoch": 0})  # fmt: skip


def clusters(generation: int = 5, needs: Dependency | None = None) -> Bundle:
    return Bundle(id="b-17", source="edge", type="clusters", time="", mode=Mode.COMPLETE, version=Version(1, generation),
                  dependency=needs, data=b"[]")  # fmt: skip


@pytest.fixture(scope="module")
def empty(make_databases: Callable[..., str]) -> tuple[str, str]:
    return make_databases("queues", "routes", "pipeline"), make_databases("queues", "bridge")


@pytest.fixture
def sites(tmp_path: Path, empty: tuple[str, str]) -> Iterator[Sites]:
    with copy_of(empty[0]) as edge, copy_of(empty[1]) as hub:
        yield Sites(tmp_path, edge, hub)


# -- ids


def test_ids_of_messages_events_and_bundles_are_told_apart() -> None:
    assert record_id(MESSAGE) == record_id(MESSAGE)
    assert (record_id(MESSAGE).source, record_id(MESSAGE).route) == (SOURCE, RouteKey(HOUSE, "to-hub"))
    assert (record_id(SOURCE).source, record_id(SOURCE).route) == (SOURCE, None)
    odd = record_id("a:b/c/d:7:org/app/r/1:12")
    assert (odd.source, odd.route) == ("a:b/c/d:7", RouteKey(Tenant("org", "app"), "r/1"))


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("t-1@5d1c9a2e/2/150", KafkaPlace("t-1", "5d1c9a2e", 2, 150)),
        ("t.x@/WsK/1/2/0/7", KafkaPlace("t.x", "/WsK/1/2", 0, 7)),
        ("t@short/0/7", None),
        ("edge/17/0", None),
    ],
)
def test_ids_of_kafka_records_say_where_they_are(source: str, place: KafkaPlace | None) -> None:
    assert kafka_place(source) == place
    assert kafka_place(record_id(f"{source}:o/a/r:0").source) == place


def test_sites_have_to_be_named() -> None:
    done = CliRunner().invoke(COMMAND, ["trace", "x"])
    assert isinstance(done.exception, Invalid)
    assert "--config" in done.exception.next_step


def test_a_record_that_nobody_has_ends_with_1(sites: Sites) -> None:
    done = sites.run("nobody-has-this")
    assert done.exit_code == 1
    assert "it was not found" in done.stdout


# -- read and routed


def test_a_record_that_is_not_read_says_where_its_group_stands_and_why_its_job_fails(sites: Sites) -> None:
    sites.read_up_to(140)
    assert sites.trace(SOURCE) == [("edge", "route job", "waits")]
    assert "stands at offset 140, 10 before it" in sites.why(SOURCE, "route job")
    assert "no pipeline runs it" in sites.why(SOURCE, "route job")
    sites.job("the broker does not answer")
    assert sites.why(MESSAGE, "route job").endswith("its job fails: the broker does not answer")
    sites.plan(140, 160)
    assert "in the batch that is under way" in sites.why(SOURCE, "route job")


def test_a_record_that_was_read_names_its_batch_and_when_it_was_done(sites: Sites) -> None:
    sites.read_up_to(200)
    assert sites.trace(SOURCE) == [("edge", "route job", "unknown")]
    for number, first, end in ((1, 0, 150), (2, 150, 151), (3, 151, 200)):
        sites.batch(number, first, end)
    [step] = sites.document(SOURCE)["steps"]
    assert (step["state"], step["at"], step["details"]["batch"], step["details"]["revision"]) == ("done", 101.5, 2, 7)


def test_a_record_that_was_read_without_its_route_says_so(sites: Sites) -> None:
    sites.read_up_to(200)
    sites.batch(1, 0, 200)
    query = """INSERT INTO pipeline.job_route (reader_group, hash, org, app, id, body, needs, since, until)
               VALUES (%s, 'h', %s, %s, 'to-hub', '{}', '[]', 8, NULL)"""
    sites.do("edge", query, GROUP, HOUSE.org, HOUSE.app)
    assert "to-hub was not live then" in sites.why(MESSAGE, "route job")


def test_a_record_that_the_broker_trimmed_is_lost(sites: Sites) -> None:
    sites.read_up_to(200)
    query = """INSERT INTO pipeline.kafka_gap (reader_group, topic, partition, topic_id, from_offset, to_offset)
               VALUES (%s, 'orders', 2, %s, 100, 151)"""
    sites.do("edge", query, GROUP, TOPIC_ID)
    assert sites.trace(SOURCE) == [("edge", "route job", "failed")]


def test_a_record_of_a_topic_that_was_made_anew_is_another(sites: Sites) -> None:
    sites.read_up_to(200)
    assert sites.trace("orders@ffffffff/2/150") == []


# -- kept at the site


def test_a_message_in_the_outbox_says_why_it_waits(sites: Sites) -> None:
    sites.do("edge", "SELECT routes.keep('h', %s, %s, 'to-hub', 'http', 100, %s, %s, %s, %s, %s)", HOUSE.org, HOUSE.app,
             ["x:0", MESSAGE], ["x", SOURCE], ["{}", "{}"], ["first", "first"], [1.0, 1.0])  # fmt: skip
    sites.do("edge", "UPDATE routes.lane SET tries = 3, reason = '503 of https://books', next_at = now() + interval '1 hour'")
    for record in (MESSAGE, SOURCE):
        why = sites.why(record, "outbox")
        assert "tried 3 times in vain: 503 of https://books" in why
        assert "1 are ahead of it" in why
    assert "it waits at edge, outbox" in sites.document(MESSAGE)["verdict"]
    assert sites.trace(f"{SOURCE}:{HOUSE}/to-hub:1") == []


def test_a_dead_letter_says_where_it_failed_and_what_to_do(sites: Sites) -> None:
    query = """INSERT INTO routes.dead_letter
               (org, app, route, hash, plugin, step, message_id, source, content, reason, came, tries)
               VALUES ('o', 'a', 'r', 'h', 'http', 'filterChain[0] split', %s, %s, '{}', 'it is no array', 1, 0)"""
    sites.do("edge", query, MESSAGE, SOURCE)
    assert sites.trace(SOURCE) == [("edge", "dead letter", "failed")]
    assert "it is no array" in sites.why(MESSAGE, "dead letter")
    assert "trunkline deadletters replay 1" in sites.why(MESSAGE, "dead letter")


def test_a_message_that_was_sent_once_says_when(sites: Sites) -> None:
    sites.do("edge", "INSERT INTO routes.sent (message_id, at) VALUES (%s, to_timestamp(50))", MESSAGE)
    [step] = sites.document(MESSAGE)["steps"]
    assert (step["place"], step["state"], step["at"]) == ("sender", "done", 50.0)


# -- between sites


def test_a_message_in_the_send_log_is_numbered_then_sent_then_acknowledged(sites: Sites) -> None:
    sites.transmit({"trunkline-id": MESSAGE}, stamped=False)
    assert sites.trace(MESSAGE) == [("edge", "send log", "waits")]
    sites.stamp()
    assert sites.trace(MESSAGE) == [("edge", "send log", "done"), ("edge", "link to hub", "waits")]
    assert "no session" in sites.why(MESSAGE, "link to hub")
    sites.session(0, "no way to site hub")
    assert "no way to site hub" in sites.why(SOURCE, "link to hub")
    sites.session(1)
    steps = sites.document(MESSAGE)["steps"]
    assert [one["state"] for one in steps] == ["done", "done"]
    assert all(one["at"] for one in steps)


def test_a_destination_that_fell_behind_is_brought_up_by_a_snapshot(sites: Sites) -> None:
    sites.transmit({"trunkline-id": MESSAGE})
    sites.do("edge", "INSERT INTO queues.needs_snapshot (destination, client, over_cap) VALUES ('hub', 'status', true)")
    assert "a snapshot brings it up" in sites.why(MESSAGE, "link to hub")


def test_it_says_how_much_of_the_log_it_looked_at(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues_tracing, "LOOKED_AT", 2)
    for n in range(5):
        sites.transmit({"trunkline-id": f"m{n}"})
    assert sites.document("m0")["notes"] == ["edge: only numbers 4 to 5 of the send log were looked at"]
    assert [one["place"] for one in sites.document("m4")["steps"]] == ["send log", "link to hub"]


def test_at_the_other_site_each_consumer_has_passed_it_or_not(sites: Sites) -> None:
    sites.receive({"trunkline-id": MESSAGE})
    with psycopg.connect(sites.dsn["hub"]) as conn:
        for name in ("quick", "slow"):
            attach(conn, "status", name)
        [place] = positions(conn, "status", "quick")
        advance(conn, "status", "quick", place.queue, 1, 0)
    assert sites.trace(MESSAGE) == [
        ("hub", "receive queue", "done"), ("hub", "consumer quick", "done"), ("hub", "consumer slow", "waits"),
    ]  # fmt: skip
    assert "it stands at 0, 1 before this one" in sites.why(MESSAGE, "consumer slow")


# -- at the bridge


def test_a_bundle_waits_before_intake_then_in_the_inbox_and_says_for_what(sites: Sites) -> None:
    bundle = clusters(needs=Dependency("base", Version(1, 4)))
    sites.receive(bundle.headers() | {"trunkline-id": MESSAGE})
    sites.intake(1)
    assert sites.trace("b-17") == [("hub", "receive queue", "done"), ("hub", "intake", "waits")]
    assert "no bridge runs" in sites.why("b-17", "intake")
    sites.do("hub", "UPDATE status.transport SET payload = %s", Jsonb({"next": 2}))
    sites.waiting(bundle)
    for record in ("b-17", MESSAGE):
        assert sites.trace(record)[1:] == [("hub", "intake", "done"), ("hub", "inbox", "waits")]
        assert "it needs base 1.4 or newer, but none is applied yet" in sites.why(record, "inbox")


def test_a_bundle_that_was_set_aside_says_why(sites: Sites) -> None:
    query = """INSERT INTO bridge.quarantine (site, type, headers, payload, reason, queue, position)
               VALUES ('edge', 'clusters', %s, '[]', 'row 3 has no name', %s, 1)"""
    sites.do("hub", query, Jsonb(clusters().headers()), QUEUE)
    assert sites.trace("b-17") == [("hub", "quarantine", "failed")]
    assert "row 3 has no name; see `trunkline bridge quarantine show 1`" in sites.why("b-17", "quarantine")


@pytest.mark.parametrize(
    ("applied", "state", "at", "words"),
    [(5, "done", 200.0, "it is this one"), (6, "done", None, "which is newer"), (4, "waits", None, "has not come here")],
)
def test_a_bundle_that_left_the_queue_is_known_by_the_ledger(
    sites: Sites, applied: int, state: str, at: float | None, words: str
) -> None:
    sites.transmit(clusters(5).headers() | {"trunkline-id": MESSAGE})
    sites.ledger(1, applied)
    step = sites.document(MESSAGE)["steps"][-1]
    assert (step["site"], step["place"], step["state"], step["at"]) == ("hub", "ledger", state, at)
    assert words in step["why"]


# -- for people


def test_people_get_a_table_and_a_verdict(sites: Sites) -> None:
    sites.read_up_to(200)
    sites.batch(1, 0, 200)
    sites.transmit({"trunkline-id": MESSAGE})
    done = sites.run(MESSAGE)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["site", "place", "state", "at", "what"]
    assert lines[1].split()[:5] == ["edge", "route", "job", "done", "1970-01-01"]
    assert lines[-1].startswith("it waits at edge, link to hub: there is no session")


def test_one_site_is_enough(sites: Sites) -> None:
    sites.transmit({"trunkline-id": MESSAGE})
    done = sites.run(MESSAGE, "--json", sites=["edge"])
    assert [one["site"] for one in json.loads(done.stdout)["steps"]] == ["edge", "edge"]
