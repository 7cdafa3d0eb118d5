"""What clients of the store do in a universe: change keys of their node and keys that others change, too, and read a watch."""

from __future__ import annotations

from random import Random

from trunkline.node.sim.history import EVER, Change, Event, Read, Verb
from trunkline.node.sim.setup import Setup

COUNT = 50
SHARED = ("app:k1", "app:k2", "app:k3")
_WEIGHTS = {Verb.PUT: 12, Verb.PERSIST: 10, Verb.SET: 6, Verb.UNSET: 3, Verb.CLEAR: 4, Verb.ERASE: 6}
_VERBS, _SHARES = tuple(_WEIGHTS), tuple(_WEIGHTS.values())
# Below what is passed on at all, below the usual, the usual, without end.
_LIVES = (0.4, 2.0, 5.0, 0.0, EVER)
_KEPT_LIVES = (0.0, 0.0, 0.0, 3.0, EVER)


def draw_changes(random: Random, setup: Setup, calm: float) -> list[Event]:
    times = sorted(round(random.uniform(0.0, calm), 3) for _ in range(COUNT))
    return [_draw(random, setup, at, number) for number, at in enumerate(times, 1)]


def _draw(random: Random, setup: Setup, at: float, number: int) -> Event:
    node = random.choice(setup.hosts)
    if random.random() < 0.2:
        return Read(at, node, random.choice((1, 2, 5, 100)))
    verb = random.choices(_VERBS, _SHARES)[0]
    key = random.choice(SHARED) if random.random() < 0.6 else random.choice((f"app:{node}:k", f"link:{node}"))
    if verb in (Verb.CLEAR, Verb.ERASE):
        return Change(at, verb, node, key)
    lives = {Verb.PUT: _LIVES, Verb.UNSET: (0.0,)}.get(verb, _KEPT_LIVES)
    return Change(at, verb, node, key, number, random.choice(lives))
