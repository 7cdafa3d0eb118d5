"""A server on loopback that runs in a folder of its own, as a child of this process.

1. It keeps its ports and what it stored over `stop` and `kill`. They are written down at its first start, at which a port
   that somebody took meanwhile is exchanged for another.
2. `start` returns when the server answers. One that did not come up is not left running; its log stays in the folder.
3. It dies with this process.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from trunkline.cli.dev.child import Child, last_lines
from trunkline.cli.dev.debian import Say, quiet
from trunkline.cli.dev.ports import lasting_port
from trunkline.core.errors import Terminal

START_SECONDS = 60.0
STOP_SECONDS = 20.0
_TRIES = 3
_PORT_TAKEN = "Address already in use"


class Server(ABC):
    title: ClassVar[str]
    port_count: ClassVar[int] = 1

    def __init__(self, folder: Path, say: Say = quiet) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self._say = say
        self._ports_file = folder / "ports.json"
        self.ports = self._kept_ports() or self._fresh_ports()
        self._child: Child | None = None

    @abstractmethod
    def prepare(self) -> None:
        """Makes what a start needs: programs of this machine, files in the folder. Done again at every start."""

    @abstractmethod
    def words(self) -> list[str]:
        """The command."""

    @abstractmethod
    def answers(self) -> bool: ...

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def alive(self) -> bool:
        return self._child is not None and self._child.alive()

    def start(self) -> None:
        if self.alive():
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        tries_left = 0 if self._ports_file.exists() else _TRIES
        while True:
            self.prepare()
            self._child = Child(self.words(), self.log)
            try:
                self._wait(self._child)
                break
            except BaseException as error:
                self.kill()
                tries_left -= 1
                if not (isinstance(error, Terminal) and _PORT_TAKEN in error.why and tries_left > 0):
                    raise
                self.ports = self._fresh_ports()
        self._ports_file.write_text(json.dumps(self.ports))

    def _wait(self, child: Child) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not (self.answers() and child.alive()):  # else somebody else may have answered there
            if not child.alive():
                said = child.said()
                why = _PORT_TAKEN if _PORT_TAKEN in said else last_lines(said)
                raise Terminal(f"{self.title} in {self.folder}", why, f"read {self.log}")
            if time.monotonic() > deadline:
                raise Terminal(f"{self.title} in {self.folder}", f"no answer within {START_SECONDS:.0f} s", f"read {self.log}")
            time.sleep(0.02)

    def stop(self) -> None:
        if self._child is not None:
            self._child.end(STOP_SECONDS)
            self._child = None

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _kept_ports(self) -> list[int]:
        return [int(port) for port in json.loads(self._ports_file.read_text())] if self._ports_file.exists() else []

    def _fresh_ports(self) -> list[int]:
        return [lasting_port() for _ in range(self.port_count)]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
