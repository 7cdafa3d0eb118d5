"""Sending from tasks and from the driver: what a sender that is away costs others, and what is known of each message."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from uuid import uuid4

import pytest
from hand_job import route

from kafka_topics import Topics
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.db.lease import Grant
from trunkline.pipeline.jobs import deliver
from trunkline.pipeline.jobs.deliver import Delivery, Loop, Senders
from trunkline.pipeline.jobs.loaded import Loaded, LoadedRoute
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.pipeline.jobs.stage import Item, Unsent
from trunkline.routes import leaves
from trunkline.routes.ends import Sendable
from trunkline.routes.groups import Group
from trunkline.routes.senders.http import Request
from trunkline.routes.senders.kafka import Record
from waiting import eventually

NOWHERE = "host=127.0.0.1 port=1 dbname=none connect_timeout=1"
HEARD = {"plugin": "kafka", "config": {"brokers": "127.0.0.1:1", "topic": "t"}}
Finished = tuple[list[Item], list[Unsent]]


class Slow:
    """A real HTTP server; without `answers_after` it never answers."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.asked = loop, list[str]()
        self.answers_after: float | None = None
        self.server = loop.run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self.server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                self.asked.append(head.split("trunkline-id: ")[1].split("\r\n")[0])
                if self.answers_after is None:
                    await reader.read()
                await asyncio.sleep(self.answers_after or 0.0)
                writer.write(b"HTTP/1.1 204 X\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop("delivery")
    yield made
    made.close()


@pytest.fixture
def server(loop: Loop) -> Iterator[Slow]:
    slow = Slow(loop)
    yield slow
    slow.server.close()


@pytest.fixture
def senders(loop: Loop) -> Iterator[Senders]:
    with opened(loop) as senders:
        yield senders


@contextmanager
def opened(loop: Loop) -> Iterator[Senders]:
    grant = Grant("lease", uuid4(), 1)
    senders = Senders(JobSettings(NOWHERE, "hub", "here", Group("kafka", "127.0.0.1:1"), grant, 1), loop)
    yield senders
    loop.run(senders.close())


def made(senders: Senders, hash: str, sender: dict[str, Any], mode: str = "fire_and_forget") -> LoadedRoute:
    return Loaded(senders._settings).made(route(hash, HEARD, sender, id=hash, deliveryMode=mode))


def to_http(port: int, **more: Any) -> dict[str, Any]:
    return {"plugin": "http", "config": {"url": f"http://127.0.0.1:{port}", "timeoutSeconds": 1.0, "attempts": 1, **more}}


def requests(of: LoadedRoute, port: int, *numbers: int) -> list[Item]:
    return [Item(of, Sendable(f"{of.hash}{n}", Request("GET", f"http://127.0.0.1:{port}/", {})), "s", 0.0) for n in numbers]


def delivered(delivery: Delivery, *calls: Sequence[Item]) -> Finished:
    for call in calls:
        delivery.put(call)
    return delivery.finish()


def ids(items: Sequence[Item]) -> list[str]:
    return [item.sendable.id for item in items]


def test_what_nobody_keeps_does_not_wait_call_after_call_for_a_sender_that_is_away(
    senders: Senders, server: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaves, "HOLDS_UP", 0.3)
    of = made(senders, "f", to_http(server.port))
    calls = [requests(of, server.port, *range(100 * n, 100 * n + 4)) for n in range(10)]
    sent, unsent = delivered(Delivery(senders), *calls)
    assert (sent, len(unsent)) == ([], 40)
    assert sorted(server.asked) == ["f0", "f1", "f2", "f3"], "after these it was known"
    assert len(delivered(Delivery(senders), *calls)[1]) == 40
    assert len(server.asked) == 4, "nor does the next batch ask it at once"


def test_a_sender_that_is_back_is_asked_after_a_while(senders: Senders, server: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaves, "HOLDS_UP", 0.3)
    monkeypatch.setattr(leaves, "FIRST_LEAVE", 0.1)
    of = made(senders, "f", to_http(server.port))
    assert delivered(Delivery(senders), requests(of, server.port, 1))[0] == []
    server.answers_after = 0.0
    eventually(lambda: ids(delivered(Delivery(senders), requests(of, server.port, 2))[0]) == ["f2"], 10)
    assert ids(delivered(Delivery(senders), requests(of, server.port, 3))[0]) == ["f3"]


def test_a_sender_that_fails_at_once_is_asked_on(senders: Senders, server: Slow) -> None:
    loop, port = server.loop, server.port
    loop.run(closed(server))
    of = made(senders, "f", to_http(port))
    assert delivered(Delivery(senders), requests(of, port, 1))[0] == []
    assert not senders.leaves.began(of.sender)


async def closed(server: Slow) -> None:
    server.server.close()


def test_routes_whose_messages_are_kept_are_tried_also_when_others_are_left_out(
    senders: Senders, server: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaves, "HOLDS_UP", 0.3)
    loose, sure = (made(senders, mode[0], to_http(server.port), mode) for mode in ("fire_and_forget", "at_least_once"))
    assert loose.sender == sure.sender
    delivered(Delivery(senders), requests(loose, server.port, 1))
    server.answers_after = 0.0
    sent, unsent = delivered(Delivery(senders), requests(loose, server.port, 2) + requests(sure, server.port, 2))
    assert (ids(sent), [one.item.sendable.id for one in unsent]) == (["a2"], ["f2"])


def test_what_a_slow_server_took_is_known_as_sent(senders: Senders, server: Slow) -> None:
    """A call has time for 16 requests at a time, one after the other; those that it has not begun it does not report as
    lost on the way."""
    server.answers_after = 0.5
    of = made(senders, "a", to_http(server.port, timeoutSeconds=2.5), "at_least_once")
    sent, unsent = delivered(Delivery(senders, seconds=5.0), requests(of, server.port, *range(200)))
    assert 16 < len(sent) < 200
    assert all(one.why.again for one in unsent)
    assert sorted(server.asked) == sorted(ids(sent)), "whatever the server was asked is not asked again"


def test_a_sender_that_was_closed_for_others_is_still_asked_what_became_of_its_messages(
    loop: Loop, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More senders than a process keeps open."""
    monkeypatch.setattr(deliver, "MOST_OPEN", 1)
    with closing(Topics(kafka.bootstrap, "delivery")) as topics, opened(loop) as senders:
        topics.create("small", partitions=2, config={"max.message.bytes": "1000"})
        topics.create("other")
        to = [{"plugin": "kafka", "config": {"brokers": kafka.bootstrap, "topic": topics.name(t)}} for t in ("small", "other")]
        small, other = (made(senders, str(n), sender, "at_least_once") for n, sender in enumerate(to))
        good, bad = Record("1", partition=0), Record('"' + "x" * 5_000 + '"', partition=1)
        calls = [(small, "1", good), (other, "2", good), (small, "3", bad)]
        sent, unsent = delivered(Delivery(senders), *[[Item(of, Sendable(id, what), "s", 0.0)] for of, id, what in calls])
        assert (sorted(ids(sent)), [one.item.sendable.id for one in unsent]) == (["1", "2"], ["3"])
