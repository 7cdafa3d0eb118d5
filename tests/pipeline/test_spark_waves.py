"""Waves as tasks of Spark: they do what a DB worker does, and say what it would hear."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from fleet_feed import clusters, status_of
from trunkline.bridge.batch import Arrived, Batch
from trunkline.bridge.inbox import write_batch
from trunkline.bridge.judgement import Verdict
from trunkline.bridge.shipped import SHIPPED
from trunkline.core.bundle import parse_bundle
from trunkline.core.errors import Fenced, Invalid
from trunkline.db.lease import Grant, acquire, connect_fenced
from trunkline.pipeline.session import Spark
from trunkline.pipeline.spark_waves import SparkWaves

pytestmark = pytest.mark.spark


class Hub:
    def __init__(self, dsn: str, spark: Spark, stack: ExitStack) -> None:
        self.dsn, self._spark = dsn, spark
        self.conn = stack.enter_context(connect_fenced(dsn))
        self.grant = self.win()

    def win(self) -> Grant:
        self.conn.execute("UPDATE site.lease SET expires_at = '-infinity'")
        self.conn.commit()
        grant = acquire(self.conn, "bridge", 600.0)
        assert grant is not None
        return grant

    def waves(self, grant: Grant | None = None) -> SparkWaves:
        return SparkWaves(self._spark, self.dsn, grant or self.grant, SHIPPED, 30.0)

    def take_in(self, site: str, generation: int, payload: bytes | None = None) -> None:
        headers, data = clusters(site, generation, f"c{generation}")
        bundle = parse_bundle(headers, data if payload is None else payload, site)
        write_batch(self.conn, SHIPPED, Batch([Arrived(bundle, f"q-{site}", generation)], [], {site: 1}))
        self.conn.commit()

    def sessions(self) -> list[int]:
        found = self.conn.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'trunkline-wave' AND datname = current_database()"
        ).fetchall()
        self.conn.rollback()
        return [pid for (pid,) in found]


@pytest.fixture
def hub(make_database: Callable[..., str], spark: Spark) -> Iterator[Hub]:
    with ExitStack() as stack:
        yield Hub(make_database("queues", "bridge"), spark, stack)


def test_a_wave_is_applied_whole_and_its_connection_serves_the_next(hub: Hub) -> None:
    for site in ("a", "b"):
        hub.take_in(site, 1)
    waves = hub.waves()
    outcomes = waves.run("clusters", ["a", "b", "none"])
    assert {o.site: o.verdict for o in outcomes} == {"a": Verdict.APPLIED, "b": Verdict.APPLIED, "none": Verdict.NOTHING}
    assert status_of(hub.dsn)["cluster"] == {("a", "c1", 1), ("b", "c1", 1)}
    kept = hub.sessions()
    assert kept
    for generation in (2, 3, 4, 5):
        hub.take_in("a", generation)
        waves.run("clusters", ["a"])
    assert status_of(hub.dsn)["cluster"] == {("a", "c5", 5), ("b", "c1", 1)}
    assert set(kept) <= set(hub.sessions())


def test_h01_a_past_holder_hears_that_it_is_fenced_and_leaves_nothing(hub: Hub) -> None:
    hub.take_in("a", 1)
    past = hub.grant
    hub.win()
    with pytest.raises(Fenced):
        hub.waves(past).run("clusters", ["a"])
    assert status_of(hub.dsn)["cluster"] == set()


def test_what_cannot_be_written_comes_back_as_what_it_is(hub: Hub) -> None:
    hub.take_in("a", 1, b"{no list")
    with pytest.raises(Invalid, match="not JSON"):
        hub.waves().run("clusters", ["a"])
    hub.take_in("b", 1, b'[{"name": "c", "health": "ok", "revision": 1, "changed_at": "no time"}]')
    with pytest.raises(psycopg.DataError):
        hub.waves().run("clusters", ["b"])
