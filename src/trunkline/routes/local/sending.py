"""An open sender as lanes see it: it always answers, and can be exchanged for one that was opened anew.

S1  What lanes offer in one turn of the loop goes to the sender in one call: a thousand routes of a queue are one transaction.
    A lane has one offer at a time, so its order is kept; a slow call holds up only the lanes that are in it.
S2  Of a call that fails as a whole for another reason than that the place is away, each lane is asked again alone: one route's
    message does no harm to another's.
S3  A call whose lanes have all withdrawn is cancelled.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence

import structlog

from trunkline.core.clock import Clock
from trunkline.core.errors import LocalProtocolError, Retryable, Terminal
from trunkline.net.tasks import Tasks
from trunkline.routes.ends import Sendable, Sending, Undelivered
from trunkline.routes.local.counts import SenderCounts
from trunkline.routes.shared import PluginKey
from trunkline.routes.within import sent_within

AT_ONCE = 500  # messages of a call: large enough for any sender's batches, small enough to be done within a deadline

Answers = Sequence[Undelivered | None]
Answered = Callable[[Answers | Exception], None]

log = structlog.get_logger(__name__)


class Offer:
    """Messages of one lane. `seconds`: how long it waits for an answer; `answered` is called once with it, or with what is a
    defect of the sender; not if the lane has withdrawn."""

    __slots__ = ("answered", "call", "messages", "seconds", "withdrawn")

    def __init__(self, messages: list[Sendable], seconds: float, answered: Answered) -> None:
        self.messages, self.seconds, self.answered = messages, seconds, answered
        self.withdrawn = False
        self.call: _Call | None = None

    def withdraw(self) -> None:
        self.withdrawn = True
        if self.call is not None and all(offer.withdrawn for offer in self.call.offers):
            self.call.task.cancel()


class _Call:
    __slots__ = ("offers", "task")

    def __init__(self, offers: list[Offer], task: asyncio.Task[None]) -> None:
        self.offers, self.task = offers, task


class Sender:
    def __init__(self, key: PluginKey, sending: Sending, clock: Clock) -> None:
        self.key, self.sending, self._clock = key, sending, clock
        self.counts = SenderCounts()
        self._offers: deque[Offer] = deque()
        self._gathers = False
        self._tasks = Tasks()
        self._calls: Counter[int] = Counter()
        self._returned = asyncio.Event()

    def offer(self, offer: Offer) -> None:
        self._offers.append(offer)
        if not self._gathers:
            self._gather()

    async def send(self, messages: Sequence[Sendable], seconds: float) -> Answers:
        """Raises what is a defect of the sender."""
        try:
            return await self._called(messages, seconds)
        except LocalProtocolError:
            raise
        except Terminal as error:
            return self._counted([Undelivered(f"{error.what}: {error.why}", again=False)] * len(messages))

    async def exchange(self, sending: Sending) -> None:
        """The old one is closed when its calls have returned."""
        old, self.sending = self.sending, sending
        while self._calls[id(old)]:
            self._returned.clear()
            await self._returned.wait()
        del self._calls[id(old)]
        await old.close()

    async def close(self) -> None:
        await self._tasks.cancel()
        await self.sending.close()

    def _gather(self) -> None:
        self._gathers = True
        self._tasks.spawn(self._together(), f"sends by {self.key.plugin}")

    async def _together(self) -> None:
        offers = self._gathered()
        self._gathers = False
        if self._offers:
            self._gather()
        if not offers:
            return
        task = asyncio.current_task()
        assert task is not None, "this is one"
        call = _Call(offers, task)
        for offer in offers:
            offer.call = call
        try:
            if len(offers) == 1 or not await self._at_once(offers):
                for offer in offers:
                    await self._alone(offer)
        finally:
            for offer in offers:
                offer.call = None  # no cycles: the collector has a million things to look through where there are many routes

    def _gathered(self) -> list[Offer]:
        """As many as fit into a call, and one at least."""
        offers: list[Offer] = []
        count = 0
        while self._offers and (not offers or count + len(self._offers[0].messages) <= AT_ONCE):
            offer = self._offers.popleft()
            if not offer.withdrawn:
                offers.append(offer)
                count += len(offer.messages)
        return offers

    async def _at_once(self, offers: list[Offer]) -> bool:
        """Whether there was an answer for each."""
        messages = [message for offer in offers for message in offer.messages]
        try:
            answers = await self._called(messages, min(offer.seconds for offer in offers))
        except Exception as error:
            log.debug("lanes are asked alone", plugin=self.key.plugin, reason=str(error))
            return False
        begin = 0
        for offer in offers:
            end = begin + len(offer.messages)
            self._tell(offer, answers[begin:end])
            begin = end
        return True

    async def _alone(self, offer: Offer) -> None:
        if offer.withdrawn:
            return
        try:
            self._tell(offer, await self.send(offer.messages, offer.seconds))
        except Exception as error:
            self._tell(offer, error)

    def _tell(self, offer: Offer, answers: Answers | Exception) -> None:
        if offer.withdrawn:
            return
        try:
            offer.answered(answers)
        except Exception as error:
            log.error("an answer was not understood", plugin=self.key.plugin, next_step="report this defect", exc_info=error)

    async def _called(self, messages: Sequence[Sendable], seconds: float) -> Answers:
        sending = self.sending
        self.counts.calls += 1
        self._calls[id(sending)] += 1
        try:
            answers = await sent_within(sending, messages, seconds)
        except TimeoutError:
            answers = [Undelivered(f"no answer within {seconds:.1f} s", again=True)] * len(messages)
        except Retryable as error:
            answers = [Undelivered(f"{error.what}: {error.why}", again=True)] * len(messages)
        finally:
            self._calls[id(sending)] -= 1
            self._returned.set()
        if len(answers) != len(messages):
            why = f"{len(answers)} answers for {len(messages)} messages"
            raise LocalProtocolError(f"sender {self.key.plugin}", why, "report this defect of the plugin")
        return self._counted(answers)

    def _counted(self, answers: Answers) -> Answers:
        missing = sum(1 for answer in answers if answer is not None)
        self.counts.sent += len(answers) - missing
        self.counts.undelivered += missing
        self.counts.last = self._clock.wall()
        return answers
