"""Kill -9 of an intake at any point: what the offsets have passed is there, and nothing that they have not."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bridge_hub import GROUP, Hub
from killed_intake import KINDS, SITES, queue

KILLED = Path(__file__).with_name("killed_intake.py")
EVERYTHING = 100_000
_COUNTED = "received - conflated - rejected - stale - applied - quarantined - discarded - joined - expired"


def stored(conn: psycopg.Connection[Any], site: str) -> dict[str, Any]:
    def found(query: str) -> list[tuple[Any, ...]]:
        return conn.execute(query.encode(), {"site": site}).fetchall()

    complete = "SELECT type, incarnation, generation FROM bridge.inbox WHERE site = %(site)s AND key = '' ORDER BY type"
    [[counted]] = found(f"SELECT coalesce(sum({_COUNTED}), 0)::int FROM bridge.counter WHERE site = %(site)s") or [[0]]
    return {
        "complete": found(complete),
        "events": [
            key for (key,) in found("SELECT key FROM bridge.inbox WHERE site = %(site)s AND key <> '' ORDER BY arrival")
        ],
        "refused": [at for (at,) in found("SELECT position FROM bridge.quarantine WHERE site = %(site)s ORDER BY position")],
        "parts": [at for (at,) in found("SELECT position FROM bridge.chunk WHERE site = %(site)s")],
        "run": [n for (n,) in found("SELECT incarnation FROM bridge.run WHERE site = %(site)s")],
        "counted": counted,
    }


def expected(following: int) -> dict[str, Any]:
    """What one intake that was never killed has when it stands there."""
    of = [[p for p in range(1, following) if p % KINDS == kind] for kind in range(KINDS)]
    began = [p for p in of[5] if p // KINDS % 4 == 0]
    newest = {"clusters": of[0] and (1, of[0][-1] // KINDS), "compliance": of[4] and (1, of[4][-1] // KINDS),
              "heartbeat": began and (began[-1], of[5][-1] // KINDS % 4)}  # fmt: skip
    complete = [(type_, *version) for type_, version in newest.items() if version]
    parts = [p for p in of[3] if p == following - 1]
    return {
        "complete": complete, "events": [f"e{p}" for p in of[1]], "refused": of[2], "parts": parts, "run": began[-1:],
        "counted": len(complete) + len(of[1]) + len(parts),
    }  # fmt: skip


def require_agreement(hub: Hub) -> dict[str, int]:
    """In one snapshot, for a commit may still be on its way."""
    with psycopg.connect(hub.dsn) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        rows = conn.execute("SELECT queue, (payload->>'next')::int FROM status.transport WHERE reader_group = %s", (GROUP,))
        offsets = dict(rows.fetchall())
        for site in SITES:
            assert stored(conn, site) == expected(offsets.get(queue(site), 1)), offsets
    return offsets


def run(hub: Hub, last: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, KILLED, hub.dsn, str(last)], stdout=subprocess.PIPE, text=True)


def kill_after(hub: Hub, batches: int, seconds: float) -> None:
    with run(hub, EVERYTHING) as process:
        assert process.stdout is not None
        for _ in range(batches):
            assert process.stdout.readline() == "took some in\n"
        threading.Event().wait(seconds)  # the point is any, so a time is as good as any other
        process.kill()


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_g7_offsets_and_inbox_agree_whenever_intake_is_killed(hub: Hub, kills: int) -> None:
    points = random.Random(7)
    stood = [0]
    for _ in range(kills):
        kill_after(hub, points.randint(1, 4), points.uniform(0, 0.05))
        stood.append(sum(require_agreement(hub).values()))
    assert stood == sorted(stood)
    assert len(set(stood)) > kills / 2, "it got on between the kills"
    with run(hub, stood[-1]) as process:
        assert process.wait(60) == 0
    assert require_agreement(hub) == {queue(site): stood[-1] + 1 for site in SITES}
