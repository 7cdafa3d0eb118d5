"""Messages into the site's send queue, all of a call in one transaction where its bounds allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import psycopg

from trunkline.db.traced import MESSAGE_ID
from trunkline.queues.client import AsyncQueueClient, Message
from trunkline.routes.ends import Place, Sendable, Undelivered
from trunkline.routes.event import Outgoing
from trunkline.routes.senders.once import Once
from trunkline.routes.senders.transactions import Answers, Transactions

# Below what a transaction of the send queue may hold (TL105, TL106).
MOST_MESSAGES, MOST_BYTES = 1000, 3 << 20
_OF_A_HEADER = 48  # what a pair of the header takes besides its letters, which may be three bytes each


class QueueSending:
    def __init__(self, place: Place) -> None:
        self._transactions = Transactions(place.pool, _transmit, Once(), str)

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        answers: Answers = []
        for part in parts(messages):
            answers += await self._transactions.send(part)
        return answers

    async def close(self) -> None:
        """Nothing is held back, and the pool is the place's."""


def parts(messages: Sequence[Sendable]) -> Iterator[Sequence[Sendable]]:
    """What goes into one transaction each."""
    begin, size = 0, 0
    for nth, message in enumerate(messages):
        own = _bytes(message.message)
        if nth > begin and (nth - begin == MOST_MESSAGES or size + own > MOST_BYTES):
            yield messages[begin:nth]
            begin, size = nth, 0
        size += own
    if messages:
        yield messages[begin:]


def _bytes(message: Outgoing) -> int:
    letters = sum(len(name) + len(value) for name, value in message.headers.items())
    return len(message.payload) + 3 * letters + _OF_A_HEADER * (len(message.headers) + 2)


async def _transmit(conn: psycopg.AsyncConnection[Any], messages: Sequence[Sendable]) -> None:
    for client, run in groupby(messages, key=lambda one: one.message.client):
        of_client, own = AsyncQueueClient(client), [_message(one) for one in run]
        if all(message.destinations == own[0].destinations for message in own):
            headers = [message.headers or {} for message in own]
            await of_client.transmit_many(conn, [message.payload for message in own], own[0].destinations, headers)
        else:
            await of_client.transmit_messages(conn, own)


def _message(one: Sendable) -> Message:
    outgoing: Outgoing = one.message
    return Message(outgoing.payload, outgoing.destinations, {**outgoing.headers, MESSAGE_ID: one.id})
