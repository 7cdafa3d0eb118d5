"""Route jobs on a standalone Spark cluster of two workers, on which Trunkline is not installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from pipeline_process import Flow, PipelineProcess

from kafka_topics import Topics
from route_jobs import PARTS
from spark_cluster import DRIVER_SETTINGS, python_without_trunkline, spark_cluster
from trunkline.core.jsoncodec import loads
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # six JVMs start, on two cores
HELPERS = Path(__file__).parent


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def test_the_executors_python_has_no_trunkline(tmp_path: Path) -> None:
    python = python_without_trunkline(tmp_path / "python")
    found = subprocess.run(
        [python, "-c", "import pyspark, msgspec, trunkline"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert found.stderr.splitlines()[-1:] == ["ModuleNotFoundError: No module named 'trunkline'"]


def test_routes_run_on_two_workers_that_get_the_package_from_the_driver(
    master: str, make_database: Callable[..., str], topics: Topics, tmp_path: Path
) -> None:
    dsn = make_database(*PARTS)
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE public.taken (n bigint NOT NULL)")
    topics.create("in", partitions=2)
    topics.create("alarms", "doubled")
    python = python_without_trunkline(tmp_path / "python")
    done = subprocess.run(
        [sys.executable, HELPERS / "jobs_cluster_driver.py", master, python, dsn, tmp_path / "driver", topics.bootstrap,
         topics.prefix],
        env={**os.environ, "PYTHONPATH": f"{HELPERS}{os.pathsep}{HELPERS.parent}"},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    records = seen["records"]
    assert seen["cores"] == 2
    assert len(seen["tasks"]) == 2
    assert min(seen["tasks"]) > 0
    assert seen["sent"] == {"alarms": records // 3, "doubled": records, "rows": records}, done.stderr
    assert all(".zip/trunkline/" in file for file in seen["imported_from"])
    assert sorted(loads(value)["n"] for value in topics.values("alarms")) == list(range(0, records, 3))
    assert sorted(loads(value)["n"] for value in topics.values("doubled")) == list(range(0, 2 * records, 2))
    with psycopg.connect(dsn) as conn:
        assert [n for (n,) in conn.execute("SELECT n FROM public.taken ORDER BY n")] == list(range(records))


def test_the_command_runs_routes_on_a_cluster_and_lets_it_go(master: str, site: str, topics: Topics, tmp_path: Path) -> None:
    flow = Flow(site, topics)
    settings = {**DRIVER_SETTINGS, "spark.pyspark.python": str(python_without_trunkline(tmp_path / "python"))}
    with closing(PipelineProcess(tmp_path / "one", site, settings=settings, few_events=0)) as one:
        one.start("--master", master)
        eventually(one.is_ready, 120, one.log)
        assert json.loads((one.runtime / "pipeline.ready").read_text())["master"] == master
        flow.send(100)
        eventually(flow.is_done, 90, one.log)
        flow.require_end()
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(60) == 0
