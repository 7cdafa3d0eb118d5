"""How the apply half would lose or spoil status, and does not: the hazards by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest
from bridge_apply import TYPES, Interleaved, Run, delta, levels, make_tables, members, runner
from bridge_hub import Hub, cluster, clusters, compliance, verdict

from trunkline.bridge.judgement import Verdict
from trunkline.core.bundle import Version


@pytest.fixture
def hub(make_database: Callable[..., str]) -> Iterator[Hub]:
    with ExitStack() as stack:
        hub = Hub(make_database("queues", "bridge"), stack, TYPES)
        make_tables(hub)
        yield hub


@pytest.fixture
def run(hub: Hub) -> Iterator[Run]:
    with runner(hub) as start:
        yield start


def level(hub: Hub, site: str = "a") -> dict[str, int]:
    return dict(hub.rows("SELECT name, level FROM level WHERE site = %s", site))


def names(hub: Hub, site: str = "a") -> list[str]:
    return [name for (name,) in hub.rows("SELECT name FROM member WHERE site = %s ORDER BY name", site)]


def wishes(hub: Hub) -> list[tuple[str, str, str | None]]:
    return [(s, t, h) for s, t, h in hub.rows("SELECT site, type, holds FROM bridge.resync ORDER BY site, type")]


def counted(hub: Hub, *columns: str, site: str = "a") -> tuple[int, ...]:
    [row] = hub.rows(f"SELECT {', '.join(columns)} FROM bridge.counter WHERE site = %s", site)
    return row


def test_h34_the_dependency_is_checked_again_inside_the_apply(hub: Hub) -> None:
    """The base's row is being written by another transaction: the apply waits for it and then sees what it left."""
    hub.take_in(levels("a", 1, c=1))
    hub.apply("a", "levels")
    hub.take_in(delta("a", 1, 1, c=2))
    newer = hub.connect()
    newer.execute("UPDATE bridge.ledger SET generation = 2, value = 2 WHERE type = 'levels'")
    newer.execute("UPDATE level SET level = 100")
    applying = Interleaved(hub, "level-deltas", "a")
    applying.start_until_blocked()
    newer.commit()  # the newer base commits between the look of a dispatcher and the apply
    assert applying.outcome().verdict is Verdict.OUTDATED
    assert level(hub) == {"c": 100}
    assert hub.inbox() == []
    assert counted(hub, "applied", "discarded") == (1, 1)


def test_h34_a_base_that_is_rolled_back_was_never_there(hub: Hub) -> None:
    hub.take_in(clusters("a", 1, cluster("c")))
    hub.apply("a", "clusters")
    hub.take_in(compliance("a", 1, 2, verdict("c")))
    base = hub.connect()
    base.execute("UPDATE bridge.ledger SET generation = 2, value = 2 WHERE type = 'clusters'")
    applying = Interleaved(hub, "compliance", "a")
    applying.start_until_blocked()
    base.rollback()
    assert applying.outcome().verdict is Verdict.PARKED
    assert hub.rows("SELECT 1 FROM status.compliance") == []
    assert hub.inbox() == [("a", "compliance", 1)]


def test_h34_the_base_cannot_change_while_its_dependent_is_applied(hub: Hub) -> None:
    hub.take_in(levels("a", 1, c=1))
    hub.apply("a", "levels")
    hub.take_in(delta("a", 1, 1, c=2))
    blocker = hub.connect()
    blocker.execute("SELECT 1 FROM level FOR UPDATE")
    applying = Interleaved(hub, "level-deltas", "a")
    applying.start_until_blocked()
    base = hub.connect()
    with pytest.raises(psycopg.errors.LockNotAvailable):
        base.execute("SELECT 1 FROM bridge.ledger WHERE type = 'levels' FOR UPDATE NOWAIT")
    base.rollback()
    blocker.commit()
    assert applying.outcome().applied == Version(1, 1)
    assert level(hub) == {"c": 2}


