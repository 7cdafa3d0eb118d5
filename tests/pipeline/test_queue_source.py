"""The source's two halves, called as Spark calls them but without it: offsets, plans and the rows of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from psycopg.types.json import Jsonb
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from fleet_feed import CLIENT, Feed, clusters, queue_of
from trunkline.bridge.plan import Plan, commit_plan, open_plan
from trunkline.core.errors import Fenced, Terminal
from trunkline.core.jsoncodec import loads
from trunkline.db.lease import Grant, acquire, connect_fenced
from trunkline.pipeline.queue_source import QueueReader, QueueSource, Ranges, Settings

GROUP = "bridge"
ALL = ReadAllAvailable()
A, B = queue_of("a"), queue_of("b")


class Hub:
    def __init__(self, dsn: str, stack: ExitStack) -> None:
        self.dsn = dsn
        self.conn = stack.enter_context(connect_fenced(dsn))
        self._stack = stack
        self.grant = self.win()

    def win(self) -> Grant:
        self.conn.execute("UPDATE site.lease SET expires_at = '-infinity'")
        self.conn.commit()
        grant = acquire(self.conn, "bridge", 60.0)
        assert grant is not None
        return grant

    def reader(self, grant: Grant | None = None, max_entries: int = 1000) -> QueueReader:
        reader = QueueReader(Settings(self.dsn, CLIENT, GROUP, grant or self.grant, tasks=2, max_entries=max_entries))
        self._stack.callback(reader.stop)
        return reader

    def stand_at(self, **offsets: int) -> None:
        for site, position in offsets.items():
            self.conn.execute(
                "INSERT INTO status.transport (reader_group, queue, payload) VALUES (%s, %s, %s)",
                (GROUP, queue_of(site), Jsonb({"next": position})),
            )
        self.conn.commit()

    def plan(self) -> Plan | None:
        plan = open_plan(self.conn, GROUP)
        self.conn.rollback()
        return plan


@pytest.fixture
def hub(dsn: str) -> Iterator[Hub]:
    with ExitStack() as stack:
        yield Hub(dsn, stack)


def fill(feed: Feed, site: str, count: int) -> None:
    feed.put(site, *[clusters(site, n + 1, f"c{n}") for n in range(count)])


def test_h28_a_query_starts_where_postgres_stands(hub: Hub) -> None:
    assert hub.reader().initialOffset() == {}
    hub.stand_at(a=7, b=2)
    assert hub.reader().initialOffset() == {A: 7, B: 2}


def test_h29_the_plan_is_committed_before_the_end_is_named(hub: Hub, feed: Feed) -> None:
    fill(feed, "a", 5)
    end = hub.reader().latestOffset({}, ALL)
    assert end == {A: 6}
    assert hub.plan() == Plan({}, {A: 6}, hub.grant.epoch)


def test_with_nothing_new_the_start_comes_back_and_no_plan_is_made(hub: Hub, feed: Feed) -> None:
    with psycopg.connect(hub.dsn) as conn:
        conn.execute("INSERT INTO queues.queue (client, remote) VALUES ('status', 'empty'), ('other', 'a')")
    assert hub.reader().latestOffset({}, ALL) == {}
    fill(feed, "a", 3)
    assert hub.reader().latestOffset({A: 4}, ALL) == {A: 4}
    assert hub.plan() is None


def test_another_clients_queues_are_not_read(hub: Hub, feed: Feed) -> None:
    with psycopg.connect(hub.dsn) as conn:
        conn.execute("INSERT INTO queues.queue (client, remote, head) VALUES ('policy', 'a', 9)")
    fill(feed, "a", 1)
    assert hub.reader().latestOffset({}, ALL) == {A: 2}


def test_h29_a_new_holders_first_batch_is_the_open_plan_of_the_old_one(hub: Hub, feed: Feed) -> None:
    fill(feed, "a", 4)
    assert hub.reader().latestOffset({}, ALL) == {A: 5}
    fill(feed, "a", 4)
    new = hub.win()
    assert hub.reader(new).latestOffset({}, ALL) == {A: 5}
    assert hub.plan() == Plan({}, {A: 5}, new.epoch)


def test_h29_an_open_plan_from_before_a_restore_is_replaced(hub: Hub, feed: Feed) -> None:
    fill(feed, "a", 8)
    commit_plan(hub.conn, hub.grant, GROUP, {A: 6}, {A: 9})
    assert hub.reader().latestOffset({A: 3}, ALL) == {A: 9}
    assert hub.plan() == Plan({A: 3}, {A: 9}, hub.grant.epoch)


def test_h28_an_end_before_the_start_is_refused(hub: Hub, feed: Feed) -> None:
    fill(feed, "a", 3)
    with pytest.raises(Terminal, match="goes backward"):
        hub.reader().latestOffset({A: 9}, ALL)
    assert hub.plan() is None


def test_h01_a_past_holder_plans_nothing(hub: Hub, feed: Feed) -> None:
    fill(feed, "a", 3)
    old = hub.grant
    hub.win()
    with pytest.raises(Fenced):
        hub.reader(old).latestOffset({}, ALL)
    assert hub.plan() is None


def test_a_batch_is_bounded_and_shared_among_queues(hub: Hub, feed: Feed) -> None:
    fill(feed, "a", 100)
    fill(feed, "b", 3)
    reader = hub.reader(max_entries=10)
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    assert reader.latestOffset({}, ReadMaxRows(10)) == {A: 8, B: 4}


def test_the_rows_of_a_plan_are_read_whole_in_all_columns(hub: Hub, feed: Feed) -> None:
    fill(feed, "a", 3)
    fill(feed, "b", 2)
    reader = hub.reader()
    tasks = reader.partitions({A: 2}, {A: 4, B: 3})
    rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    assert sorted((r["queue"], r["position"], r["remote"]) for r in rows) == [
        (A, 2, "a"), (A, 3, "a"), (B, 1, "b"), (B, 2, "b"),
    ]  # fmt: skip
    first = min(rows, key=lambda r: (r["queue"], r["position"]))
    headers = loads(first["headers"])
    assert {name: first[name] for name in headers} == headers
    assert first["ce_dependency"] is None
    assert loads(first["payload"])[0]["name"] == "c1"


def test_large_plans_are_cut_for_as_many_tasks_as_cores_and_an_empty_one_has_none(hub: Hub) -> None:
    reader = hub.reader()
    assert reader.partitions({A: 5}, {A: 5}) == []
    assert len(reader.partitions({}, {A: 100})) == 1
    tasks = reader.partitions({}, {A: 10_001, B: 101})
    sizes = [sum(end - first for _, first, end in task.pieces) for task in tasks if isinstance(task, Ranges)]
    assert sorted(sizes) == [5050, 5050]


def test_settings_survive_as_options(hub: Hub) -> None:
    settings = Settings(hub.dsn, CLIENT, GROUP, hub.grant, tasks=3, max_entries=77)
    assert Settings.of(settings.options()) == settings
    assert QueueSource({}).schema().startswith("queue STRING, position BIGINT, remote STRING, ce_specversion STRING")
