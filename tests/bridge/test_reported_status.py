"""From the sender to the hub's rows: a made-up fleet, and a reporter that makes up for what was lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from bridge_hub import Hub

from trunkline.bridge.askers import QueueAsker
from trunkline.bridge.keeper import Keeper
from trunkline.bridge.load import Scale, SiteLoad
from trunkline.bridge.loadpayloads import LISTS, STATES
from trunkline.bridge.reporter_queue import StatusReporter
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.workers import Workers
from trunkline.core.bundle import Bundle, parse_bundle
from trunkline.core.clock import SystemClock
from trunkline.core.config import BridgeConfig
from trunkline.core.jsoncodec import loads
from trunkline.queues.feed import feed
from trunkline.queues.registry import remember_site
from waiting import eventually

CONFIG = BridgeConfig(workers=2, waiting_deltas=3, resync_seconds=1)
SENT = "SELECT id, headers, payload FROM queues.send_log WHERE client = %s ORDER BY id"
ROWS = [{"policyId": "p1", "compliantClusters": ["a", "b"]}]


@pytest.fixture
def keeping(hub: Hub) -> Iterator[threading.Event]:
    """Workers and keeper over the hub; set when either was fenced."""
    fenced = threading.Event()
    clock = SystemClock()
    workers = Workers(hub.dsn, hub.grant, SHIPPED, CONFIG, clock, fenced.set)
    askers = {"queues": QueueAsker(hub.dsn, "status")}
    keeper = Keeper(hub.dsn, hub.grant, SHIPPED, CONFIG, clock, askers, lambda: True, fenced.set)
    workers.start()
    keeper.start()
    yield fenced
    keeper.stop()
    workers.stop()


def compliance(bundle: Bundle, lists: tuple[str, ...] = LISTS) -> dict[tuple[str, str], str]:
    found = loads(bundle.data)
    return {(one["policyId"], name): STATES[LISTS.index(kind)] for one in found for kind in lists for name in one[kind]}


def test_the_hub_ends_with_what_a_made_up_fleet_has(hub: Hub, keeping: threading.Event) -> None:
    scale = Scale(sites=3, clusters=8, policies=3, types=tuple(SHIPPED), changed=0.2, growth=1, seed=3)
    sites = [SiteLoad(scale, number, SHIPPED, 5) for number in range(scale.sites)]
    for turn in range(3):
        bundles = {site.name: [one.messages[0] for one in site.turn(1_790_000_000.0 + 60 * turn)] for site in sites}
        hub.take_in(*(bundle for of_site in bundles.values() for bundle in of_site))
        eventually(lambda: hub.inbox() == [], why=lambda: hub.rows("SELECT site, type, reason FROM bridge.quarantine"))
    assert hub.rows("SELECT site, type, reason FROM bridge.quarantine") == []
    for name, of_site in bundles.items():
        last = {bundle.type: bundle for bundle in of_site}
        expected = compliance(last["clusters-per-policy"]) | compliance(last["compliance-delta"])
        found = hub.rows("SELECT policy_id, cluster_name, state::text FROM fleet.compliance WHERE site = %s", name)
        assert {(policy, cluster): state for policy, cluster, state in found} == expected
        assert hub.health(name) == {row["name"]: row["health"] for row in loads(last["clusters"].data)}
        for table, count in (("managed_cluster", 10), ("policy", 3), ("hub_info", 1), ("heartbeat", 1), ("alert_count", 1)):
            assert hub.rows(f"SELECT count(*) FROM fleet.{table} WHERE site = %s", name) == [(count,)]
    for table in ("cluster_event", "policy_event", "root_policy_event"):
        [(events,)] = hub.rows(f"SELECT count(*) FROM fleet.{table}")
        assert events >= 3
    balance = "received - conflated - rejected - stale - applied - quarantined - discarded - joined - expired"
    assert hub.rows(f"SELECT DISTINCT {balance} FROM bridge.counter") == [(0,)]
    assert not keeping.is_set()


class Site:
    """A site with a reporter, and the trunk between it and the hub; `lost` says which bundles never arrive."""

    def __init__(self, dsn: str, hub: Hub, stack: ExitStack) -> None:
        self.dsn, self.hub = dsn, hub
        self.conn = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        self.hub_conn = stack.enter_context(psycopg.connect(hub.dsn, autocommit=True))
        remember_site(self.conn, "hub")
        remember_site(self.hub_conn, "berlin")
        sources = {"clusters-per-policy": lambda conn: ROWS, "complete-compliance": lambda conn: []}
        self.reporter = StatusReporter("berlin", "hub", SHIPPED, sources)
        self.reporter.start(self.conn)
        self.lost: Callable[[Bundle], bool] = lambda bundle: False
        self._carried: set[tuple[str, int]] = set()

    def carry(self) -> None:
        for headers, payload in self._new("hub", self.hub_conn, "status-control"):
            with self.conn.transaction():
                feed(self.conn, "status-control", {"hub": [(headers, payload)]})
        bundles = [parse_bundle(headers, payload, "berlin") for headers, payload in self._new("berlin", self.conn, "status")]
        for bundle in bundles:
            if not self.lost(bundle):
                self.hub.take_in(bundle)

    def _new(self, of: str, conn: psycopg.Connection[Any], client: str) -> list[tuple[dict[str, str], bytes]]:
        rows = [row for row in conn.execute(SENT, (client,)) if (of, row[0]) not in self._carried]
        self._carried |= {(of, row[0]) for row in rows}
        return [(headers, payload) for _, headers, payload in rows]

    def delta(self, cluster: str) -> None:
        self.reporter.report(self.conn, "compliance-delta", [{"policyId": "p1", "nonCompliantClusters": [cluster]}])

    def state(self) -> dict[str, str]:
        return dict(self.hub.rows("SELECT cluster_name, state::text FROM fleet.compliance WHERE site = 'berlin'"))


def test_h37_deltas_whose_base_was_lost_are_dropped_and_the_reporter_makes_up_for_them(
    hub: Hub, keeping: threading.Event, make_database: Callable[..., str]
) -> None:
    with ExitStack() as stack:
        site = Site(make_database("queues", "bridge"), hub, stack)
        site.reporter.report(site.conn, "clusters-per-policy")
        site.reporter.report(site.conn, "complete-compliance")
        site.lost = lambda bundle: bundle.type == "complete-compliance"
        for _ in range(4):
            site.delta("a")
        site.carry()
        discarded = "SELECT discarded FROM bridge.counter WHERE site = 'berlin'"
        eventually(lambda: hub.rows(discarded) == [(4,)])
        site.lost = lambda bundle: False
        stack.enter_context(site.reporter.serving(site.dsn))

        def made_up() -> bool:
            site.carry()
            return hub.rows("SELECT FROM bridge.resync") == [] and hub.inbox() == []

        eventually(made_up)
        assert site.state() == {"a": "compliant", "b": "compliant"}
        site.delta("b")
        site.carry()
        eventually(lambda: site.state() == {"a": "compliant", "b": "non_compliant"})
        assert hub.rows("SELECT FROM bridge.quarantine") == []
    assert not keeping.is_set()
