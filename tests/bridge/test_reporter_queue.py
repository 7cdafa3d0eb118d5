"""StatusReporter over the queues: with the application's change or not at all, whatever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from trunkline.bridge.askers import KIND, Request
from trunkline.bridge.reporter_queue import StatusReporter
from trunkline.bridge.shipped import SHIPPED
from trunkline.core.bundle import Bundle, Version, parse_bundle
from trunkline.core.clock import ManualClock
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads
from trunkline.queues.registry import remember_site
from waiting import eventually

CLUSTER = "CREATE TABLE cluster (name text PRIMARY KEY, health text NOT NULL)"
FULL = 3600.0


def clusters(conn: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    rows = conn.execute("SELECT name, health FROM cluster ORDER BY name").fetchall()
    return [{"name": name, "health": health, "revision": 1, "changed_at": "2026-01-01T00:00:00Z"} for name, health in rows]


def objects(conn: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    return [{"metadata": {"name": row["name"], "uid": row["name"]}} for row in clusters(conn)]


SOURCES = {"clusters": clusters, "managed-clusters": objects}


class Site:
    def __init__(self, dsn: str, stack: ExitStack) -> None:
        self.dsn, self.clock = dsn, ManualClock()
        self.conn = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        self.conn.execute(CLUSTER)
        remember_site(self.conn, "hub")
        self.reporter = self.make()
        self.incarnation = self.reporter.start(self.conn)

    def make(self) -> StatusReporter:
        return StatusReporter("berlin", "hub", SHIPPED, SOURCES, full_seconds=FULL, clock=self.clock)

    def set(self, name: str, health: str) -> Version | None:
        """The application's change and the report of it."""
        with self.conn.transaction():
            self.conn.execute(
                "INSERT INTO cluster VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET health = excluded.health", (name, health)
            )
            return self.reporter.report(self.conn, "clusters")

    def sent(self, type_: str = "") -> list[Bundle]:
        rows = self.conn.execute("SELECT headers, payload FROM queues.send_log WHERE client = 'status' ORDER BY id").fetchall()
        bundles = [SHIPPED.accept(parse_bundle(headers, payload, "berlin")) for headers, payload in rows]
        return [bundle for bundle in bundles if type_ in ("", bundle.type)]

    def asked(self, *types: str, source: str = "hub") -> None:
        """As the trunk would leave a request in the control queue."""
        with self.conn.transaction():
            self.conn.execute(
                "INSERT INTO queues.queue (client, remote) VALUES ('status-control', %s) ON CONFLICT DO NOTHING", (source,)
            )
            queue, head = self.conn.execute("SELECT id, head FROM queues.queue WHERE remote = %s", (source,)).fetchone() or ()
            payload = Request("berlin", types, "test", "1").encode()
            self.conn.execute(
                "INSERT INTO queues.receive (slot, queue, position, type, seq, index, total, headers, payload)"
                " VALUES (0, %s, %s, 1, %s, 0, %s, %s, %s)",
                (queue, head + 1, head + 1, len(payload), Jsonb(KIND), payload),
            )
            self.conn.execute("UPDATE queues.queue SET head = head + 1 WHERE id = %s", (queue,))


TABLES = ("queues.send_log", "queues.ticket", "queues.receive", "queues.queue", "queues.consumer", "queues.consumed",
          "reporter.run", "reporter.sent", "reporter.wanted")  # fmt: skip


@pytest.fixture(scope="module")
def dsn(make_databases: Callable[..., str]) -> str:
    return make_databases("queues", "bridge")


@pytest.fixture
def site(dsn: str) -> Iterator[Site]:
    with psycopg.connect(dsn) as conn:
        conn.execute("DROP TABLE IF EXISTS cluster")
        for table in TABLES:
            conn.execute(f"DELETE FROM {table}")
    with ExitStack() as stack:
        yield Site(dsn, stack)


def test_a_change_and_its_report_commit_together_or_not_at_all(site: Site) -> None:
    assert site.set("a", "ok") == Version(site.incarnation, 1)
    assert site.set("a", "ok") is None
    with site.conn.transaction():
        site.conn.execute("UPDATE cluster SET health = 'bad'")
        assert site.reporter.report(site.conn, "clusters") == Version(site.incarnation, 2)
        raise psycopg.Rollback
    assert site.set("a", "ok") is None  # what was rolled back was never sent
    assert site.set("a", "worse") == Version(site.incarnation, 2)
    assert [[row["health"] for row in loads(bundle.data)] for bundle in site.sent()] == [["ok"], ["worse"]]


