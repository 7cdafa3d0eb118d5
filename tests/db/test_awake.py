"""Work in Python inside a transaction, longer than a sleeper may be silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from trunkline.db.awake import awake
from trunkline.db.lease import connect_fenced


@pytest.fixture
def conn(make_database: Callable[..., str]) -> Iterator[psycopg.Connection[Any]]:
    with connect_fenced(make_database(), idle_in_transaction_session_timeout="1500ms") as conn:
        yield conn


def busy(pieces: int = 20) -> Iterator[int]:
    for number in range(pieces):
        time.sleep(0.1)
        yield number


def test_h01_a_transaction_lasts_as_long_as_its_work_goes_on(conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE TEMPORARY TABLE done (number int)")
    assert list(awake(conn, busy())) == list(range(20))
    conn.execute("INSERT INTO done VALUES (1)")
    conn.commit()
