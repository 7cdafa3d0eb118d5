"""Kill -9 of a process that writes routes: what it was told is there, and of a change everything or nothing."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from killed_route_writer import SHARED, hash_of, own, standing

from trunkline.routes.storage.base import Scan
from trunkline.routes.storage.postgres import PostgresStorage

KILLED = Path(__file__).with_name("killed_route_writer.py")


def kill_after(dsn: str, steps: int, seconds: float) -> tuple[int, int]:
    """The last step that it was told of, and its revision."""
    with subprocess.Popen([sys.executable, KILLED, dsn], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(steps)]
        threading.Event().wait(seconds)  # the point is any, so a time is as good as any other
        process.kill()
        told += process.stdout.readlines()
    whole = [line for line in told if line.endswith("\n")]
    step, revision = whole[-1].split()
    return int(step), int(revision)


async def scanned(dsn: str) -> Scan:
    """After whatever the killed one had sent is done or gone."""
    with psycopg.connect(dsn) as conn:
        conn.execute("SELECT FROM routes.counter FOR UPDATE")
    storage = PostgresStorage(dsn)
    await storage.open()
    scan = await storage.scan()
    await storage.close()
    return scan


def require_whole(dsn: str, scan: Scan, step: int) -> None:
    assert {line.key: line.hash for line in scan.routes} == dict.fromkeys([*SHARED, own(step)], hash_of(step))
    assert {line.revision for line in scan.routes} == {scan.revision}
    assert set(scan.removed) == {own(n) for n in range(max(1, step - 4), step)}
    assert scan.removed.get(own(step - 1), scan.revision) == scan.revision
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT hash, body ->> 'step' FROM routes.config").fetchall() == [(hash_of(step), str(step))]


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
async def test_rule_s5_what_was_acknowledged_survives_the_process(make_database: Callable[..., str], kills: int) -> None:
    dsn, points = make_database("routes"), random.Random(5)
    for _ in range(kills):
        step, revision = kill_after(dsn, points.randint(1, 4), points.uniform(0, 0.03))
        scan = await scanned(dsn)
        stands = standing(scan)
        assert (stands, scan.revision) in [(step, revision), (step + 1, revision + 1)]
        require_whole(dsn, scan, stands)
