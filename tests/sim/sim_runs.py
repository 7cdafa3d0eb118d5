"""Small universes for tests: a few links, nothing random but the weather."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trunkline.net.simnet import Note
from trunkline.node.sim.catalogue import CATALOGUE, carrying
from trunkline.node.sim.history import History, in_order, parse_event
from trunkline.node.sim.setup import Links
from trunkline.node.sim.trace import line
from trunkline.node.sim.universe import Scenario, Universe, Verdict, run_history

CHAIN = CATALOGUE["chain"]


def carried(links: Links) -> Scenario:
    return carrying("test", "links of a test", links)


def history(scenario: Scenario, *lines: str, seed: int = 1, loss: float = 0.0) -> History:
    return History(scenario.name, seed, loss, in_order(map(parse_event, lines)))


def lived(scenario: Scenario, *lines: str, seed: int = 1) -> tuple[Verdict, list[Note]]:
    """The verdict of these events without loss, and everything that happened."""
    notes: list[Note] = []
    return run_history(scenario, history(scenario, *lines, seed=seed), notes.append), notes


def lines_of(notes: Iterable[Note], holds: Callable[[Note], bool] = lambda note: True) -> list[str]:
    return [line(note) for note in notes if holds(note)]


def write(universe: Universe, site: str, *messages: tuple[str, str, bytes]) -> None:
    """One transaction of (client, destination, payload)."""
    transaction = [(client, (destination,), {}, payload) for client, destination, payload in messages]
    universe.write(site, transaction, f"{universe.net.now} {site} {transaction}")
