"""Offsets, plans, gaps and changes in Postgres, without Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from trunkline.core.errors import Fenced, Terminal
from trunkline.db.lease import Grant, acquire, commit_fenced, connect_fenced
from trunkline.pipeline.kafka.judge import Change, Move, Standing
from trunkline.pipeline.kafka.offsets import commit_plan, move_offsets, open_plan, read_offsets, remembered
from trunkline.pipeline.kafka.plan import Plan, stand_of

GROUP = "g"


class Site:
    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        self.grant = self.win()

    def win(self) -> Grant:
        self.conn.execute("UPDATE site.lease SET expires_at = '-infinity'")
        self.conn.commit()
        grant = acquire(self.conn, "group", 60.0)
        assert grant is not None
        return grant

    def plan(self, *moves: Move, changes: tuple[Change, ...] = ()) -> Plan:
        plan = Plan(stand_of(self.offsets()), moves, changes)
        commit_plan(self.conn, self.grant, GROUP, plan)
        return plan

    def take(self, plan: Plan) -> None:
        move_offsets(self.conn, GROUP, plan)
        commit_fenced(self.conn, self.grant)

    def offsets(self) -> dict[str, Standing]:
        found = read_offsets(self.conn, GROUP)
        self.conn.rollback()
        return found

    def rows(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        found = self.conn.execute(f"SELECT {columns} FROM pipeline.{table} ORDER BY id".encode()).fetchall()
        self.conn.rollback()
        return found


@pytest.fixture
def site(make_database: Callable[..., str]) -> Iterator[Site]:
    with connect_fenced(make_database("pipeline")) as conn:
        yield Site(conn)


def test_offsets_move_as_planned_and_the_plan_is_closed(site: Site) -> None:
    plan = site.plan(Move("t", 0, "x", None, 3, 9), Move("t", 1, "x", None, 0, 0))
    assert open_plan(site.conn, GROUP) == Plan(plan.stand, plan.moves, (), site.grant.epoch)
    site.take(plan)
    assert site.offsets() == {"t": Standing("x", {0: 9, 1: 0})}
    assert open_plan(site.conn, GROUP) is None
    assert site.rows("kafka_gap", "*") == []


def test_h28_a_batch_that_does_not_begin_where_the_offsets_stand_leaves_nothing(site: Site) -> None:
    site.take(site.plan(Move("t", 0, "x", None, 0, 9), Move("idle", 0, "y", None, 0, 4)))
    plan = site.plan(Move("t", 0, "x", 9, 9, 12))
    for moved in ("UPDATE pipeline.kafka_offset SET next_offset = 5 WHERE topic = 't'",
                  "UPDATE pipeline.kafka_offset SET next_offset = 3 WHERE topic = 'idle'",
                  "DELETE FROM pipeline.kafka_offset"):  # fmt: skip
        site.conn.execute(moved.encode())
        with pytest.raises(Terminal, match="does not begin where the offsets stand"):
            move_offsets(site.conn, GROUP, plan)
        site.conn.rollback()
    assert site.offsets()["t"] == Standing("x", {0: 9})
    site.take(plan)
    assert site.offsets()["t"] == Standing("x", {0: 12})


def test_h28_the_offsets_of_a_batch_are_locked_while_its_rows_are_written(site: Site) -> None:
    site.take(site.plan(Move("t", 0, "x", None, 0, 9)))
    move_offsets(site.conn, GROUP, site.plan(Move("t", 0, "x", 9, 9, 12)))
    with psycopg.connect(site.conn.info.dsn, password=site.conn.info.password) as other:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("SELECT 1 FROM pipeline.kafka_offset FOR UPDATE NOWAIT")
        other.rollback()


def test_h29_only_the_open_plan_is_taken_in_and_only_once(site: Site) -> None:
    first = site.plan(Move("t", 0, "x", None, 0, 9))
    site.plan(Move("t", 0, "x", None, 0, 5))
    with pytest.raises(Terminal, match="not the open one"):
        move_offsets(site.conn, GROUP, first)
    site.conn.rollback()
    again = site.plan(Move("t", 0, "x", None, 0, 9))
    site.take(again)
    with pytest.raises(Terminal, match="does not begin"):
        move_offsets(site.conn, GROUP, again)
    site.conn.rollback()


def test_h01_a_past_holder_neither_plans_nor_moves(site: Site) -> None:
    old = site.grant
    plan = site.plan(Move("t", 0, "x", None, 0, 9))
    site.win()
    with pytest.raises(Fenced):
        commit_plan(site.conn, old, GROUP, plan)
    move_offsets(site.conn, GROUP, plan)
    with pytest.raises(Fenced):
        commit_fenced(site.conn, old)
    assert site.offsets() == {}


def test_lost_records_are_recorded_exactly_with_the_offsets(site: Site) -> None:
    site.take(site.plan(Move("t", 0, "x", None, 0, 9), Move("t", 1, "x", None, 0, 2)))
    site.take(site.plan(Move("t", 0, "x", 9, 14, 20), Move("t", 1, "x", 2, 7, 7)))
    assert site.rows("kafka_gap", "topic, partition, topic_id, from_offset, to_offset") == [
        ("t", 0, "x", 9, 14), ("t", 1, "x", 2, 7),
    ]  # fmt: skip
    assert site.offsets() == {"t": Standing("x", {0: 20, 1: 7})}


def test_h31_an_offset_never_goes_back_within_one_identity(site: Site) -> None:
    site.take(site.plan(Move("t", 0, "x", None, 0, 9)))
    for back in (Move("t", 0, "x", 9, 5, 5), Move("t", 0, "other", 9, 0, 20)):
        with pytest.raises(Terminal, match="not the open one"):
            move_offsets(site.conn, GROUP, site.plan(back))
        site.conn.rollback()
    assert site.offsets() == {"t": Standing("x", {0: 9})}


def test_h31_another_identity_replaces_the_offsets_and_records_a_reset(site: Site) -> None:
    site.take(site.plan(Move("t", 0, "x", None, 0, 9), Move("t", 1, "x", None, 0, 8)))
    reset = Change("t", Standing("x", {0: 9, 1: 8}), "y")
    site.take(site.plan(Move("t", 0, "y", None, 0, 2), changes=(reset,)))
    assert site.offsets() == {"t": Standing("y", {0: 2})}
    assert site.rows("kafka_change", "topic, old_id, new_id, stood") == [("t", "x", "y", {"0": 9, "1": 8})]
    assert site.rows("kafka_gap", "*") == []


def test_a_deleted_topic_is_forgotten_with_a_record_and_remembered_if_it_was_only_out_of_sight(site: Site) -> None:
    site.take(site.plan(Move("t", 0, "x", None, 0, 9)))
    site.take(site.plan(changes=(Change("t", Standing("x", {0: 9}), None),)))
    assert site.offsets() == {}
    assert site.rows("kafka_change", "topic, old_id, new_id") == [("t", "x", None)]
    assert remembered(site.conn, GROUP, ["x", "z"]) == {"t": Standing("x", {0: 9})}
    assert remembered(site.conn, GROUP, ["z"]) == {}
    assert remembered(site.conn, "other", ["x"]) == {}


def test_groups_do_not_see_each_other(site: Site) -> None:
    site.take(site.plan(Move("t", 0, "x", None, 0, 9)))
    assert read_offsets(site.conn, "other") == {}
    assert open_plan(site.conn, "other") is None
