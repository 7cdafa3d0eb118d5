"""What may become of a bundle in quarantine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from bridge_apply import TYPES, delta, levels, make_tables
from bridge_hub import Hub, cluster, clusters, compliance, event, events, verdict

from trunkline.bridge.setaside import apply_or_set_aside, drop, retry
from trunkline.bridge.types import Types
from trunkline.core.bundle import Bundle, Version
from trunkline.core.errors import Invalid


@pytest.fixture
def hub(make_database: Callable[..., str]) -> Iterator[Hub]:
    with ExitStack() as stack:
        hub = Hub(make_database("queues", "bridge"), stack, TYPES)
        make_tables(hub)
        yield hub


def set_aside(hub: Hub, bundle: Bundle) -> int:
    hub.take_in(bundle)
    apply_or_set_aside(hub.conn, hub.grant, hub.types, bundle.type, bundle.source, bundle.version)
    [(found,)] = hub.rows("SELECT max(id) FROM bridge.quarantine")
    return int(found)


def states(hub: Hub) -> list[str]:
    return [state for (state,) in hub.rows("SELECT state FROM bridge.quarantine ORDER BY id")]


def test_a_complete_bundle_is_tried_again_while_nothing_newer_is_there(hub: Hub) -> None:
    hub.conn.execute("ALTER TABLE status.compliance ADD CONSTRAINT strict CHECK (state <> 'odd')")
    hub.conn.commit()
    hub.take_in(clusters("a", 7, cluster("c")))
    hub.apply("a", "clusters")
    found = set_aside(hub, compliance("a", 1, 7, verdict("c", state="odd")))
    assert "strict" in hub.rows("SELECT reason FROM bridge.quarantine")[0][0]
    hub.conn.execute("ALTER TABLE status.compliance DROP CONSTRAINT strict")
    retry(hub.conn, found)
    hub.conn.commit()
    needs = hub.rows("SELECT dependency_type, dependency_incarnation, dependency_generation FROM bridge.inbox")
    assert needs == [("clusters", 1, 7)]
    assert hub.apply("a", "compliance") == Version(1, 1)
    assert hub.rows("SELECT state FROM status.compliance") == [("odd",)]
    assert states(hub) == ["retried"]
    assert hub.rows("SELECT received, applied, quarantined FROM bridge.counter") == [(2, 2, 0)]
    with pytest.raises(Invalid, match="retried already"):
        retry(hub.conn, found)
    hub.conn.rollback()


def test_a_complete_bundle_is_not_tried_again_over_a_newer_one(hub: Hub) -> None:
    found = set_aside(hub, clusters("a", 1, raw=b"["))
    hub.take_in(clusters("a", 2, cluster("c")))
    for where in ("waiting", "applied"):
        with pytest.raises(Invalid, match=f"newer is {where}"):
            retry(hub.conn, found)
        hub.conn.rollback()
        hub.conn.execute("UPDATE bridge.quarantine SET generation = 99")  # so that the newer one does not clear it
        hub.apply("a", "clusters")
        hub.conn.execute("UPDATE bridge.quarantine SET generation = 1")
        hub.conn.commit()
    drop(hub.conn, found)
    hub.conn.commit()
    assert states(hub) == ["dropped"]
    assert hub.health("a") == {"c": "ok"}


def test_an_appended_bundle_is_tried_again_whatever_was_applied_since(hub: Hub) -> None:
    hub.conn.execute("ALTER TABLE status.event ADD CONSTRAINT strict CHECK (id <> 'e1')")
    hub.conn.commit()
    found = set_aside(hub, events("a", 1, event(1)))
    hub.take_in(events("a", 2, event(2)))
    hub.apply("a", "events")
    assert states(hub) == ["open"]
    hub.conn.execute("ALTER TABLE status.event DROP CONSTRAINT strict")
    retry(hub.conn, found)
    hub.conn.commit()
    hub.apply("a", "events")
    assert hub.rows("SELECT id FROM status.event ORDER BY id") == [("e1",), ("e2",)]


def test_a_delta_is_never_tried_again_and_says_what_to_do(hub: Hub) -> None:
    hub.take_in(levels("a", 1, c=1))
    hub.apply("a", "levels")
    found = set_aside(hub, delta("a", 1, 1, c=5000))
    with pytest.raises(Invalid, match="bridge resync a --type level-deltas"):
        retry(hub.conn, found)
    hub.conn.rollback()
    drop(hub.conn, found)
    hub.conn.commit()
    assert states(hub) == ["dropped"]
    assert hub.rows("SELECT type FROM bridge.resync") == [("levels",)]


def test_there_is_no_such_bundle(hub: Hub) -> None:
    for act in (retry, drop):
        with pytest.raises(Invalid, match="there is none"):
            act(hub.conn, 12345)


def test_bundles_of_a_type_that_is_not_declared_any_more_are_set_aside(hub: Hub) -> None:
    hub.take_in(levels("a", 1, c=1))
    without = Types(one for one in TYPES.values() if one.name != "levels")
    apply_or_set_aside(hub.conn, hub.grant, without, "levels", "a", Version(1, 1))
    assert hub.inbox() == []
    assert "not declared here any more" in hub.rows("SELECT reason FROM bridge.quarantine")[0][0]
