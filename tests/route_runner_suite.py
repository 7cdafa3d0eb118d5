"""What both runners must make of the same routes and events: a table of small routes and all examples, and what came of them.

Each case is a route with a receiver of its own and the queue sender: so the send log shows content, order and ids of its
messages, and the dead letters stand beside it in the same database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from running_routes import Tap, here, pool_of, until
from trunkline.core.clock import SystemClock
from trunkline.core.jsoncodec import loads
from trunkline.routes.cases import read_cases
from trunkline.routes.compile import compile_route
from trunkline.routes.ends import Place
from trunkline.routes.event import Event
from trunkline.routes.fields import RouteModel
from trunkline.routes.files import files_of, is_cases, read_files
from trunkline.routes.keys import HOUSE
from trunkline.routes.live import LiveRoute
from trunkline.routes.local.counts import RouteCounts
from trunkline.routes.local.outbox import Outbox
from trunkline.routes.local.runner import LocalRunner
from trunkline.routes.model import RouteReader, read_route
from trunkline.routes.outcome import Done
from trunkline.routes.plugin import Around, ReceiverPlugin, Runs
from trunkline.routes.quota_buckets import MemoryBuckets
from trunkline.routes.quotas import Quotas
from trunkline.routes.registry import OURS, Registry
from trunkline.routes.storage.base import RouteConfig

SITE = "hub"
EXAMPLES = Path(__file__).parents[1] / "examples" / "routes"
SITES = "INSERT INTO queues.site (name) VALUES ('hub'), ('shop') ON CONFLICT DO NOTHING"


@dataclass(frozen=True)
class RunnerCase:
    """`chain`: (plugin, configuration) of its filters. `sender`: of the queue sender. `more`: other keys of the route."""

    name: str
    payloads: Sequence[Any]
    chain: Sequence[Mapping[str, Any]]
    sender: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def body(self, id: str, receiver: dict[str, Any]) -> dict[str, Any]:
        config = {"destinations": ["shop"], **self.sender, "client": id}
        sender = {"plugin": "queue", "config": config}
        return {"id": id, "userId": "ada", "receiver": receiver, "filterChain": list(self.chain), "sender": sender, **self.more}

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Came:
    """What came of a case. `messages`: (id, payload, destinations, headers) in their order. `letters`: (id, step, source,
    reason, content). `counts`: received, matched, sent and dead."""

    messages: list[tuple[Any, ...]]
    letters: list[tuple[Any, ...]]
    counts: tuple[int, ...]


def counted(counts: Any) -> tuple[int, ...]:
    return counts.received, counts.matched, counts.sent, counts.dead


SENT = """
SELECT m.headers ->> 'trunkline-id', m.payload, m.destinations, m.headers
  FROM queues.sent_message m JOIN queues.ticket t USING (xid) WHERE m.client = %s ORDER BY t.ticket, m.id, m.nth
