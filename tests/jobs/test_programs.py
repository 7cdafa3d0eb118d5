"""Routes of one program: each gives what it would give alone (P1 to P3), and what all share runs once."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.jsoncodec import dumps
from trunkline.db.lease import Grant
from trunkline.pipeline.jobs.loaded import Loaded
from trunkline.pipeline.jobs.outcomes import Outcome, TaskCounts, Told
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.pipeline.jobs.stage import Item, Stage, Unsent
from trunkline.pipeline.jobs.stored import Member
from trunkline.routes.event import Event, Source
from trunkline.routes.groups import Group
from trunkline.routes.keys import HOUSE, RouteKey
from trunkline.routes.model import parse_routes
from trunkline.routes.needs import needs_of, written

RECEIVER = {"plugin": "kafka", "config": {"brokers": "b", "topic": "in"}}
TO_KAFKA = {"plugin": "kafka", "config": {"brokers": "b", "topic": "out", "partitionPath": "payload.p"}}
BY_DRIVER = {"plugin": "queue", "config": {"client": "c", "destinations": ["{payload.site}"]}}


def match(pattern: Any, **more: Any) -> dict[str, Any]:
    return {"plugin": "match", "config": {"matcher": "pattern", "pattern": pattern, **more}}


SPLIT = {"plugin": "split", "config": {"path": "payload.items"}}
LOOSE_SPLIT = {**SPLIT, "onError": "drop"}
HASH = {"plugin": "hash", "config": {"fromPath": "payload.kind", "toPath": "payload.p", "hashAlgorithm": "fnv"}}
METRIC = {"plugin": "metric", "config": {"name": "seen"}}
DEDUP = {"plugin": "dedup"}


def members(routes: Iterable[tuple[Sequence[dict[str, Any]], dict[str, Any]]]) -> list[Member]:
    made = []
    for n, (chain, sender) in enumerate(routes):
        body = {"id": f"r{n}", "receiver": RECEIVER, "filterChain": list(chain), "sender": sender}
        (parsed,) = parse_routes({"routes": [body]}, "test")
        made.append(Member(f"h{n}", RouteKey(HOUSE, f"r{n}"), body, written(needs_of(parsed.filter_chain))))
    return made


class Noting:
    """All that is sent by tasks, in its order."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def put(self, items: Sequence[Item]) -> None:
        self.items += items

    def finish(self) -> tuple[list[Item], list[Unsent]]:
        return self.items, []


class Ran:
    """What became of the events: `sent` and `told` by route, each in its order."""

    def __init__(self, routes: Sequence[Member], events: Sequence[Event], waiting: frozenset[str] = frozenset()) -> None:
        settings = JobSettings("", "hub", "test", Group("kafka", "b"), Grant("test", uuid.uuid4(), 1), 1)
        self.loaded, noting = Loaded(settings), Noting()
        for one in routes:
            self.loaded.join(one)
        stage = Stage(self.loaded, noting, waiting, now=lambda: 1.0)
        for receiver in self.loaded.receivers.values():
            stage.take(receiver, list(events))
        *outcomes, last = stage.finish()
        self.counts: TaskCounts = _counts(last)
        self.sent: dict[str, list[Any]] = {}
        for item in noting.items:
            self.sent.setdefault(item.route.hash, []).append((item.sendable.id, item.sendable.message, item.source, item.came))
        self.told: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            self.told.setdefault(outcome.hash, []).append(outcome)

    def of(self, hash: str) -> tuple[Any, ...]:
        count = self.counts.routes.get(hash)
        told = sorted(self.told.get(hash, []), key=lambda one: one.id)
        return self.sent.get(hash, []), told, None if count is None or not count.received else count


def _counts(outcome: Outcome) -> TaskCounts:
    assert outcome.told is Told.COUNTS
    return msgspec.json.decode(outcome.content, type=TaskCounts)


def events(*payloads: Any) -> list[Event]:
    return [Event(payload, {}, Source(f"in@b/0/{n}", HOUSE, "", 0.5)) for n, payload in enumerate(payloads)]


