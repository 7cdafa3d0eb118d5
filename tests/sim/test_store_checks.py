"""What the simulated store is checked for: every check can fail, and a store with a defect is found out."""

from __future__ import annotations

from collections import Counter

import pytest
from sim_runs import history

from trunkline.node.sim.catalogue import CATALOGUE, draw, run_seed
from trunkline.node.sim.history import parse_event
from trunkline.node.sim.shrink import shrink
from trunkline.node.sim.storenode import Wish
from trunkline.node.sim.universe import Universe, run_history
from trunkline.store.table import Table
from trunkline.store.values import Value

STORE = CATALOGUE["store"]


def settled(*lines: str) -> Universe:
    """Two nodes and more, without faults: these changes were made, and all came right."""
    universe = Universe(STORE, 1)
    universe.net.run(2.0)
    for line in lines:
        universe.do(parse_event(f"0.000 {line}"))
        universe.net.run(universe.net.now + 1.0)
    assert universe.net.run(universe.net.now + 20.0, done=universe.right)
    return universe


def wrong(universe: Universe) -> set[str]:
    return {str(failure) for failure in universe.wrong()}


# -- every check can fail


def test_g2_stores_that_differ_differ_in_their_digests() -> None:
    universe = settled("persist a app:k1 of 1")
    leaf = universe.stores["b"].table.digest.leaf_of("app:k1")
    del leaf.entries["app:k1"]
    assert {
        "G2: the stores of a and b differ at app:k1",
        "G2: the digest of b is not that of its values",
    } <= wrong(universe)
    leaf.sum = 0
    assert "G2: the digests of a and b differ" in wrong(universe)


def test_g2_a_kept_key_at_another_value() -> None:
    universe = settled("persist a app:k1 of 1")
    universe.store_nodes["a"].wishes["app:k1"] = Wish(b"other", True)
    assert wrong(universe) == {"G2: a keeps app:k1 and its store has another value"}


def test_g2_a_key_that_two_nodes_persist_is_at_what_one_of_them_wants() -> None:
    universe = settled("persist a app:k1 of 1", "persist b app:k1 of 2", "set b app:k2 of 3")
    assert universe.store_nodes["b"].keeps("app:k2") == Wish(b"3 of b", False)
    for name in "ab":
        universe.store_nodes[name].wishes["app:k1"] = Wish(b"other", True)
    assert "G2: a keeps app:k1 and its store has another value" in wrong(universe)


def test_g2_a_node_that_never_says_it_is_synced() -> None:
    universe = settled()
    universe.stores["a"].synced = False
    assert wrong(universe) == {"G2: a does not say that it is synced"}


def test_kept_a_key_that_was_set_and_given_up() -> None:
    universe = settled("set a app:k1 of 1")
    del universe.store_nodes["a"].store.own.keys["app:k1"]
    assert "kept: a no longer keeps app:k1, and nobody else wrote it" in wrong(universe)


def test_kept_a_key_that_was_set_is_given_up_when_somebody_else_writes_it() -> None:
    universe = settled("set a app:k1 of 1", "put b app:k1 of 2 for ever")
    assert universe.store_nodes["a"].keeps("app:k1") is None


@pytest.mark.parametrize(("change", "what"), [("erase b app:k1", "erased"), ("put b app:k1 of 2 for ever", "written to stay")])
def test_lasting_what_was_written_last_is_overcome_by_what_is_older(change: str, what: str) -> None:
    universe = settled("put a app:k1 of 1 for ever", change)
    entry = universe.stores["a"].table.entries["app:k1"]
    entry.value = Value(1, "a", b"1 of a", 1, 0, 1)
    assert f"lasting: app:k1 was {what} last, by b, and a has something else" in wrong(universe)


def test_lasting_what_was_lost_with_its_only_holder_is_no_failure() -> None:
    universe = settled()
    universe.net.wires.cut([("a", other) for other in universe.setup.hosts if other != "a"])
    universe.do(parse_event("0.000 put a app:k1 of 1 for ever"))
    assert [key for key, _ in universe.ledger.lasting()] == ["app:k1"]
    universe.net.crash("a")
    assert list(universe.ledger.lasting()) == []


def test_lasting_what_others_hold_when_the_faults_end_outlives_its_writer() -> None:
    universe = settled("put a app:k1 of 1 for ever")
    universe.net.crash("a")
    assert list(universe.ledger.lasting()) == []
    universe.ledger.hold(universe.stores, 35.0)
    assert [key for key, _ in universe.ledger.lasting()] == ["app:k1"]


def test_gone_a_key_that_nobody_keeps() -> None:
    universe = settled("persist a app:k1 of 1")
    del universe.store_nodes["a"].wishes["app:k1"]
    assert wrong(universe) == {f"gone: {host} still has app:k1 of a, which nobody keeps" for host in universe.setup.hosts}


def test_watch_a_watcher_that_missed_something() -> None:
    universe = settled("persist a app:k1 of 1")
    del universe.store_nodes["b"].seen["app:k1"]
    assert wrong(universe) == {"watch: the watcher of b knows another value of app:k1 than its store has"}


# -- a run


def test_clients_do_nothing_at_a_node_that_is_gone() -> None:
    verdict = run_history(STORE, history(STORE, "3.000 crash a for 2.000", "4.000 persist a app:k1 of 1", "4.500 read a 1"))
    assert verdict.converged
    assert verdict.seconds < 1.0


def test_where_little_may_wait_all_of_it_happens_and_all_comes_right() -> None:
    """Publications wait for the rate limit, waiting keys are dropped, links are full, watchers miss changes."""
    narrow, seen = CATALOGUE["narrow"], Counter[str]()
    for seed in range(12):
        drawn = draw(narrow, seed)
        universe = Universe(narrow, seed, drawn.loss)
        universe.live_through(drawn.events)
        assert universe.settle().failures == ()
        for node in universe.store_nodes.values():
            seen.update(node.store.counters)
            seen.update(missed=node.missed, unsent=node.unsent)
    happened = ("rate_limited", "overruns", "unsent", "missed", "inconsistencies", "comparisons", "expired_key_vals")
    assert [what for what in happened if not seen[what]] == []


def test_a_store_that_forgets_early_what_was_erased_is_found_out_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.store.area.SHORTEST_ERASED_MS", 300)
    found = next(v for v in (run_seed(STORE, seed) for seed in range(200)) if not v.converged)
    assert found.failed_checks == ("lasting",)
    small = shrink(STORE, draw(STORE, found.seed))
    assert len(small.history.events) <= 3
    assert " erase " in small.history.text()


def test_a_store_that_keeps_dead_keys_alive_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_decrement(table: Table, key: str, now: float) -> Value | None:
        entry = table.entries.get(key)
        return None if entry is None else entry.value

    monkeypatch.setattr(Table, "outgoing", without_decrement)
    verdicts = [run_seed(STORE, seed) for seed in range(10)]
    assert {check for v in verdicts for check in v.failed_checks} & {"gone", "G2"}
