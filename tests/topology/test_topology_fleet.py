"""Many cores, delays and random events: one tree per origin in the end, and nothing moves without an event."""

from __future__ import annotations

from random import Random

import pytest
from topologies import HOUSE, QUIET, Fleet, mesh, random_links

from trunkline.topology.effects import Move, Tell
from trunkline.topology.messages import Told
from trunkline.topology.settings import Settings, Tie

SITES = "abcdefgh"


class Weather:
    """Cuts, silent links, deaths and returns."""

    def __init__(self, seed: int, policies: bool = False) -> None:
        self.random = Random(seed)
        self.wires = random_links(self.random, SITES, 3)
        self.fleet = Fleet(self.wires, None, seed, **({site: self.policy() for site in SITES} if policies else {}))
        self.dead: set[str] = set()

    def policy(self) -> Settings:
        dear = self.random.sample(SITES, 2)
        return Settings(
            costs={site: self.random.randint(2, 4) for site in dear},
            no_relay=self.random.random() < 0.2,
            tie=self.random.choice(list(Tie)),
            rebalance=self.random.random() < 0.3,
        )

    def detection(self) -> float:
        return self.random.choice([0.0, 1.0])

    def strike(self) -> None:
        self.random.choice([self.cut, self.cut, self.mend, self.mend, self.kill, self.revive])()

    def cut(self) -> None:
        up = [wire for wire in self.wires if frozenset(wire) in self.fleet.links]
        if up:
            self.fleet.cut(self.random.choice(up), self.detection())

    def mend(self) -> None:
        self.fleet.run(1.1)
        down = [w for w in self.wires if frozenset(w) not in self.fleet.links and not self.dead.intersection(w)]
        if down:
            self.fleet.connect(self.random.choice(down))

    def kill(self) -> None:
        if len(self.fleet.sites) > 4:
            victim = self.random.choice(sorted(self.fleet.sites))
            self.dead.add(victim)
            self.fleet.kill(victim, self.detection())

    def revive(self) -> None:
        if self.dead:
            self.fleet.run(1.1)
            site = self.random.choice(sorted(self.dead))
            self.dead.discard(site)
            self.fleet.start(site)
            for wire in self.wires:
                if site in wire and not self.dead.intersection(wire):
                    self.fleet.connect(wire)


def live_through(seed: int, events: int, policies: bool = False) -> None:
    weather = Weather(seed, policies)
    fleet = weather.fleet
    fleet.run(3.0)
    assert fleet.wrong() == []
    for _ in range(events):
        weather.strike()
        fleet.run(weather.random.random() * 2.0)
    fleet.run(QUIET)
    assert fleet.wrong() == []
    mark = fleet.now
    fleet.run(20.0)
    assert [move for name, move in fleet.moves(mark) if not fleet.own.get(name, Settings()).rebalance] == []


@pytest.mark.parametrize("seed", range(8))
def test_costs_no_relay_ties_and_rebalancing_of_each_site_s_own_make_no_loops(seed: int) -> None:
    live_through(seed, events=8, policies=True)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happened_every_origin_comes_by_a_shortest_path_in_the_end(seed: int) -> None:
    live_through(seed, events=10)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 300))
def test_whatever_happened_for_long(seed: int) -> None:
    live_through(seed, events=30, policies=seed % 2 == 1)


def test_one_way_links_give_a_tree_in_their_direction() -> None:
    fleet = Fleet()
    for link in ("ba", "cb", "dc", "ad"):
        fleet.follow(link)
    fleet.run(5.0)
    around = {"adD1", "acd2", "abd3", "baa1", "bda2", "bca3", "cbb1", "cab2", "cdb3", "dcc1", "dbc2", "dac3"}
    assert fleet.rows() == {row.lower() for row in around}
    assert fleet.wrong() == []


def test_a_site_that_dies_is_forgotten_by_all_without_counting_up() -> None:
    fleet = Fleet(mesh("abcd"))
    fleet.run(3.0)
    mark = fleet.now
    fleet.kill("a", detection=1.0)
    fleet.run(10.0)
    assert fleet.rows() == {f"{x}{y}{y}1" for x in "bcd" for y in "bcd" if x != y}
    moved = [move for _, move in fleet.moves(mark)]
    assert all(move.origin == "a" for move in moved)
    assert fleet.violations == []


def test_in_a_chain_nobody_looks_for_a_dead_end_in_the_other_direction() -> None:
    fleet = Fleet(("ab", "bc"))
    fleet.run(3.0)
    mark = fleet.now
    fleet.kill("a")
    fleet.run(5.0)
    assert {(name, move.origin, move.via) for name, move in fleet.moves(mark)} == {("b", "a", None), ("c", "a", None)}
    assert fleet.rows() == {"bcc1", "cbb1"}


def test_a_join_moves_nothing_that_was_there() -> None:
    fleet = Fleet(mesh("abc"))
    fleet.run(3.0)
    mark = fleet.now
    fleet.connect("cd")
    fleet.run(5.0)
    assert {row for row in fleet.rows() if "d" in row[:2]} == {"cdd1", "adc2", "bdc2", "dcc1", "dac2", "dbc2"}
    assert {move.origin for name, move in fleet.moves(mark) if name != "d"} == {"d"}


def test_the_house_loses_a_wall_and_exactly_six_move() -> None:
    fleet = Fleet()
    for link in HOUSE:
        fleet.connect(link)
        fleet.run(3.0)
    before, mark = fleet.rows(), fleet.now
    fleet.cut("bd")
    fleet.run(5.0)
    assert fleet.rows() - before == {"adc3", "bdc3", "cde2", "dae3", "dbe3", "dce2"}
    assert len(fleet.moves(mark)) == 6
    assert fleet.wrong() == []


def test_a_quiet_fleet_asks_for_nothing_and_only_repeats_what_it_told() -> None:
    fleet = Fleet(HOUSE)
    fleet.run(5.0)
    mark = fleet.now
    fleet.run(60.0)
    later = [effect for at, _, effect in fleet.log if at > mark]
    assert all(isinstance(effect, Tell) for effect in later)
    whole = [effect for effect in later if isinstance(effect, Tell) and isinstance(effect.message, Told)]
    assert all(isinstance(effect.message, Told) and effect.message.full for effect in whole)
    assert len(whole) == 3 * 2 * len(HOUSE)


def test_a_leader_that_is_replaced_finds_the_same_table_again() -> None:
    fleet = Fleet(HOUSE)
    fleet.run(3.0)
    before = {row[:2] + row[3] for row in fleet.rows()}
    fleet.kill("c")
    fleet.start("c")
    for link in ("ac", "bc", "ce"):
        fleet.connect(link)
    fleet.run(QUIET)
    assert {row[:2] + row[3] for row in fleet.rows()} == before
    assert fleet.wrong() == []


def test_a_link_that_flaps_returns_to_the_direct_path_at_most_three_times() -> None:
    fleet = Fleet(mesh("abc"))
    fleet.run(3.0)
    mark = fleet.now
    for _ in range(10):
        fleet.cut("ac")
        fleet.run(0.5)
        fleet.connect("ac")
        fleet.run(0.5)
    fleet.run(QUIET)
    returns = [at for at, name, e in fleet.log if at > mark and name == "a" and isinstance(e, Move) and e.via == "c"]
    assert 1 <= len(returns) <= 3
    assert fleet.wrong() == []
