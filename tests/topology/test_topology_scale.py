"""A thousand sites: work by what changed."""

from __future__ import annotations

from random import Random
from time import perf_counter

from topologies import Lone

from trunkline.topology.effects import Move, Tell
from trunkline.topology.links import LinkRow
from trunkline.topology.messages import Told

SIZE, NEIGHBOURS = 1000, 7
GENEROUS = 0.05
"""A recomputation takes a tenth of this on a free machine."""


def large_fleet() -> tuple[Lone, dict[str, set[str]]]:
    random = Random(1)
    names = [f"s{i}" for i in range(SIZE)]
    hears: dict[str, set[str]] = {name: {names[i - 1]} for i, name in enumerate(names)}
    while sum(map(len, hears.values())) < SIZE * NEIGHBOURS:
        a, b = random.sample(names, 2)
        hears[a].add(b)
        hears[b].add(a)
    hears["x"] = set(random.sample(names, NEIGHBOURS))
    lone = Lone({site: LinkRow(1, tuple(sorted(others))) for site, others in hears.items() if site != "x"})
    lone.up(*sorted(hears["x"]))
    lone.wait()
    assert len(lone.core.rows) == SIZE
    return lone, hears


def test_one_changed_link_is_one_search_and_touches_only_what_it_moves() -> None:
    lone, hears = large_fleet()
    graph = lone.core.table.graph
    times = []
    for site in [name for name in sorted(hears) if len(hears[name]) > 3 and name not in hears["x"]][:20]:
        lone.wait(1.0)
        lone.since()
        before, searched = dict(lone.core.rows), graph.searched
        kept = tuple(sorted(hears[site]))[1:]
        began = perf_counter()
        lone.take(lone.core.set_links({site: LinkRow(1, kept)}, lone.now))
        lone.wait(0.02)
        times.append(perf_counter() - began)
        assert graph.searched == searched + 1
        changed = {
            origin for origin in before.keys() | lone.core.rows.keys() if before.get(origin) != lone.core.rows.get(origin)
        }
        effects = lone.since()
        assert {e.origin for e in effects if isinstance(e, Move)} <= changed
        told = {row.source for e in effects if isinstance(e, Tell) and isinstance(e.message, Told) for row in e.message.rows}
        assert told <= changed
        assert len(changed) < SIZE / 10
    assert sorted(times)[len(times) // 2] < GENEROUS
    assert lone.core.check() == []
