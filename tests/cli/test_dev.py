"""`trunkline dev` as a person uses it: services that run on after the command, and that leave nothing when told to go."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

from trunkline.cli.dev.command import app
from trunkline.cli.dev.identity import Process
from trunkline.cli.dev.record import Record, State, judge
from trunkline.core.errors import Invalid
from waiting import eventually

OWN = Process(1, 2, "boot")


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def document(*words: str | Path) -> dict[str, Any]:
    """The services of the answer by name."""
    return {service["name"]: service for service in json.loads(run(*words, "--json").stdout)["services"]}


def processes_of(folder: Path) -> list[str]:
    """Every process that names the folder in its command."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode() if entry.name.isdigit() else ""
        except OSError:
            continue
        if str(folder) in words:
            found.append(words)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "services"
    yield folder
    run("down", "--folder", folder)
    assert processes_of(folder) == []


def test_all_three_come_up_are_used_and_go_without_a_trace(folder: Path) -> None:
    brought = run("up", "--folder", folder)
    assert brought.exit_code == 0, brought.output
    exports = dict(shlex.split(line)[1].split("=", 1) for line in brought.stdout.splitlines())

    admin = AdminClient({"bootstrap.servers": exports["KAFKA_BOOTSTRAP"], "log_level": 0})
    assert len(admin.list_topics(timeout=10).brokers) == 1
    del admin
    with redis.Redis.from_url(exports["REDIS_URL"]) as client:
        assert client.ping()
    with psycopg.connect(exports["DATABASE_URL"]) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)

    assert {name: s["state"] for name, s in document("status", "--folder", folder).items()} == dict.fromkeys(
        ("kafka", "redis", "postgres"), "running"
    )
    again = run("up", "--folder", folder)
    assert (again.exit_code, again.stdout) == (0, brought.stdout)
    assert again.stderr.count("running already") == 3

    gone = run("down", "--folder", folder)
    assert (gone.exit_code, gone.stdout.count("nothing is left")) == (0, 3)
    assert not folder.exists()
    assert processes_of(folder) == []


