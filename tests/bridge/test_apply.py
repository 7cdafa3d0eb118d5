"""One apply is one transaction: the newest bundle, never backward, never before its base, never more than changed."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from bridge_hub import GROUP, Hub, cluster, clusters, compliance, event, events, verdict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trunkline.bridge.apply import apply_bundle, quarantine_bundle
from trunkline.bridge.inbox import take_in
from trunkline.core.bundle import Version
from trunkline.core.errors import Fenced, Invalid


def test_a_complete_bundle_replaces_the_rows_of_its_site_and_no_others(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("c1"), cluster("c2")), clusters("b", 1, cluster("c1", "bad")))
    assert hub.apply("a", "clusters") == Version(1, 1)
    assert hub.apply("b", "clusters") == Version(1, 1)
    hub.take_in(clusters("a", 2, cluster("c2", "bad"), cluster("c3")))
    assert hub.apply("a", "clusters") == Version(1, 2)
    assert hub.health("a") == {"c2": "bad", "c3": "ok"}
    assert hub.health("b") == {"c1": "bad"}
    assert hub.inbox() == []


def test_an_empty_complete_bundle_says_that_there_is_nothing(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("c1")))
    hub.apply("a", "clusters")
    hub.take_in(clusters("a", 2))
    hub.apply("a", "clusters")
    assert hub.health() == {}


def test_late_binding_applies_the_newest_there_is(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("c", "old")))
    hub.take_in(clusters("a", 2, cluster("c", "new")))
    assert hub.apply("a", "clusters") == Version(1, 2)
    assert hub.apply("a", "clusters") is None


def test_append_bundles_add_rows_once_whatever_their_order(hub: Hub) -> None:
    late, early = events("a", 9, event(3), event(2)), events("a", 1, event(1), event(2), event(1))
    hub.take_in(late, early)
    assert hub.apply("a", "events", late.id) == Version(1, 9)
    assert hub.apply("a", "events", early.id) == Version(1, 1)
    hub.take_in(late)
    assert hub.apply("a", "events", late.id) == Version(1, 9)
    assert hub.rows("SELECT id FROM status.event ORDER BY id") == [("e1",), ("e2",), ("e3",)]
    assert hub.rows("SELECT generation FROM bridge.ledger") == [(9,)]


def test_unchanged_rows_are_not_rewritten_nor_locked(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("same"), cluster("changes"), cluster("goes")))
    hub.apply("a", "clusters")
    before = dict(hub.rows("SELECT name, (xmin::text, xmax::text, ctid::text, updated_at) FROM status.cluster"))
    hub.take_in(clusters("a", 2, cluster("same"), cluster("changes", "bad"), cluster("comes")))
    hub.apply("a", "clusters")
    after = dict(hub.rows("SELECT name, (xmin::text, xmax::text, ctid::text, updated_at) FROM status.cluster"))
    assert after["same"] == before["same"]
    assert after["changes"] != before["changes"]
    assert set(after) == {"same", "changes", "comes"}
    assert hub.rows("SELECT rows_received, rows_written FROM bridge.counter") == [(6, 3 + 3)]


def test_an_unchanged_bundle_writes_no_row_but_advances_the_ledger(hub: Hub) -> None:
    rows = [cluster(f"c{n}") for n in range(50)]
    hub.take_in(clusters("a", 1, *rows))
    hub.apply("a", "clusters")
    hub.take_in(clusters("a", 2, *rows))
    hub.apply("a", "clusters")
    assert hub.rows("SELECT rows_received, rows_written FROM bridge.counter") == [(100, 50)]
    assert hub.rows("SELECT generation FROM bridge.ledger") == [(2,)]


@pytest.mark.parametrize("generation", [1, 2], ids=["older", "equal"])
def test_a_stale_bundle_is_dropped_and_status_never_goes_backward(hub: Hub, generation: int) -> None:
    hub.take_in(clusters("a", 2, cluster("c", "new")))
    hub.apply("a", "clusters")
    hub.take_in(clusters("a", generation, cluster("c", "old")))
    assert hub.apply("a", "clusters") is None
    assert hub.health() == {"c": "new"}
    assert hub.inbox() == []
    assert hub.counters("a")["stale"] == 1


class Interleaved:
    """An apply that stops where the test wants it: on a lock of the site's row that the test holds."""

    def __init__(self, hub: Hub, site: str, type_: str) -> None:
        self.hub = hub
        self.conn = hub.connect()
        self.outcome: list[Version | Exception | None] = []
        self._thread = threading.Thread(target=self._run, args=(site, type_))

    def _run(self, site: str, type_: str) -> None:
        try:
            self.outcome.append(apply_bundle(self.conn, self.hub.grant, site, type_, ""))
        except Exception as error:
            self.outcome.append(error)

    def start_until_blocked(self) -> None:
        self._thread.start()
        watcher = self.hub.connect()
        watcher.autocommit = True
        pid = self.conn.info.backend_pid
        while watcher.execute("SELECT pg_blocking_pids(%s) = '{}'", (pid,)).fetchone() == (True,):
            assert self._thread.is_alive(), f"the apply ended with {self.outcome} and was never blocked"

    def join(self) -> Version | Exception | None:
        self._thread.join(30)
        return self.outcome[0]


