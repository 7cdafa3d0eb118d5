"""Graphs by name. Their sites are a, b, c …; their links come up in the order written here."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations, pairwise
from random import Random
from string import ascii_lowercase

from trunkline.core.errors import Invalid
from trunkline.node.sim.setup import Links, Setup

FEWEST, MOST = 2, 100
STAGGER = 0.6
EXAMPLES = "chain:4, ring:4, star:5, mesh:5, house, grid:3x3 or random:8"
HOUSE: Links = (("a", "b"), ("a", "c"), ("b", "c"), ("b", "d"), ("c", "e"), ("d", "e"))


def names(count: int) -> list[str]:
    letters = list(ascii_lowercase)
    return letters[:count] if count <= len(letters) else [f"s{n:02}" for n in range(1, count + 1)]


def _chain(count: int) -> Links:
    return tuple(pairwise(names(count)))


def _ring(count: int) -> Links:
    sites = names(count)
    return (*pairwise(sites), *(((sites[-1], sites[0]),) if count > 2 else ()))


def _star(count: int) -> Links:
    hub, *leaves = names(count)
    return tuple((hub, leaf) for leaf in leaves)


def _mesh(count: int) -> Links:
    return tuple(combinations(names(count), 2))


def _grid(rows: int, columns: int) -> Links:
    sites = names(rows * columns)
    right = [(n, n + 1) for n in range(rows * columns) if (n + 1) % columns]
    down = [(n, n + columns) for n in range((rows - 1) * columns)]
    return tuple((sites[a], sites[b]) for a, b in sorted(right + down))


def _random(count: int, random: Random) -> Links:
    """A random tree, and about half as many links more."""
    sites = names(count)
    tree = [(random.choice(sites[:n]), sites[n]) for n in range(1, count)]
    others = [pair for pair in combinations(sites, 2) if pair not in tree]
    links = tree + random.sample(others, min(len(others), (count + 1) // 2))
    random.shuffle(links)
    return tuple(links)


_SIZED: dict[str, Callable[[int], Links]] = {"chain": _chain, "ring": _ring, "star": _star, "mesh": _mesh}


def graph(text: str, seed: int = 0) -> Setup:
    """The setup that a name like `mesh:5` stands for; the seed chooses a random one."""
    if text == "house":
        return Setup(HOUSE, stagger=STAGGER)
    if sized := re.fullmatch(rf"({'|'.join(_SIZED)}):(\d+)", text):
        return Setup(_SIZED[sized[1]](_count(text, int(sized[2]))), stagger=STAGGER)
    if grid := re.fullmatch(r"grid:(\d+)x(\d+)", text):
        rows, columns = int(grid[1]), int(grid[2])
        _count(text, rows * columns)
        return Setup(_grid(rows, columns), stagger=STAGGER)
    if drawn := re.fullmatch(r"random:(\d+)", text):
        return Setup(_random(_count(text, int(drawn[1])), Random(f"{seed} graph")), stagger=STAGGER)
    raise Invalid(f"graph {text!r}", "there is none of that name", f"write {EXAMPLES}")


def _count(text: str, count: int) -> int:
    if not FEWEST <= count <= MOST:
        raise Invalid(f"graph {text!r}", f"it has {count} sites", f"take {FEWEST} to {MOST}")
    return count
