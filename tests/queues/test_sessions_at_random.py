"""Whatever links lose, double and overtake, and whoever crashes: every queue is whole snapshots and the log behind them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sessionsites import Site, World, check_queue, is_complete

from trunkline.queues.messages import SessionMessage

DEEDS = (
    "commit", "commit", "commit", "force", "force all", "crash source", "crash sink", "leaderless source", "leaderless sink",
    "cut", "heal", "trim", "break provider", "mend provider", "full", "room",
)  # fmt: skip


def troubled(seed: int, loss: float, doubled: float, slow: float) -> World:
    random = Random(seed)
    world = World(random=random)

    def copies(message: SessionMessage) -> int:
        return 0 if random.random() < loss else 2 if random.random() < doubled else 1

    world.link.copies, world.link.delay = copies, lambda: random.random() * slow
    world.latency = lambda: random.random() * slow / 4
    return world


def do(world: World, deed: str, source: Site, sink: Site) -> None:
    tables = source.source_tables
    key = (source.name, "pol")
    match deed:
        case "commit":
            tables.commit("pol", sink.name)
        case "force":
            tables.ask("pol", [sink.name], "forced", forced=True)
        case "force all":
            tables.ask("pol", [name for name in world.sites if name != source.name], "forced", forced=True)
        case "crash source":
            source.change_leader()
        case "crash sink":
            sink.change_leader()
        case "leaderless source" | "leaderless sink":
            site = source if deed == "leaderless source" else sink
            site.lose_lease()
            world.time.after(3.0, lambda: None if site.leads else site.lead())
        case "cut" | "heal":
            world.way(source.name, sink.name, deed == "heal")
        case "trim":
            tables.trim(len(tables.entries))
        case "break provider" | "mend provider":
            tables.broken = deed == "break provider"
        case "full" | "room":
            (sink.full.add if deed == "full" else sink.full.discard)(key)
            sink.do(sink.sink.full(source.name, [key[1]] if key in sink.full else [], world.time.now))


def calm(world: World, source: Site, sinks: list[Site]) -> None:
    world.link.copies = lambda message: 1
    source.source_tables.broken = False
    for sink in sinks:
        for deed in ("heal", "room", "commit"):
            do(world, deed, source, sink)
    world.time.until(lambda: all(is_complete(sink, source) for sink in sinks) and not source.source_tables.rows(), limit=300.0)
    world.run(10.0)


def live(world: World, deeds: list[tuple[str, int, float]], provided: bool) -> None:
    source, sinks = world.site("s"), [world.site("a"), world.site("b")]
    if provided:
        source.source_tables.providers["pol"] = [b"s%d" % n for n in range(7)]
    for deed, which, seconds in deeds:
        do(world, deed, source, sinks[which])
        world.run(seconds)
        for sink in sinks:
            check_queue(sink, source)
    calm(world, source, sinks)
    for sink in sinks:
        check_queue(sink, source)
        assert is_complete(sink, source)
    assert source.source_tables.rows() == [], "nobody asks for more"


DEED = st.tuples(st.sampled_from(DEEDS), st.integers(0, 1), st.sampled_from((0.0, 0.05, 0.3, 1.0, 4.0)))


@given(
    seed=st.integers(0, 10_000),
    loss=st.sampled_from((0.0, 0.1, 0.4)),
    doubled=st.sampled_from((0.0, 0.3)),
    slow=st.sampled_from((0.0, 0.1, 3.0)),
    deeds=st.lists(DEED, max_size=25),
)
@settings(max_examples=150)
def test_any_interleaving_leaves_whole_snapshots_and_the_log_behind_them(
    seed: int, loss: float, doubled: float, slow: float, deeds: list[tuple[str, int, float]]
) -> None:
    live(troubled(seed, loss, doubled, slow), deeds, provided=True)


@given(seed=st.integers(0, 10_000), loss=st.sampled_from((0.0, 0.4)), deeds=st.lists(DEED, max_size=20))
@settings(max_examples=50)
def test_without_a_provider_the_log_goes_on_and_what_was_lost_is_on_record(
    seed: int, loss: float, deeds: list[tuple[str, int, float]]
) -> None:
    forced = ("force", "force all")
    live(troubled(seed, loss, 0.2, 1.0), [deed for deed in deeds if deed[0] not in forced], provided=False)


@pytest.mark.parametrize("seed", [*range(4), *[pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 40)]])
def test_long_troubles_leave_whole_snapshots(seed: int) -> None:
    random = Random(seed)
    for _ in range(6):
        deeds = [(random.choice(DEEDS), random.randint(0, 1), random.choice((0.0, 0.1, 0.5, 3.0))) for _ in range(120)]
        world = troubled(random.randint(0, 1 << 30), random.choice((0.0, 0.05, 0.3)), 0.2, random.choice((0.05, 0.5, 4.0)))
        live(world, deeds, provided=True)
