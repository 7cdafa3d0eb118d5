"""The postgres sender: a row for each message, as its table wants it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
import pytest

from cut_wire import Wire, wired
from route_place import AROUND, SENT, event, place_at
from route_sender_suite import SenderEnd, SenderSuite
from trunkline.core.errors import Invalid
from trunkline.routes.ends import Sendable, Sending
from trunkline.routes.senders.postgres import POSTGRES, PostgresSenderConfig, Row, compile_row

_EMPTY = """
DROP TABLE IF EXISTS got, public.trunkline_sent, thing;
CREATE TABLE got (at bigint GENERATED ALWAYS AS IDENTITY, n int NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED, id text);
CREATE TABLE thing (
    id text PRIMARY KEY, kind text DEFAULT 'none', level int CHECK (level < 100), tags text[], body jsonb, at timestamptz
);
TRUNCATE routes.sent;
"""


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    dsn = make_databases("routes")
    with psycopg.connect(dsn) as conn:
        conn.execute(SENT)
    return dsn


class ToTable(SenderEnd):
    plugin = POSTGRES
    wire: Wire
    direct: str

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.direct) as conn:
            return conn.execute(query.encode()).fetchall()

    def do(self, statement: str) -> None:
        with psycopg.connect(self.direct) as conn:
            conn.execute(statement.encode())

    def bad(self) -> Sendable:
        return Sendable("bad", Row(("id", "n"), '{"id":"bad","n":"many"}'))

    async def arrived(self) -> list[int]:
        return [n for (n,) in self.ask("SELECT n FROM got ORDER BY at")]

    async def ids(self) -> list[str]:
        return [id for (id,) in self.ask("SELECT id FROM got ORDER BY at")]

    async def lose(self) -> None:
        await self.wire.cut()

    async def mend(self) -> None:
        await self.wire.mend()


@asynccontextmanager
async def to_table(database: str, own: bool = False) -> AsyncIterator[ToTable]:
    with psycopg.connect(database) as conn:
        conn.execute(_EMPTY.encode())
        host, port = conn.info.host, conn.info.port
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(wired(host, port))
        near = psycopg.conninfo.make_conninfo(database, host="127.0.0.1", port=wire.port)
        place = await stack.enter_async_context(place_at(near))
        columns = {"n": "{payload.n}", "id": "id-{payload.n}"}
        end = ToTable(place, {"table": "public.got", "columns": columns} | ({"database": near} if own else {}))
        end.wire, end.direct = wire, database
        yield end


@pytest.fixture
async def end(database: str) -> AsyncIterator[ToTable]:
    async with to_table(database) as end:
        yield end


@pytest.fixture
async def things(database: str) -> AsyncIterator[ToTable]:
    async with to_table(database) as end:
        end.config = {"table": "thing", "key": ["id"]}
        yield end


class TestPostgresSender(SenderSuite):
    pass


class TestPostgresSenderToADatabaseOfItsOwn(SenderSuite):
    @pytest.fixture
    async def end(self, database: str) -> AsyncIterator[ToTable]:
        async with to_table(database, own=True) as end:
            yield end


def rows(end: ToTable, *payloads: Any) -> list[Sendable]:
    message = compile_row(end.model, AROUND)
    return [Sendable(f"id-{n}", message(event(payload))) for n, payload in enumerate(payloads)]


async def ask(sending: Sending, end: ToTable, *payloads: Any) -> list[bool]:
    answers = await sending.send(rows(end, *payloads))
    assert not any(answer.again for answer in answers if answer)
    return [answer is None for answer in answers]


async def test_values_get_the_types_of_their_columns_and_missing_ones_the_default(things: ToTable) -> None:
    sending = await things.open()
    full = {
        "id": "a",
        "kind": "alarm",
        "level": 3,
        "tags": ["x", "y z"],
        "body": {"k": [1, None]},
        "at": "2026-01-02T03:04:05Z",
    }
    assert await ask(sending, things, full, {"id": "b"}, {"id": "c", "kind": None, "body": "text"}) == [True] * 3
    found = things.ask("SELECT id, kind, level, tags, body, extract(epoch FROM at)::int FROM thing ORDER BY id")
    assert found == [
        ("a", "alarm", 3, ["x", "y z"], {"k": [1, None]}, 1767323045),
        ("b", "none", None, None, None, None),
        ("c", None, None, None, "text", None),
    ]


async def test_with_a_key_the_last_of_a_call_and_of_all_calls_wins(things: ToTable) -> None:
    sending = await things.open()
    assert await ask(sending, things, {"id": "a", "level": 1}, {"id": "b", "level": 2}, {"id": "a", "level": 3}) == [True] * 3
    assert await ask(sending, things, {"id": "b", "level": 4}, {"id": "b", "kind": "k"}, {"id": "c"}, {"id": "c"}) == [True] * 4
    assert things.ask("SELECT id, level, kind FROM thing ORDER BY id") == [("a", 3, "none"), ("b", 4, "k"), ("c", None, "none")]


async def test_keys_that_only_the_database_finds_equal_are_written_one_after_the_other(things: ToTable) -> None:
    things.do("DROP TABLE thing; CREATE TABLE thing (id timestamptz PRIMARY KEY, level int)")
    sending = await things.open()
    same = [{"id": "2026-01-01T00:00:00Z", "level": 1}, {"id": "2026-01-01T01:00:00+01", "level": 2}]
    assert await ask(sending, things, *same) == [True, True]
    assert things.ask("SELECT level FROM thing") == [(2,)]


@pytest.mark.parametrize(
    "wrong",
    [{"id": "x", "strange": 1}, {"id": "x", "level": "high"}, {"id": "x", "level": 100}, {"id": "x", "kind": "a\0b"}],
)
async def test_a_row_that_the_table_does_not_take_is_refused_alone(things: ToTable, wrong: Any) -> None:
    sending = await things.open()
    assert await ask(sending, things, {"id": "a"}, {"id": "b"}, wrong, {"id": "c"}) == [True, True, False, True]
    assert things.ask("SELECT id FROM thing ORDER BY id") == [("a",), ("b",), ("c",)]


async def test_what_only_the_commit_refuses_is_refused_alone(end: ToTable) -> None:
    sending = await end.open()
    answers = await sending.send([end.sendable(1), end.sendable(2), end.sendable(1), end.sendable(3)])
    assert [answer is None for answer in answers] == [True, True, False, True]


async def test_without_the_table_all_are_refused_with_the_reason(things: ToTable) -> None:
    things.do("DROP TABLE thing")
    answers = await (await things.open()).send(rows(things, {"id": "a"}, {"id": "b"}))
    assert [(answer.again, 'relation "thing" does not exist' in answer.reason) for answer in answers if answer] == [
        (False, True)
    ] * 2


@pytest.mark.parametrize("own", [False, True])
async def test_n5_what_is_sent_once_is_there_once(database: str, own: bool) -> None:
    async with to_table(database, own) as end:
        sending = await end.open()
        assert await sending.send([end.sendable(1, once=True), end.sendable(2, once=True)]) == [None, None]
        assert await sending.send([end.sendable(1, once=True), end.sendable(3, once=True)]) == [None, None]
        await sending.close()
        assert await end.arrived() == [1, 2, 3]
        table = "public.trunkline_sent" if own else "routes.sent"
        assert end.ask(f"SELECT message_id FROM {table} ORDER BY 1") == [("id-1",), ("id-2",), ("id-3",)]


async def test_a_database_that_takes_no_table_of_ids_says_what_to_make(database: str) -> None:
    async with to_table(database, own=True) as end:
        end.do("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN; GRANT INSERT ON got TO guest")
        try:
            end.config["database"] = psycopg.conninfo.make_conninfo(end.config["database"], options="-c role=guest")
            sending = await end.open()
            answers = await sending.send([end.sendable(1, once=True), end.sendable(2)])
            await sending.close()
            assert answers[1] is None
            assert answers[0] is not None
            assert 'CREATE TABLE IF NOT EXISTS "public"."trunkline_sent"' in answers[0].reason
        finally:
            end.do("DROP OWNED BY guest; DROP ROLE guest")


async def test_no_answer_holds_the_password(database: str) -> None:
    async with place_at() as place:
        config = {"table": "t", "database": "host=127.0.0.1 port=1 dbname=x user=y password=hunter2 connect_timeout=1"}
        end = ToTable(place, config)
        sending = await end.open()
        [answer] = await sending.send([Sendable("1", Row(("n",), "{}"))])
        await sending.close()
        assert answer is not None
        assert answer.again
        assert "hunter2" not in answer.reason


@pytest.mark.parametrize(
    ("payload", "why"),
    [(None, "not a map"), ([1], "not a map"), ({}, "not a map"), ({"a": 1}, "id has no value"), ({"id": 1, "": 2}, "no name")],
)
def test_an_event_that_is_no_row_is_refused_before_it_is_sent(payload: Any, why: str) -> None:
    message = compile_row(PostgresSenderConfig(table="t", key=("id",)), AROUND)
    with pytest.raises(Invalid, match=why):
        message(event(payload))
