"""Plugins that are open, without their secrets in what they raise: that becomes a reason, a line of a log, a dead letter."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pydantic import BaseModel

from trunkline.core.errors import TrunklineError
from trunkline.db.lease import Grant
from trunkline.routes.ends import Give, Receiving, Sendable, Sending, TimedSending, Undelivered
from trunkline.routes.secrets import scrubbed


class Raised(Exception):
    """What a plugin raised, in other words."""


@contextmanager
def hushing(config: BaseModel) -> Iterator[None]:
    """With its references followed."""
    try:
        yield
    except TrunklineError as error:
        error.args = error.what, error.why, error.next_step = (
            scrubbed(error.what, config), scrubbed(error.why, config), scrubbed(error.next_step, config),
        )  # fmt: skip
        raise
    except Exception as error:
        clean = scrubbed(str(error), config)
        if clean == str(error):
            raise
        raise TimeoutError(clean) if isinstance(error, TimeoutError) else Raised(f"{type(error).__name__}: {clean}") from None


class HushedReceiving:
    def __init__(self, inner: Receiving, config: BaseModel) -> None:
        self.inner, self._config = inner, config

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        with hushing(self._config):
            await self.inner.run(give, stop, grant)

    async def close(self) -> None:
        with hushing(self._config):
            await self.inner.close()


class HushedSending:
    def __init__(self, inner: Sending, config: BaseModel) -> None:
        self.inner: Sending = inner
        self._config = config

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        with hushing(self._config):
            return await self.inner.send(messages)

    async def close(self) -> None:
        with hushing(self._config):
            await self.inner.close()


class HushedTimedSending(HushedSending):
    def __init__(self, inner: TimedSending, config: BaseModel) -> None:
        super().__init__(inner, config)
        self._timed = inner

    async def send_within(self, messages: Sequence[Sendable], seconds: float) -> Sequence[Undelivered | None]:
        with hushing(self._config):
            return await self._timed.send_within(messages, seconds)


def hushed_sending(inner: Sending, config: BaseModel) -> Sending:
    return HushedTimedSending(inner, config) if isinstance(inner, TimedSending) else HushedSending(inner, config)
