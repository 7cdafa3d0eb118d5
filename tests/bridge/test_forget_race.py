"""A site that is forgotten while a bundle of it is applied: whoever is first, nothing of it stays."""

from __future__ import annotations

import threading

from bridge_apply import Interleaved
from bridge_hub import Hub, cluster, clusters

from trunkline.bridge.forget import forget
from trunkline.core.errors import Retryable
from waiting import eventually

KEPT = "SELECT (SELECT count(*) FROM status.cluster), (SELECT count(*) FROM bridge.ledger), (SELECT count(*) FROM bridge.inbox)"


def test_an_apply_that_ends_after_the_site_was_forgotten_leaves_nothing(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("c")), clusters("b", 1, cluster("c")))
    blocker = hub.connect()
    blocker.execute("INSERT INTO status.cluster VALUES ('b', 'c', '', 1, now(), now())")
    applying = Interleaved(hub, "clusters", "a", "b")
    applying.start_until_blocked()
    forget(hub.conn, hub.types, "a", force=True)
    hub.conn.commit()
    blocker.rollback()
    ended = applying.join()
    assert isinstance(ended, Retryable)
    assert "clusters of a" in str(ended)
    assert hub.rows(KEPT) == [(0, 0, 1)]
    assert hub.apply("a", "clusters") is None
    assert hub.apply("b", "clusters") is not None


def test_a_site_that_is_forgotten_before_an_apply_of_it_ended_leaves_nothing(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("c")))
    blocker, forgetting = hub.connect(), hub.connect()
    blocker.execute("SELECT FROM bridge.counter FOR UPDATE")
    applying = Interleaved(hub, "clusters", "a")
    applying.start_until_blocked()
    thread = threading.Thread(target=forget, args=(forgetting, hub.types, "a", True))
    thread.start()
    waits = "SELECT pg_blocking_pids(%s) <> '{}'"
    eventually(lambda: hub.rows(waits, forgetting.info.backend_pid) == [(True,)])
    blocker.commit()
    assert applying.outcome().applied is not None
    thread.join(30)
    forgetting.commit()
    assert hub.rows(KEPT) == [(0, 0, 0)]
