"""What the pages tell people to type works."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from docs_pages import DOCS, ROOT, Block, blocks, name_of, pages
from psycopg import sql
from typer.testing import CliRunner

from served_routes import served_routes
from trunkline.cli.main import app
from trunkline.cli.reference.commands import Command, commands
from trunkline.core.config import read_config
from trunkline.core.errors import Invalid
from trunkline.queues.client import QueueClient
from trunkline.queues.grants import grant
from trunkline.queues.listener import QueueListener
from trunkline.queues.provider import SnapshotProvider
from trunkline.queues.registry import remember_site
from trunkline.queues.requests import ask
from trunkline.routes.cases import read_cases
from trunkline.routes.model import load_routes
from waiting import eventually

RUN = re.compile(r"^<!-- shell: run -->$", re.M)
NODE = re.compile(r"^<!-- shell: node -->$", re.M)
SOME_NODE = "http://127.0.0.1:8400"
PYTHON = [page for page in pages() if blocks(page, "python")]
SHELL = [page for page in pages() if RUN.search(page.read_text())]
TLS_FILES = ("ca", "certificate", "key", "revoked")


# -- commands


@cache
def known() -> dict[tuple[str, ...], Command]:
    return {command.path: command for command in commands()}


def typed(page: Path) -> Iterator[list[str]]:
    """The words of every `trunkline …` in the page, without `trunkline`."""
    lines = [line for block in blocks(page) if block.language in ("sh", "text") for line in block.text.splitlines()]
    lines += re.findall(r"`((?:\.venv/bin/)?trunkline [^`]+)`", page.read_text())
    for line in lines:
        found = re.match(r"(?:[A-Z_]+=\S+ )?(?:\.venv/bin/)?trunkline (.*)", line)
        if found:
            yield shlex.split(found[1].replace("…", "").replace("<", "").replace(">", ""), comments=True)


def mistake(words: list[str]) -> str:
    tree, path = known(), tuple[str, ...]()
    while words[len(path) :] and (*path, words[len(path)]) in tree:
        path = (*path, words[len(path)])
    command = tree[path]
    following = words[len(path) :]
    if command.is_group and following and not following[0].startswith("-"):
        return f"{command.name} has no command {following[0]!r}"
    always = {"--help"} | ({"--install-completion", "--show-completion"} if not path else set())
    wrong = {word.partition("=")[0] for word in following if word.startswith("--")} - command.options - always
    return f"{command.name} has no option {', '.join(sorted(wrong))}" if wrong else ""


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_command_in_a_page_exists(page: Path) -> None:
    assert [found for words in typed(page) if (found := mistake(words))] == []


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert mistake(["ca", "bless"]) == "trunkline ca has no command 'bless'"
    assert mistake(["ca", "issue", "--ca", "ca", "--for-ever"]) == "trunkline ca issue has no option --for-ever"
    assert mistake(["ca", "issue", "--ca", "ca", "berlin/node-1"]) == ""


class Shell:
    """As much of a shell as the pages need: variables, one redirection, and `trunkline` without a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ: dict[str, str | None] = {name: None for name in os.environ if name.startswith("TRUNKLINE_")}

    def run(self, line: str) -> None:
        words, environ = shlex.split(line, comments=True), dict(self.environ)
        keeps = words[:1] == ["export"]
        words = words[keeps:]
        while words and (found := re.fullmatch(r"([A-Z_]+)=(.*)", words[0])):
            environ[found[1]] = found[2]
            words = words[1:]
        if keeps:
            self.environ = environ
        out = self.folder / words.pop() if ">" in words else None
        words = [word for word in words if word != ">"]
        if words[:1] == ["trunkline"]:
            self._trunkline(words[1:], environ, out)
        elif words:
            subprocess.run(words, cwd=self.folder, check=True)

    def _trunkline(self, words: list[str], environ: dict[str, str | None], out: Path | None) -> None:
        done = CliRunner().invoke(app, words, env=environ)
        assert done.exit_code == 0, f"trunkline {shlex.join(words)}: {done.exception!r}\n{done.output}"
        if out is not None:
            out.write_text(done.stdout)


@pytest.mark.parametrize("page", SHELL, ids=name_of)
def test_the_shell_blocks_of_a_page_run_one_after_the_other(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with served_routes(instances=3) if NODE.search(page.read_text()) else nullcontext() as site:
        for line in (line for block in blocks(page, "sh") for line in block.text.splitlines()):
            shell.run(line.replace(SOME_NODE, site.url) if site else line)


def test_a_line_of_a_page_that_fails_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="there is no such kind of process"):
        Shell(tmp_path).run("trunkline config init castle")


# -- files


def examples(kind: Callable[[Any], bool]) -> list[Block]:
    return [b for page in pages() for b in blocks(page, "yaml") if kind(yaml.safe_load(b.text))]


def block_id(block: Block) -> str:
    return f"{block.page}:{block.title}"


@pytest.mark.parametrize("example", examples(lambda document: "site" in document), ids=block_id)
def test_configurations_in_the_pages_are_right(example: Block, tmp_path: Path) -> None:
    document, file = yaml.safe_load(example.text), tmp_path / "example.yaml"
    for named in (document["tls"][what] for what in TLS_FILES if "tls" in document):
        (tmp_path / named).parent.mkdir(exist_ok=True)
        (tmp_path / named).touch()
    file.write_text(example.text)
    assert read_config(file, {}, follow_secrets=False).mistakes == ()


