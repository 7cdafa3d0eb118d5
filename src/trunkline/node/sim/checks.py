"""What must be true of a universe once its faults are over. Each check yields what is wrong, under its guarantee's name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trunkline.core.ids import START
from trunkline.node.sim.witness import Failure

if TYPE_CHECKING:
    from trunkline.node.sim.universe import Universe

SHOWN = 8


def stores_equal(universe: Universe) -> Iterator[Failure]:
    first, *others = universe.setup.hosts
    reference = _values(universe, first)
    for host in others:
        values = _values(universe, host)
        if values != reference:
            keys = sorted(k for k in {*values, *reference} if values.get(k) != reference.get(k))
            yield Failure("G2", f"the stores of {first} and {host} differ at {_some(keys)}")


def entries_delivered(universe: Universe) -> Iterator[Failure]:
    for origin, database in universe.databases.items():
        for site, other in universe.databases.items():
            if origin not in universe.setup.reach[site]:
                continue
            expected = database.due_to(site)
            received = [e.seq for e in other.sink.received.get(origin, ())]
            if received != expected:
                yield _difference(site, origin, received, expected)
        if database.unstamped:
            yield Failure("G3", f"{origin} has {len(database.unstamped)} transactions that are not in its log")


def _difference(site: str, origin: str, received: list[int], expected: list[int]) -> Failure:
    times = Counter(received)
    twice = sorted(seq for seq, count in times.items() if count > 1)
    if twice:
        return Failure("G3", f"{site} has {_some(twice)} of {origin} more than once")
    if received != sorted(received):
        return Failure("G4", f"{site} has {origin} out of order: {_some(received[-SHOWN:])}")
    missing = [seq for seq in expected if seq not in times]
    if received != expected[: len(received)]:
        return Failure("G4", f"{site} lacks {_some(missing)} of {origin} and went on to {received[-1]}")
    return Failure("G3", f"{site} lacks {_some(missing)} of {origin}")


def acknowledged(universe: Universe) -> Iterator[Failure]:
    for origin, database in universe.databases.items():
        head = database.log.head()
        for site in universe.databases:
            known = database.acknowledged.get(site, {})
            if origin in universe.setup.reach[site] and min(known.values(), default=START) != head:
                yield Failure("acks", f"{origin} does not know that {site} has everything up to {head.seq}")


def _values(universe: Universe, host: str) -> dict[str, tuple[int, str, bytes | None, bool]]:
    return {key: (v.version, v.originator, v.data, v.erased) for key, v in universe.stores[host].table.values()}


def _some(things: Sequence[object]) -> str:
    text = ", ".join(map(str, things[:SHOWN]))
    return f"{text} and {len(things) - SHOWN} more" if len(things) > SHOWN else text
