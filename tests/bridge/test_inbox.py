"""The intake transaction: all of a batch or nothing of it, and offsets only together with what they passed."""

from __future__ import annotations

import threading

import psycopg
import pytest
from bridge_hub import GROUP, Hub, clusters, compliance, event, events
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from trunkline.bridge.inbox import Arrived, Rejected, take_in
from trunkline.bridge.plan import Plan, commit_plan, open_plan, read_offsets
from trunkline.core.errors import Fenced, Terminal

QUEUE = "LRQ_Recv_status_a"


def refused(position: int = 1) -> Rejected:
    return Rejected("a", {"ce_id": "x"}, b"junk", "no header ce_type", QUEUE, position)


def test_a_newer_complete_bundle_replaces_an_older_one_and_never_the_other_way(hub: Hub) -> None:
    hub.take_in(clusters("a", 2))
    hub.take_in(clusters("a", 1), clusters("b", 7))
    assert hub.inbox() == [("a", "clusters", 2), ("b", "clusters", 7)]
    hub.take_in(clusters("a", 3))
    assert hub.inbox() == [("a", "clusters", 3), ("b", "clusters", 7)]


def test_a_batch_may_hold_several_versions_of_one_bundle(hub: Hub) -> None:
    hub.take_in(clusters("a", 2), clusters("a", 5), clusters("a", 3))
    assert hub.inbox() == [("a", "clusters", 5)]
    assert hub.counters("a") == {
        "received": 3, "conflated": 2, "rejected": 0, "stale": 0, "applied": 0, "quarantined": 0,
    }  # fmt: skip


def test_append_bundles_are_never_conflated_and_a_repeated_id_is_one_bundle(hub: Hub) -> None:
    first, second = events("a", 1, event(1)), events("a", 2, event(2))
    hub.take_in(first, second, first)
    hub.take_in(second)
    assert hub.inbox() == [("a", "events", 1), ("a", "events", 2)]
    assert hub.counters("a")["conflated"] == 2


def test_rejected_messages_are_quarantined_with_payload_position_and_reason(hub: Hub) -> None:
    hub.take_in(rejected=[refused()])
    found = hub.rows("SELECT site, headers, payload, reason, queue, position FROM bridge.quarantine")
    assert found == [("a", {"ce_id": "x"}, b"junk", "no header ce_type", QUEUE, 1)]
    assert hub.counters("a")["rejected"] == 1
    assert read_offsets(hub.conn, GROUP) == {QUEUE: 2}


def test_taking_in_closes_the_plan_and_stores_its_end(hub: Hub) -> None:
    plan = hub.take_in(clusters("a", 1), clusters("b", 1))
    assert open_plan(hub.conn, GROUP) is None
    assert read_offsets(hub.conn, GROUP) == plan.end == {QUEUE: 2, "LRQ_Recv_status_b": 2}
    [(payload,)] = hub.rows("SELECT payload FROM status.transport WHERE queue = %s", QUEUE)
    assert payload == {"next": 2}


@pytest.mark.parametrize("stored", [1, 3], ids=["behind", "ahead"])
def test_h28_a_batch_that_does_not_begin_at_the_stored_offsets_raises_and_leaves_nothing(hub: Hub, stored: int) -> None:
    hub.take_in(clusters("a", 1))
    plan, arrived = hub.plan([clusters("a", 2)])
    hub.conn.execute("UPDATE status.transport SET payload = %s", (Jsonb({"next": stored}),))
    hub.conn.commit()
    with pytest.raises(Terminal, match="offsets stand at"):
        take_in(hub.conn, hub.grant, GROUP, plan, arrived, [], {"a": 1})
    assert hub.inbox() == [("a", "clusters", 1)]
    assert read_offsets(hub.conn, GROUP) == {QUEUE: stored}


def test_h28_a_batch_of_a_queue_that_the_offsets_do_not_name_begins_at_the_first_position(hub: Hub) -> None:
    bundle = clusters("a", 1)
    commit_plan(hub.conn, hub.grant, GROUP, {QUEUE: 5}, {QUEUE: 6})
    with pytest.raises(Terminal):
        take_in(hub.conn, hub.grant, GROUP, Plan({QUEUE: 5}, {QUEUE: 6}), [Arrived(bundle, QUEUE, 5)], [], {"a": 1})
    assert hub.inbox() == []


def test_h29_a_batch_whose_plan_is_not_the_open_one_raises(hub: Hub) -> None:
    plan, arrived = hub.plan([clusters("a", 1)])
    commit_plan(hub.conn, hub.grant, GROUP, plan.start, {QUEUE: 3})
    with pytest.raises(Terminal, match="not the open one"):
        take_in(hub.conn, hub.grant, GROUP, plan, arrived, [], {"a": 1})
    assert hub.inbox() == []
    assert read_offsets(hub.conn, GROUP) == {}