def test_h35_a_newer_version_that_arrives_during_an_apply_stays(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("c", "first")))
    hub.apply("a", "clusters")
    hub.take_in(clusters("a", 2, cluster("c", "second")))
    blocker = hub.connect()
    blocker.execute("SELECT 1 FROM status.cluster WHERE site = 'a' FOR UPDATE")
    applying = Interleaved(hub, "a", "clusters")
    applying.start_until_blocked()
    hub.take_in(clusters("a", 3, cluster("c", "third")))  # intake does not wait for the apply
    blocker.commit()
    assert applying.join() == Version(1, 2)
    assert hub.inbox() == [("a", "clusters", 3)]
    assert hub.health() == {"c": "second"}
    assert hub.apply("a", "clusters") == Version(1, 3)
    assert hub.health() == {"c": "third"}
    assert hub.counters("a") == {
        "received": 3, "conflated": 0, "rejected": 0, "stale": 0, "applied": 3, "quarantined": 0,
    }  # fmt: skip


def test_h34_the_dependency_is_checked_again_inside_the_apply(hub: Hub) -> None:
    """The base's row is being written by another transaction: the apply waits for it and then sees what it left."""
    hub.take_in(clusters("a", 1, cluster("c")))
    hub.apply("a", "clusters")
    hub.take_in(compliance("a", 1, 2, verdict("c")))
    base = hub.connect()
    base.execute("UPDATE bridge.ledger SET generation = 2 WHERE type = 'clusters'")
    applying = Interleaved(hub, "a", "compliance")
    applying.start_until_blocked()
    base.rollback()
    assert applying.join() is None
    assert hub.rows("SELECT 1 FROM status.compliance") == []
    assert hub.inbox() == [("a", "compliance", 1)]


def test_h34_the_base_cannot_change_while_its_dependent_is_applied(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("c")), compliance("a", 1, None, verdict("c")))
    hub.apply("a", "clusters")
    hub.apply("a", "compliance")
    hub.take_in(compliance("a", 2, 1, verdict("c", state="broken")))
    blocker = hub.connect()
    blocker.execute("SELECT 1 FROM status.compliance FOR UPDATE")
    applying = Interleaved(hub, "a", "compliance")
    applying.start_until_blocked()
    base = hub.connect()
    with pytest.raises(psycopg.errors.LockNotAvailable):
        base.execute("SELECT 1 FROM bridge.ledger WHERE type = 'clusters' FOR UPDATE NOWAIT")
    base.rollback()
    blocker.commit()
    assert applying.join() == Version(1, 2)


