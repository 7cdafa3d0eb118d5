"""Lanes that share a sender: one call for what they offer together, and an answer for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from running_routes import until
from trunkline.core.clock import SystemClock
from trunkline.core.errors import Invalid, Retryable
from trunkline.routes.ends import Sendable, Undelivered
from trunkline.routes.keys import HOUSE
from trunkline.routes.local.sending import AT_ONCE, Answers, Offer, Sender
from trunkline.routes.shared import End, PluginKey


class Place:
    """Where messages go. `behave` answers for a call, or raises; by default all is sent."""

    def __init__(self, behave: Callable[[list[str]], Sequence[Undelivered | None]] | None = None) -> None:
        self.calls: list[list[str]] = []
        self.answers, self.open, self.closed = asyncio.Event(), 0, False
        self.answers.set()
        self._behave = behave

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        names = [message.id for message in messages]
        self.calls.append(names)
        self.open += 1
        try:
            await self.answers.wait()
        finally:
            self.open -= 1
        return self._behave(names) if self._behave else [None] * len(names)

    async def close(self) -> None:
        self.closed = True


class Lane:
    def __init__(self, sender: Sender, *ids: str, seconds: float = 30.0) -> None:
        self.told: list[Answers | Exception] = []
        self.offer = Offer([Sendable(id, b"") for id in ids], seconds, self.told.append)
        sender.offer(self.offer)


def sender_of(place: Place) -> Sender:
    return Sender(PluginKey(End.SENDER, HOUSE, "place", "p", "h"), place, SystemClock())


async def test_what_lanes_offer_in_one_turn_is_one_call_in_their_order() -> None:
    place = Place()
    sender = sender_of(place)
    lanes = [Lane(sender, f"{n}a", f"{n}b") for n in range(3)]
    await until(lambda: all(lane.told for lane in lanes))
    assert place.calls == [["0a", "0b", "1a", "1b", "2a", "2b"]]
    assert [lane.told for lane in lanes] == [[[None, None]]] * 3
    assert (sender.counts.calls, sender.counts.sent) == (1, 6)


async def test_a_call_holds_no_more_than_a_sender_can_do_within_a_deadline() -> None:
    place = Place()
    sender = sender_of(place)
    ids = [f"m{n}" for n in range(AT_ONCE)]
    lanes = [Lane(sender, *ids[:300]), Lane(sender, *ids[300:]), Lane(sender, "more")]
    await until(lambda: all(lane.told for lane in lanes))
    assert [len(call) for call in place.calls] == [AT_ONCE, 1]


async def test_each_lane_hears_of_its_own_messages() -> None:
    lost = Undelivered("not today", again=True)
    place = Place(lambda names: [lost if name == "b" else None for name in names])
    sender = sender_of(place)
    first, second = Lane(sender, "a"), Lane(sender, "b", "c")
    await until(lambda: second.told)
    assert (first.told, second.told) == ([[None]], [[lost, None]])
    assert (sender.counts.sent, sender.counts.undelivered) == (2, 1)


async def test_a_slow_call_holds_up_only_the_lanes_that_are_in_it() -> None:
    place = Place()
    place.answers.clear()
    sender = sender_of(place)
    slow = Lane(sender, "slow")
    await until(lambda: place.open == 1)
    place.answers = asyncio.Event()
    place.answers.set()
    quick = Lane(sender, "quick")
    await until(lambda: quick.told)
    assert slow.told == []
    slow.offer.withdraw()
    await sender.close()


@pytest.mark.parametrize("error", [Invalid("message bad", "it cannot be sent", "send another"), ZeroDivisionError("a defect")])
async def test_one_lane_s_message_that_makes_the_call_fail_costs_no_other_lane_its_own(error: Exception) -> None:
    def behave(names: list[str]) -> Sequence[Undelivered | None]:
        if "bad" in names:
            raise error
        return [None] * len(names)

    sender = sender_of(Place(behave))
    good, bad, better = Lane(sender, "good"), Lane(sender, "bad"), Lane(sender, "better")
    await until(lambda: better.told)
    assert good.told == better.told == [[None]]
    expected = error if isinstance(error, ZeroDivisionError) else [Undelivered("message bad: it cannot be sent", again=False)]
    assert bad.told == [expected]


async def test_a_place_that_is_away_is_asked_once_for_all() -> None:
    def behave(names: list[str]) -> Sequence[Undelivered | None]:
        raise Retryable("place", "it is away", "wait")

    place = Place(behave)
    sender = sender_of(place)
    lanes = [Lane(sender, f"{n}") for n in range(3)]
    await until(lambda: all(lane.told for lane in lanes))
    assert [lane.told for lane in lanes] == [[[Undelivered("place: it is away", again=True)]]] * 3
    assert len(place.calls) == 1


async def test_nobody_waits_longer_than_the_lane_with_the_least_time() -> None:
    place = Place()
    place.answers.clear()
    sender = sender_of(place)
    patient, hurried = Lane(sender, "patient"), Lane(sender, "hurried", seconds=0.05)
    await until(lambda: patient.told and hurried.told)
    assert patient.told == hurried.told == [[Undelivered("no answer within 0.1 s", again=True)]]


async def test_a_call_is_cancelled_when_all_its_lanes_have_withdrawn_and_not_before() -> None:
    place = Place()
    place.answers.clear()
    sender = sender_of(place)
    lanes = [Lane(sender, "a"), Lane(sender, "b")]
    await until(lambda: place.open)
    lanes[0].offer.withdraw()
    await asyncio.sleep(0)
    assert place.open == 1
    lanes[1].offer.withdraw()
    await until(lambda: not place.open)
    assert [lane.told for lane in lanes] == [[], []]
    await sender.close()
    assert place.closed


async def test_what_was_withdrawn_before_the_call_is_not_sent() -> None:
    place = Place()
    sender = sender_of(place)
    gone, there = Lane(sender, "gone"), Lane(sender, "there")
    gone.offer.withdraw()
    await until(lambda: there.told)
    assert (place.calls, gone.told) == ([["there"]], [])
