"""One apply is one transaction: the newest bundle, never backward, never before its base, never more than changed."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from bridge_apply import Interleaved
from bridge_hub import Hub, cluster, clusters, compliance, event, events, verdict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trunkline.bridge.apply import is_elsewhere
from trunkline.bridge.judgement import Verdict
from trunkline.bridge.setaside import apply_or_set_aside
from trunkline.core.bundle import Version
from trunkline.core.errors import Fenced, Invalid, Retryable


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
    assert hub.apply("a", "events") == Version(1, 1)
    hub.take_in(late)
    assert hub.apply("a", "events") == Version(1, 9)
    assert hub.rows("SELECT id FROM status.event ORDER BY id") == [("e1",), ("e2",), ("e3",)]
    assert hub.rows("SELECT generation FROM bridge.ledger") == [(9,)]
    assert hub.rows("SELECT rows_received, rows_written FROM bridge.counter") == [(7, 3)]


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


def test_a_stale_bundle_is_dropped_and_status_never_goes_backward(hub: Hub) -> None:
    hub.take_in(clusters("a", 2, cluster("c", "new")))
    hub.apply("a", "clusters")
    for dropped, generation in ((1, 1), (2, 2)):
        hub.take_in(clusters("a", generation, cluster("c", "old")))
        assert hub.apply("a", "clusters") is None
        assert hub.health() == {"c": "new"}
        assert hub.inbox() == []
        assert hub.counters("a")["stale"] == dropped


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
    applying = Interleaved(hub, "clusters", "a")
    applying.start_until_blocked()
    hub.take_over()
    blocker.commit()
    assert isinstance(applying.join(), Fenced)
    assert hub.health() == {"c": "first"}


UNWRITABLE: dict[str, tuple[list[Any], type[Exception]]] = {
    "type": ([cluster("c") | {"revision": "many"}], psycopg.DataError),
    "null": ([cluster("c") | {"health": None}], psycopg.IntegrityError),
    "twice": ([cluster("c"), cluster("c")], Invalid),
    "nul": ([cluster("nul\x00")], psycopg.DataError),
    "column": ([{"name": "c"}], Invalid),
    "row": (["c"], Invalid),
    "list": ([cluster("c") | {"health": ["ok"]}], Invalid),
    "key": ([cluster("c") | {"name": {}}], Invalid),
}


def test_data_that_cannot_be_written_fail_whole_and_leave_the_connection_usable(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("good")))
    hub.apply("a", "clusters")
    for generation, (rows, error) in enumerate(UNWRITABLE.values(), 2):
        hub.take_in(clusters("a", generation, cluster("good", "bad"), *rows))
        with pytest.raises(error):
            hub.apply("a", "clusters")
        assert hub.health() == {"good": "ok"}
        assert hub.inbox() == [("a", "clusters", generation)]


def test_what_is_no_list_of_rows_deletes_nothing(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("good")))
    hub.apply("a", "clusters")
    for generation, document in enumerate([b"{}", b"null", b"3", b'"text"', b"[", b""], 2):
        hub.take_in(clusters("a", generation, raw=document))
        with pytest.raises(Invalid):
            hub.apply("a", "clusters")
        assert hub.health() == {"good": "ok"}


def test_values_arrive_as_they_were_sent(hub: Hub) -> None:
    odd = ["tab\tnew\nline\rback\\slash", "\\N", "\\.", "", "ünïcode 🚂", "quote'\"", " ", "\\"]
    hub.take_in(clusters("a", 1, *[cluster(name, health=name) for name in odd]))
    hub.apply("a", "clusters")
    assert hub.health() == {name: name for name in odd}
    hub.take_in(clusters("a", 2, *[cluster(name, health=name) for name in odd]))
    hub.apply("a", "clusters")
    assert hub.rows("SELECT rows_written FROM bridge.counter") == [(len(odd),)]


def test_quarantine_keeps_the_payload_and_moves_only_the_version_that_failed(hub: Hub) -> None:
    bad = clusters("a", 1, raw=b"broken")
    hub.take_in(bad)
    outcome, reason = apply_or_set_aside(hub.conn, hub.grant, hub.types, "clusters", "a", Version(1, 1))
    assert outcome.verdict is Verdict.SET_ASIDE
    [(payload, said, headers, position, state)] = hub.rows(
        "SELECT payload, reason, headers, position, state FROM bridge.quarantine"
    )
    assert (payload, said, headers, position, state) == (b"broken", reason, bad.headers(), 1, "open")
    assert "not JSON" in reason
    hub.take_in(clusters("a", 2, raw=b"newer"))
    with pytest.raises(Invalid):
        apply_or_set_aside(hub.conn, hub.grant, hub.types, "clusters", "a", Version(1, 1))
    assert hub.inbox() == [("a", "clusters", 2)]


@pytest.mark.parametrize(
    ("error", "elsewhere"),
    [
        (psycopg.OperationalError("gone"), True),
        (psycopg.errors.DeadlockDetected("ring"), True),
        (psycopg.errors.UndefinedTable("not migrated"), True),
        (psycopg.errors.InsufficientPrivilege("not granted"), True),
        (psycopg.errors.QueryCanceled("too long"), True),
        (Retryable("wave", "lost", "again"), True),
        (OSError("no route"), True),
        (psycopg.errors.CheckViolation("no"), False),
        (psycopg.ProgrammingError("cannot adapt type 'dict'"), False),
        (psycopg.errors.DatatypeMismatch("no such value"), False),
        (psycopg.errors.RaiseException("a trigger says no"), False),
        (psycopg.DataError("no number"), False),
        (Invalid("rows", "none", "send some"), False),
        (KeyError("name"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whose_fault_a_failure_is(error: Exception, elsewhere: bool) -> None:
    assert is_elsewhere(error) is elsewhere
