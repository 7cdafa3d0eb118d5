"""Who is there and who is joined to whom. A host is a site, or a node of one (`site/node`); hosts of a site share its disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
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
    follows: frozenset[tuple[str, str]] = frozenset()
    """Of the links those on which only the first takes records, from the second."""
    stagger: float = 0.0
    """Seconds between the first dials of two links: above half a second they come up in the order written."""
    later: frozenset[tuple[str, str]] = frozenset()
    """Of the links those that nobody dials until somebody connects them."""

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        return tuple(sorted({name for pair in self.links for name in pair}))

    @cached_property
    def sites(self) -> tuple[str, ...]:
        return tuple(sorted({site_of(host) for host in self.hosts}))

    def hears(self, site: str, other: str) -> bool:
        """Whether the first of two linked sites takes records from the second."""
        return (other, site) not in self.follows

    @cached_property
    def heard(self) -> dict[str, tuple[str, ...]]:
        """By site the sites it takes records from, in the order of the links."""
        ways = [way for a, b in self.links for way in ((site_of(a), site_of(b)), (site_of(b), site_of(a)))]
        found = {site: [v for u, v in ways if u == site and v != site and self.hears(u, v)] for site in self.sites}
        return {site: tuple(dict.fromkeys(others)) for site, others in found.items()}

    @cached_property
    def reach(self) -> dict[str, frozenset[str]]:
        """By site everybody whose records can come to it, itself not included."""
        return {site: frozenset(distances(self.heard, site)) - {site} for site in self.sites}


def distances(heard: Mapping[str, Sequence[str]], start: str) -> dict[str, int]:
    """Hops from a site to every site whose records can come to it."""
    found, queue = {start: 0}, deque([start])
    while queue:
        site = queue.popleft()
        for other in heard.get(site, ()):
            if other not in found:
                found[other] = found[site] + 1
                queue.append(other)
    return found


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
