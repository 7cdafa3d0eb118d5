"""Kill -9 of a process that runs routes: nothing is lost, and every route keeps its order."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from killed_route_runner import ROUTES

KILLED = Path(__file__).with_name("killed_route_runner.py")


def kill_after(dsn: str, steps: int, seconds: float) -> int:
    """The last number up to which it said that all is done."""
    with subprocess.Popen([sys.executable, KILLED, dsn], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(steps)]
        threading.Event().wait(seconds)  # the point is any, so a time is as good as any other
        process.kill()
        told += process.stdout.readlines()
    return int([line for line in told if line.endswith("\n")][-1])


@pytest.mark.timeout(300)  # eleven processes, each of which imports all plugins
@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_h33_a_kill_loses_nothing_and_every_route_keeps_its_order(make_database: Callable[..., str], kills: int) -> None:
    dsn, points, upto = make_database("routes"), random.Random(33), -1
    for _ in range(kills):
        told = kill_after(dsn, points.randint(1, 12), points.uniform(0, 0.05))
        assert told > upto, "it went on from where it was"
        upto = told
    last = (upto // 5 + 20) * 5 - 1
    subprocess.run([sys.executable, KILLED, dsn, str(last)], check=True, timeout=90, stdout=subprocess.DEVNULL)
    with psycopg.connect(dsn) as conn:
        for route in ROUTES:
            rows = conn.execute("SELECT number FROM arrived WHERE route = %s ORDER BY at", (route,)).fetchall()
            first = list(dict.fromkeys(number for (number,) in rows))
            assert first == [n for n in range(last + 1) if route != "strict" or n % 7], route
        letters = conn.execute("SELECT content ->> 'payload' FROM routes.dead_letter WHERE route = 'strict'").fetchall()
        assert {int(number) for (number,) in letters} == set(range(0, last + 1, 7))