"""


def messages_at(dsn: str, id: str) -> list[tuple[Any, ...]]:
    """In the order of the commits: numbers of rows are not."""
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(SENT, (id,)).fetchall()
    return [(of, loads(payload), destinations, headers) for of, payload, destinations, headers in rows]


def letters_at(dsn: str, id: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            "SELECT message_id, step, source, reason, content FROM routes.dead_letter"
            " WHERE route = %s ORDER BY message_id, step",
            (id,),
        ).fetchall()


# -- cases


def step(plugin: str, on_error: str = "", **config: Any) -> dict[str, Any]:
    return {"plugin": plugin, "config": config, **({"onError": on_error} if on_error else {})}


THINGS: tuple[Any, ...] = (
    {"kind": "alarm", "id": "a1", "level": 3, "tags": ["x", "y"], "at": {"site": "lyon"}},
    {"kind": "note", "id": "n1", "level": 1, "tags": []},
    "a text",
    [1, 2],
    None,
    {"kind": "alarm", "id": "a1", "level": 4, "more": {"level": 9, "deep": {"a": 1}}},
)
EQUAL = {"equal": [{"{payload.kind}": "alarm"}]}
SCHEMA = {"type": "object", "required": ["level"]}


def small(name: str, *chain: dict[str, Any], payloads: Sequence[Any] = THINGS, **more: Any) -> RunnerCase:
    sender = more.pop("sender", {})
    return RunnerCase(name, payloads, chain, sender, more)


SMALL = (
    small("no filters"),
    small("match regex", step("match", pattern="alarm")),
    small("match regex at a path", step("match", path=".kind", pattern="^al")),
    small("match pattern", step("match", matcher="pattern", pattern={"kind": "alarm", "level": "*"})),
    small("match patternregex", step("match", matcher="patternregex", pattern={"id": "^a.$"})),
    small("match comparison", step("match", matcher="comparison", comparison=EQUAL)),
    small(
        "match comparison tree",
        step(
            "match", matcher="comparisonTree",
            comparisonTree={"logic": "or", "childNodes": [{"comparison": EQUAL}, {"comparison": {"equal": [{"{.id}": "n1"}]}}]},
        ),
    ),
    small("match, with mode deny", step("match", mode="deny", matcher="pattern", pattern={"kind": "note"})),
    small("filter", step("filter", matcher="pattern", pattern={"kind": "note"})),
    small("deny", step("deny", path=".kind", pattern="note")),
    small("transform", step("transform", transformation={"who": "{.id} at {site}", "of": "{metadata.files.name}"})),
    small("mapping", step("mapping", path=".kind", map=[{"from": "alarm", "to": "alert {.level}"}], defaultValue="other")),
    small("split", step("split", path=".tags")),
    small("split, and split again", step("split"), step("split", path=".l"), payloads=[[{"l": [1, 2]}, {"l": []}], 4]),
    small("unwrap", step("unwrap", path=".more")),
    small("merge", step("merge", fromPath=".more", toPath="payload")),
    small("modify", step("modify", paths=[".kind", ".tags[0]"], toUpper=True)),
    small("regex", step("regex", fromPath=".id", toPath=".number", regex="([0-9])", replaceAllString="<$1>")),
    small(
        "hash into metadata",
        step("hash", fromPath=".id", toPath="metadata.part", hashAlgorithm="fnv"),
        step("transform", transformation={"part": "{metadata.part}"}),
    ),
    small("hash", step("hash", fromPath=".id", toPath=".digest", hashAlgorithm="sha256", encoding="hex")),
    small("encode", step("encode", fromPath=".at", toPath=".coded")),
    small("decode", step("decode", fromPath=".c"), payloads=[{"c": "eyJhIjoxfQ=="}, {"c": "<xml/>"}, {"c": 1}, {}]),
    small("ttl", step("ttl", path=".at", nanoFactor=1e9, on_error="drop"), payloads=[{"at": 1}, {"at": 4e9}, {"v": 1}]),
    small("ttl, with letters", step("ttl", path=".at", nanoFactor=1e9), payloads=[{"at": 4e9}, {"v": 1}]),
    small("dedup", step("dedup", path=".id")),
    small("dedup behind a filter", step("match", path=".kind", pattern="."), step("dedup", path=".kind")),
    small("batch", step("batch", batchSize=4, timeoutMs=300)),
    small("batch behind a split", step("split"), step("batch", batchSize=2, timeoutMs=300), payloads=[[1, 2, 3], [4, 5]]),
    small("split behind a batch", step("batch", batchSize=3, timeoutMs=300), step("split"), payloads=[1, 2, 3, 4]),
    small("dedup behind a batch", step("batch", batchSize=2, timeoutMs=300), step("dedup"), payloads=[1, 2, 1, 2, 3, 4]),
    small("validate", step("validate", schema=SCHEMA)),
    small("validate, and drop", step("validate", on_error="drop", schema=SCHEMA)),
    small("validate, then validate what is split", step("validate", schema=SCHEMA), step("split", path=".tags")),
    small("log", step("log", tag="t", path=".id")),
    small("trace", step("trace", path=".tx.id")),
    small("metric", step("metric", name="things")),
    small("pass", step("pass")),
    small("block", step("block")),
    small("js that changes", step("js", source="_.payload.n = (_.payload.level || 0) + 1; return _")),
    small("js that makes several", step("js", source="return (_.payload.tags || []).map(t => ({payload: t}))")),
    small("js that raises", step("js", source="return _.payload.at.site.length.more.than")),
    small("expr", step("expr", expression='payload.kind == "alarm" && payload.level > 3')),
    small("expr that computes", step("expr", expression="payload.level * 2", toPath=".twice")),
    small("headers of the event as it came", step("unwrap", path=".at"), sender={"headers": {"id": "{.id}"}}),
    small("destinations by a template", sender={"destinations": ["{.at.site}"]}),
    small("a site that nobody knows", step("match", path=".kind", pattern="note"), sender={"destinations": ["nowhere"]}),
    small("fire and forget", step("validate", schema=SCHEMA), deliveryMode="fire_and_forget"),
    small("at least once", step("validate", schema=SCHEMA), deliveryMode="at_least_once"),
    small("effectively once", step("split", path=".tags"), deliveryMode="effectively_once"),
)  # fmt: skip


def examples() -> tuple[RunnerCase, ...]:
    """The cases of all example routes; what goes in counts here, not what is expected."""
    found = read_files(files_of([EXAMPLES]), Around({"site": SITE}))
    assert not found.mistakes
    cases = []
    for path in filter(is_cases, files_of([EXAMPLES])):
        beside = path.name.partition(".")[0]
        for one in read_cases(path)[0]:
            of = [
                r
                for r in found.routes
                if r.key.id == one.case.route or (not one.case.route and Path(r.place[0]).stem == beside)
            ]
            cases.append(_example(f"{of[0].key.id}: {one.case.name}", of[0].body, [event.payload for event in one.case.coming]))
    return tuple(cases)


def _example(name: str, body: Mapping[str, Any], payloads: Sequence[Any]) -> RunnerCase:
    sender = body["sender"]["config"] if body["sender"]["plugin"] == "queue" else {}
    return RunnerCase(name, payloads, body.get("filterChain", ()), sender)


CASES = {f"case{n:02}": case for n, case in enumerate((*SMALL, *examples()))}


# -- the local side


class _Of(RouteModel):
    of: str = ""


class LocalSide:
    """A node's runner at a site of its own. `done`: what it told the source of each case."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.counts: dict[str, RouteCounts] = {}
        self.done: dict[str, list[Done]] = {}
        self._taps: dict[str, Tap] = {}
        self._plugins = Registry((*OURS, ReceiverPlugin("tap", _Of, Runs.LOCAL, self._tap)))

    async def run(self, cases: Mapping[str, RunnerCase], events: Mapping[str, Sequence[Event]]) -> None:
        async with pool_of(self.dsn) as pool:
            place = here(self.dsn, pool)
            quotas = Quotas(MemoryBuckets(place.clock), place.clock, place.random)
            runner = LocalRunner(place, self._plugins, {}, quotas, Outbox(pool))
            await runner.open()
            runner.receive()
            routes = {id: self._live(id, case) for id, case in cases.items()}
            for route in routes.values():
                await runner.start(route)
            given = {id: await self._given(id, events[id]) for id in cases}
            for id, done in given.items():
                self.done[id] = await done
            for id, route in routes.items():
                counts = runner.counts(route)
                assert counts is not None
                self.counts[id] = counts
            await runner.rest()
            for route in routes.values():
                await runner.stop(route)
            await runner.close()

    async def _given(self, id: str, events: Sequence[Event]) -> Awaitable[list[Done]]:
        await until(lambda: id in self._taps and self._taps[id].give)
        give = self._taps[id].give
        assert give is not None
        return await give(list(events), 60.0)

    def came(self, id: str) -> Came:
        return Came(messages_at(self.dsn, id), letters_at(self.dsn, id), counted(self.counts[id]))

    def _live(self, id: str, case: RunnerCase) -> LiveRoute:
        body = case.body(id, {"plugin": "tap", "config": {"of": id}})
        reading = read_route(body, RouteReader(self._plugins), HOUSE)
        assert not reading.mistakes, reading.mistakes
        (one,) = reading.routes
        config = RouteConfig(one.key, one.hash, one.configuration.body, {}, 1, 0.0, 0.0)
        around = Around({"site": SITE}, now=SystemClock().wall)
        return LiveRoute(one.hash, config, compile_route(one.route, around, self._plugins))

    async def _tap(self, config: _Of, place: Place) -> Tap:
        return self._taps.setdefault(config.of, Tap())
