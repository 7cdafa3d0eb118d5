"""The pipeline as a process: it says when it is ready, stops when told, and loses nothing when it is killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import yaml

from fleet_feed import Feed, Model, clusters, history, queue_of, status_of, waiting_in
from spark_jvm import kill_jvm
from trunkline.core.config import ProcessConfig
from trunkline.core.errors import Invalid
from trunkline.core.secret import ConnectionString
from trunkline.pipeline.run import run_pipeline
from waiting import eventually

MAIN = """
import pathlib, sys
from trunkline.core.config import load_config
from trunkline.pipeline.run import run_pipeline
sys.exit(run_pipeline(load_config(pathlib.Path(sys.argv[1])), fast_start=True))
"""


class Pipeline:
    def __init__(self, folder: Path, dsn: str, bridge: bool = True) -> None:
        self.folder = folder
        self.runtime = folder / "run"
        folder.mkdir(exist_ok=True)
        config = {
            "site": "hub",
            "database": dsn,
            "runtime": str(self.runtime),
            **({"bridge": {"trigger_seconds": 0.1, "workers": 2}} if bridge else {}),
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        self._log = (folder / "log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._start("-c", MAIN, str(self.folder / "config.yaml"))

    def start_by_command(self, *options: str) -> None:
        words = ("pipeline", "run", "--fast-start", "--config", str(self.folder / "config.yaml"))
        self._start("-m", "trunkline.cli.main", *words, *options)

    def _start(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=self.folder
        )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log()
        return (self.runtime / "pipeline.ready").exists()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)

    def close(self) -> None:
        self.kill()
        self._log.close()


@pytest.fixture
def pipeline(dsn: str, tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    made: list[Pipeline] = []

    def make(name: str, bridge: bool = True) -> Pipeline:
        made.append(Pipeline(tmp_path / name, dsn, bridge))
        return made[-1]

    yield make
    for one in made:
        one.close()


def passed(dsn: str) -> int:
    """How many messages the stored offsets have passed."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT coalesce(sum((payload->>'next')::bigint - 1), 0) FROM status.transport").fetchone()
        assert row is not None
        return int(row[0])


def throw_everybody_out(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_a_site_without_a_bridge_that_shall_run_nothing_else_is_told_so(dsn: str) -> None:
    with pytest.raises(Invalid, match="no bridge"):
        run_pipeline(ProcessConfig(site="a", database=ConnectionString.plain(dsn)), routes=False)


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_site_without_a_bridge_runs_its_routes_on_the_master_that_the_command_names(
    pipeline: Callable[..., Pipeline], dsn: str
) -> None:
    one = pipeline("one", bridge=False)
    one.start_by_command("--master", "local[1]")
    eventually(one.is_ready, 120, one.log)
    assert json.loads((one.runtime / "pipeline.ready").read_text())["master"] == "local[1]"
    eventually(lambda: "routes run" in one.log(), 60, one.log)
    with psycopg.connect(dsn) as conn:
        [(kind, runs)] = conn.execute("SELECT kind, runs FROM site.instance").fetchall()
    assert kind == "pipeline"
    assert {"kafka", "queue"} <= set(runs)
    kill_jvm(one.process.pid)
    assert one.process.wait(60) == 2
    assert "Spark: its JVM has ended with -9" in one.log()
    assert "bridge starts" not in one.log()


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_told_to_stop_it_drains_ends_with_0_and_leaves_nothing(pipeline: Callable[..., Pipeline], feed: Feed, dsn: str) -> None:
    one = pipeline("one")
    one.start()
    eventually(one.is_ready, 120, one.log)
    ready = json.loads((one.runtime / "pipeline.ready").read_text())
    assert ready["pid"] == one.process.pid
    assert ready["filesystem"]
    feed.put("a", clusters("a", 1, "c"))
    eventually(lambda: status_of(dsn)["cluster"] == {("a", "c", 1)}, 90, one.log)
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(60) == 0
    assert list(one.runtime.iterdir()) == []
    assert sorted(f.name for f in one.folder.iterdir()) == ["config.yaml", "log", "run"]
    said = [json.loads(line)["event"] for line in one.log().splitlines()]
    assert "routes run" in said
    assert [word for word in said if word.split()[0] != "routes"] == [
        "pipeline ready", "bridge starts", "bridge stopped", "pipeline stopped",
    ]  # fmt: skip
    with psycopg.connect(dsn) as conn:
        [(free,)] = conn.execute("SELECT expires_at < now() FROM site.lease WHERE name = 'bridge'").fetchall()
    assert free


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_standby_takes_over_after_a_kill_and_goes_on_after_the_database_failed(
    pipeline: Callable[..., Pipeline], feed: Feed, dsn: str
) -> None:
    one, two = pipeline("one"), pipeline("two")
    one.start()
    eventually(one.is_ready, 120, one.log)
    feed.put("a", clusters("a", 1, "c"))
    eventually(lambda: status_of(dsn)["cluster"] == {("a", "c", 1)}, 90, one.log)
    two.start()
    eventually(two.is_ready, 120, two.log)
    assert "bridge starts" not in two.log()
    one.kill()
    feed.put("a", clusters("a", 2, "c"))
    eventually(lambda: status_of(dsn)["cluster"] == {("a", "c", 2)}, 60, two.log)
    throw_everybody_out(dsn)
    feed.put("a", clusters("a", 3, "c"))
    eventually(lambda: status_of(dsn)["cluster"] == {("a", "c", 3)}, 60, two.log)


@pytest.mark.spark
@pytest.mark.timeout(360)  # five starts of a driver
def test_g1_killed_at_random_points_it_ends_where_one_message_after_the_other_would(
    pipeline: Callable[..., Pipeline], feed: Feed, dsn: str
) -> None:
    """A kill comes when the offsets pass a drawn message; what the process does at that moment is its own affair."""
    rng = random.Random()
    model = Model()
    sites = ("a", "b", "c")
    story = {site: list(history(site, rng, 60)) for site in sites}
    for site in sites:
        model.take(site, story[site])
    total = sum(map(len, story.values()))
    one = pipeline("one")
    sent = dict.fromkeys(sites, 0)

    def send(share: float) -> None:
        for site in sites:
            upto = round(len(story[site]) * share)
            feed.put(site, *story[site][sent[site] : upto])
            sent[site] = upto

    for kill in range(1, 5):
        one.start()
        eventually(one.is_ready, 120, one.log)
        before = passed(dsn)
        send((kill - 0.5) / 5)
        target = rng.randint(before, sum(sent.values()))
        send(kill / 5)
        eventually(lambda: passed(dsn) >= target, 60, one.log)  # noqa: B023
        one.kill()
    one.start()
    send(1.0)
    eventually(lambda: passed(dsn) == total and waiting_in(dsn) == 0, 120, one.log)
    assert status_of(dsn) == model.status()
    assert {queue_of(s): len(story[s]) + 1 for s in sites} == _offsets(dsn)


def _offsets(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as conn:
        return dict(conn.execute("SELECT queue, (payload->>'next')::bigint FROM status.transport").fetchall())
