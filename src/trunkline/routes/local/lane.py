"""A live route's way to its sender: in order, many messages at a time.

L1  Messages go in the order in which they were put, by one offer to the sender after the other.
L2  What the sender could not take now goes to the retry outbox, and so does everything behind it until that is empty (H33):
    a lane that has something there only appends. What it will never take is a dead letter.
L3  A message is done when it is sent, or when its row is committed. While there is nowhere to keep it, it is tried on for as
    long as its source waits for it; then it comes again from there.
L4  A sender that does not answer is not waited for longer than half of the time its source still waits: so what is kept
    instead is done in time.
L5  What a sender raises and did not mean as an answer is a defect: its messages are nacked at once.
L6  Messages that nobody waits for or keeps hold their receiver up no longer than a sender that is away needs to show it
    (`trunkline.routes.leaves`): what waits then is gone, and so is what comes until it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec
import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.core.errors import Retryable, Terminal
from trunkline.net.tasks import Tasks
from trunkline.routes.chain import MAX_REASON
from trunkline.routes.ends import Undelivered
from trunkline.routes.leaves import LEFT_OUT, PROBE_SECONDS, Leaves
from trunkline.routes.local.keeping import Keeper, Kept, LaneName
from trunkline.routes.local.sending import AT_ONCE, Answers, Offer, Sender
from trunkline.routes.local.slots import Item, Pending

FULL = 10_000  # messages that wait: some ten seconds of a slow sender; receivers then wait until half of them are gone
SEND_SECONDS, LEAST_SECONDS = 30.0, 0.5
BEHIND = "it waits behind earlier messages"

log = structlog.get_logger(__name__)


class Book(Protocol):
    """Hears what became of messages."""

    def sent(self, items: Sequence[Item]) -> None: ...

    def kept(self, items: Sequence[Item]) -> None: ...

    def bury(self, item: Item, reason: str) -> None:
        """It becomes a dead letter."""

    def buried(self, pending: Sequence[Pending], reason: str) -> None:
        """Its dead letter is committed."""

    def failed(self, pending: Sequence[Pending], reason: str) -> None: ...

    def room(self, full: bool) -> None:
        """Whether the lane is full has changed."""


class Lane:
    """`only_appends`: it has messages in the outbox, as far as is known; `drained`: perhaps no longer. `keeper`: none where
    nothing is kept: messages that fail are given back to their source. `leaves`: none if somebody waits for its messages."""

    def __init__(
        self, name: LaneName, sender: Sender, book: Book, keeper: Keeper | None, clock: Clock, random: Callable[[], float],
        leaves: Leaves | None = None,
    ) -> None:  # fmt: skip
        self.name, self.sender = name, sender
        self.only_appends = self.drained = False
        self._book, self._keeper, self._clock, self._leaves = book, keeper, clock, leaves
        self._backoff = Backoff(0.05, 1.0, random)
        self._waiting: deque[Item] = deque()
        self._full = self._working = False
        self._before: Lane | None = None
        self._offered: Offer | None = None
        self._rested: asyncio.Event | None = None
        self._tasks = Tasks()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def keeps(self) -> bool:
        return self._keeper is not None

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._working

    def put(self, items: Sequence[Item]) -> None:
        if self._left_out():
            self._book.failed(items, LEFT_OUT.reason)
            return
        self._waiting.extend(items)
        if not self._full and len(self._waiting) > FULL:
            self._full = True
            self._book.room(True)
        if not self._working:
            self._working = True
            self._go_on()

    def follow(self, before: Lane) -> None:
        """Nothing is sent before that one is done."""
        self._before, self.only_appends = before, before.only_appends

    async def finish(self, seconds: float) -> None:
        """What is not done by then is given back to its source."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.done()
        if self._offered is not None:
            self._offered.withdraw()
        await self._tasks.cancel()
        left = list(self._waiting)
        self._waiting.clear()
        self._rest()
        self._book.failed(left, "the route stopped")

    async def done(self) -> None:
        while not self.idle:
            if self._rested is None:
                self._rested = asyncio.Event()
            await self._rested.wait()

    def _go_on(self) -> None:
        if self._full and len(self._waiting) <= FULL // 2:
            self._full = False
            self._book.room(False)
        if not self._waiting:
            self._rest()
            return
        items = list(islice(self._waiting, AT_ONCE))
        if self.only_appends or self._before is not None:
            self._spawn(self._behind(items))
        else:
            self._offer(items)

    def _left_out(self) -> bool:
        """Also what comes while one call finds out whether the sender is back."""
        leaves, key = self._leaves, self.sender.key
        return leaves is not None and (leaves.on(key) or (self._working and leaves.began(key)))

    def _rest(self) -> None:
        self._working, self._offered = False, None
        if self._rested is not None:
            self._rested.set()
            self._rested = None

    def _offer(self, items: list[Item]) -> None:
        began, seconds = self._clock.monotonic(), self._limit(items[0])

        def answered(answers: Answers | Exception) -> None:
            if self._leaves is not None and not isinstance(answers, Exception):
                self._leaves.fared(self.sender.key, answers, self._clock.monotonic() - began, seconds)
            self._answered(items, answers)

        self._offered = Offer([item.sendable for item in items], seconds, answered)
        self.sender.offer(self._offered)

    def _answered(self, items: list[Item], answers: Answers | Exception) -> None:
        if isinstance(answers, Exception):
            reason = f"the sender raised {type(answers).__name__}: {answers}"[:MAX_REASON]
            log.error("a sender raised", route=str(self.name.key), plugin=self.name.plugin, reason=reason)
            self._book.failed(items, reason)
        elif lost := [(item, answer) for item, answer in zip(items, answers, strict=True) if answer is not None]:
            self._book.sent([item for item, answer in zip(items, answers, strict=True) if answer is None])
            self._spawn(self._undelivered(items, lost))
            return
        else:
            self._book.sent(items)
        self._past(items)

    def _past(self, items: list[Item]) -> None:
        for _ in items:
            self._waiting.popleft()
        if self._leaves is not None and self._leaves.on(self.sender.key):
            self._book.failed(list(self._waiting), LEFT_OUT.reason)
            self._waiting.clear()
        self._go_on()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn(self._at_work(work), f"lane {self.name.key}")

    async def _at_work(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BaseException:
            self._rest()
            raise

    async def _behind(self, items: list[Item]) -> None:
        """What waits elsewhere comes first."""
        if self._before is not None:
            await self._take_over(self._before)
            self._before = None
        if self.only_appends and not await self._clear():
            await self._keep(items, [BEHIND] * len(items))
            self._past(items)
        else:
            self._offer(items)

    async def _take_over(self, before: Lane) -> None:
        """What the other has in its outbox comes first, too."""
        await before.done()
        while before.only_appends and before.name.hash != self.name.hash and self._keeper is not None:
            try:
                await self._keeper.inherit(before.name, self.name)
                break
            except Retryable:
                await asyncio.sleep(self._backoff.after_failure())
        self.only_appends |= before.only_appends
        self.drained = True

    def _limit(self, first: Item) -> float:
        if self._leaves is not None and self._leaves.began(self.sender.key):
            return PROBE_SECONDS
        if self._keeper is None:
            return SEND_SECONDS
        return max(LEAST_SECONDS, min(SEND_SECONDS, (first.until - self._clock.monotonic()) / 2))

    async def _undelivered(self, items: list[Item], lost: list[tuple[Item, Undelivered]]) -> None:
        again = [(item, answer.reason) for item, answer in lost if answer.again]
        if again:
            await self._keep([item for item, _ in again], [reason for _, reason in again])
        for item, answer in lost:
            if not answer.again:
                self._book.bury(item, answer.reason)
        self._past(items)

    async def _clear(self) -> bool:
        """Whether it may send again. Only the lane itself finds that out, between two of its own appends: so nothing of its
        own is overtaken."""
        if self.drained and self._keeper is not None:
            with contextlib.suppress(Retryable):
                self.only_appends, self.drained = await self._keeper.waits(self.name.hash), False
        return not self.only_appends

    async def _keep(self, items: list[Item], reasons: list[str]) -> None:
        """Tries on for as long as somebody waits (L3)."""
        rows = {item: row for item, row in zip(items, _kept(items, reasons, self._book), strict=True) if row is not None}
        while rows and self._keeper is not None:
            try:
                self.only_appends = True
                self._written(list(rows), await self._keeper.append(self.name, list(rows.values())))
                return
            except Retryable as error:
                if not self._backoff.failures:
                    log.warning("messages cannot be kept; trying again", route=str(self.name.key), reason=error.why)
                await asyncio.sleep(self._backoff.after_failure())
            except Terminal as error:
                self._book.failed(list(rows), f"it cannot be kept: {error.why}"[:MAX_REASON])
                return
            self._book.failed([item for item in rows if item.in_vain], reasons[0])
            rows = {item: row for item, row in rows.items() if not item.in_vain}
        self._book.failed(list(rows), reasons[0])

    def _written(self, items: list[Item], count: int) -> None:
        self._backoff.success()
        self._book.kept(items[:count])
        self._book.buried(items[count:], "the route's outbox is full")


def _kept(items: list[Item], reasons: list[str], book: Book) -> list[Kept | None]:
    """What cannot be written as JSON cannot be kept: it goes back to its source."""
    kept: list[Kept | None] = []
    for item, reason in zip(items, reasons, strict=True):
        try:
            message = msgspec.json.encode(item.sendable.message)
        except Exception as error:
            book.failed([item], f"{reason}; it cannot be kept: {error}"[:MAX_REASON])
            kept.append(None)
        else:
            kept.append(Kept(item.sendable.id, item.source, message, reason[:MAX_REASON], item.came))
    return kept
