"""The keeper over a real database: silent sites, chunks without a rest, too many deltas, resyncs that are asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import date
from typing import Any

import psycopg
import pytest

from trunkline.bridge.demotypes import DEMO_TYPES
from trunkline.bridge.keeper import Keeper
from trunkline.bridge.liveness import Verdict
from trunkline.bridge.months import ensure_months
from trunkline.bridge.types import BundleType, Match, Missing, Types
from trunkline.bridge.wishes import Wish, wish
from trunkline.core.bundle import Mode
from trunkline.core.clock import ManualClock, SystemClock
from trunkline.core.config import BridgeConfig
from trunkline.core.errors import Fenced, Retryable
from trunkline.db.lease import acquire
from waiting import eventually

CHANGES = BundleType(
    name="cluster-changes", priority=5, depends_on="clusters", mode=Mode.DELTA, table="status.cluster", key=("name",),
    columns=DEMO_TYPES[0].columns, missing=Missing.KEPT, match=Match.EXACT,
)  # fmt: skip
TYPES = Types((*DEMO_TYPES, CHANGES))
CONFIG = BridgeConfig(silent_seconds=300, chunk_seconds=600, resync_seconds=60, waiting_deltas=3)
START = 1_700_000_000.0


class Heard:
    """An asker that remembers; what it fails with, it fails with once."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.ids: list[str] = []
        self.reasons: list[str] = []
        self.failure: Exception | None = None
        self.closed = False

    def ask(self, site: str, types: Sequence[str], reason: str, id: str) -> None:
        self.asked.append((site, tuple(types)))
        self.ids.append(id)
        self.reasons.append(reason)

    def flush(self) -> None:
        failure, self.failure = self.failure, None
        if failure:
            raise failure

    def close(self) -> None:
        self.closed = True


class Kept:
    """A hub's database under the lease, a clock of its own, and a keeper that does a round when told."""

    def __init__(self, dsn: str, stack: ExitStack) -> None:
        self.dsn, self.stack = dsn, stack
        self.conn = stack.enter_context(psycopg.connect(dsn))
        won = acquire(self.conn, "bridge", 600)
        assert won is not None
        self.grant = won
        self.asker, self.caught_up = Heard(), True
        self.askers = {"queues": self.asker}
        self.restart()

    def restart(self) -> None:
        """Another process: its clock begins somewhere else."""
        self.clock = ManualClock(5.0)
        self.keeper = self.make(self.clock)

    def make(self, clock: Any, on_fenced: Callable[[], None] = lambda: None, config: BridgeConfig = CONFIG) -> Keeper:
        return Keeper(self.dsn, self.grant, TYPES, config, clock, self.askers, lambda: self.caught_up, on_fenced)

    def round(self, seconds: float = 10.0) -> None:
        self.clock.advance(seconds)
        self.keeper.round(self.conn)

    def do(self, statement: str, *values: object) -> None:
        self.conn.execute(statement, values)
        self.conn.commit()

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        found = self.conn.execute(query, values).fetchall()
        self.conn.rollback()
        return found

    def heard(self, site: str, at: float) -> None:
        """A bundle of the site was read that says it was sent `at` seconds after the start."""
        self.do(
            "INSERT INTO bridge.site AS s (site, transport, first_seen, last_seen)"
            " VALUES (%s, 'queues', now(), to_timestamp(%s))"
            " ON CONFLICT (site) DO UPDATE SET last_seen = greatest(s.last_seen, excluded.last_seen)",
            site, START + at,
        )  # fmt: skip

    def states(self) -> dict[str, str]:
        return dict(self.rows("SELECT site, state FROM bridge.site"))

    def applied(self, site: str, *types: str) -> None:
        for type_ in types:
            self.do(
                "INSERT INTO bridge.ledger (site, type, incarnation, generation, value) VALUES (%s, %s, 1, 4, 4)", site, type_
            )

    def waits(self, site: str, type_: str, key: str, needs: int, seconds: float = 0.0) -> None:
        mode = TYPES[type_].mode
        self.do(
            "INSERT INTO bridge.inbox (site, type, key, incarnation, generation, dependency_type, dependency_incarnation,"
            " dependency_generation, headers, data, queue, position, mode, arrived_at)"
            " VALUES (%s, %s, %s, 1, 1, 'clusters', 1, %s, '{}', '[]', 'q', 1, %s, now() - make_interval(secs => %s))",
            site, type_, key, needs, mode, seconds,
        )  # fmt: skip

    def chunk(self, site: str, type_: str, message: str, end: int, seconds: float) -> None:
        self.do(
            "INSERT INTO bridge.chunk (site, type, message, size, end_byte, body, headers, queue, position, arrived_at)"
            " VALUES (%s, %s, %s, 100, %s, '', '{}', 'q', 1, now() - make_interval(secs => %s))",
            site, type_, message, end, seconds,
        )  # fmt: skip

    def wishes(self) -> list[tuple[Any, ...]]:
        return self.rows("SELECT site, type, holds FROM bridge.resync ORDER BY site, type")

    def age_wishes(self, seconds: float) -> None:
        self.do("UPDATE bridge.resync SET asked_at = asked_at - make_interval(secs => %s)", seconds)


