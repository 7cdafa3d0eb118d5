"""logbook: a line in a file for each event."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from trunkline.core.jsoncodec import dumps
from trunkline.routes.ends import Place, Sendable, Undelivered
from trunkline.routes.fields import RouteModel
from trunkline.routes.plugin import Runs, SenderPlugin


class LogbookConfig(RouteModel):
    """Adds a line to a file for each event: its payload as JSON. It is sent when the file is on the disk."""

    path: str = Field(min_length=1, examples=["/var/lib/trunkline/logbook.jsonl"], description="the file")


class Logbook:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        try:
            await asyncio.to_thread(self._write, b"".join(dumps(one.message.payload) + b"\n" for one in messages))
        except OSError as error:
            return [Undelivered(f"{self._path}: {error.strerror}", again=True)] * len(messages)
        return [None] * len(messages)

    async def close(self) -> None: ...

    def _write(self, lines: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())


async def open_logbook(config: LogbookConfig, place: Place) -> Logbook:
    return Logbook(Path(config.path))


LOGBOOK = SenderPlugin("logbook", LogbookConfig, Runs.LOCAL, open=open_logbook)
