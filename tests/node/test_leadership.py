"""What a leader does for its core, on a real database: what the sink says, and appends that come late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from trunkline.core.config import QueuesConfig
from trunkline.core.ids import START, NodeId, Position
from trunkline.db.lease import acquire
from trunkline.node.leadership import Leadership
from trunkline.node.sessions import Loop
from trunkline.queues.reader import heads, read
from trunkline.trunk import asks
from trunkline.trunk.log import Applied, Entry

LOG = "5f0c1f0e-0000-4000-8000-000000000001"
FIRST, HEAD = Entry(1, "policy", ("hub",), {}, b"first"), Position(1, 77)


class Core:
    """Takes the leader's answers, as the carrier would."""

    def __init__(self) -> None:
        self.said: list[Applied] = []
        self.done: list[asks.Append] = []

    def loaded(self, origin: str, applied: Applied, now: float) -> list[Any]:
        self.said.append(applied)
        return []

    def appended(self, work: asks.Append, now: float) -> list[Any]:
        self.done.append(work)
        return []


class Led:
    def __init__(self, dsn: str) -> None:
        self.conn, self.core = psycopg.connect(dsn), Core()
        grant = acquire(self.conn, "leader", 60)
        assert grant is not None
        loop = Loop(lambda to, body, bulk: None, lambda origin: None, lambda sites, learn: None)
        self.leadership = Leadership(dsn, grant, NodeId("hub", "n"), QueuesConfig(), lambda head: None, loop)

    def do(self, work: asks.Load | asks.Append) -> None:
        answer = asyncio.run(self.leadership.perform(work))
        assert answer is not None
        answer(self.core, 0.0)  # type: ignore[arg-type]

    def append(self, since: Applied, *entries: Entry) -> asks.Append:
        return asks.Append("leaf", LOG, entries, HEAD, ("policy",), since)

    def begin_session(self) -> None:
        """As the sessions' thread does it."""
        sink = self.leadership._sink
        assert self.leadership._in_sink_lane(lambda: sink.use_log("leaf", "policy", LOG, START))

    def received(self) -> list[bytes]:
        found = {name: list(read(self.conn, name, 0, head)) for name, head in heads(self.conn, "policy").items()}
        self.conn.commit()
        return [entry.payload for entries in found.values() for entry in entries]


@pytest.fixture
def led(make_database: Callable[..., str]) -> Iterator[Led]:
    made = Led(make_database("queues"))
    with closing(made.conn):
        yield made
        made.leadership.stop()


def test_g4_an_append_of_a_stream_from_before_the_sink_s_last_answer_passes_over_nothing(led: Led) -> None:
    led.do(asks.Load("leaf"))
    led.do(led.append(led.core.said[-1], FIRST))  # nobody knows the client yet: it is held, and its entry left out
    before = led.core.said[-1]
    assert "policy" in before.held
    late = led.append(before)  # of the stream that leaves it out; it is asked for, and done only after the client is let go
    led.begin_session()
    led.do(asks.Load("leaf"))
    now = led.core.said[-1]
    assert (now.clients, "policy" in now.held) == ({"policy": START}, False)

    led.do(late)
    assert led.core.done == []
    assert led.core.said[-1].clients == {"policy": START}, "the position has not moved past what was left out"

    led.do(led.append(led.core.said[-1], FIRST))
    assert led.received() == [b"first"]
    assert len(led.core.done) == 1
    led.do(asks.Load("leaf"))
    assert led.core.said[-1].clients == {"policy": HEAD}


def test_h16_a_client_that_nobody_named_is_held_until_its_session_begins(led: Led) -> None:
    led.do(asks.Load("leaf"))
    led.do(led.append(led.core.said[-1], FIRST))
    led.do(led.append(led.core.said[-1], FIRST))
    assert led.received() == []
    assert led.core.said[-1].clients == {}
    led.begin_session()
    led.do(asks.Load("leaf"))
    led.do(led.append(led.core.said[-1], FIRST))
    assert led.received() == [b"first"]
