"""The same intake and the same waves on a standalone Spark cluster of two workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet_feed import Feed, clusters, events, status_of, waiting_in
from spark_cluster import spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]  # six JVMs start, on two cores
HELPERS = Path(__file__).parent


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with spark_cluster(tmp_path) as address:
        yield address


def test_intake_and_a_wave_run_on_two_workers(master: str, make_database: Callable[..., str], tmp_path: Path) -> None:
    dsn = make_database("queues", "bridge", "pipeline")
    feed = Feed(dsn)
    for site in ("a", "b"):
        feed.put(site, clusters(site, 1, "old"), clusters(site, 2, "new"), events(site, 1, f"e-{site}"))
    done = subprocess.run(
        [sys.executable, str(HELPERS / "cluster_driver.py"), master, dsn, str(tmp_path / "driver")],
        env={**os.environ, "PYTHONPATH": f"{HELPERS}{os.pathsep}{HELPERS.parent}"},
        capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "cores": 2,
        "waited": 4,
        "outcomes": [["a", "applied"], ["a", "applied"], ["b", "applied"], ["b", "applied"]],
        "elsewhere": True,
    }
    assert status_of(dsn)["cluster"] == {("a", "new", 2), ("b", "new", 2)}
    assert status_of(dsn)["event"] == {("a", "e-a"), ("b", "e-b")}
    assert waiting_in(dsn) == 0
