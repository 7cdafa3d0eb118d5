"""Scenarios of the status bridge on real Kafka, Spark and Postgres, by their numbers."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from structlog.testing import capture_logs

from fleet_feed import clusters, events
from hub_agent import clusters_changed, policy_events
from hub_agent import compliance as agent_compliance
from kafka_bridge import KafkaBridge
from kafka_topics import Topics
from trunkline.bridge.forget import forget
from trunkline.bridge.shipped import SHIPPED
from trunkline.pipeline.session import Spark
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


def test_s01_while_writes_are_paused_all_but_the_newest_of_100_are_conflated(bridge: KafkaBridge, topics: Topics) -> None:
    topics.create("h1")
    bridge.start()
    with psycopg.connect(bridge.dsn) as paused:
        paused.execute("LOCK TABLE status.cluster IN EXCLUSIVE MODE")
        bridge.put("h1", *[clusters("h1", n, f"c{n}") for n in range(1, 61)])
        bridge.until_taken_in(h1=60)
        bridge.put("h1", *[clusters("h1", n, f"c{n}") for n in range(61, 101)])
        bridge.until_taken_in(h1=100)
        assert bridge.rows("SELECT count(*) FROM status.cluster") == [(0,)]
    bridge.until_applied(h1=100)
    counted = bridge.counters("h1")
    assert counted["received"] == 100
    assert counted["applied"] in (1, 2)  # one may have been under way
    assert counted["conflated"] == 100 - counted["applied"]
    assert bridge.rows("SELECT name, revision FROM status.cluster") == [("c100", 100)]
    assert bridge.rows("SELECT incarnation, generation FROM bridge.ledger") == [(1, 100)]


@pytest.mark.parametrize("each", [30, pytest.param(1500, marks=pytest.mark.soak)])
def test_s06_changes_and_events_of_one_batch_all_take_effect_in_the_order_of_their_offsets(
    bridge: KafkaBridge, topics: Topics, each: int
) -> None:
    topics.create("h1")
    changes = [
        clusters_changed("h1", n, **{"delete" if n % 10 == 7 else "update" if n > 5 else "create": [(f"c{n % 5}", n)]})
        for n in range(50)
    ]
    happened = [policy_events("h1", n, *[f"e{n}-{nth}" for nth in range(each)]) for n in range(50)]
    bridge.put("h1", *itertools.chain(*zip(changes, happened, strict=True)))
    bridge.start()
    bridge.until_applied(h1=100)
    assert bridge.rows("SELECT created_at = updated_at FROM pipeline.kafka_offset") == [(True,)]  # one batch
    found = bridge.rows("SELECT name, payload #>> '{metadata,labels,revision}', deleted_at IS NULL FROM fleet.managed_cluster")
    assert sorted(found) == [
        ("c0", "45", True),
        ("c1", "46", True),
        ("c2", "42", False),
        ("c3", "48", True),
        ("c4", "49", True),
    ]
    assert bridge.rows("SELECT count(*) FROM fleet.policy_event") == [(50 * each,)]
    counted = bridge.counters("h1")
    assert (counted["applied"], counted["conflated"]) == (100, 0)


def test_s20_a_poison_message_costs_only_itself(bridge: KafkaBridge, topics: Topics) -> None:
    hubs = [f"h{n}" for n in range(10)]
    topics.create(*hubs)
    for hub in hubs:
        messages = [policy_events(hub, n, f"{hub}-{n}") for n in range(99)]
        whole = agent_compliance(hub, "0.1", compliant=["c1"], nonCompliant=["c2"])
        messages.insert(5, (whole[0], b"{no list") if hub == "h3" else whole)
        bridge.put(hub, *messages)
    with capture_logs() as logs:
        bridge.start()
        bridge.until_applied(**dict.fromkeys(hubs, 100))
    assert bridge.rows("SELECT count(*) FROM fleet.policy_event") == [(990,)]
    there = bridge.rows("SELECT site, count(*) FROM fleet.compliance GROUP BY site ORDER BY site")
    assert there == [(hub, 2) for hub in hubs if hub != "h3"]
    [(site, payload, reason, queue, position, state)] = bridge.rows(
        "SELECT site, payload, reason, queue, position, state FROM bridge.quarantine"
    )
    assert (site, payload, queue, position, state) == ("h3", b"{no list", f"{topics.name('h3')}@0", 5, "open")
    assert "not JSON" in reason
    said = Counter((entry["event"], entry.get("site")) for entry in logs if entry["log_level"] != "debug")
    assert said["apply is tried again", "h3"] == 2
    assert said["a wave goes site by site", None] <= 1  # what it costs the others
    assert not any(what in ("apply waits", "apply is tried again") and site != "h3" for what, site in said)
    sums = "SELECT sum(received), sum(applied), sum(quarantined), sum(rejected + stale + conflated) FROM bridge.counter"
    assert bridge.rows(sums) == [(1000, 999, 1, 0)]


def test_s27_without_its_checkpoint_nothing_is_applied_again(bridge: KafkaBridge, topics: Topics) -> None:
    topics.create("h1")
    bridge.put("h1", agent_compliance("h1", "0.1", compliant=["c1"]), agent_compliance("h1", "1.2", nonCompliant=["c1"]))
    bridge.start()
    bridge.until_applied(h1=2)
    before = bridge.counters("h1")
    written = bridge.rows("SELECT state::text, updated_at FROM fleet.compliance")
    bridge.intake.stop()
    shutil.rmtree(bridge.folder / "checkpoints")
    bridge.intake.start()
    bridge.put("h1", agent_compliance("h1", "2.2", nonCompliant=["c1"]))
    bridge.until_applied(h1=3)
    assert bridge.counters("h1") == {**before, "received": before["received"] + 1, "applied": before["applied"] + 1}
    assert bridge.rows("SELECT state::text, updated_at FROM fleet.compliance") == written


def test_s27_a_database_restored_from_an_older_state_is_led_to_the_same_end(
    bridge: KafkaBridge, spark: Spark, topics: Topics, tmp_path: Path, stack: ExitStack
) -> None:
    topics.create("h1")
    bridge.put("h1", clusters_changed("h1", 0, create=[("c1", 0), ("c2", 0)]), agent_compliance("h1", "0.1", compliant=["c1"]))
    bridge.start()
    bridge.until_applied(h1=2)
    bridge.stop()
    restored = KafkaBridge(spark, _copy_of(bridge, stack), topics, tmp_path / "restored", stack)
    later = KafkaBridge(spark, bridge.dsn, topics, tmp_path, stack)
    changed = clusters_changed("h1", 1, update=[("c1", 1)], delete=[("c2", 0)])
    later.put(
        "h1", changed, agent_compliance("h1", "1.2", nonCompliant=["c1"]), agent_compliance("h1", "2.3", compliant=["c3"])
    )
    later.start()
    later.until_applied(h1=5)
    end = _state(later)
    later.stop()
    assert restored.offsets() == {"h1": 2}
    assert _state(restored) != end
    restored.start()
    restored.until_applied(h1=5)
    assert _state(restored) == end


def _copy_of(bridge: KafkaBridge, stack: ExitStack) -> str:
    """As a backup of this moment would be."""
    [(name,)] = bridge.rows("SELECT current_database()")
    copy = f"{name}_copy"
    bridge.conn.close()
    elsewhere = bridge.dsn.replace(f"dbname={name}", "dbname=postgres")
    stack.callback(_execute, elsewhere, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(copy)))
    make = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(copy), sql.Identifier(name))

    def made() -> bool:
        try:
            _execute(elsewhere, make)
        except psycopg.errors.ObjectInUse:
            return False  # the processes of Spark let go of it a moment later
        return True

    eventually(made)
    return bridge.dsn.replace(f"dbname={name}", f"dbname={copy}")


def _execute(dsn: str, statement: sql.Composed) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(statement)


def _state(bridge: KafkaBridge) -> list[object]:
    return [
        sorted(bridge.rows("SELECT site, policy_id, cluster_name, state::text FROM fleet.compliance")),
        sorted(bridge.rows("SELECT name, payload::text, deleted_at IS NULL FROM fleet.managed_cluster")),
        sorted(bridge.rows("SELECT site, type, incarnation, generation, value FROM bridge.ledger")),
    ]


def test_s29_what_retention_took_is_said_exactly_and_a_resync_is_wanted(bridge: KafkaBridge, topics: Topics) -> None:
    topics.create("h1")
    bridge.put("h1", clusters_changed("h1", 0, create=[("c1", 0)]), *[clusters("h1", n, "c") for n in range(1, 100)])
    bridge.start()
    bridge.until_applied(h1=100)
    bridge.intake.stop()
    bridge.put("h1", *[clusters("h1", n, "c") for n in range(100, 550)])
    topics.trim("h1", before=500)
    bridge.intake.start()
    bridge.until_taken_in(h1=550)
    bridge.until(lambda: bridge.rows("SELECT revision FROM status.cluster") == [(549,)])
    assert bridge.rows("SELECT from_offset, to_offset, to_offset - from_offset FROM pipeline.kafka_gap") == [(100, 500, 400)]
    [wish] = bridge.rows("SELECT site, type, holds, reason FROM bridge.resync WHERE type = 'managed-clusters'")
    assert wish[:3] == ("h1", "managed-clusters", "managed-clusters")
    assert "400 records" in wish[3]
    assert "from offset 100 on" in wish[3]


def test_s32_a_new_hub_is_seen_without_a_restart_and_a_deleted_one_leaves_nothing(bridge: KafkaBridge, topics: Topics) -> None:
    topics.create("h1")
    bridge.put("h1", clusters("h1", 1, "c"))
    bridge.start()
    bridge.until_applied(h1=1)
    topics.create("h11")
    bridge.put("h11", clusters("h11", 1, "new"))
    bridge.until(lambda: bridge.rows("SELECT name FROM status.cluster WHERE site = 'h11'") == [("new",)], seconds=60)
    topics.delete("h1")
    bridge.until_applied(h11=1)
    forget(bridge.conn, SHIPPED, "h1", force=True)
    bridge.conn.commit()
    tables = ("status.cluster", "bridge.ledger", "bridge.inbox", "bridge.site", "bridge.counter", "bridge.resync")
    assert {table: bridge.rows(f"SELECT 1 FROM {table} WHERE site = 'h1'") for table in tables} == {
        table: [] for table in tables
    }
    assert bridge.rows("SELECT 1 FROM pipeline.kafka_offset WHERE topic = %s", topics.name("h1")) == []


def test_s33_a_bundle_under_another_name_on_a_hubs_topic_changes_nothing(bridge: KafkaBridge, topics: Topics) -> None:
    topics.create("h1", "h2")
    bridge.put("h1", clusters("h1", 1, "c"))
    bridge.put("h2", clusters("h2", 1, "c"))
    bridge.start()
    bridge.until_applied(h1=1, h2=1)
    before = bridge.rows("SELECT * FROM status.cluster ORDER BY site")
    bridge.put("h1", clusters("h2", 9, "forged"))
    bridge.until_applied(h1=2, h2=1)
    assert bridge.rows("SELECT * FROM status.cluster ORDER BY site") == before
    assert bridge.counters("h1") == {
        "received": 2, "conflated": 0, "rejected": 1, "stale": 0, "applied": 1, "quarantined": 0,
    }  # fmt: skip
    assert bridge.counters("h2")["received"] == 1
    [(site, reason, position)] = bridge.rows("SELECT site, reason, position FROM bridge.quarantine")
    assert (site, position) == ("h1", 1)
    assert "is not its sender 'h1'" in reason


def test_h30_what_is_staged_dies_with_its_transaction(bridge: KafkaBridge, topics: Topics) -> None:
    """No UNLOGGED table stages anything here: intake and workers stage in temporary tables of the transaction that merges them.
    So a session that is cut off leaves no row behind that another could mix in, and its batch is done again, whole."""
    topics.create("h1")
    bridge.put("h1", *[events("h1", n, *[f"e{n}-{nth}" for nth in range(20)]) for n in range(200)])
    with psycopg.connect(bridge.dsn) as paused:
        paused.execute("LOCK TABLE bridge.counter IN EXCLUSIVE MODE")
        bridge.start()
        cut = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = 'bridge.counter'::regclass AND NOT granted"
        eventually(lambda: bridge.rows(cut))  # it has staged and merged all, and waits to count it
    eventually(lambda: bridge.intake.failure() is not None)
    assert (bridge.offsets(), bridge.waiting()) == ({}, 0)
    bridge.intake.stop()
    bridge.intake.start()
    bridge.until_applied(h1=200)
    assert bridge.rows("SELECT count(*) FROM status.event") == [(4000,)]
    assert bridge.rows("SELECT relname FROM pg_class WHERE relpersistence = 'u'") == []