def test_h35_a_newer_version_that_arrives_during_an_apply_stays_and_intake_does_not_wait(hub: Hub) -> None:
    for generation, health in ((1, "first"), (2, "second")):
        hub.take_in(*[clusters(site, generation, cluster("c", health)) for site in ("a", "b")])
        if generation == 1:
            hub.apply("a", "clusters")
            hub.apply("b", "clusters")
    blocker = hub.connect()
    blocker.execute("SELECT 1 FROM status.cluster WHERE site = 'b' FOR UPDATE")
    applying = Interleaved(hub, "clusters", "a", "b")
    applying.start_until_blocked()
    look = hub.connect()
    assert len(look.execute("SELECT 1 FROM bridge.inbox FOR UPDATE NOWAIT").fetchall()) == 2  # no inbox row is locked
    look.rollback()
    hub.take_in(clusters("a", 3, cluster("c", "third")))
    blocker.commit()
    ended = applying.join()
    assert isinstance(ended, list), ended
    assert [(o.site, o.applied) for o in ended] == [("a", Version(1, 2)), ("b", Version(1, 2))]
    assert hub.inbox() == [("a", "clusters", 3)]
    assert (hub.health("a"), hub.health("b")) == ({"c": "second"}, {"c": "second"})
    assert hub.apply("a", "clusters") == Version(1, 3)
    assert hub.health("a") == {"c": "third"}
    assert counted(hub, "received", "applied", "conflated", "stale") == (3, 3, 0, 0)


def test_h35_a_delta_that_arrives_during_an_apply_stays(hub: Hub) -> None:
    hub.take_in(levels("a", 1, c=1))
    hub.apply("a", "levels")
    hub.take_in(delta("a", 1, 1, c=2), delta("a", 2, 1, c=3))
    blocker = hub.connect()
    blocker.execute("SELECT 1 FROM level FOR UPDATE")
    applying = Interleaved(hub, "level-deltas", "a")
    applying.start_until_blocked()
    hub.take_in(delta("a", 3, 1, c=4))
    blocker.commit()
    assert applying.outcome().applied == Version(1, 2)
    assert level(hub) == {"c": 3}
    assert hub.inbox() == [("a", "level-deltas", 3)]
    hub.apply("a", "level-deltas")
    assert level(hub) == {"c": 4}


def test_h37_a_quarantined_delta_holds_what_follows_until_a_newer_base_comes(hub: Hub, run: Run) -> None:
    running = run(2)
    running.arrive(levels("a", 1, c=1, d=1))
    running.arrive(delta("a", 1, 1, c=2), delta("a", 2, 1, c=5000), delta("a", 3, 1, d=3))  # the table takes no 5000
    running.until(lambda: wishes(hub))
    assert wishes(hub) == [("a", "levels", "level-deltas")]
    assert level(hub) == {"c": 2, "d": 1}  # what came before it is applied, what follows is parked
    running.until(lambda: running.workers.sizes()["parked"] == 1)
    assert hub.inbox() == [("a", "level-deltas", 3)]
    [(generation, state, mode)] = hub.rows("SELECT generation, state, mode FROM bridge.quarantine")
    assert (generation, state, mode) == (2, "open", "delta")
    running.arrive(delta("a", 4, 1, d=4), clusters("a", 1, cluster("other")))
    running.until(lambda: hub.health("a") == {"other": "ok"})  # other types of the site go on
    assert level(hub) == {"c": 2, "d": 1}
    running.workers.stop()
    running = run(2)  # the mark is durable
    running.until(lambda: running.workers.sizes()["parked"] == 1)
    assert level(hub) == {"c": 2, "d": 1}
    running.arrive(levels("a", 2, c=9, d=9))
    running.arrive(delta("a", 5, 2, d=10))
    running.until_empty()
    assert level(hub) == {"c": 9, "d": 10}
    assert wishes(hub) == []
    assert hub.rows("SELECT state FROM bridge.quarantine") == [("cleared",)]
    assert counted(hub, "received", "applied", "quarantined", "discarded") == (8, 5, 1, 2)


