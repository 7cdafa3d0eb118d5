"""The checks of paths find what is wrong, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from trunkline.net.simhost import Outlet, Process
from trunkline.node.sim.catalogue import CATALOGUE
from trunkline.node.sim.checks import entries_delivered
from trunkline.node.sim.graphrun import GraphRun, parse_events
from trunkline.node.sim.graphs import graph
from trunkline.node.sim.pathchecks import loops, paths_right, wrong_rows
from trunkline.node.sim.site import SimSite
from trunkline.node.sim.universe import Universe
from trunkline.node.sitecore import Frame
from trunkline.topology.rows import Row

CHAIN = graph("chain:3")


def row(source: str, *path: str) -> Row:
    return Row(source, path[0], path, len(path))


def table(*rows: Row) -> dict[str, Row]:
    return {row.source: row for row in rows}


RIGHT = {
    "a": table(row("b", "b"), row("c", "b", "c")),
    "b": table(row("a", "a"), row("c", "c")),
    "c": table(row("b", "b"), row("a", "b", "a")),
}


def test_shortest_paths_are_right() -> None:
    assert list(wrong_rows(CHAIN.heard, RIGHT)) == []
    assert list(loops(RIGHT)) == []


def test_a_missing_row_a_row_too_many_and_a_longer_path_are_wrong() -> None:
    ring = graph("ring:4")
    tables = {"a": table(row("b", "d", "c", "b"), row("d", "d"), row("x", "b", "x"))}
    assert list(wrong_rows(ring.heard, tables)) == [
        "a takes b from d at depth 3; 1 is possible",
        "a has no row for c",
        "a has a row for x",
    ]


def test_a_parent_that_is_no_nearer_is_wrong() -> None:
    tables = {**RIGHT, "c": table(row("b", "b"), row("a", "a", "a"))}
    assert list(wrong_rows(CHAIN.heard, tables)) == ["c takes a from a, which is not nearer"]


def test_records_that_go_round_are_a_loop() -> None:
    tables = {"a": table(row("x", "b", "x")), "b": table(row("x", "c", "x")), "c": table(row("x", "a", "x"))}
    assert list(loops(tables)) == [
        "a from b from c from a, of x",
        "b from c from a from b, of x",
        "c from a from b from c, of x",
    ]


def test_a_universe_whose_link_is_missing_is_not_right() -> None:
    scenario = replace(CATALOGUE["topology"], setup=lambda random: replace(CHAIN, later=frozenset({("b", "c")})))
    universe = Universe(scenario, 1)
    universe.net.run(10.0)
    found = [str(failure) for failure in paths_right(universe)]
    assert "paths: a has no row for c" in found
    universe.net.wires.connect("b", "c")
    assert universe.net.run(30.0, done=lambda: next(paths_right(universe), None) is None)


def test_a_copy_too_many_is_counted() -> None:
    class Twice(SimSite):
        def _send(self, frame: Frame) -> None:
            for _ in range(1 if self.witness.crossings is None else 2):
                super()._send(frame)

    def boot(universe: Universe, host: str, outlet: Outlet, now: float) -> Process:
        return Twice(host, universe.databases, outlet, now, universe.setup)

    universe = Universe(replace(CATALOGUE["topology"], setup=lambda random: CHAIN, boot=boot, checks=(entries_delivered,)), 1)
    universe.live_through(())
    assert {"G3-link", "copies"} <= set(universe.settle().failed_checks)


def test_a_rule_that_breaks_for_a_moment_is_seen() -> None:
    run = GraphRun("ring:4", 1)
    assert run.come_up()
    topology = run.universe.sites["a"].core.topology
    bad = Row("c", "b", ("b", "a", "c"), 3)

    def spoil() -> None:
        topology.table.rows["c"] = bad

    run.universe.net.at(run.begun + 1.0, spoil)
    verdict = run.live(parse_events("2 cut a<>b for 1"))
    assert not verdict.converged
    assert any(f.check == "rows" and "R3 (a, c, b, 3)" in f.what for f in verdict.failures)


def test_rows_are_watched_from_when_the_table_stands() -> None:
    run = GraphRun("mesh:3", 4)
    assert run.come_up()
    assert run.changes == []
    before = run.tables()
    assert run.live(parse_events("1 cut a<>b for 3")).converged
    changed = [(c.subscriber, c.source, c.row.via if c.row else None) for c in run.changes]
    assert sorted(changed[:2]) == [("a", "b", None), ("b", "a", None)]
    assert sorted(changed[2:4]) == [("a", "b", "c"), ("b", "a", "c")]
    assert run.tables() == before
