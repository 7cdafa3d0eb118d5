"""The example of a site that reports its status: what it says, what it sends, and that it answers the hub."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg

from filled_queues import do
from trunkline.bridge.askers import KIND, Request
from trunkline.bridge.shipped import SHIPPED
from trunkline.core.bundle import parse_bundle
from trunkline.core.jsoncodec import loads
from trunkline.queues.feed import feed
from trunkline.queues.registry import remember_site
from waiting import eventually

PROGRAM = Path(__file__).parents[2] / "examples" / "status_reporter.py"
SENT = "SELECT headers, payload FROM queues.send_log ORDER BY id"


def words(dsn: str, *more: str) -> list[str]:
    return [sys.executable, str(PROGRAM), "--dsn", dsn, "--site", "berlin", "--hub", "hub", *more]


def test_each_change_is_reported_once_and_a_request_is_answered_with_all_there_is(make_database: Callable[..., str]) -> None:
    dsn = make_database("queues", "bridge")
    with psycopg.connect(dsn) as conn:
        remember_site(conn, "hub")
    done = subprocess.run(words(dsn, "--changes", "8"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    first, *said = done.stdout.splitlines()
    assert first.startswith("berlin reports to hub, incarnation ")
    assert len(said) == 8
    sent = [SHIPPED.accept(parse_bundle(headers, payload, "berlin")) for headers, payload in do(dsn, SENT)]
    assert len(sent) == sum("reported as" in line for line in said) < 8
    held = {row["name"]: row["health"] for row in loads(sent[-1].data)}
    assert held == dict(do(dsn, "SELECT name, health FROM my_cluster"))
    with subprocess.Popen(words(dsn, "--changes", "0", "--seconds", "60"), stdout=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: len(do(dsn, SENT)) == len(sent) + 1)  # all there is, for it has begun anew
            with psycopg.connect(dsn) as conn:
                feed(conn, "status-control", {"hub": [(KIND, Request("berlin", ("clusters",)).encode())]})
            eventually(lambda: len(do(dsn, SENT)) == len(sent) + 2)
        finally:
            process.kill()