@pytest.mark.parametrize("example", examples(lambda document: "routes" in document), ids=block_id)
def test_route_files_in_the_pages_are_right(example: Block, tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(example.text)
    assert len(load_routes(file)) >= 1


@pytest.mark.parametrize("example", examples(lambda document: "cases" in document), ids=block_id)
def test_cases_of_routes_in_the_pages_are_right(example: Block, tmp_path: Path) -> None:
    file = tmp_path / "routes.test.yaml"
    file.write_text(example.text)
    cases, mistakes = read_cases(file)
    assert mistakes == []
    assert len(cases) >= 1


# -- Python and SQL


def site_that_knows(dsn: str, *names: str) -> str:
    with psycopg.connect(dsn) as conn:
        for name in names:
            remember_site(conn, name)
    return dsn


@pytest.mark.parametrize("page", PYTHON, ids=name_of)
def test_the_python_of_a_page_runs(page: Path, make_database: Callable[..., str]) -> None:
    dsn = site_that_knows(make_database("queues"), "hub", "berlin", "paris")
    names: dict[str, Any] = {"DATABASE": dsn}
    for block in blocks(page, "python"):
        exec(compile(block.text, block.page, "exec"), names)  # noqa: S102
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT count(*) > 0 FROM queues.send_log").fetchone() == (True,)


def arrived(dsn: str, client: str, *payloads: bytes) -> None:
    """From paris."""
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "INSERT INTO queues.queue (client, remote, head, received_bytes) VALUES (%s, 'paris', %s, %s)",
            (client, len(payloads), sum(map(len, payloads))),
        )
        conn.execute(
            "INSERT INTO queues.receive (slot, queue, position, type, seq, index, total, payload) "
            "SELECT 0, q.id, n, 1, n * 10, 0, sum(octet_length(p)) OVER (ORDER BY n), p "
            "FROM queues.queue q, unnest(%s::bytea[]) WITH ORDINALITY AS x(p, n) WHERE q.client = %s",
            (list(payloads), client),
        )


def position_of(dsn: str, consumer: str) -> int:
    with psycopg.connect(dsn) as conn:
        (position,) = conn.execute("SELECT sum(position) FROM queues.consumed WHERE consumer = %s", (consumer,)).fetchone() or (
            0,
        )
    return int(position or 0)


def test_the_receiver_of_the_page_takes_each_entry_once(make_database: Callable[..., str]) -> None:
    dsn = site_that_knows(make_database("queues"), "berlin", "paris")
    names: dict[str, Any] = {"DATABASE": dsn}
    for block in blocks(DOCS / "how-to" / "queues.md", "python"):
        exec(compile(block.text, block.page, "exec"), names)  # noqa: S102
    arrived(dsn, "policy", *(f'{{"name": "p{n}", "body": ""}}'.encode() for n in range(3)))
    for _ in range(2):
        with QueueListener(dsn, "policy", "enforcer", process_in=names["take"]):
            eventually(lambda: position_of(dsn, "enforcer") == 3)
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT count(*) FROM policy WHERE name LIKE 'p_'").fetchone() == (3,)


@pytest.fixture
def app_dsn(make_database: Callable[..., str]) -> Iterator[tuple[str, str]]:
    """The owner's connection string, and that of a role `app` which may do what the page grants it."""
    dsn = site_that_knows(make_database("queues"), "hub")
    role = f"app_{psycopg.conninfo.conninfo_to_dict(dsn)['dbname']}"
    (grants,) = (b.text for b in blocks(DOCS / "how-to" / "postgres.md", "sql") if "GRANT USAGE" in b.text)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(sql.Identifier(role)))
        try:
            conn.execute(grants.replace("TO app", f"TO {role}").encode())
            grant(conn, "orders", role)
            yield dsn, psycopg.conninfo.make_conninfo(dsn, user=role, password="secret")
        finally:
            conn.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(role)))


def test_the_grants_of_the_page_are_enough_to_send_to_receive_and_to_provide(app_dsn: tuple[str, str]) -> None:
    owner, app_role = app_dsn
    with psycopg.connect(app_role) as conn:
        QueueClient("orders").transmit(conn, b"hello", ["hub"])
        with pytest.raises(Invalid, match="may not send as client status"), conn.transaction():
            QueueClient("status").transmit(conn, b"hello", ["hub"])
    arrived(owner, "orders", b"one", b"two", b"bad")
    with QueueListener(app_role, "orders", "ledger", lambda batch: all(m.payload != b"bad" for m in batch), tries=1):
        eventually(lambda: position_of(owner, "ledger") == 3)
    with psycopg.connect(owner) as conn:
        ask(conn, "orders", ["hub"], "first")
    provided = threading.Event()
    with psycopg.connect(owner) as conn, SnapshotProvider(app_role, "orders", lambda _: provided.set()):
        conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        snapshot = conn.execute("SELECT pg_export_snapshot()").fetchone()
        with psycopg.connect(owner) as leader:
            leader.execute("UPDATE queues.request SET state = 'ready', base = 0, base_mark = 0, snapshot = %s", snapshot)
        assert provided.wait(60)
        eventually(lambda: states(owner) == [("complete",)], why=lambda: states(owner))
    with psycopg.connect(owner) as conn:
        assert conn.execute("SELECT payload FROM queues.send_log").fetchall() == [(b"hello",)]
        assert conn.execute("SELECT payload FROM queues.dead_letter").fetchall() == [(b"bad",)]


def states(dsn: str) -> list[Any]:
    with psycopg.connect(dsn) as conn:
        return conn.execute("SELECT state FROM queues.request").fetchall()
