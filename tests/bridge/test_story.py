"""Stories of agents, taken in by batches of any size: whatever was conflated on the way, the end is that of one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
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


def batch_of(site: str, messages: list[Message], position: int) -> Batch:
    arrived, rejected = [], []
    for at, message in enumerate(messages, position):
        headers, payload = normalise(*message)
        try:
            arrived.append(Arrived(SHIPPED.accept(parse_bundle(headers, payload, site)), f"{site}@0", at, None))
        except Invalid as error:
            rejected.append(Rejected(site, headers, payload, str(error), f"{site}@0", at))
    return Batch(arrived, rejected, {site: len(messages)}, (), "kafka")


@pytest.mark.parametrize("stories", [2, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_h39_a_story_ends_the_same_whatever_was_taken_in_at_once(make_database: Callable[..., str], stories: int) -> None:
    for seed in random.sample(range(10**6), stories):
        with ExitStack() as stack:
            tell(Hub(make_database("queues", "bridge"), stack), seed)


def tell(hub: Hub, seed: int) -> None:
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
        eventually(lambda: not hub.rows(left), 60, lambda: (hub.rows(left), hub.rows("TABLE bridge.ledger")))
    finally:
        workers.stop()
    assert {name: end_of(hub.conn, name) for name in HUBS} == {name: model.end() for name, model in models.items()}