def test_all_modes_go_out_in_order_with_their_dependencies(site: Site) -> None:
    reporter, conn = site.reporter, site.conn
    with conn.transaction():
        reporter.report(conn, "clusters-per-policy", [{"policyId": "p", "compliantClusters": ["a"]}])
        reporter.report(conn, "complete-compliance", [])
        reporter.report(conn, "compliance-delta", [{"policyId": "p", "nonCompliantClusters": ["a"]}])
        reporter.changed(conn, "managed-clusters", create=[{"metadata": {"name": "a"}}])
        reporter.report(conn, "cluster-events", [{"eventName": "e"}])
        assert reporter.changed(conn, "managed-clusters") is None
    run = site.incarnation
    assert [(b.type, b.mode, str(b.version), str(b.dependency or "")) for b in site.sent()] == [
        ("clusters-per-policy", "complete", f"{run}.1", ""),
        ("complete-compliance", "complete", f"{run}.1", f"clusters-per-policy@{run}.1"),
        ("compliance-delta", "delta", f"{run}.1", f"complete-compliance@{run}.1"),
        ("managed-clusters", "hybrid", f"{run}.1", ""),
        ("cluster-events", "append", f"{run}.1", ""),
    ]


def test_a_delta_without_a_base_and_a_reporter_that_was_not_started_are_refused(site: Site) -> None:
    with pytest.raises(Invalid, match="report complete-compliance first"), site.conn.transaction():
        site.reporter.report(site.conn, "compliance-delta", [{"policyId": "p"}])
    other = StatusReporter("berlin", "hub", SHIPPED, client="other")
    with pytest.raises(Invalid, match=r"call start\(\)"), site.conn.transaction():
        other.report(site.conn, "clusters", [])
    assert site.sent() == []


def test_h02_each_start_raises_the_incarnation_above_the_one_before_and_the_unix_time(site: Site) -> None:
    again = site.make().start(site.conn)
    assert again > site.incarnation > 1_700_000_000
    site.conn.execute("UPDATE reporter.run SET incarnation = 1")  # a restored database
    assert site.make().start(site.conn) >= site.incarnation
    site.conn.execute("UPDATE reporter.run SET incarnation = 9000000000000")
    assert site.make().start(site.conn) == 9000000000001


def test_after_a_start_all_there_is_is_sent_once_changed_or_not(site: Site) -> None:
    site.set("a", "ok")
    site.conn.execute("UPDATE reporter.sent SET sent_at = now()")
    run = site.make().start(site.conn)
    assert site.reporter.answer(site.conn) == ["clusters", "managed-clusters"]
    assert site.sent("clusters")[-1].version == Version(run, 2)
    assert site.set("a", "ok") is None
    assert site.reporter.answer(site.conn) == []


def test_what_was_sent_too_long_ago_is_sent_again(site: Site) -> None:
    site.set("a", "ok")
    site.reporter.answer(site.conn)
    count = len(site.sent())
    site.clock.advance(FULL - 1)
    assert site.reporter.answer(site.conn) == []
    site.clock.advance(1)
    assert site.reporter.answer(site.conn) == ["clusters", "managed-clusters"]
    assert len(site.sent()) > count


def test_the_hubs_request_is_answered_with_all_there_is_and_anothers_is_not(site: Site) -> None:
    site.set("a", "ok")
    with site.reporter.serving(site.dsn):
        eventually(lambda: len(site.sent("managed-clusters")) == 2)  # the first ones: objects, then the list of them
        before = len(site.sent())
        site.asked("managed-clusters", source="stranger")
        site.asked("managed-clusters", "unheard-of")
        eventually(lambda: len(site.sent("managed-clusters")) == 4)
        site.asked()
        eventually(lambda: len(site.sent("clusters")) == 2 and len(site.sent("managed-clusters")) == 6)
    objects_sent, listed = (loads(bundle.data) for bundle in site.sent("managed-clusters")[-2:])
    assert objects_sent == {"resync": [{"metadata": {"name": "a", "uid": "a"}}]}
    assert listed == {"resync_metadata": [{"id": "a", "ns": "", "name": "a"}]}
    assert len(site.sent()) == before + 2 + 3
    assert site.conn.execute("SELECT count(*) FROM reporter.wanted").fetchone() == (0,)


