"""Workers over a real inbox: everything ready is applied, one bad or slow site costs itself only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from bridge_hub import Hub, cluster, clusters, compliance, event, events, verdict

from trunkline.bridge.workers import Workers, waiting_for
from trunkline.core.bundle import Bundle
from trunkline.core.clock import SystemClock
from waiting import eventually


class Running:
    def __init__(self, hub: Hub, count: int) -> None:
        self.hub = hub
        self.fenced = threading.Event()
        self.workers = Workers(hub.dsn, hub.grant, count, SystemClock(), self.fenced.set)
        self.workers.start()

    def arrive(self, *bundles: Bundle) -> None:
        self.hub.take_in(*bundles)
        self.workers.notice([waiting_for(bundle, time.time()) for bundle in bundles])

    def until_empty(self) -> None:
        eventually(lambda: self.hub.inbox() == [])


@pytest.fixture
def run(hub: Hub) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(count: int = 3) -> Running:
        started.append(Running(hub, count))
        return started[-1]

    yield start
    for running in started:
        running.workers.stop()
        assert not any(t.name.startswith("db-worker") for t in threading.enumerate())


def test_what_waits_in_the_inbox_at_the_start_is_applied(hub: Hub, run: Callable[..., Running]) -> None:
    hub.take_in(compliance("a", 1, 1, verdict("c")), clusters("a", 1, cluster("c")), events("b", 1, event(1)))
    run().until_empty()
    assert hub.health() == {"c": "ok"}
    assert hub.rows("SELECT site, cluster FROM status.compliance") == [("a", "c")]
    assert hub.rows("SELECT site, id FROM status.event") == [("b", "e1")]


def test_a_bundle_nobody_noticed_is_found_by_the_next_scan(hub: Hub, run: Callable[..., Running]) -> None:
    running = run()
    hub.take_in(clusters("a", 1, cluster("c")))
    running.until_empty()
    assert hub.health() == {"c": "ok"}


def test_g6_a_dependent_is_parked_until_its_base_comes_and_costs_no_worker(hub: Hub, run: Callable[..., Running]) -> None:
    running = run(count=1)
    running.arrive(compliance("a", 1, 1, verdict("c")))
    running.arrive(clusters("b", 1, cluster("other")))
    eventually(lambda: hub.health("b") == {"other": "ok"})
    assert hub.inbox() == [("a", "compliance", 1)]
    running.arrive(clusters("a", 1, cluster("c")))
    running.until_empty()
    assert hub.rows("SELECT state FROM status.compliance") == [("compliant",)]


def test_a_burst_of_many_sites_and_types_at_once_is_all_applied(hub: Hub, run: Callable[..., Running]) -> None:
    sites = [f"s{n:03}" for n in range(120)]
    burst = [
        bundle
        for site in sites
        for bundle in (compliance(site, 1, 1, verdict("c")), clusters(site, 1, cluster("c")), events(site, 1, event(1)))
    ]
    run().arrive(*burst)
    eventually(lambda: hub.rows("SELECT count(*) FROM bridge.inbox") == [(0,)], 60)
    for table in ("cluster", "compliance", "event"):
        assert hub.rows(f"SELECT site FROM status.{table} ORDER BY site") == [(site,) for site in sites]


def test_poison_is_quarantined_and_costs_only_itself(hub: Hub, run: Callable[..., Running]) -> None:
    running = run(count=1)
    running.arrive(clusters("bad", 1, raw=b"[{"), clusters("good", 1, cluster("c")), events("bad", 1, event(1)))
    running.until_empty()
    assert hub.health("good") == {"c": "ok"}
    assert hub.rows("SELECT id FROM status.event WHERE site = 'bad'") == [("e1",)]
    [(site, payload, reason)] = hub.rows("SELECT site, payload, reason FROM bridge.quarantine")
    assert (site, payload) == ("bad", b"[{")
    assert "not JSON" in reason
    assert hub.counters("bad")["quarantined"] == 1
    running.arrive(clusters("bad", 2, cluster("mended")))
    running.until_empty()
    assert hub.health("bad") == {"mended": "ok"}


def test_one_hung_apply_holds_one_worker(hub: Hub, run: Callable[..., Running]) -> None:
    hub.take_in(clusters("hung", 1, cluster("c")))
    hub.apply("hung", "clusters")
    blocker = hub.connect()
    blocker.execute("SELECT 1 FROM status.cluster WHERE site = 'hung' FOR UPDATE")
    running = run(count=2)
    running.arrive(clusters("hung", 2, cluster("c", "bad")))
    for generation in range(1, 6):
        running.arrive(clusters("free", generation, cluster("c", revision=generation)))
    eventually(lambda: hub.rows("SELECT revision FROM status.cluster WHERE site = 'free'") == [(5,)])
    assert hub.health("hung") == {"c": "ok"}
    blocker.rollback()
    running.until_empty()
    assert hub.health("hung") == {"c": "bad"}


def test_h01_workers_of_a_past_holder_stop_and_say_so(hub: Hub, run: Callable[..., Running]) -> None:
    running = run()
    plan_holder = hub.grant
    hub.take_in(clusters("a", 1, cluster("c")))
    running.until_empty()
    hub.grant = hub.take_over()
    running.hub.take_in(clusters("a", 2, cluster("c", "bad")))
    assert running.fenced.wait(30)
    assert plan_holder != hub.grant
    eventually(lambda: not any(t.name.startswith("db-worker") for t in threading.enumerate()))
    assert hub.inbox() == [("a", "clusters", 2)]
    assert hub.health() == {"c": "ok"}


def test_workers_go_on_after_the_database_threw_them_out(hub: Hub, run: Callable[..., Running]) -> None:
    running = run()
    running.arrive(clusters("a", 1, cluster("c")))
    running.until_empty()
    with psycopg.connect(hub.dsn, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid NOT IN (pg_backend_pid(), %s)",
            (hub.conn.info.backend_pid,),
        )
    running.arrive(*[clusters(f"s{n}", 1, cluster("c")) for n in range(20)])
    running.until_empty()
    assert hub.rows("SELECT count(*) FROM status.cluster") == [(21,)]


def test_every_message_is_accounted_for(hub: Hub, run: Callable[..., Running]) -> None:
    running = run()
    for generation in range(1, 40):
        running.arrive(
            clusters("a", generation % 25, cluster("c", revision=generation)), events("a", generation, event(generation))
        )
    running.arrive(clusters("a", 99, raw=b"no"))
    running.until_empty()
    c = hub.counters("a")
    assert c["received"] == 39 * 2 + 1
    assert c["received"] == c["conflated"] + c["stale"] + c["applied"] + c["quarantined"] + c["rejected"]
