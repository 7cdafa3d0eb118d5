"""The queue sender: rows of the send queue, in one transaction, and once where that is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest

from cut_wire import Wire, wired
from route_place import SENT, place_at
from route_sender_suite import SenderEnd, SenderSuite
from trunkline.core.jsoncodec import dumps, loads
from trunkline.routes.ends import Sendable, Undelivered
from trunkline.routes.event import Outgoing
from trunkline.routes.senders.queue import QUEUE
from trunkline.routes.senders.queue_sending import MOST_BYTES, MOST_MESSAGES, parts

_EMPTY = """
TRUNCATE queues.send_log, queues.ticket, queues.needs_snapshot, routes.sent;
INSERT INTO queues.site (name) VALUES ('hub'), ('shop') ON CONFLICT DO NOTHING;
"""


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    dsn = make_databases("queues", "routes")
    with psycopg.connect(dsn) as conn:
        conn.execute(SENT)
    return dsn


def outgoing(payload: Any, *destinations: str, headers: dict[str, str] | None = None) -> Outgoing:
    return Outgoing(client="app", destinations=destinations or ("hub",), headers=headers or {}, payload=dumps(payload))


class ToQueue(SenderEnd):
    plugin = QUEUE
    wire: Wire
    direct: str

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.direct) as conn:
            return conn.execute(query.encode()).fetchall()

    def bad(self) -> Sendable:
        return Sendable("bad", outgoing({"n": -1}, "nowhere"))

    async def payloads(self) -> list[Any]:
        found = []
        for payload, ends in self.ask("SELECT payload, ends FROM queues.send_log ORDER BY id"):
            begins = [0, *(ends or [])][: len(ends or [0])]
            found += [loads(payload[begin:end]) for begin, end in zip(begins, ends or [len(payload)], strict=True)]
        return found

    async def arrived(self) -> list[int]:
        return [payload["n"] for payload in await self.payloads()]

    async def ids(self) -> list[str]:
        return [id for (id,) in self.ask("SELECT headers ->> 'trunkline-id' FROM queues.send_log ORDER BY id")]

    async def lose(self) -> None:
        await self.wire.cut()

    async def mend(self) -> None:
        await self.wire.mend()


@pytest.fixture
async def end(database: str) -> AsyncIterator[ToQueue]:
    with psycopg.connect(database) as conn:
        conn.execute(_EMPTY.encode())
        info = conn.info
        host, port = info.host, info.port
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(wired(host, port))
        near = psycopg.conninfo.make_conninfo(database, host="127.0.0.1", port=wire.port)
        place = await stack.enter_async_context(place_at(near))
        end = ToQueue(place, {"client": "app", "destinations": ["hub"]})
        end.wire, end.direct = wire, database
        yield end


class TestQueueSender(SenderSuite):
    pass


async def test_a_call_is_one_transaction_and_messages_keep_their_order_over_destinations(end: ToQueue) -> None:
    sending = await end.open()
    sites = [("hub",), ("shop",), ("hub",), ("hub", "shop")]
    assert await sending.send([Sendable(f"{n}", outgoing(n, *to)) for n, to in enumerate(sites)]) == [None] * 4
    rows = end.ask("SELECT convert_from(payload, 'utf8'), destinations FROM queues.send_log ORDER BY id")
    assert rows == [(f"{n}", list(to)) for n, to in enumerate(sites)]
    assert end.ask("SELECT count(*) FROM queues.ticket") == [(1,)]


async def test_a_message_that_is_too_large_is_refused_alone(end: ToQueue) -> None:
    sending = await end.open()
    large = Sendable("large", outgoing("x" * (1 << 20)))
    refused, sent = await sending.send([large, end.sendable(1)])
    assert sent is None
    assert isinstance(refused, Undelivered)
    assert "over 1 MiB" in refused.reason
    assert not refused.again


async def test_where_no_destination_has_room_it_is_tried_again(end: ToQueue) -> None:
    with psycopg.connect(end.direct) as conn:
        conn.execute("INSERT INTO queues.needs_snapshot (destination, client, over_cap) VALUES ('hub', 'app', true)")
    sending = await end.open()
    waits, goes = await sending.send([end.sendable(1), Sendable("2", outgoing({"n": 2}, "shop"))])
    assert goes is None
    assert isinstance(waits, Undelivered)
    assert waits.again
    assert await end.arrived() == [2]


async def test_n5_what_is_sent_once_is_there_once_however_often_it_is_sent(end: ToQueue) -> None:
    sending = await end.open()
    first = [end.sendable(n, once=True) for n in range(3)]
    assert await sending.send([*first, first[0]]) == [None] * 4
    assert await sending.send([*first, end.sendable(3, once=True), end.sendable(0)]) == [None] * 5
    assert await end.arrived() == [0, 1, 2, 3, 0]


async def test_n5_what_was_refused_is_not_remembered_as_sent(end: ToQueue) -> None:
    sending = await end.open()
    bad = Sendable("id-7", outgoing({"n": 7}, "later"), once=True)
    answers = await sending.send([end.sendable(1, once=True), bad])
    assert [answer is None for answer in answers] == [True, False]
    with psycopg.connect(end.direct) as conn:
        conn.execute("INSERT INTO queues.site (name) VALUES ('later') ON CONFLICT DO NOTHING")
    assert await sending.send([bad]) == [None]
    assert await end.arrived() == [1, 7]


async def test_more_than_a_transaction_may_hold_is_sent_in_several(end: ToQueue) -> None:
    sending = await end.open()
    assert await sending.send([end.sendable(n) for n in range(2_500)]) == [None] * 2_500
    large = [Sendable(f"l{n}", outgoing({"n": n, "x": "y" * 900_000}, headers={"h": "ü" * 5_000})) for n in range(6)]
    assert await sending.send(large) == [None] * 6
    assert await end.arrived() == [*range(2_500), *range(6)]


def test_parts_hold_everything_in_order() -> None:
    messages = [Sendable(f"{n}", outgoing("x" * (n % 7 * 100_000))) for n in range(60)]
    cut = list(parts(messages))
    assert [one for part in cut for one in part] == messages
    assert max(sum(len(one.message.payload) for one in part) for part in cut) <= MOST_BYTES
    assert list(map(len, parts([messages[0]] * (MOST_MESSAGES + 1)))) == [MOST_MESSAGES, 1]
    assert list(parts([])) == []