class TestUp:
    def test_the_lines_on_standard_output_are_for_a_shell(self, folder: Path) -> None:
        script = f'eval "$({sys.executable} -m trunkline.cli.dev.command up redis --folder {folder})"; echo "$REDIS_URL"'
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        with redis.Redis.from_url(done.stdout.strip()) as client:
            assert client.ping()

    def test_git_sees_nothing_of_it(self, folder: Path) -> None:
        subprocess.run(["git", "init", "-q", str(folder.parent)], check=True)
        run("up", "redis", "--folder", folder)
        seen = subprocess.run(["git", "-C", str(folder.parent), "status", "--porcelain"], capture_output=True, check=True)
        assert seen.stdout == b""

    def test_one_that_cannot_start_shows_the_end_of_its_log_and_is_not_left_running(self, folder: Path) -> None:
        run("up", "redis", "--folder", folder)
        run("down", "--keep", "--folder", folder)
        (folder / "redis" / "appendonly.aof").write_text("this is no log of commands")
        failed = run("up", "redis", "--folder", folder)
        assert failed.exit_code == 1
        assert "Bad file format reading the append only file" in failed.stderr
        assert f"the whole log: {folder / 'redis' / 'server.log'}" in failed.stderr
        assert processes_of(folder) == []
        told = document("status", "--folder", folder)["redis"]
        assert told["state"] == "failed"
        assert "Bad file format" in told["reason"]

    def test_a_folder_that_is_somebody_elses_is_refused_and_stays(self, folder: Path) -> None:
        (folder / "redis").mkdir(parents=True)
        (folder / "redis" / "thesis.txt").write_text("precious")
        with pytest.raises(Invalid, match="did not make it"):
            run("up", "redis", "--folder", folder)
        run("down", "--folder", folder)
        assert (folder / "redis" / "thesis.txt").read_text() == "precious"

    @pytest.mark.parametrize("word", [signal.SIGINT, signal.SIGTERM])
    def test_cut_short_it_takes_back_what_it_began_and_nothing_else(self, folder: Path, word: signal.Signals) -> None:
        before = document("up", "redis", "--folder", folder)["redis"]["pid"]
        words = [sys.executable, "-m", "trunkline.cli.dev.command", "up", "--folder", str(folder)]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
            eventually(lambda: (folder / "kafka" / "server.properties").exists(), 30)
            command.send_signal(word)
        assert command.returncode != 0
        assert not (folder / "kafka").exists()
        assert not (folder / "postgres").exists()
        assert all("redis" in words for words in processes_of(folder))
        assert document("status", "--folder", folder)["redis"]["pid"] == before

    def test_a_keeper_that_does_not_come_to_life_is_a_failure_with_its_log(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (folder.parent / "msgspec.py").write_text("raise ImportError('a broken installation')")
        monkeypatch.setenv("PYTHONPATH", str(folder.parent))
        failed = run("up", "redis", "--folder", folder)
        assert failed.exit_code == 1
        assert "its keeper did not come to life" in failed.stderr
        assert "a broken installation" in failed.stderr
        monkeypatch.undo()
        assert run("up", "redis", "--folder", folder).exit_code == 0

    def test_of_two_commands_at_once_both_find_it_running(self, folder: Path) -> None:
        words = [sys.executable, "-m", "trunkline.cli.dev.command", "up", "redis", "--json", "--folder", str(folder)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as one, subprocess.Popen(words, stdout=subprocess.PIPE) as other:
            told = [json.loads(command.communicate()[0])["services"][0] for command in (one, other)]
        assert [one.returncode, other.returncode] == [0, 0]
        assert told[0]["pid"] == told[1]["pid"]
        assert sorted(service["news"] for service in told) == [False, True]

    def test_an_unknown_service_is_refused(self) -> None:
        with pytest.raises(Invalid, match="write one of: kafka, redis, postgres"):
            run("up", "rabbit")


class TestDown:
    def test_what_is_kept_is_there_at_the_same_address_next_time(self, folder: Path) -> None:
        url = document("up", "redis", "--folder", folder)["redis"]["address"]
        with redis.Redis.from_url(url) as client:
            client.set("colour", "blue")
        run("down", "--keep", "--folder", folder)
        assert processes_of(folder) == []
        assert document("status", "--folder", folder)["redis"]["state"] == "stopped"
        assert document("up", "redis", "--folder", folder)["redis"]["address"] == url
        with redis.Redis.from_url(url) as client:
            assert client.get("colour") == b"blue"

    def test_where_nothing_runs_it_says_so(self, folder: Path) -> None:
        done = run("down", "--folder", folder)
        assert (done.exit_code, done.stdout) == (0, f"nothing to stop in {folder}\n")

    def test_a_process_that_was_given_the_pid_of_a_dead_keeper_is_left_alone(self, folder: Path) -> None:
        (folder / "redis").mkdir(parents=True)
        own = Process.of(os.getpid())
        assert own is not None
        Record(State.RUNNING, Process(own.pid, own.born - 1, own.boot)).write(folder / "redis")
        assert document("status", "--folder", folder)["redis"]["state"] == "dead"
        assert run("down", "--folder", folder).exit_code == 0
        assert not (folder / "redis").exists()


class TestStatus:
    def test_a_server_that_was_killed_is_dead_with_its_reason_and_comes_up_again(self, folder: Path) -> None:
        os.kill(document("up", "redis", "--folder", folder)["redis"]["pid"], signal.SIGKILL)
        eventually(lambda: document("status", "--folder", folder)["redis"]["state"] == "dead", 20)
        shown = run("status", "--folder", folder)
        assert shown.exit_code == 1
        assert "it ended by itself" in " ".join(shown.stdout.replace("│", " ").split())
        assert document("up", "redis", "--folder", folder)["redis"]["state"] == "running"

    def test_with_its_keeper_a_server_dies_and_that_is_noticed(self, folder: Path) -> None:
        run("up", "redis", "--folder", folder)
        record = Record.read(folder / "redis")
        assert record is not None
        os.kill(record.keeper.pid, signal.SIGKILL)
        eventually(lambda: record.server is not None and not record.server.alive(), 20)
        told = document("status", "--folder", folder)["redis"]
        assert (told["state"], told["pid"]) == ("dead", None)
        assert str(record.keeper.pid) in told["reason"]

    def test_one_that_was_never_brought_up_matters_only_when_asked_for(self, folder: Path) -> None:
        run("up", "redis", "--folder", folder)
        assert run("status", "--folder", folder).exit_code == 0
        assert run("status", "redis", "postgres", "--folder", folder).exit_code == 1

    @pytest.mark.parametrize(
        ("written", "lives", "answers", "now"),
        [
            (State.STARTING, True, False, State.STARTING),
            (State.RUNNING, True, True, State.RUNNING),
            (State.RUNNING, True, False, State.SILENT),
            (State.RUNNING, False, True, State.DEAD),
            (State.STARTING, False, False, State.DEAD),
            (State.FAILED, False, False, State.FAILED),
            (State.STOPPED, False, False, State.STOPPED),
        ],
    )
    def test_what_a_record_means(self, written: State, lives: bool, answers: bool, now: State) -> None:
        assert judge(Record(written, OWN), lives, answers)[0] is now