def test_h37_a_base_sent_again_under_its_old_name_leaves_no_older_delta_behind(hub: Hub, run: Run) -> None:
    running = run(2)
    running.arrive(levels("a", 1, 7, c=1, d=1))
    running.arrive(delta("a", 1, 7, c=5000), delta("a", 2, 7, d=2))
    running.until(lambda: wishes(hub))
    running.arrive(levels("a", 2, 7, c=5, d=5), delta("a", 3, 7, c=6))
    running.until_empty()
    assert level(hub) == {"c": 6, "d": 5}
    assert counted(hub, "received", "applied", "quarantined", "discarded") == (5, 3, 1, 1)


def test_h37_a_quarantined_hybrid_is_restored_by_a_resync_and_by_nothing_less(hub: Hub, run: Run) -> None:
    running = run(2)
    running.arrive(members("a", 1, create=["m1"]), members("a", 2, bad=True), members("a", 3, create=["m3"]))
    running.until(lambda: wishes(hub))
    assert wishes(hub) == [("a", "members", "members")]
    assert names(hub) == ["m1"]
    running.arrive(members("a", 2, resync=["other part"]))  # of the resync that failed, by its generation
    running.arrive(members("a", 4, create=["m4"]))
    running.workers.stop()
    assert names(hub) == ["m1"]
    assert hub.apply("a", "members") is None
    running = run(2)
    running.arrive(members("a", 5, resync=["m5"]), members("a", 5, resync_metadata=["m5"]), members("a", 6, create=["m6"]))
    running.until_empty()
    assert names(hub) == ["m5", "m6"]
    assert wishes(hub) == []
    assert hub.rows("SELECT state FROM bridge.quarantine") == [("cleared",)]
    assert counted(hub, "received", "applied", "quarantined", "discarded") == (8, 4, 1, 3)


def test_h37_what_waited_already_when_the_wish_was_made_does_not_grant_it(hub: Hub) -> None:
    hub.take_in(levels("a", 1, c=1))
    hub.apply("a", "levels")
    hub.take_in(levels("a", 2, c=2), members("a", 1, resync=["m"]))
    for asked, holds in (("levels", "level-deltas"), ("members", "members")):
        hub.conn.execute("INSERT INTO bridge.resync (site, type, holds, reason) VALUES ('a', %s, %s, 'lost')", (asked, holds))
    hub.conn.commit()
    hub.take_in(delta("a", 9, 2, c=99))  # after records that were lost
    assert hub.apply("a", "levels") == Version(1, 2)
    assert hub.apply("a", "level-deltas") is None
    assert hub.apply("a", "members") is None
    assert level(hub) == {"c": 2}
    hub.take_in(levels("a", 3, c=3), members("a", 2, resync=["n"]))
    assert hub.apply("a", "levels") == Version(1, 3)
    assert hub.apply("a", "members") == Version(1, 2)
    assert wishes(hub) == []
    assert (level(hub), names(hub)) == ({"c": 3}, ["n"])


def test_h38_a_dependent_of_the_applied_base_goes_before_the_newer_base(hub: Hub, run: Run) -> None:
    hub.take_in(levels("a", 1, c=1))
    hub.apply("a", "levels")
    hub.conn.execute("CREATE TABLE seen (at serial, level bigint)")
    hub.conn.execute("""
        CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO seen (level) VALUES (NEW.level); RETURN NEW; END $$""")
    hub.conn.execute("CREATE TRIGGER see AFTER UPDATE ON level FOR EACH ROW EXECUTE FUNCTION see()")
    hub.conn.commit()
    hub.take_in(levels("a", 2, c=3), delta("a", 1, 1, c=2))
    run(2).until_empty()
    assert hub.rows("SELECT level FROM seen ORDER BY at") == [(2,), (3,)]


def test_h38_what_was_made_for_a_base_that_is_gone_is_discarded_and_counted(hub: Hub) -> None:
    hub.take_in(levels("a", 2, c=2))
    hub.apply("a", "levels")
    hub.take_in(delta("a", 1, 1, c=100), delta("a", 2, 2, c=3), delta("a", 3, 1, c=100), delta("a", 4, 3, c=4))
    assert hub.apply("a", "level-deltas") == Version(1, 2)
    assert level(hub) == {"c": 3}
    assert hub.inbox() == [("a", "level-deltas", 4)]
    assert counted(hub, "applied", "discarded") == (2, 2)