def test_g6_a_dependent_waits_until_its_base_is_applied(hub: Hub) -> None:
    hub.take_in(compliance("a", 1, 2, verdict("c")), clusters("a", 1, cluster("c")))
    assert hub.apply("a", "compliance") is None
    hub.apply("a", "clusters")
    assert hub.apply("a", "compliance") is None
    assert hub.rows("SELECT 1 FROM status.compliance") == []
    hub.take_in(clusters("a", 2, cluster("c")))
    hub.apply("a", "clusters")
    assert hub.apply("a", "compliance") == Version(1, 1)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("clusters"), st.integers(1, 6), st.none()),
        st.tuples(st.just("compliance"), st.integers(1, 6), st.none() | st.integers(1, 6)),
        st.tuples(st.just("apply"), st.sampled_from(["clusters", "compliance"]), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_g6_no_row_is_visible_before_the_row_it_depends_on(hub: Hub, steps: list[tuple[str, Any, int | None]]) -> None:
    """Every row says which base version it needs; after any step the ledger has that version, and never less than before."""
    hub.conn.execute(
        "TRUNCATE bridge.inbox, bridge.ledger, bridge.counter, status.transport, bridge.plan, status.cluster, status.compliance"
    )
    hub.conn.commit()
    reached = (0, 0)
    for word, argument, needs in steps:
        if word == "clusters":
            hub.take_in(clusters("a", argument, cluster("c", revision=argument)))
        elif word == "compliance":
            hub.take_in(compliance("a", argument, needs, verdict("c", state=str(needs or 0))))
        else:
            hub.apply("a", argument)
        versions = dict(hub.rows("SELECT type, generation FROM bridge.ledger"))
        for (state,) in hub.rows("SELECT state FROM status.compliance"):
            assert int(state) <= versions.get("clusters", 0)
        for (revision,) in hub.rows("SELECT revision FROM status.cluster"):
            assert revision == versions["clusters"]
        now = (versions.get("clusters", 0), versions.get("compliance", 0))
        assert now[0] >= reached[0]
        assert now[1] >= reached[1]
        reached = now


def test_h01_an_apply_of_a_past_holder_leaves_nothing(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("c")))
    hub.take_over()
    with pytest.raises(Fenced):
        hub.apply("a", "clusters")
    assert hub.health() == {}
    assert hub.inbox() == [("a", "clusters", 1)]


def test_h01_a_takeover_during_an_apply_rolls_it_back(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("c", "first")))
    hub.apply("a", "clusters")
    hub.take_in(clusters("a", 2, cluster("c", "second")))
    blocker = hub.connect()
    blocker.execute("SELECT 1 FROM status.cluster FOR UPDATE")
    applying = Interleaved(hub, "a", "clusters")
    applying.start_until_blocked()
    hub.take_over()
    blocker.commit()
    assert isinstance(applying.join(), Fenced)
    assert hub.health() == {"c": "first"}


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([cluster("c") | {"revision": "many"}], psycopg.DataError),
        ([cluster("c") | {"health": None}], psycopg.IntegrityError),
        ([cluster("c"), cluster("c")], psycopg.IntegrityError),
        ([cluster("nul\x00")], psycopg.DataError),
        ([{"name": "c"}], Invalid),
    ],
    ids=["type", "null", "twice", "nul", "column"],
)
def test_data_that_cannot_be_written_fail_whole_and_leave_the_connection_usable(
    hub: Hub, rows: list[dict[str, Any]], error: type[Exception]
) -> None:
    hub.take_in(clusters("a", 1, cluster("good")))
    hub.apply("a", "clusters")
    hub.take_in(clusters("a", 2, cluster("good", "bad"), *rows))
    with pytest.raises(error):
        hub.apply("a", "clusters")
    assert hub.health() == {"good": "ok"}
    assert hub.inbox() == [("a", "clusters", 2)]


def test_quarantine_keeps_the_payload_and_moves_only_the_version_that_failed(hub: Hub) -> None:
    bad = clusters("a", 1, raw=b"broken")
    plan, arrived = hub.plan([bad])
    take_in(hub.conn, hub.grant, GROUP, plan, arrived, [], {"a": 1})
    assert quarantine_bundle(hub.conn, hub.grant, "a", "clusters", "", Version(1, 1), "not JSON")
    assert hub.rows("SELECT payload, reason, headers, position FROM bridge.quarantine") == [
        (b"broken", "not JSON", bad.headers(), 1)
    ]
    hub.take_in(clusters("a", 2, cluster("c")))
    assert not quarantine_bundle(hub.conn, hub.grant, "a", "clusters", "", Version(1, 1), "not JSON")
    assert hub.inbox() == [("a", "clusters", 2)]
