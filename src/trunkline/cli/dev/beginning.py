"""A service's start as the command sees it that brings it up: a keeper was let loose, and tells how it goes."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from trunkline.cli.dev.identity import Process

KEEPER_LOG = "keeper.log"
UNDO_SECONDS = 45.0


class Beginning:
    """`fresh`: the folder was made for it, and goes when the start is undone."""

    def __init__(self, name: str, folder: Path, fresh: bool) -> None:
        self.name, self.folder = name, folder
        self._fresh = fresh
        self._pid: str | None = None
        with (folder / KEEPER_LOG).open("wb") as log:
            self._launcher = subprocess.Popen(
                ["setsid", "--fork", sys.executable, "-m", "trunkline.cli.dev.keeper", name, str(folder)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self._launcher.stdout is not None
        self._told = self._launcher.stdout

    def wait(self) -> None:
        """Until the service runs, or its keeper has ended."""
        self._keeper_pid()
        self._told.read()

    def undo(self) -> None:
        pid = self._keeper_pid()
        keeper = Process.of(int(pid)) if pid else None
        if keeper is not None:
            keeper.end(signal.SIGTERM, UNDO_SECONDS)
        if self._fresh:
            shutil.rmtree(self.folder)

    def close(self) -> None:
        self._told.close()
        self._launcher.wait()

    def _keeper_pid(self) -> str:
        """Empty when the keeper did not come to life."""
        if self._pid is None:
            self._pid = self._told.readline().strip()
        return self._pid