TABLES = ("bridge.site", "bridge.inbox", "bridge.ledger", "bridge.chunk", "bridge.resync", "bridge.counter", "status.cluster",
          "site.lease")  # fmt: skip


@pytest.fixture(scope="module")
def dsn(make_databases: Callable[..., str]) -> str:
    return make_databases("queues", "bridge")


@pytest.fixture
def kept(dsn: str) -> Iterator[Kept]:
    with psycopg.connect(dsn) as conn:
        for table in TABLES:
            conn.execute(f"DELETE FROM {table}")
    with ExitStack() as stack:
        yield Kept(dsn, stack)


def test_a_bridge_that_was_down_silences_nobody_whose_backlog_is_unread_and_hides_who_is_silent(kept: Kept) -> None:
    for site in ("a", "b"):
        kept.heard(site, 0)
        kept.applied(site, "clusters", "compliance", "cluster-changes", "events")
    kept.do("INSERT INTO status.cluster SELECT s, 'c', 'ok', 1, now(), now() FROM unnest(ARRAY['a', 'b']) s")
    kept.round()
    kept.caught_up = False
    kept.restart()  # ten minutes later
    kept.heard("a", 600)
    for _ in range(20):
        kept.round()
    assert kept.states() == {"a": "active", "b": "active"}
    kept.heard("b", 240)  # all that it has sent: it stopped six minutes before the newest that was read
    kept.caught_up = True
    for _ in range(12):
        kept.round()
    assert kept.states() == {"a": "active", "b": "silent"}
    assert kept.rows("SELECT site FROM status.cluster ORDER BY site") == [("a",), ("b",)]
    assert kept.rows("SELECT site FROM status.visible_cluster") == [("a",)]
    assert kept.wishes() == []
    kept.heard("a", 730)
    kept.heard("b", 731)
    kept.round()
    assert kept.states() == {"a": "active", "b": "active"}
    assert kept.rows("SELECT site FROM status.visible_cluster ORDER BY site") == [("a",), ("b",)]
    assert kept.wishes() == [("b", "clusters", None), ("b", "compliance", None)]
    assert kept.asker.asked == [("b", ("clusters", "compliance"))]


def test_s31_a_site_heard_between_the_look_and_the_verdict_is_not_silenced(kept: Kept) -> None:
    kept.heard("a", 0)
    kept.keeper._turn(kept.conn, "silent", ("a",), Verdict(bound=START - 1))
    kept.conn.commit()
    assert kept.states() == {"a": "active"}
    kept.keeper._turn(kept.conn, "silent", ("a",), Verdict(bound=START + 1))
    kept.conn.commit()
    assert kept.states() == {"a": "silent"}


def test_a_lone_chunk_expires_and_is_counted_once_intake_has_caught_up(kept: Kept) -> None:
    kept.chunk("a", "clusters", "lone", 50, 601)
    kept.chunk("a", "clusters", "growing", 50, 900)
    kept.chunk("a", "clusters", "growing", 70, 10)
    kept.chunk("b", "cluster-changes", "lone", 50, 700)
    kept.chunk("c", "clusters", "young", 50, 590)
    kept.caught_up = False
    kept.round()
    assert len(kept.rows("SELECT FROM bridge.chunk")) == 5
    kept.caught_up = True
    kept.round()
    left = kept.rows("SELECT site, message FROM bridge.chunk ORDER BY site, end_byte")
    assert left == [("a", "growing"), ("a", "growing"), ("c", "young")]
    assert kept.rows("SELECT site, expired FROM bridge.counter ORDER BY site") == [("a", 1), ("b", 1)]
    assert kept.wishes() == [("a", "clusters", None), ("b", "clusters", "cluster-changes")]
    kept.round()
    assert kept.rows("SELECT site, expired FROM bridge.counter ORDER BY site") == [("a", 1), ("b", 1)]


