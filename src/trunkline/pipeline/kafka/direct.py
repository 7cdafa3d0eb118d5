"""A small batch, read by the process that takes it in: no task is planned, started and collected for a few thousand records.

D1  What is read is what a task would read, by the same rules: all of the plan (`trunkline.pipeline.kafka.fetch`), each message
    with its sender and our headers (`trunkline.pipeline.kafka.bundles`).
D2  One consumer is kept between batches. After a failure it is closed, for nobody knows what is left in it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, Message

from trunkline.pipeline.conflate import Survivor
from trunkline.pipeline.kafka.admit import Piece, pack
from trunkline.pipeline.kafka.bundles import Senders, places, read
from trunkline.pipeline.kafka.clients import configuration
from trunkline.pipeline.kafka.fetch import CONSUMER, fetch
from trunkline.pipeline.kafka.plan import Plan
from trunkline.pipeline.kafka.records import millis
from trunkline.pipeline.kafka.settings import Settings


class DirectReader:
    """`close` when done; it waits for a read that is under way."""

    def __init__(self, settings: Settings) -> None:
        self._config = configuration(settings.bootstrap, CONSUMER, settings.client)
        self._patience = settings.patience_seconds
        self._senders = Senders(settings.subscription)
        self._consumer: Consumer | None = None
        self._in_use = threading.Lock()

    def read(self, plan: Plan) -> list[Survivor]:
        """In no order."""
        pieces = [piece for task in pack(plan.moves, 1) for piece in task]
        with self._in_use:
            try:
                return self._survivors(pieces) if pieces else []
            except BaseException:
                self._drop()
                raise

    def close(self) -> None:
        with self._in_use:
            self._drop()

    def _survivors(self, pieces: Sequence[Piece]) -> list[Survivor]:
        if self._consumer is None:
            self._consumer = Consumer(self._config)
        fetched = fetch(self._consumer, pieces, self._patience)
        return [survivor for messages in fetched for survivor in _read(messages, self._senders)]

    def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


def _read(messages: Sequence[Message], senders: Senders) -> Iterator[Survivor]:
    for message, queue, site, at in zip(messages, *places(messages, senders), millis(messages), strict=True):
        headers, payload = read(message)
        offset: int = message.offset()  # type: ignore[assignment]
        yield Survivor(queue, offset, site, headers, payload, at=None if at is None else at / 1000)
