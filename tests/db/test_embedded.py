"""Our own PostgreSQL: started, copied, stopped, killed, and clear about what is wrong."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from trunkline.core.errors import Terminal
from trunkline.db import embedded
from trunkline.db.embedded import EmbeddedPostgres
from waiting import eventually

FAST = {"fsync": "off"}
FREE_PORT = embedded.free_port


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedPostgres:
    """Initialised once and never started; the tests copy it."""
    made = EmbeddedPostgres(tmp_path_factory.mktemp("template"), FAST)
    made.initialise()
    return made


@pytest.fixture
def server(tmp_path: Path, template: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path / "site", FAST)
    server.start(template)
    yield server
    server.stop()


def processes_of(folder: Path) -> list[str]:
    """Command lines of the processes that work in this folder, this one not counted."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                where = os.readlink(process / "cwd")
            except OSError:
                continue
            if str(folder) in words or where.startswith(str(folder)):
                found.append(words)
    return found


def value(dsn: str, query: str) -> object:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(query.encode()).fetchone()
    return row and row[0]


def test_it_is_a_real_postgres_of_our_own(server: EmbeddedPostgres) -> None:
    assert str(value(server.dsn, "SELECT version()")).startswith("PostgreSQL 18")
    assert value(server.dsn, "SHOW listen_addresses") == "127.0.0.1"
    assert (server.passfile.stat().st_mode & 0o777) == 0o600
    assert (server.data.stat().st_mode & 0o777) == 0o700


def test_nobody_comes_in_without_the_password(server: EmbeddedPostgres) -> None:
    without = server.dsn.replace(str(server.passfile), "/dev/null") + " password=wrong"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(without)


def test_a_second_start_is_the_same_server(server: EmbeddedPostgres) -> None:
    pid, dsn = server.pid, server.dsn
    assert server.start() == dsn
    assert server.pid == pid


def test_data_survive_a_stop(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.dsn) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 42 AS n")
    server.stop()
    assert value(server.start(), "SELECT n FROM kept") == 42


def test_servers_of_one_template_run_side_by_side_and_apart(
    tmp_path: Path, server: EmbeddedPostgres, template: EmbeddedPostgres
) -> None:
    with psycopg.connect(server.dsn) as conn:
        conn.execute("CREATE TABLE mine ()")
    other = EmbeddedPostgres(tmp_path / "other", FAST)
    try:
        other.start(template)
        assert value(server.dsn, "SELECT to_regclass('mine')::text") == "mine"
        assert value(other.dsn, "SELECT to_regclass('mine')::text") is None
    finally:
        other.stop()


def test_stop_leaves_no_process_and_may_be_called_always(server: EmbeddedPostgres) -> None:
    assert processes_of(server.folder)
    with psycopg.connect(server.dsn, autocommit=True):  # a client that stays connected does not hold it up
        server.stop()
    assert processes_of(server.folder) == []
    server.stop()


def test_after_kill_9_it_starts_at_once_with_what_was_committed(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.dsn) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 42 AS n")
    uncommitted = psycopg.connect(server.dsn)
    uncommitted.execute("INSERT INTO kept VALUES (43)")
    server.stop(signal.SIGKILL)
    uncommitted.close()
    assert value(server.start(), "SELECT sum(n) FROM kept") == 42
    server.stop()
    eventually(lambda: not processes_of(server.folder))


def test_after_kill_9_it_waits_for_what_the_killed_one_left_running(server: EmbeddedPostgres) -> None:
    lingering = psycopg.connect(server.dsn)
    backend = lingering.info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    server.stop(signal.SIGKILL)
    log_before = server.log.stat().st_size

    def refused_once() -> bool:
        return b"pre-existing shared memory block" in server.log.read_bytes()[log_before:]

    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(server.start)
        try:
            eventually(lambda: refused_once() or starting.done())
        finally:
            os.kill(backend, signal.SIGCONT)
        assert value(starting.result(30), "SELECT 1") == 1
    lingering.close()


def test_a_port_that_somebody_took_meanwhile_is_no_reason_to_give_up(
    tmp_path: Path, template: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        offered = iter([somebody.getsockname()[1]])
        monkeypatch.setattr(embedded, "free_port", lambda: next(offered, None) or FREE_PORT())
        server = EmbeddedPostgres(tmp_path / "site", FAST)
        try:
            assert value(server.start(template), "SELECT 1") == 1
            assert server.port != somebody.getsockname()[1]
        finally:
            server.stop()


def test_a_folder_has_one_server(server: EmbeddedPostgres) -> None:
    second = EmbeddedPostgres(server.folder, FAST)
    with pytest.raises(Terminal, match="lock file") as refused:
        second.start()
    assert str(server.folder) in refused.value.what
    second.stop()
    assert value(server.dsn, "SELECT 1") == 1


def test_a_broken_data_folder_is_said_plainly(server: EmbeddedPostgres) -> None:
    server.stop()
    shutil.rmtree(server.data / "global")
    with pytest.raises(Terminal, match="global") as refused:
        server.start()
    assert str(server.folder) in refused.value.what
    assert str(server.log) in refused.value.next_step


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "data" / "precious.txt"
    other.parent.mkdir()
    other.write_text("precious")
    with pytest.raises(Terminal, match="data folder"):
        EmbeddedPostgres(tmp_path).start()
    assert other.read_text() == "precious"


def test_an_initialisation_that_was_killed_half_way_is_begun_again(tmp_path: Path, template: EmbeddedPostgres) -> None:
    folder = tmp_path / "site"
    whole = EmbeddedPostgres(folder, FAST)
    whole.initialise(template)
    half = whole.making
    whole.data.rename(half)
    shutil.rmtree(half / "base")
    server = EmbeddedPostgres(folder, FAST)
    try:
        assert value(server.start(template), "SELECT 1") == 1
        assert not server.making.exists()
    finally:
        server.stop()


def test_a_setting_postgres_refuses_is_said_plainly(tmp_path: Path, template: EmbeddedPostgres) -> None:
    server = EmbeddedPostgres(tmp_path / "site", {"shared_buffers": "much"})
    with pytest.raises(Terminal, match="shared_buffers"):
        server.start(template)
    server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root must run PostgreSQL as somebody else")
def test_where_namespaces_are_forbidden_it_runs_as_nobody_inside_a_folder_of_root_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(embedded, "_UNSHARE", ("false",))
    embedded._as_other_user.cache_clear()
    try:
        with EmbeddedPostgres(tmp_path / "server", {"fsync": "off"}) as server, psycopg.connect(server.dsn) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
            assert server.data.stat().st_uid == pwd.getpwnam("nobody").pw_uid
    finally:
        embedded._as_other_user.cache_clear()
