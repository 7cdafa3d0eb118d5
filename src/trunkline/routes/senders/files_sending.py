"""JSON lines and Parquet in a folder: all work on the disk is done in one thread, call after call.

A line is sent when it is on the disk, in a file that is not complete yet; a row of a Parquet file when the file is complete,
for each call writes files of its own.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import structlog

from trunkline.core.errors import TrunklineError
from trunkline.db.away import in_one_line
from trunkline.net.tasks import Tasks
from trunkline.routes.ends import Place, Sendable, Undelivered
from trunkline.routes.senders.files import FilesSenderConfig, Line
from trunkline.routes.senders.folders import made_folder
from trunkline.routes.senders.open_files import GrowingFile, complete_left_behind, new_name, write_whole

MOST_OPEN = 64  # files that grow at once, of as many folders: each holds a handle
_LOOK_SECONDS = 1.0

Answer = Undelivered | None
Write = Callable[[str, list[str]], list[Answer]]
log = structlog.get_logger(__name__)


class FilesSending:
    def __init__(self, config: FilesSenderConfig, place: Place) -> None:
        self._config, self._place, self._top = config, place, Path(config.path)
        self._growing: dict[str, GrowingFile] = {}  # by folder, the one that was written last at the end
        self._write: Write = self._append if config.format == "jsonl" else self._write_parquet
        self._left_behind = True
        self._thread, self._tasks = ThreadPoolExecutor(1, "route-files"), Tasks()
        self._tasks.spawn(self._look_after(), "route-files")

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Answer]:
        return await self._aside(lambda: self._send([one.message for one in messages]))

    async def close(self) -> None:
        await self._tasks.cancel()
        await self._aside(self._end)
        self._thread.shutdown()

    async def _aside(self, work: Callable[[], list[Answer]]) -> list[Answer]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _look_after(self) -> None:
        """Completes what is old enough, also when nothing more comes."""
        while True:
            await self._aside(self._tidy)
            await asyncio.sleep(min(_LOOK_SECONDS, self._config.roll_seconds))

    # -- in the thread

    def _send(self, lines: list[Line]) -> list[Answer]:
        answers: list[Answer] = [None] * len(lines)
        of_folder: dict[str, list[int]] = {}
        for nth, line in enumerate(lines):
            of_folder.setdefault(line.folder, []).append(nth)
        for folder, places in of_folder.items():
            for nth, answer in zip(places, self._tried(folder, [lines[nth].json for nth in places]), strict=True):
                answers[nth] = answer
        return answers

    def _tried(self, folder: str, lines: list[str]) -> list[Answer]:
        try:
            return self._write(folder, lines)
        except TrunklineError as error:
            return [Undelivered(str(error), False)] * len(lines)
        except OSError as error:
            self._abandon(folder)
            return [Undelivered(in_one_line(error), error.errno != errno.ENAMETOOLONG)] * len(lines)

    def _append(self, folder: str, lines: list[str]) -> list[Answer]:
        growing = self._growing.pop(folder, None) or self._begun(folder)
        self._growing[folder] = growing
        growing.append(lines)
        self._complete(list(self._growing)[:-MOST_OPEN])
        if growing.size >= self._config.roll_bytes:
            self._complete([folder])
        return [None] * len(lines)

    def _begun(self, folder: str) -> GrowingFile:
        return GrowingFile(self._new(folder), self._place.clock.monotonic())

    def _new(self, folder: str) -> Path:
        moment = datetime.fromtimestamp(self._place.clock.wall(), UTC).strftime("%Y%m%dT%H%M%S%f")
        name = new_name(self._place.plugin, self._place.instance, moment, self._config.format)
        return made_folder(self._top, folder) / name

    def _write_parquet(self, folder: str, lines: list[str]) -> list[Answer]:
        from trunkline.routes.senders.parquet import parquet_of

        made = parquet_of(lines)
        if isinstance(made, bytes):
            write_whole(self._new(folder), made)
            return [None] * len(lines)
        if len(lines) == 1:
            return [Undelivered(made, False)]
        half = len(lines) // 2
        return [*self._tried(folder, lines[:half]), *self._tried(folder, lines[half:])]

    def _complete(self, folders: list[str]) -> list[Answer]:
        for folder in folders:
            try:
                self._growing.pop(folder).complete()
            except OSError as error:
                self._left_behind = True
                log.warning("a file could not be completed; it is tried again", folder=folder, reason=in_one_line(error))
        return []

    def _abandon(self, folder: str) -> None:
        """Nobody knows what is in it: it is looked at like one that a killed process left behind."""
        growing = self._growing.pop(folder, None)
        if growing is not None:
            growing.abandon()
            self._left_behind = True

    def _end(self) -> list[Answer]:
        self._complete(list(self._growing))
        return self._tidy()  # it may not have had its turn yet

    def _tidy(self) -> list[Answer]:
        old = self._place.clock.monotonic() - self._config.roll_seconds
        self._complete([folder for folder, growing in self._growing.items() if growing.since <= old])
        if self._left_behind:
            self._left_behind = False
            try:
                complete_left_behind(self._top, self._place.plugin)
            except OSError as error:
                self._left_behind = True
                log.warning(
                    "files that were left behind could not be completed", path=str(self._top), reason=in_one_line(error)
                )
        return []
