"""One record from Kafka at the edge to a row at the hub, followed by its id through every step; and one that waits.

Kafka → route on Spark at `edge` → its send queue → link of two real nodes → receive queue of `hub` → bridge → fleet table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from two_sites import TwoSites

from kafka_topics import Topics
from route_jobs import PARTS, RouteJobs
from trunkline.bridge.shipped import SHIPPED
from trunkline.cli.tracefollow import Place, SiteStep, Trace, follow
from trunkline.core.bundle import Bundle, Mode, Version
from trunkline.core.clock import SystemClock
from trunkline.core.config import BridgeConfig
from trunkline.core.jsoncodec import dumps
from trunkline.db.embedded import free_port
from trunkline.db.lease import acquire, connect_fenced
from trunkline.pipeline.halves import Halves
from trunkline.pipeline.session import Spark
from trunkline.routes.keys import HOUSE
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CLIENT = "status"
INFO = {"clusterId": "c-1", "consoleURL": "https://console", "grafanaURL": "https://grafana", "mchVersion": "2.11"}


class Journey:
    def __init__(self, dsn: dict[str, str], topics: Topics) -> None:
        self.dsn, self.topics = dsn, topics

    @property
    def source(self) -> str:
        """The id of the topic's first record."""
        [(topic_id,)] = self.rows("edge", "SELECT topic_id FROM pipeline.kafka_offset")
        return f"{self.topics.name('in')}@{topic_id[:8]}/0/0"

    def trace(self, record: str) -> Trace:
        places = [Place(site, lambda dsn=dsn: psycopg.connect(dsn), SHIPPED) for site, dsn in self.dsn.items()]  # type: ignore[misc]
        return follow(places, record)

    def states(self, record: str) -> dict[tuple[str, str], str]:
        return {(one.site, one.step.place): one.step.state for one in self.trace(record).steps}

    def rows(self, site: str, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn[site]) as conn:
            return conn.execute(query.encode()).fetchall()

    def received(self) -> dict[str, Any]:
        config = {"brokers": self.topics.bootstrap, "topic": self.topics.name("in"), "startAt": "earliest"}
        return {"plugin": "kafka", "config": config}

    @contextmanager
    def bridge(self, spark: Spark, folder: Path) -> Iterator[Halves]:
        config = BridgeConfig(client=CLIENT, workers=2, trigger_seconds=0.1)
        with closing(connect_fenced(self.dsn["hub"])) as conn:
            grant = acquire(conn, "bridge", 600.0)
        assert grant is not None
        halves = Halves(spark, self.dsn["hub"], config, SHIPPED, grant, folder, SystemClock())
        halves.start()
        try:
            yield halves
        finally:
            halves.stop()


@pytest.fixture
def journey(make_database: Callable[..., str], topics: Topics) -> Journey:
    topics.create("in")
    return Journey({"edge": make_database(*PARTS), "hub": make_database("queues", "routes", "bridge")}, topics)


def hub_info() -> bytes:
    """A record that holds a bundle: its headers and its data."""
    bundle = Bundle(id="info-1", source="edge", type="hub-info", time="2026-01-01T00:00:00Z", mode=Mode.COMPLETE,
                    version=Version(1, 1))  # fmt: skip
    return dumps({"headers": bundle.headers(), "data": INFO})


def as_bundles(names: dict[str, str]) -> dict[str, Any]:
    headers = {name: f"{{payload.headers.{name}}}" for name in names}
    return {"plugin": "queue", "config": {"client": CLIENT, "destinations": ["hub"], "headers": headers}}


def at(trace: Trace, site: str, place: str) -> SiteStep:
    [found] = [one for one in trace.steps if (one.site, one.step.place) == (site, place)]
    return found


@pytest.mark.parametrize("mode", ["at_least_once", "effectively_once"])
def test_a_record_is_followed_from_kafka_at_the_edge_to_a_row_at_the_hub(
    journey: Journey, spark: Spark, tmp_path: Path, mode: str
) -> None:
    jobs = RouteJobs(spark, journey.dsn["edge"], tmp_path / "jobs")
    jobs.config = jobs.config.model_copy(update={"site": "edge"})
    names = Bundle(id="", source="", type="", time="", mode=Mode.COMPLETE, version=Version(1, 1)).headers()
    with TwoSites(tmp_path / "sites", journey.dsn).running(), jobs:
        only_data = {"plugin": "unwrap", "config": {"path": ".data"}}
        jobs.put("to-hub", journey.received(), as_bundles(names), only_data, deliveryMode=mode)
        journey.topics.put("in", hub_info())
        eventually(lambda: journey.rows("edge", "SELECT 1 FROM pipeline.kafka_offset WHERE next_offset = 1"), 90, jobs.failing)
        record = f"{journey.source}:{HOUSE}/to-hub:0"
        arrived = ("hub", "receive queue")
        eventually(lambda: arrived in journey.states(record), 90, lambda: journey.trace(record))
        assert ("hub", "ledger") not in journey.states(record)
        assert ("hub", "inbox") not in journey.states(record)
        with journey.bridge(spark, tmp_path / "bridge") as halves:

            def applied() -> bool:
                halves.supervise()
                return bool(journey.rows("hub", "SELECT 1 FROM fleet.hub_info"))

            eventually(applied, 90, lambda: journey.trace(record))
            eventually(lambda: journey.states(record).get(("edge", "link to hub")) == "done", 60, lambda: journey.trace(record))
    found = journey.trace(record)
    for site, place in (
        ("edge", "route job"), ("edge", "send log"), ("edge", "link to hub"), ("hub", "receive queue"), ("hub", "intake"),
        ("hub", "ledger"),
    ):  # fmt: skip
        assert at(found, site, place).step.state == "done", found.verdict()
    assert found.stands is None
    times = [at(found, *step).step.at for step in (("edge", "route job"), ("edge", "send log"), ("hub", "ledger"))]
    assert all(times)
    assert ("edge", "sender") in journey.states(record) or mode == "at_least_once"
    assert {one.site for one in journey.trace(journey.source).steps} == {"edge", "hub"}
    assert journey.states("info-1")["hub", "ledger"] == "done"
    assert journey.rows("hub", "SELECT site, cluster_id, mch_version FROM fleet.hub_info") == [("edge", "c-1", "2.11")]


def test_a_record_whose_receiver_is_down_waits_in_the_outbox_and_says_why(
    journey: Journey, spark: Spark, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{free_port()}/books"
    sender = {"plugin": "http", "config": {"url": url, "method": "POST", "attempts": 1}}
    journey.topics.put("in", hub_info())
    with RouteJobs(spark, journey.dsn["edge"], tmp_path / "jobs") as jobs:
        jobs.put("to-books", journey.received(), sender)
        eventually(lambda: journey.rows("edge", "SELECT 1 FROM routes.outbox"), 90, jobs.failing)
        record = f"{journey.source}:{HOUSE}/to-books:0"
        eventually(lambda: journey.states(record).get(("edge", "route job")) == "done", 60, lambda: journey.trace(record))
        for id in (record, journey.source):
            found = journey.trace(id)
            waits = at(found, "edge", "outbox")
            assert waits.step.state == "waits"
            assert waits.step.details["message_id"] == record
            assert "sender http of route trunkline/trunkline/to-books" in waits.step.why
            assert found.stands == waits
        [(reason,)] = journey.rows("edge", "SELECT reason FROM routes.lane")
        assert reason
        assert reason in waits.step.why
