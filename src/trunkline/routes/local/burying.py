"""Dead letters on their way into the database: those of all routes together, many in a transaction.

An event is done when its letter is committed. While the database is away letters wait, for as long as their sources wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.errors import Retryable, Terminal
from trunkline.net.tasks import Tasks
from trunkline.routes.acks import Node
from trunkline.routes.local.keeping import Keeper, Letter
from trunkline.routes.local.slots import Pending

AT_ONCE = 500
MAX_WAITING = 10_000  # letters: as many as a receiver may have events under way; more go back to their sources

log = structlog.get_logger(__name__)


class Mourner(Protocol):
    def buried(self, pending: Sequence[Pending], reason: str) -> None: ...

    def failed(self, pending: Sequence[Pending], reason: str) -> None: ...


class Dead(Pending):
    __slots__ = ("letter", "of")

    def __init__(self, letter: Letter, node: Node, of: Mourner) -> None:
        super().__init__(node)
        self.letter, self.of = letter, of

    def failed(self) -> None:
        self.of.failed([self], f"{self.letter.step}: {self.letter.reason}")


class Undertaker:
    """`keeper`: none where no letters are kept: events go back to their sources."""

    def __init__(self, keeper: Keeper | None, random: Callable[[], float]) -> None:
        self._keeper = keeper
        self._backoff = Backoff(0.05, 1.0, random)
        self._waiting: list[Dead] = []
        self._working = False
        self._tasks = Tasks()

    def take(self, dead: Sequence[Dead]) -> None:
        if self._keeper is None or len(self._waiting) + len(dead) > MAX_WAITING:
            for one in dead:
                one.failed()
            return
        self._waiting += dead
        if not self._working:
            self._working = True
            self._tasks.spawn(self._work(self._keeper), "dead letters")

    async def close(self) -> None:
        """What is not written by now goes back to its source."""
        await self._tasks.cancel()
        left, self._waiting = self._waiting, []
        for dead in left:
            dead.failed()

    async def _work(self, keeper: Keeper) -> None:
        try:
            count = AT_ONCE
            while self._waiting:
                count = await self._bury(keeper, self._waiting[:count])
        finally:
            self._working = False

    async def _bury(self, keeper: Keeper, dead: list[Dead]) -> int:
        """Gives how many to write next: one by one when something is wrong with one of them."""
        try:
            await keeper.bury([one.letter for one in dead])
        except Retryable as error:
            await self._pause(error)
        except Terminal:
            if len(dead) > 1:
                return 1
            self._waiting.remove(dead[0])
            dead[0].failed()
        else:
            self._backoff.success()
            del self._waiting[: len(dead)]
            for one in dead:
                one.of.buried([one], one.letter.reason)
        return AT_ONCE

    async def _pause(self, error: Retryable) -> None:
        if not self._backoff.failures:
            log.warning("dead letters cannot be kept; trying again", reason=error.why)
        await asyncio.sleep(self._backoff.after_failure())
        in_vain = [one for one in self._waiting if one.in_vain]
        self._waiting = [one for one in self._waiting if not one.in_vain]
        for one in in_vain:
            one.failed()