def test_h37_deltas_above_the_cap_go_and_a_resync_holds_what_follows(kept: Kept) -> None:
    for number in range(4):
        kept.waits("a", "cluster-changes", f"d{number}", needs=9)
    for number in range(3):
        kept.waits("b", "cluster-changes", f"d{number}", needs=9)
    kept.round()
    assert kept.rows("SELECT site, count(*) FROM bridge.inbox GROUP BY site") == [("b", 3)]
    assert kept.rows("SELECT site, discarded FROM bridge.counter") == [("a", 4)]
    assert kept.wishes() == [("a", "clusters", "cluster-changes")]
    assert kept.asker.asked == [("a", ("clusters",))]


def test_h37_of_what_waits_for_a_resync_the_longest_rows_go_when_all_together_are_too_many(kept: Kept) -> None:
    config = BridgeConfig(waiting_deltas=3, waiting_rows=5)
    kept.keeper = kept.make(kept.clock, config=config)
    for site, most in (("a", 1), ("b", 3), ("c", 2), ("d", 3), ("free", 3)):
        for number in range(most):
            kept.waits(site, "cluster-changes", f"d{number}", needs=9)
    wish(kept.conn, [Wish(site, "clusters", "cluster-changes", "why") for site in "abcd"])
    kept.conn.commit()
    kept.round()
    assert sorted(kept.rows("SELECT site, count(*) FROM bridge.inbox GROUP BY site")) == [("a", 1), ("c", 2), ("free", 3)]
    assert sorted(kept.rows("SELECT site, discarded FROM bridge.counter")) == [("b", 3), ("d", 3)]


def test_h37_a_wish_that_holds_counts_from_the_newest_loss_and_another_from_its_first(kept: Kept) -> None:
    when = "SELECT wanted_at FROM bridge.resync WHERE type = %s"
    for holds, moves in ((None, False), ("cluster-changes", True), (None, False), ("cluster-changes", True)):
        before = kept.rows(when, "clusters")
        wish(kept.conn, [Wish("a", "clusters", holds, "why")])
        kept.conn.commit()
        assert (kept.rows(when, "clusters") > before) is (moves or not before)
    assert kept.wishes() == [("a", "clusters", "cluster-changes")]


def test_the_cap_waits_for_the_apply_that_is_under_way(kept: Kept) -> None:
    kept.applied("a", "cluster-changes")
    for number in range(4):
        kept.waits("a", "cluster-changes", f"d{number}", needs=9)
    worker = kept.stack.enter_context(psycopg.connect(kept.dsn))
    worker.execute("SELECT FROM bridge.ledger FOR UPDATE")
    thread = threading.Thread(target=kept.round)
    thread.start()
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    eventually(lambda: worker.execute(waiting).fetchall())
    assert worker.execute("SELECT count(*) FROM bridge.inbox").fetchone() == (4,)
    worker.commit()
    thread.join()
    assert kept.rows("SELECT count(*) FROM bridge.inbox") == [(0,)]


def test_a_dependent_that_waits_too_long_makes_its_base_wanted(kept: Kept) -> None:
    for site in ("met", "too-old-a-base", "outdated"):
        kept.applied(site, "clusters")
    for site, needs, waited in (
        ("no-base", 4, 61), ("not-long", 4, 30), ("met", 4, 61), ("too-old-a-base", 5, 61), ("outdated", 3, 61),
    ):  # fmt: skip
        kept.waits(site, "compliance", "", needs, waited)
    kept.round()
    assert kept.wishes() == [("no-base", "clusters", None), ("too-old-a-base", "clusters", None)]
    assert len(kept.rows("SELECT FROM bridge.inbox")) == 5


def test_no_base_is_wanted_that_waits_itself(kept: Kept) -> None:
    kept.waits("a", "compliance", "", 9, 61)
    kept.waits("a", "clusters", "", 0, 5)
    kept.round()
    assert kept.wishes() == []


def test_a_resync_is_asked_for_again_until_it_is_there(kept: Kept) -> None:
    kept.heard("a", 0)
    kept.do("INSERT INTO bridge.resync (site, type, reason) VALUES ('a', 'clusters', 'why'), ('a', 'compliance', 'why')")
    kept.round()
    kept.round()
    assert kept.asker.asked == [("a", ("clusters", "compliance"))]
    kept.age_wishes(61)
    kept.do("DELETE FROM bridge.resync WHERE type = 'compliance'")
    kept.round()
    assert kept.asker.asked[1:] == [("a", ("clusters",))]
    assert len(set(kept.asker.ids)) == 2
    assert kept.asker.reasons == ["why", "why"]
    assert kept.rows("SELECT type, asks FROM bridge.resync") == [("clusters", 2)]


