"""The client of an application that runs on asyncio: the same, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from queue_site import Site

from trunkline.core.errors import Invalid
from trunkline.queues.client import AsyncQueueClient, Message, NoRoom

Conn = psycopg.AsyncConnection[Any]
APP = AsyncQueueClient("app")


@pytest.fixture
def site(swept_site: Site) -> Site:
    return swept_site


def in_one_connection(site: Site, body: Callable[[Conn], Awaitable[None]]) -> None:
    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(site.dsn) as conn:
            await body(conn)

    asyncio.run(run())


def test_it_sends_with_the_transaction_and_not_without(site: Site) -> None:
    async def body(conn: Conn) -> None:
        await APP.transmit(conn, b"undone", ["hub"])
        await conn.rollback()
        await APP.transmit(conn, b"1", ["hub"], {"k": "v"})
        await APP.transmit_many(conn, [b"2", b"3"], ["shop"], [{}, {"n": "3"}])
        await APP.transmit_messages(conn, [Message(b"4", ["hub", "shop"]), Message(b"5", ["*"], {"n": "5"})])
        await conn.commit()

    in_one_connection(site, body)
    rows = site.ask("SELECT payload, destinations, headers FROM queues.send_log ORDER BY id")
    assert rows == [
        (b"1", ["hub"], {"k": "v"}), (b"2", ["shop"], None), (b"3", ["shop"], {"n": "3"}),
        (b"4", ["hub", "shop"], None), (b"5", ["*"], {"n": "5"}),
    ]  # fmt: skip
    assert site.ask("SELECT count(*) FROM queues.ticket") == [1]


def test_its_refusals_are_the_same(quiet_site: Site) -> None:
    async def body(conn: Conn) -> None:
        with pytest.raises(Invalid, match="not a known site"):
            await APP.transmit(conn, b"x", ["nowhere"])
        await conn.rollback()
        with pytest.raises(Invalid, match="over 1 MiB"):
            await APP.transmit_many(conn, [bytes((1 << 20) + 1)], ["hub"])

    in_one_connection(quiet_site, body)
    assert quiet_site.ask("SELECT id FROM queues.send_log") == []


def test_s36_it_waits_for_room_without_holding_up_its_loop(site: Site) -> None:
    site.do("INSERT INTO queues.needs_snapshot (destination, client, over_cap) VALUES ('hub', 'app', true)")

    async def body(conn: Conn) -> None:
        with pytest.raises(NoRoom, match="for 0 s"):
            await APP.wait_for_room(conn, ["hub"], 0)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(APP.wait_for_room(conn, ["hub"], 60))
            await asyncio.to_thread(site.do, "DELETE FROM queues.needs_snapshot")
        assert waiting.done()
        await APP.transmit(conn, b"x", ["hub"])
        with pytest.raises(Invalid, match="a transaction is open"):
            await APP.wait_for_room(conn, ["hub"], 1)
        await conn.commit()

    in_one_connection(site, body)
    assert site.ask("SELECT payload FROM queues.send_log") == [b"x"]