kinds = st.sampled_from(["a", "a", "a", "b", 1, 1.0, True, None, "*"])
matches = st.builds(
    lambda wanted, exact: match(wanted, exactArrayMatch=exact),
    st.fixed_dictionaries({"kind": kinds}, optional={"site": st.sampled_from(["x", 2])}),
    st.booleans(),
)
tails = st.sampled_from([[], [HASH], [SPLIT], [LOOSE_SPLIT, HASH], [METRIC], [METRIC, SPLIT], [DEDUP]])
chains = st.builds(
    lambda first, tail: [*first, *tail],
    st.just([match({"kind": "a"})]) | st.lists(matches, min_size=1, max_size=2),
    tails,
)
senders = st.sampled_from([TO_KAFKA, TO_KAFKA, BY_DRIVER])
payloads = st.fixed_dictionaries(
    {"kind": kinds},
    optional={
        "site": st.sampled_from(["x", "x", 2]),
        "items": st.lists(st.fixed_dictionaries({"p": st.integers(0, 3)}), max_size=2) | st.just("no list"),
        "p": st.integers(0, 3) | st.just("no number"),
    },
)


@given(
    st.lists(st.tuples(chains, senders), min_size=2, max_size=8),
    st.lists(payloads, min_size=3, max_size=12),
    st.frozensets(st.sampled_from(["h0", "h1"])),
)
def test_each_route_gives_what_it_gives_alone(
    routes: list[tuple[list[dict[str, Any]], dict[str, Any]]], came: list[Any], waiting: frozenset[str]
) -> None:
    given_events, all_of_them = events(*came), members(routes)
    together = Ran(all_of_them, given_events, waiting)
    seen = 0
    for one in all_of_them:
        alone = Ran([one], given_events, waiting)
        assert together.of(one.hash) == alone.of(one.hash), dumps(one.body)
        seen += sum(alone.counts.custom.values())
    assert sum(together.counts.custom.values()) == seen, "each route counts for itself"


def test_p2_routes_that_take_other_events_share_a_program() -> None:
    routes = members(([match({"kind": kind, "site": "x"}), HASH], TO_KAFKA) for kind in "abc")
    ran = Ran(routes, events(*({"kind": kind, "site": "x"} for kind in "abcab")))
    assert len(ran.loaded.programs) == 1
    assert {hash: len(sent) for hash, sent in ran.sent.items()} == {"h0": 2, "h1": 2, "h2": 1}
    (program,) = {route.program for route in ran.loaded.routes.values()}
    assert program is not None
    assert [step.name for step in program.chain.steps] == ["filterChain[1] hash"], "the index asked what the match asks"


@pytest.mark.parametrize("kind", [1, 1.0, True, False, None, "*"])
def test_p1_only_a_match_of_texts_is_said_in_full(kind: Any) -> None:
    ran = Ran(members([([match({"kind": kind, "site": "x"})], TO_KAFKA)]), events({"kind": 1, "site": "x"}))
    (route,) = ran.loaded.routes.values()
    assert len(route.programmed().chain.steps) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (([match({"kind": "a"}), HASH], TO_KAFKA), ([match({"kind": "a"})], TO_KAFKA)),
        (([match({"kind": "a"})], TO_KAFKA), ([match({"kind": "a"})], BY_DRIVER)),
        (([match({"kind": "a"})], TO_KAFKA), ([match({"site": "a"})], TO_KAFKA)),
        (([match({"kind": "a"}), METRIC], TO_KAFKA), ([match({"kind": "a"}), METRIC], TO_KAFKA)),
        (([match({"kind": "a"}), DEDUP], TO_KAFKA), ([match({"kind": "a"}), DEDUP], TO_KAFKA)),
    ],
)
def test_p2_p3_others_do_not(one: Any, other: Any) -> None:
    ran = Ran(members([one, other]), events({"kind": "a", "site": "a"}))
    first, second = (route.programmed() for route in ran.loaded.routes.values())
    assert first is not second


def test_a_program_ends_with_its_last_route() -> None:
    ran = Ran(members(([match({"kind": kind})], TO_KAFKA) for kind in "ab"), events({"kind": "a"}, {"kind": "b"}))
    loaded = ran.loaded
    assert len(loaded.programs) == 1
    loaded._leave("h0")
    assert len(loaded.programs) == 1
    loaded._leave("h1")
    del ran
    assert len(loaded.programs) == 0
