"""The programs of the folder `examples`, run as their page says, on real databases; what is between the sites is done here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from filled_queues import do
from trunkline.core.ids import Position
from trunkline.db.lease import Grant, acquire, connect_fenced
from trunkline.db.pool import open_pool
from trunkline.queues.log import PostgresLog
from trunkline.queues.messages import RECORDS
from trunkline.queues.receive import PostgresSink
from trunkline.queues.registry import remember_site
from trunkline.queues.requests import ask
from trunkline.queues.stamper import Stamper, random_mark
from waiting import eventually

ROOT = Path(__file__).parents[2]
LOG_ID = "6f9d3a52-5d0c-4b5b-9d0e-1f0c6d1d5a11"


def words_of(program: str, dsn: str) -> list[str]:
    """As the page has them."""
    page = (ROOT / "docs" / "how-to" / "queue-examples.md").read_text()
    (line,) = re.findall(rf"^python examples/{program}.py.*$", page, re.M)
    words = line.replace('"$DATABASE_URL"', "DSN").split()
    return [sys.executable, str(ROOT / words[1]), *(dsn if word == "DSN" else word for word in words[2:])]


def run(program: str, dsn: str) -> list[str]:
    done = subprocess.run(words_of(program, dsn), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def shop(make_database: Callable[..., str]) -> str:
    dsn = make_database("queues")
    with psycopg.connect(dsn) as conn:
        remember_site(conn, "berlin")
    return dsn


def granted(dsn: str) -> Grant:
    with psycopg.connect(dsn) as conn:
        grant = acquire(conn, "leader", 60)
    assert grant is not None
    return grant


@contextmanager
def stamping(dsn: str) -> Iterator[Stamper]:
    with closing(connect_fenced(dsn)) as conn:
        yield Stamper(conn, granted(dsn), random_mark)


def carry(source: str, destination: str) -> None:
    with stamping(source) as stamper:
        stamper.round()
    with closing(open_pool(source, 2, "test")) as from_, closing(open_pool(destination, 2, "test")) as to:
        entries = PostgresLog(from_).read(0, 1000, {"berlin"}).entries
        sink = PostgresSink(to, granted(destination))
        sink.append("shop", LOG_ID, [], Position(0, 0), ["orders"])
        sink.use_log("shop", "orders", LOG_ID, Position(0, 0))
        sink.applied("shop")
        sink.append("shop", LOG_ID, entries, Position(entries[-1].seq, 1), ["orders"])


def test_orders_are_rows_and_messages_or_neither(shop: str) -> None:
    assert run("orders", shop) == [
        "one order was refused, and nobody hears of it",
        "5 orders placed and paid; 10 messages for berlin",
    ]
    assert do(shop, "SELECT id, state FROM shop_order ORDER BY id") == [(n, "paid") for n in range(1, 6)]
    sent = [json.loads(payload) for (payload,) in do(shop, "SELECT payload FROM queues.send_log ORDER BY id")]
    assert [(order["id"], order["state"]) for order in sent] == [(n, s) for n in range(1, 6) for s in ("placed", "paid")]


def test_the_listener_counts_each_message_once(shop: str, make_database: Callable[..., str]) -> None:
    berlin = make_database("queues")
    run("orders", shop)
    carry(shop, berlin)
    said = run("listener", berlin)
    assert said[0] == "there are orders from shop"
    assert said[-1] == "the ledger has 5 orders"
    rows = do(berlin, "SELECT shop, id, state, changes FROM ledger ORDER BY id")
    assert rows == [("shop", n, "paid", 2) for n in range(1, 6)]
    again = [*words_of("listener", berlin), "--seconds", "1"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1  # nothing came: what was taken is not taken again
    assert do(berlin, "SELECT shop, id, state, changes FROM ledger ORDER BY id") == rows


def test_the_provider_gives_its_table_as_it_was_at_the_base(shop: str) -> None:
    run("orders", shop)
    with psycopg.connect(shop) as conn:
        request = ask(conn, "orders", ["berlin"], "first")
    with stamping(shop) as stamper, closing(stamper.export([request]).holder):
        do(shop, "UPDATE shop_order SET state = 'lost'")  # after the base
        assert run("snapshot_provider", shop) == ["provided 5 orders for berlin (first)", "done"]
    eventually(lambda: do(shop, "SELECT state, base FROM queues.request") == [("complete", 10)])
    records: list[Any] = []
    for (body,) in do(shop, "SELECT body FROM queues.send_snapshot ORDER BY chunk"):
        records += RECORDS.decode(body)
    assert [json.loads(payload) for _, payload in records] == [
        {"id": n, "item": f"item {n}", "state": "paid"} for n in range(1, 6)
    ]


@pytest.mark.timeout(240)
def test_the_tour_brings_all_orders_to_the_other_site_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run([sys.executable, str(ROOT / "examples" / "tour.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "provided 5 orders for berlin (first)",
        "provided 5 orders for berlin (forced)",
        "the snapshot from shop is complete; 0 orders are gone",
        "all is well: 22 rules hold",
        "shop has 10 orders, and so has the ledger in berlin: 10",
    ):
        assert line in done.stdout.splitlines(), done.stdout
    assert list(tmp_path.iterdir()) == []
