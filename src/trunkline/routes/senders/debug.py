from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from trunkline.core.jsoncodec import dumps
from trunkline.core.scalars import Whole
from trunkline.routes.ends import Place, Sendable, Undelivered
from trunkline.routes.fields import RouteModel
from trunkline.routes.plugin import Runs, SenderPlugin


class DebugSenderConfig(RouteModel):
    """Shows events, or forgets them: to try a route out."""

    destination: Literal["devnull", "stdout", "stderr"] = Field(default="devnull", description="where they are written")
    max_history: Whole = Field(default=0, ge=0, le=100_000, description="how many of the newest are kept to be looked at")


class DebugSender:
    """`history`: the newest that were sent."""

    def __init__(self, config: DebugSenderConfig) -> None:
        self.history: deque[Sendable] = deque(maxlen=config.max_history)
        self._to = {"stdout": sys.stdout, "stderr": sys.stderr}.get(config.destination)

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        self.history.extend(messages)
        if self._to is not None:
            self._to.write("".join(dumps(one.message.payload).decode() + "\n" for one in messages))
            self._to.flush()
        return [None] * len(messages)

    async def close(self) -> None: ...


async def open_debug(config: DebugSenderConfig, place: Place) -> DebugSender:
    return DebugSender(config)


DEBUG = SenderPlugin("debug", DebugSenderConfig, Runs.BOTH, open=open_debug)
