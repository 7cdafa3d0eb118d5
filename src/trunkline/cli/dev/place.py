"""A folder with services that run on after the command that brought them up: each in a folder of its own, with its keeper.

1. `up` of a service that runs changes nothing; `down` of one that does not run changes nothing.
2. `up` that is cut short takes back what it began, and only that: what ran before goes on, what was stored before stays.
3. Only folders with a record are ours: no other is used, and no other is removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from trunkline.cli.dev.beginning import KEEPER_LOG, Beginning
from trunkline.cli.dev.debian import Say
from trunkline.cli.dev.identity import NOBODY
from trunkline.cli.dev.record import Record, State, judge
from trunkline.cli.dev.services import KINDS
from trunkline.core.errors import Invalid, TrunklineError

STOP_SECONDS = 45.0
_IGNORE = "# made by `trunkline dev`: nothing here is for git\n*\n"


@dataclass(frozen=True)
class Standing:
    """How a service is now. `news`: this command changed it."""

    name: str
    state: State
    reason: str = ""
    address: str = ""
    log: str = ""
    pid: int | None = None
    seconds: float = 0.0
    news: bool = False


Tell = Callable[[Standing], None]


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._lock_file, self._ignore = self.folder / ".trunkline-dev.lock", self.folder / ".gitignore"

    def of(self, name: str) -> Path:
        return self.folder / name

    def standing(self, name: str, news: bool = False) -> Standing:
        record = Record.read(self.of(name))
        if record is None:
            return Standing(name, State.ABSENT, "nobody brought it up")
        lives = record.keeper.alive()
        answers = lives and record.state is State.RUNNING and KINDS[name].make(self.of(name)).answers()
        pid = record.server.pid if record.server and lives else None
        return Standing(name, *judge(record, lives, answers), record.address, record.log, pid, record.seconds, news)

    def up(self, names: Sequence[str], tell: Tell, say: Say) -> None:
        """Tells how each service stands as soon as it is known; those that must start do so side by side."""
        with self._alone(say), self._undone_if_cut_short() as begun:
            for name in [name for name in names if self._is_wanted(name, tell, say)]:
                fresh = self._ready(name)
                begun.append(Beginning(name, self.of(name), fresh))
            for beginning in begun:
                beginning.wait()
                tell(self.standing(beginning.name, news=True))

    def down(self, names: Sequence[str], keep: bool, tell: Tell, say: Say) -> None:
        if not self.folder.exists():
            return
        with self._alone(say):
            records = {name: record for name in names if (record := Record.read(self.of(name)))}
            for record in records.values():
                record.keeper.send(signal.SIGTERM)
            for name in records:
                self._stop(name)
                if not keep:
                    shutil.rmtree(self.of(name))
                tell(Standing(name, State.STOPPED if keep else State.ABSENT, "it was told to", news=True))

    def _is_wanted(self, name: str, tell: Tell, say: Say) -> bool:
        now = self.standing(name)
        if now.state in (State.RUNNING, State.SILENT):
            tell(now)
            return False
        try:
            KINDS[name].prepare(say)
        except TrunklineError as error:
            tell(Standing(name, State.FAILED, str(error)))
            return False
        return True

    def _ready(self, name: str) -> bool:
        """Whether its folder is new."""
        folder = self.of(name)
        fresh = Record.read(folder) is None
        if fresh and folder.exists() and any(folder.iterdir()):
            why = "it is there, but `trunkline dev` did not make it"
            raise Invalid(f"the folder {folder}", why, "choose another place with --folder")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._ignore.exists():
            self._ignore.write_text(_IGNORE)
        self._stop(name)
        Record(State.FAILED, NOBODY, log=str(folder / KEEPER_LOG), reason="its keeper did not come to life").write(folder)
        return fresh

    def _stop(self, name: str) -> None:
        """Nothing of it runs afterwards, also when its keeper was killed before it could stop it."""
        record = Record.read(self.of(name))
        if record is None:
            return
        record.keeper.end(signal.SIGTERM, STOP_SECONDS)
        server = (Record.read(self.of(name)) or record).server
        if server is not None:
            server.end(signal.SIGTERM, STOP_SECONDS)

    @contextmanager
    def _alone(self, say: Say) -> Iterator[None]:
        """One command at a time changes anything here. What it leaves empty it removes."""
        with self._lock(say):
            try:
                yield
            finally:
                self._leave()

    def _lock(self, say: Say) -> TextIO:
        while True:
            self.folder.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # a command that ends may have removed the folder again
                lock = self._lock_file.open("a")
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    say("another command is at work here; waiting for it")
                    fcntl.flock(lock, fcntl.LOCK_EX)
                if self._lock_file.exists() and os.path.samestat(os.fstat(lock.fileno()), self._lock_file.stat()):
                    return lock
                lock.close()

    def _leave(self) -> None:
        """The folder itself goes with the last of what we put into it."""
        ours = self._ignore.exists() and self._ignore.read_text() == _IGNORE
        if set(self.folder.iterdir()) <= {self._lock_file, *([self._ignore] if ours else [])}:
            shutil.rmtree(self.folder)
        elif not any(Record.read(self.of(name)) for name in KINDS):
            self._lock_file.unlink()

    @contextmanager
    def _undone_if_cut_short(self) -> Iterator[list[Beginning]]:
        begun: list[Beginning] = []
        try:
            yield begun
        except BaseException:
            for beginning in begun:
                beginning.undo()
            raise
        finally:
            for beginning in begun:
                beginning.close()
