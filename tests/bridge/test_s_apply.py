"""Scenarios of the apply half, on demonstration types and small ones of every mode."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from bridge_apply import TYPES, Run, delta, levels, make_tables, runner
from bridge_hub import AT, Hub, cluster, clusters, event, events

from trunkline.bridge.types import BundleType, Match, Missing, Types
from trunkline.core.bundle import Bundle, Dependency, Mode, Version
from trunkline.core.jsoncodec import dumps

COMPLETE_LEVELS = BundleType(
    name="complete-levels",
    priority=3,
    depends_on="levels",
    mode=Mode.COMPLETE,
    table="complete_level",
    key=("name",),
    columns=(("name", "text"), ("level", "bigint")),
    missing=Missing.GONE,
    match=Match.EXACT,
)


@pytest.fixture
def hub(make_database: Callable[..., str]) -> Iterator[Hub]:
    with ExitStack() as stack:
        hub = Hub(make_database("queues", "bridge"), stack, Types((*TYPES.values(), COMPLETE_LEVELS)))
        make_tables(hub)
        hub.conn.execute("CREATE TABLE complete_level (LIKE level INCLUDING ALL)")
        hub.conn.commit()
        yield hub


@pytest.fixture
def run(hub: Hub) -> Iterator[Run]:
    with runner(hub) as start:
        yield start


def complete(site: str, generation: int, needs: Version, **rows: int) -> Bundle:
    data = dumps([{"name": name, "level": level} for name, level in rows.items()])
    return Bundle(
        id=f"complete-{site}-{generation}", source=site, type="complete-levels", time=AT, mode=Mode.COMPLETE,
        version=Version(1, generation), dependency=Dependency("levels", needs), data=data,
    )  # fmt: skip


def level(hub: Hub, table: str = "level", site: str = "a") -> dict[str, int]:
    return dict(hub.rows(f"SELECT name, level FROM {table} WHERE site = %s", site))


def counter(hub: Hub, name: str, site: str = "a") -> int:
    [(number,)] = hub.rows(f"SELECT {name} FROM bridge.counter WHERE site = %s", site)
    return int(number)


def test_what_arrives_out_of_order_is_dropped_as_stale(hub: Hub, run: Run) -> None:
    running = run()
    running.arrive(clusters("a", 3, cluster("c", "new")))
    running.until_empty()
    before = hub.rows("SELECT xmin::text, ctid::text, health FROM status.cluster")
    running.arrive(clusters("a", 2, cluster("c", "old")))
    running.until_empty()
    assert hub.rows("SELECT xmin::text, ctid::text, health FROM status.cluster") == before
    assert counter(hub, "stale") == 1
    assert hub.rows("SELECT payload->>'next' FROM status.transport") == [("3",)]  # the offset still advances
    assert hub.rows("SELECT generation FROM bridge.ledger") == [(3,)]


def test_a_dependency_is_met_by_the_equal_value_whatever_the_generation(hub: Hub, run: Run) -> None:
    running = run()
    running.arrive(levels("a", 0, 5, c=1))
    running.until_empty()
    assert hub.rows("SELECT generation, value FROM bridge.ledger") == [(0, 5)]
    running.arrive(complete("a", 3, Version(0, 5), c=2))
    running.until_empty()
    assert level(hub, "complete_level") == {"c": 2}
    assert counter(hub, "applied") == 2


def test_a_dependent_is_parked_until_its_base_and_holds_up_nobody(hub: Hub, run: Run) -> None:
    running = run(1)
    running.arrive(levels("a", 0, 5, c=1))
    running.until_empty()
    running.arrive(complete("a", 1, Version(0, 6), c=2))
    running.arrive(clusters("a", 1, cluster("flows")), events("a", 1, event(1)))
    running.until(lambda: hub.health("a") == {"flows": "ok"} and hub.rows("SELECT 1 FROM status.event"))
    assert running.workers.sizes()["parked"] == 1
    assert hub.inbox() == [("a", "complete-levels", 1)]
    assert level(hub, "complete_level") == {}
    running.arrive(levels("a", 1, 6, c=9))
    running.until_empty()
    assert (level(hub), level(hub, "complete_level")) == ({"c": 9}, {"c": 2})


def test_a_dependent_that_names_no_base_stops_nothing(hub: Hub, run: Run) -> None:
    """Intake refuses it with a reason; the apply half, given one all the same, does not fall over it."""
    without = complete("a", 1, Version(0, 1), c=1)
    hub.take_in(without)
    hub.conn.execute(
        "UPDATE bridge.inbox SET dependency_type = NULL, dependency_incarnation = NULL, dependency_generation = NULL"
    )
    hub.conn.commit()
    running = run()
    running.arrive(clusters("a", 1, cluster("flows")))
    running.until(lambda: hub.health("a") == {"flows": "ok"})
    running.until_empty()
    [(reason, payload)] = hub.rows("SELECT reason, payload FROM bridge.quarantine")
    assert "names no version of levels" in reason
    assert payload == without.data
    assert level(hub, "complete_level") == {}
    running.arrive(levels("a", 1, c=4))
    running.until_empty()
    assert level(hub) == {"c": 4}


def test_deltas_of_a_base_that_is_gone_are_discarded_and_those_of_the_new_one_apply(hub: Hub, run: Run) -> None:
    hub.take_in(levels("a", 1, 4, c=4))
    hub.apply("a", "levels")
    hub.take_in(delta("a", 1, 4, c=41), delta("a", 2, 4, c=42), levels("a", 2, 5, c=5))
    assert hub.apply("a", "levels") == Version(1, 2)  # before d1 and d2 could be
    assert hub.inbox() == []
    assert counter(hub, "discarded") == 2
    running = run()
    running.arrive(delta("a", 3, 4, c=43))
    running.until_empty()
    assert level(hub) == {"c": 5}
    assert counter(hub, "discarded") == 3
    running.arrive(delta("a", 4, 5, c=54))
    running.until_empty()
    assert level(hub) == {"c": 54}
    assert counter(hub, "applied") == 3


def test_a_hung_statement_is_cancelled_and_tried_again_while_other_sites_go_on(hub: Hub, run: Run) -> None:
    sites = ["hung", *[f"s{n}" for n in range(10)]]
    for site in sites:
        hub.take_in(clusters(site, 1, cluster("c")))
        hub.apply(site, "clusters")
    blocker = hub.connect()
    blocker.execute("SELECT 1 FROM status.cluster WHERE site = 'hung' FOR UPDATE")
    hub.take_in(*[clusters(site, 2, cluster("c", "bad")) for site in sites])
    running = run(2, statement_seconds=1)  # all of them in one wave at first
    running.until(lambda: all(hub.health(site) == {"c": "bad"} for site in sites[1:]))
    assert hub.health("hung") == {"c": "ok"}
    began = time.monotonic()
    for generation in range(3, 6):
        running.arrive(*[clusters(site, generation, cluster("c", str(generation))) for site in sites[1:]])
        running.until(lambda g=generation: all(hub.health(site) == {"c": str(g)} for site in sites[1:]))
    assert time.monotonic() - began < 30
    assert hub.health("hung") == {"c": "ok"}
    blocker.rollback()
    running.until_empty()
    assert hub.health("hung") == {"c": "bad"}
    assert hub.rows("SELECT 1 FROM bridge.quarantine") == []
    assert counter(hub, "applied", "hung") == 2


def test_one_bad_row_of_300_rolls_the_bundle_back_and_a_newer_one_clears_it(
    hub: Hub, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    good: dict[str, Any] = {f"n{n}": 1 for n in range(300)}
    hub.take_in(levels("a", 1, **good))
    hub.apply("a", "levels")
    seen: list[tuple[Any, ...]] = []
    stopped = threading.Event()
    watcher = hub.connect()
    watcher.autocommit = True

    def watch() -> None:
        while not stopped.is_set():
            seen.extend(watcher.execute("SELECT count(*), min(level), max(level) FROM level").fetchall())

    watching = threading.Thread(target=watch)
    watching.start()
    running = run()
    began = time.monotonic()
    running.arrive(levels("a", 2, **dict.fromkeys(good, 2) | {"n299": 1000}))
    running.until_empty()
    waited = time.monotonic() - began
    [(state, reason, generation)] = hub.rows("SELECT state, reason, generation FROM bridge.quarantine")
    assert (state, generation) == ("open", 2)
    assert "level_level_check" in reason
    assert level(hub) == good
    stopped.set()
    watching.join()
    assert set(seen) == {(300, 1, 1)}  # no reader ever saw a part of it
    tries = capsys.readouterr().out.count("apply is tried again")
    assert tries == 2  # and the third set it aside
    assert waited >= 0.1 + 0.2  # the least two pauses of a backoff from 0.2 s
    running.arrive(levels("a", 3, **dict.fromkeys(good, 3)))
    running.until_empty()
    assert set(level(hub).values()) == {3}
    assert hub.rows("SELECT state, settled_at IS NOT NULL FROM bridge.quarantine") == [("cleared", True)]
    assert (counter(hub, "applied"), counter(hub, "quarantined")) == (2, 1)