def test_a_source_that_fails_costs_its_own_type_and_no_thread(site: Site) -> None:
    """Whatever it raises: its request stays, the types after it are answered, and it is answered when it works again."""
    site.set("a", "ok")
    broken = threading.Event()
    broken.set()

    def unsure(conn: psycopg.Connection[Any]) -> list[dict[str, Any]]:
        if broken.is_set():
            conn.execute("SELECT 1 / 0") if len(tried) % 2 else {}["column"]
        return clusters(conn)

    tried: list[str] = []
    sources = {"clusters": lambda conn: (tried.append("clusters"), unsure(conn))[1], "managed-clusters": objects}
    reporter = StatusReporter("berlin", "hub", SHIPPED, sources, full_seconds=FULL)
    reporter.start(site.conn)
    before = len(site.sent("clusters"))
    with reporter.serving(site.dsn):
        eventually(lambda: len(site.sent("managed-clusters")) == 2 and len(tried) >= 2)
        site.asked("clusters", "managed-clusters")
        eventually(lambda: len(site.sent("managed-clusters")) == 4)
        assert len(site.sent("clusters")) == before
        broken.clear()
        eventually(lambda: len(site.sent("clusters")) == before + 1)


def test_a_source_that_failed_rests_longer_each_time(site: Site) -> None:
    tried = 0

    def never(conn: psycopg.Connection[Any]) -> list[Any]:
        nonlocal tried
        tried += 1
        raise KeyError("column")

    reporter = StatusReporter("berlin", "hub", SHIPPED, {"clusters": never}, clock=site.clock)
    reporter.start(site.conn)
    for _ in range(60):
        assert reporter.answer(site.conn) == []
        site.clock.advance(1)
    assert 4 <= tried <= 9


def test_a_request_taken_before_a_crash_is_answered_after_it(site: Site) -> None:
    site.reporter.answer(site.conn)
    site.asked("clusters")
    with site.conn.transaction():
        site.reporter.wanted(site.conn, ["clusters"])
    run = site.make().start(site.conn)
    assert "clusters" in site.reporter.answer(site.conn)
    assert site.sent("clusters")[-1].version == Version(run, 2)


def test_a_higher_generation_never_holds_older_rows(site: Site) -> None:
    """The one that answers reads its source only when nobody else is about to send."""
    site.set("a", "ok")
    site.clock.advance(FULL)
    with psycopg.connect(site.dsn) as other:
        other.execute("UPDATE cluster SET health = 'newer'")
        version = site.make().report(other, "clusters")
        thread = threading.Thread(target=site.reporter.answer, args=(site.conn,))
        thread.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        with psycopg.connect(site.dsn, autocommit=True) as watcher:
            eventually(lambda: watcher.execute(waiting).fetchall())
        other.commit()
        thread.join()
    assert version == Version(site.incarnation, 2)
    last = max(site.sent("clusters"), key=lambda bundle: bundle.version)
    assert last.version == Version(site.incarnation, 3)
    assert [row["health"] for row in loads(last.data)] == ["newer"]


def test_a_payload_above_what_a_message_may_have_travels_in_parts(site: Site) -> None:
    with site.conn.transaction():
        site.conn.execute(
            "INSERT INTO cluster SELECT 'cluster-' || n || repeat('x', 500), 'ok' FROM generate_series(1, 2000) n"
        )
        site.reporter.report(site.conn, "clusters")
    parts = site.sent()
    assert len(parts) > 1
    assert len({part.version for part in parts}) == 1
    assert len(loads(b"".join(part.data for part in parts))) == 2000


def test_kill_9_between_sends_never_repeats_a_version_with_another_content(site: Site) -> None:
    program = Path(__file__).parent / "killed_reporter.py"
    for round_ in range(3):
        process = subprocess.Popen([sys.executable, str(program), site.dsn], stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            for _ in range(5 + round_):
                assert process.stdout.readline() == b"sent\n"
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close() if process.stdout else None
        current = site.conn.execute("SELECT health FROM cluster WHERE name = 'killed'").fetchone()
        bundles = site.sent("clusters")
        by_version = {bundle.version: bundle.data for bundle in bundles}
        assert len(by_version) == len(bundles) >= 5
        assert [bundle.version for bundle in bundles] == sorted(by_version)
        assert [(row["health"],) for row in loads(bundles[-1].data)] == [current]
