"""Stories of agents, taken in by batches of any size: whatever was conflated on the way, the end is that of one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from bridge_hub import Hub

from agent_story import Agent, Model, end_of
from hub_agent import Message
from trunkline.bridge.envelope import normalise
from trunkline.bridge.inbox import Arrived, Batch, Rejected, write_batch
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.workers import Workers
from trunkline.core.bundle import parse_bundle
from trunkline.core.clock import SystemClock
from trunkline.core.config import BridgeConfig
from trunkline.core.errors import Invalid
from trunkline.db.lease import commit_fenced
from waiting import eventually

HUBS = {"a": False, "b": True}


@pytest.fixture
def hub(make_database: Callable[..., str]) -> Iterator[Hub]:
    with ExitStack() as stack:
        yield Hub(make_database("queues", "bridge"), stack)


def batch_of(site: str, messages: list[Message], position: int) -> Batch:
    arrived, rejected = [], []
    for at, message in enumerate(messages, position):
        headers, payload = normalise(*message)
        try:
            arrived.append(Arrived(SHIPPED.accept(parse_bundle(headers, payload, site)), f"{site}@0", at, None))
        except Invalid as error:
            rejected.append(Rejected(site, headers, payload, str(error), f"{site}@0", at))
    return Batch(arrived, rejected, {site: len(messages)}, (), "kafka")


@pytest.mark.parametrize("seed", [random.randrange(1_000_000) for _ in range(25)])
def test_a_story_ends_the_same_whatever_the_batches(hub: Hub, seed: int) -> None:
    rng = random.Random(seed)
    workers = Workers(hub.dsn, hub.grant, SHIPPED, BridgeConfig(workers=2), SystemClock(), lambda: None)
    workers.start()
    models = {name: Model(name) for name in HUBS}
    agents = {name: Agent(name, rng, sessions) for name, sessions in HUBS.items()}
    try:
        for name, agent in agents.items():
            story = [*agent.tell(rng.choice((30, 200))), *agent.tell_all()]
            while story:
                upto = rng.choice((1, 5, 50, 500))
                some, story = story[:upto], story[upto:]
                waiting = write_batch(hub.conn, SHIPPED, batch_of(name, some, models[name].received))
                commit_fenced(hub.conn, hub.grant)
                workers.notice(waiting)
                for message in some:
                    models[name].take(message)
        left = "SELECT site, type, dependency_generation, key FROM bridge.inbox"
        eventually(lambda: not hub.rows(left), 20, lambda: (hub.rows(left), hub.rows("TABLE bridge.ledger")))
    finally:
        workers.stop()
    assert {name: end_of(hub.conn, name) for name in HUBS} == {name: model.end() for name, model in models.items()}
