"""One chain (match, transform, hash) over parsed events and from bytes to bytes; then many routes, each with such a chain and
with every event for one of them, through the match index."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from harness import Result
from trunkline.core.jsoncodec import dumps, loads
from trunkline.routes.chain import Chain, Step
from trunkline.routes.event import Event
from trunkline.routes.filters.hash import HASH
from trunkline.routes.filters.match import MATCH
from trunkline.routes.filters.transform import TRANSFORM
from trunkline.routes.index import MatchIndex
from trunkline.routes.needs import Needs, needs_of
from trunkline.routes.plugin import Around, FilterPlugin

BATCH = 100
ROUNDS = 5
TRANSFORMATION = {
    "id": "{.id}",
    "subject": "{.subject}",
    "where": {"site": "{.at.site}", "rack": "rack {.at.rack}"},
    "account": "{.content.account.id}",
}


class _Placed:
    """A filter of a chain, as it is written."""

    def __init__(self, plugin: FilterPlugin[Any], raw: dict[str, Any]) -> None:
        self.plugin = plugin.name
        self.config = plugin.config.model_validate(raw)
        self.step = Step(plugin.name, plugin.compile(self.config, Around()))


def _event(number: int) -> dict[str, Any]:
    return {
        "kind": "alarm",
        "id": f"a-{number:08}",
        "customer": number,
        "subject": "pump 4 of the northern station",
        "severity": "high",
        "at": {"site": "leaf-1", "rack": number % 40},
        "content": {"account": {"id": f"acc-{number % 5000}", "plan": "gold"}, "tags": ["water", "north"]},
    }


def _chain(pattern: dict[str, Any]) -> list[_Placed]:
    return [
        _Placed(MATCH, {"matcher": "pattern", "pattern": pattern}),
        _Placed(TRANSFORM, {"transformation": TRANSFORMATION}),
        _Placed(HASH, {"fromPath": ".id", "toPath": ".key", "hashAlgorithm": "md5", "encoding": "hex"}),
    ]


def _compiled(placed: list[_Placed]) -> Chain:
    return Chain([one.step for one in placed])


def filters(events: int, routes: tuple[int, ...]) -> Iterator[Result]:
    chain = _compiled(_chain({"kind": "alarm", "severity": "high"}))
    parsed = [[Event(_event(n)) for n in range(at, at + BATCH)] for at in range(0, events, BATCH)]
    rate = _rate(events, lambda: sum(len(chain.run(batch).out) for batch in parsed))
    yield Result("filter_chains_per_s", rate, "events/s through match, transform and hash, parsed", goal=400_000)
    raw = [[dumps(event.payload) for event in batch] for batch in parsed]
    rate = _rate(events, lambda: sum(len(_bytes_to_bytes(chain, batch)) for batch in raw))
    unit = f"events/s of {len(raw[0][0])} bytes through the same, with parsing and writing"
    yield Result("bytes_to_bytes_per_s", rate, unit, goal=150_000)
    for count in routes:
        yield from _many_routes(count, min(events, 50_000))


def _bytes_to_bytes(chain: Chain, batch: list[bytes]) -> list[bytes]:
    return [dumps(event.payload) for event in chain.run([Event(loads(data)) for data in batch]).out]


def _rate(events: int, work: Callable[[], int]) -> int:
    assert work() == events
    return round(events / min(_core_seconds(work) for _ in range(ROUNDS)))


def _core_seconds(work: Callable[[], object]) -> float:
    """What it takes of one core: others use the machine too."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _many_routes(count: int, events: int) -> Iterator[Result]:
    placed = [_chain({"kind": "alarm", "customer": n}) for n in range(count)]
    chains, needs = [_compiled(chain) for chain in placed], [needs_of(chain) for chain in placed]
    index = MatchIndex[int]()
    joined = _core_seconds(lambda: _join(index, needs))
    batches = [[Event(_event(n % count)) for n in range(at, at + BATCH)] for at in range(0, events, BATCH)]

    def work() -> int:
        found = (index.batches(batch).items() for batch in batches)
        return sum(len(chains[route].run(mine).out) for batch in found for route, mine in batch)

    yield Result(f"events_per_s_{count}_routes", _rate(events, work), "events/s through index and chains")
    yield Result(f"index_join_us_{count}_routes", round(joined / count * 1e6, 1), "µs for one route to join the index")


def _join(index: MatchIndex[int], needs: list[Needs]) -> None:
    for number, wanted in enumerate(needs):
        index.add(number, wanted)