def test_h01_intake_of_a_past_holder_leaves_nothing(hub: Hub) -> None:
    plan, arrived = hub.plan([clusters("a", 1)])
    hub.take_over()
    with pytest.raises(Fenced):
        take_in(hub.conn, hub.grant, GROUP, plan, arrived, [refused(2)], {"a": 2})
    assert hub.inbox() == []
    assert hub.rows("SELECT 1 FROM bridge.quarantine") == []
    assert read_offsets(hub.conn, GROUP) == {}
    assert open_plan(hub.conn, GROUP) == Plan(plan.start, plan.end, hub.grant.epoch)


def test_h35_intake_that_deadlocks_with_a_worker_is_tried_again(hub: Hub) -> None:
    """A transaction locks b, then wants a; intake holds a and wants b. Whoever Postgres chooses, intake gets through."""
    hub.take_in(clusters("a", 1), clusters("b", 1))
    plan, arrived = hub.plan([clusters("a", 2), clusters("b", 2)])
    other = hub.connect()
    hub.conn.execute("SET deadlock_timeout = '50ms'")
    hub.conn.commit()
    other.execute("SET deadlock_timeout = '60s'")
    other.execute("UPDATE bridge.inbox SET position = position WHERE site = 'b'")
    intake = threading.Thread(target=take_in, args=(hub.conn, hub.grant, GROUP, plan, arrived, [], {"a": 1, "b": 1}))
    intake.start()
    _until_blocked(hub, hub.conn)
    other.execute("UPDATE bridge.inbox SET position = position WHERE site = 'a'")
    other.commit()
    intake.join(30)
    assert hub.inbox() == [("a", "clusters", 2), ("b", "clusters", 2)]


def _until_blocked(hub: Hub, conn: psycopg.Connection[object]) -> None:
    watcher = hub.connect()
    watcher.autocommit = True
    for _ in range(30_000):
        [(blocked,)] = watcher.execute("SELECT pg_blocking_pids(%s) <> '{}'", (conn.info.backend_pid,)).fetchall()
        if blocked:
            return
    pytest.fail("the connection was never blocked")


STEPS = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["clusters", "events", "junk"]), st.integers(1, 5)), max_size=4),
    max_size=5,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=STEPS)
def test_g7_an_offset_never_passes_a_bundle_that_is_nowhere(hub: Hub, batches: list[list[tuple[str, str, int]]]) -> None:
    """After every batch each message passed is in quarantine, or it or a newer one of its kind waits in the inbox."""
    hub.conn.execute("TRUNCATE bridge.inbox, bridge.quarantine, bridge.counter, status.transport, bridge.plan")
    hub.conn.commit()
    passed: list[tuple[str, str, int]] = []
    for batch in batches:
        good = [clusters(s, n) if t == "clusters" else events(s, n) for s, t, n in batch if t != "junk"]
        positions = {s: sum(1 for b in good if b.source == s) for s in "ab"}
        start = read_offsets(hub.conn, GROUP)
        bad = [
            Rejected(s, {}, b"", "junk", f"LRQ_Recv_status_{s}", start.get(f"LRQ_Recv_status_{s}", 1) + positions[s] + i)
            for s in "ab"
            for i in range(sum(1 for m in batch if m[0] == s and m[1] == "junk"))
        ]
        hub.take_in(*good, rejected=bad)
        passed += batch
    offsets = read_offsets(hub.conn, GROUP)
    for site in "ab":
        mine = [m for m in passed if m[0] == site]
        assert offsets.get(f"LRQ_Recv_status_{site}", 1) == len(mine) + 1
        waiting = [generation for s, t, generation in hub.inbox() if s == site and t == "clusters"]
        assert waiting == ([max(n for _, t, n in mine if t == "clusters")] if any(m[1] == "clusters" for m in mine) else [])
        assert sum(1 for s, t, _ in hub.inbox() if (s, t) == (site, "events")) == sum(1 for m in mine if m[1] == "events")
        [(junk,)] = hub.rows("SELECT count(*) FROM bridge.quarantine WHERE site = %s", site)
        assert junk == sum(1 for m in mine if m[1] == "junk")


def test_a_bundle_keeps_its_dependency_and_headers_in_the_inbox(hub: Hub) -> None:
    bundle = compliance("a", 4, 3)
    hub.take_in(bundle)
    found = hub.rows(
        "SELECT dependency_type, dependency_incarnation, dependency_generation, headers, data, queue, position"
        " FROM bridge.inbox"
    )
    assert found == [("clusters", 1, 3, bundle.headers(), bundle.data, QUEUE, 1)]
