"""Workers over a real inbox: everything ready is applied, one bad or slow site costs itself only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from bridge_apply import Run, runner
from bridge_hub import Hub, cluster, clusters, compliance, event, events, verdict

from waiting import eventually


@pytest.fixture
def run(hub: Hub) -> Iterator[Run]:
    with runner(hub) as start:
        yield start


def test_what_waits_in_the_inbox_at_the_start_is_applied(hub: Hub, run: Run) -> None:
    hub.take_in(compliance("a", 1, 1, verdict("c")), clusters("a", 1, cluster("c")), events("b", 1, event(1)))
    run().until_empty()
    assert hub.health() == {"c": "ok"}
    assert hub.rows("SELECT site, cluster FROM status.compliance") == [("a", "c")]
    assert hub.rows("SELECT site, id FROM status.event") == [("b", "e1")]


def test_a_bundle_nobody_noticed_is_found_by_the_next_scan(hub: Hub, run: Run) -> None:
    running = run()
    hub.take_in(clusters("a", 1, cluster("c")))
    running.until_empty()
    assert hub.health() == {"c": "ok"}


def test_g6_a_dependent_is_parked_until_its_base_comes_and_costs_no_worker(hub: Hub, run: Run) -> None:
    running = run(count=1)
    running.arrive(compliance("a", 1, 1, verdict("c")))
    running.arrive(clusters("b", 1, cluster("other")))
    eventually(lambda: hub.health("b") == {"other": "ok"})
    assert hub.inbox() == [("a", "compliance", 1)]
    running.arrive(clusters("a", 1, cluster("c")))
    running.until_empty()
    assert hub.rows("SELECT state FROM status.compliance") == [("compliant",)]


def test_poison_is_quarantined_and_costs_only_itself(hub: Hub, run: Run) -> None:
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


def test_one_hung_apply_holds_one_worker(hub: Hub, run: Run) -> None:
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


def test_a_type_whose_table_is_not_there_holds_up_no_other_and_is_applied_when_it_is_there(
    hub: Hub, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.conn.execute("ALTER TABLE status.event RENAME TO away")
    hub.take_in(*[events(f"s{n}", 1, event(n)) for n in range(5)])
    running = run(count=1)
    running.until(lambda: running.workers.sizes()["delayed"] == 5)
    running.arrive(clusters("t", 1, cluster("c")))
    running.until(lambda: hub.health("t") == {"c": "ok"})
    said = capsys.readouterr().out
    assert "apply is tried again" in said
    assert "apply waits" not in said, "no worker waits with it"
    assert hub.inbox() == [(f"s{n}", "events", 1) for n in range(5)]
    hub.conn.execute("ALTER TABLE status.away RENAME TO event")
    hub.conn.commit()
    running.until_empty()
    assert hub.rows("SELECT count(*) FROM bridge.quarantine") == [(0,)]


def test_a_thread_that_fails_for_no_reason_that_was_thought_of_says_so_and_begins_anew(
    hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running, failures = run(), [ValueError("never thought of")]
    scan, take = running.workers._scan.run, running.workers._units.take

    def failing(done: Callable[..., Any]) -> Callable[..., Any]:
        def once(*args: Any) -> Any:
            if failures:
                raise failures.pop()
            return done(*args)

        return once

    for of, name, done in ((running.workers._scan, "run", scan), (running.workers._units, "take", take)):
        failures[:] = [ValueError("never thought of")]
        monkeypatch.setattr(of, name, failing(done))
        running.until(lambda: not failures)
    hub.take_in(clusters("a", 1, cluster("c")))
    running.until_empty()
    assert capsys.readouterr().out.count("a thread of the bridge failed") == 2


def test_h01_workers_of_a_past_holder_stop_and_say_so(hub: Hub, run: Run) -> None:
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


def test_workers_go_on_after_the_database_threw_them_out(hub: Hub, run: Run) -> None:
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


def test_every_message_is_accounted_for(hub: Hub, run: Run) -> None:
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


def test_a_bundle_lingers_so_that_others_are_applied_with_it(hub: Hub, run: Run) -> None:
    running = run(linger_seconds=1.0)
    running.arrive(clusters("a", 1, cluster("c")))
    running.until_empty()
    [(waited,)] = hub.rows(
        "SELECT extract(epoch FROM l.applied_at - s.first)::float8 FROM bridge.ledger AS l,"
        " (SELECT min(updated_at) AS first FROM status.transport) AS s"
    )
    assert waited >= 0.9


def test_a_site_that_was_deleted_begins_anew(hub: Hub, run: Run) -> None:
    running = run(1)
    running.arrive(clusters("a", 9, cluster("c")), compliance("a", 9, 9, verdict("c")))
    running.until_empty()
    running.until(lambda: hub.rows("SELECT 1 FROM bridge.site WHERE site = 'a'"))
    running.until(lambda: "a" in running.workers._scan._sites)
    for table in ("bridge.ledger", "bridge.site", "status.cluster", "status.compliance"):
        hub.conn.execute(f"DELETE FROM {table} WHERE site = 'a'")
    hub.conn.commit()
    running.until(lambda: "a" not in running.workers._scan._sites)
    running.arrive(compliance("a", 2, 3, verdict("c")))
    running.until(lambda: running.workers.sizes()["parked"] == 1)
    assert hub.inbox() == [("a", "compliance", 2)]
    running.arrive(clusters("a", 3, cluster("c")))
    running.until_empty()
    assert hub.rows("SELECT generation FROM bridge.ledger ORDER BY type") == [(3,), (2,)]
