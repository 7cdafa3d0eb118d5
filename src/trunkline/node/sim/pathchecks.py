"""What must be true of everybody's rows once the faults are over, against a calculation of its own: hops over the links.

Of two neighbours that are equally near, either is right here: which of them was there first is history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trunkline.node.sim.setup import distances, site_of
from trunkline.node.sim.witness import Failure
from trunkline.topology.rows import Row

if TYPE_CHECKING:
    from trunkline.node.sim.universe import Universe

Tables = Mapping[str, Mapping[str, Row]]
"""By subscriber its rows by source."""


def loops(tables: Tables) -> Iterator[str]:
    """Origins whose records go round: following `via` from some site does not end at the origin."""
    for subscriber, rows in tables.items():
        for source in rows:
            site, seen = subscriber, [subscriber]
            while site != source and source in tables.get(site, {}):
                site = tables[site][source].via
                if site in seen:
                    yield f"{' from '.join((*seen, site))}, of {source}"
                    break
                seen.append(site)


def wrong_rows(heard: Mapping[str, Sequence[str]], tables: Tables) -> Iterator[str]:
    """Rows that are missing, too many, or not along a shortest path."""
    hops = {site: distances(heard, site) for site in heard}
    for subscriber, rows in tables.items():
        expected = {source: n for source, n in hops[subscriber].items() if n}
        for source in sorted({*expected, *rows}):
            row = rows.get(source)
            if row is None or source not in expected:
                yield f"{subscriber} has {'no row' if row is None else 'a row'} for {source}"
            elif row.depth != expected[source]:
                yield f"{subscriber} takes {source} from {row.via} at depth {row.depth}; {expected[source]} is possible"
            elif row.via not in heard[subscriber] or hops[row.via].get(source) != row.depth - 1:
                yield f"{subscriber} takes {source} from {row.via}, which is not nearer"


def tables_of(universe: Universe) -> dict[str, Mapping[str, Row]]:
    awake = [host for host in universe.sites if universe.net.hosts[host].process is not None]
    return {site_of(host): universe.sites[host].core.topology.rows for host in awake}


def paths_right(universe: Universe) -> Iterator[Failure]:
    tables = tables_of(universe)
    for what in wrong_rows(universe.setup.heard, tables):
        yield Failure("paths", what)
    for what in loops(tables):
        yield Failure("loops", what)
    for host, site in universe.sites.items():
        for what in site.core.topology.check():
            yield Failure("rows", f"{host}: {what}")
