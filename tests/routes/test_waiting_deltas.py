from __future__ import annotations

from trunkline.routes.keys import HOUSE
from trunkline.routes.sync.base import Ack, Delta, Operation
from trunkline.routes.sync.waiting import GAP, MANY, Inbox, Load, Outbox, everything


def delta(id: object, session: str = "s") -> Delta:
    return Delta(Operation.ADD, HOUSE, str(id), "me", session)


def ack(number: int) -> Ack:
    return Ack("s", "me", number)


def test_what_is_published_is_taken_once_in_its_order() -> None:
    outbox = Outbox("me")
    outbox.publish([delta(1), delta(2)])
    outbox.ack(ack(1))
    outbox.publish([delta(3)])
    assert outbox.take() == Load([delta(1), delta(2), delta(3)], [ack(1)])
    assert outbox.take() is None


def test_what_could_not_be_sent_comes_first_again() -> None:
    outbox = Outbox("me")
    outbox.publish([delta(1)])
    outbox.ack(ack(1))
    load = outbox.take()
    assert load is not None
    outbox.publish([delta(2)])
    outbox.ack(ack(2))
    outbox.give_back(load)
    assert outbox.take() == Load([delta(1), delta(2)], [ack(1), ack(2)])


def test_a_publishing_of_too_many_is_one_of_its_session() -> None:
    outbox = Outbox("me")
    outbox.publish([delta("before")])
    outbox.publish([delta(n, "large") for n in range(MANY + 1)])
    outbox.publish([delta(n, "small") for n in range(MANY)])
    load = outbox.take()
    assert load is not None
    assert load.deltas[:2] == [delta("before"), everything("me", "large")]
    assert load.deltas[2:] == [delta(n, "small") for n in range(MANY)]


def test_while_nothing_can_be_sent_deltas_become_one_and_the_oldest_acks_are_dropped() -> None:
    outbox = Outbox("me", most_deltas=5, most_acks=3)
    for n in range(6):
        outbox.publish([delta(n, f"s{n}")])
        outbox.ack(ack(n))
    outbox.publish([delta("after")])
    load = outbox.take()
    assert load == Load([everything("me", ""), delta("after")], [ack(3), ack(4), ack(5)])
    assert outbox.dropped_acks == 3
    outbox.publish([delta(n) for n in range(4)])
    outbox.give_back(load)
    assert outbox.take() == Load([everything("me", "")], [ack(3), ack(4), ack(5)])


async def test_who_hears_faster_than_it_looks_looks_at_everything() -> None:
    inbox = Inbox(most=3)
    for n in range(3):
        inbox.put(delta(n))
    assert await inbox.next() == delta(0)
    for n in range(3, 6):
        inbox.put(delta(n))
    assert [await inbox.next() for _ in range(len(inbox))] == [GAP, delta(5)]
