"""Who is there and who is joined to whom. A host is a site, or a node of one (`site/node`); hosts of a site share its disk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from random import Random

Links = tuple[tuple[str, str], ...]


def site_of(host: str) -> str:
    return host.partition("/")[0]


@dataclass(frozen=True)
class Setup:
    links: Links

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        return tuple(sorted({name for pair in self.links for name in pair}))

    @cached_property
    def sites(self) -> tuple[str, ...]:
        return tuple(sorted({site_of(host) for host in self.hosts}))


def random_graph(random: Random, fewest: int = 4, most: int = 6) -> Setup:
    """A random tree, and one to three links more."""
    names = "abcdefghij"[: random.randint(fewest, most)]
    tree = {(random.choice(names[:n]), names[n]) for n in range(1, len(names))}
    others = [pair for pair in combinations(names, 2) if pair not in tree]
    return Setup(tuple(sorted({*tree, *random.sample(others, min(len(others), random.randint(1, 3)))})))


def nodes_of_sites(nodes: dict[str, int], links: Links) -> Setup:
    """Every node of a site is joined to every other one, and to every node of the sites its site is linked with."""
    hosts = {site: [f"{site}/n{n}" for n in range(1, count + 1)] for site, count in nodes.items()}
    inside = [pair for names in hosts.values() for pair in combinations(names, 2)]
    between = [(a, b) for left, right in links for a in hosts[left] for b in hosts[right]]
    return Setup(tuple(inside + between))