def test_a_request_that_could_not_be_sent_is_sent_again_soon_and_costs_no_other_step(kept: Kept) -> None:
    kept.do("INSERT INTO bridge.resync (site, type, reason) VALUES ('a', 'clusters', 'why')")
    kept.asker.failure = Retryable("Kafka", "it is away", "wait")
    kept.chunk("a", "clusters", "lone", 50, 601)
    kept.round()
    assert kept.rows("SELECT asks FROM bridge.resync") == [(0,)]
    assert kept.rows("SELECT FROM bridge.chunk") == []
    kept.round()
    assert kept.rows("SELECT asks FROM bridge.resync") == [(1,)]


def test_a_transport_that_fails_holds_up_no_other_and_what_was_asked_over_it_is_not_asked_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.bridge.keeper.MOST_ASKS", 2)
    away = Heard()
    kept.askers = {"kafka": away, "queues": kept.asker}
    kept.keeper = kept.make(kept.clock)
    for site in ("a", "b", "c", "d"):
        kept.heard(site, 0)
        kept.do("INSERT INTO bridge.resync (site, type, reason) VALUES (%s, 'clusters', 'why')", site)
    kept.do("UPDATE bridge.site SET transport = 'kafka' WHERE site < 'd'")
    for _ in range(2):
        away.failure = ValueError("never thought of")
        kept.round()
    assert kept.asker.asked == [("d", ("clusters",))]
    assert kept.rows("SELECT site FROM bridge.resync WHERE asks > 0") == [("d",)]
    kept.round()
    kept.round()
    assert {site for site, _ in away.asked} == {"a", "b", "c"}
    assert kept.rows("SELECT sum(asks) FROM bridge.resync") == [(4,)]


def test_a_silent_site_is_not_asked(kept: Kept) -> None:
    kept.heard("a", 0)
    kept.heard("b", 1000)
    kept.do("INSERT INTO bridge.resync (site, type, reason) VALUES ('a', 'clusters', 'why')")
    kept.do("UPDATE bridge.site SET state = 'silent' WHERE site = 'a'")
    kept.round()
    assert kept.asker.asked == []


@pytest.mark.parametrize(("keep", "there"), [(None, True), (18, False)])
def test_old_months_go_only_where_that_is_configured(kept: Kept, keep: int | None, there: bool) -> None:
    ensure_months(kept.conn, "fleet.policy_event", [date(2021, 6, 1)], date(2021, 6, 15))
    kept.conn.commit()
    kept.make(kept.clock, config=CONFIG.model_copy(update={"keep_months": keep})).round(kept.conn)
    assert kept.rows("SELECT to_regclass('fleet.policy_event_2021_06') IS NOT NULL") == [(there,)]
    assert kept.rows("SELECT to_regclass('fleet.policy_event_other') IS NOT NULL") == [(True,)]


def test_h01_the_keeper_of_a_past_holder_changes_nothing(kept: Kept) -> None:
    kept.chunk("a", "clusters", "lone", 50, 601)
    kept.do("UPDATE site.lease SET epoch = epoch + 1 WHERE name = 'bridge'")
    with pytest.raises(Fenced):
        kept.round()
    assert len(kept.rows("SELECT FROM bridge.chunk")) == 1


def test_the_thread_goes_on_after_the_database_threw_it_out_and_stops_when_fenced(kept: Kept) -> None:
    fenced = threading.Event()
    keeper = kept.make(SystemClock(), fenced.set)
    keeper.start()
    try:
        kept.chunk("a", "clusters", "one", 50, 601)
        eventually(lambda: kept.rows("SELECT FROM bridge.chunk") == [])
        kept.do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'trunkline-keeper'")
        kept.chunk("a", "clusters", "two", 50, 601)
        eventually(lambda: kept.rows("SELECT FROM bridge.chunk") == [])
        assert not fenced.is_set()
        kept.do("UPDATE site.lease SET epoch = epoch + 1 WHERE name = 'bridge'")
        kept.chunk("a", "clusters", "three", 50, 601)
        assert fenced.wait(30)
    finally:
        keeper.stop()
    assert kept.asker.closed
    assert not any(thread.name == "bridge-keeper" for thread in threading.enumerate())


def test_a_failure_that_nobody_thought_of_is_told_and_ends_no_thread(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    failures = [ValueError("of the round"), ValueError("of a step")]

    def caught_up() -> bool:
        if len(failures) == 2:
            raise failures.pop(0)
        return True

    kept.do("INSERT INTO bridge.resync (site, type, reason) VALUES ('a', 'clusters', 'why')")
    kept.asker.failure = failures[1]
    keeper = Keeper(kept.dsn, kept.grant, TYPES, CONFIG, SystemClock(), kept.askers, caught_up, lambda: None)
    keeper.start()
    try:
        eventually(lambda: kept.rows("SELECT asks FROM bridge.resync") == [(1,)])
    finally:
        keeper.stop()
    said = capsys.readouterr().out
    assert "of the round" in said
    assert "of a step" in said
