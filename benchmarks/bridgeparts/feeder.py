"""Sends status to Kafka from a process of its own, so that what it costs is not the bridge's.

Messages are made first and sent at a word: what is measured begins with the first of them. Each carries the time it is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from confluent_kafka import Producer

from bridgeparts.payloads import Message
from queueparts.pace import _SPAWN, spawn

PATIENCE_SECONDS = 900.0
SHARED = "shared"
"""The topic that sites share; the others are one per site."""
_PRODUCER = {
    "log_level": 0, "linger.ms": 20, "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 512 << 10,
    "message.max.bytes": 64 << 20, "batch.num.messages": 10_000,
}  # fmt: skip
Make = Callable[[], Iterable[Message]]
Paced = Callable[[int], Iterable[Message]]


def topic_of(site: str) -> str:
    return f"status.{site}"


@dataclass(frozen=True)
class Sent:
    """`first` and `last` in unix seconds, as the messages say."""

    messages: int
    first: float
    last: float


class _Sender:
    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, **_PRODUCER})
        self._ready: list[Message] = []
        self._failures: list[str] = []

    def prepare(self, make: Make) -> int:
        self._ready = list(make())
        return len(self._ready)

    def send(self, shared: bool) -> Sent:
        ready, self._ready = self._ready, []
        return self._through(ready, shared)

    def stream(self, make: Make, shared: bool) -> Sent:
        return self._through(make(), shared)

    def pace(self, make: Paced, rounds: int, seconds: float, shared: bool) -> Sent:
        """A round takes so many seconds, its messages evenly spread over them."""
        every = [list(make(number)) for number in range(rounds)]
        begun, sent = time.time(), 0
        for number, messages in enumerate(every):
            for at, message in enumerate(messages):
                due = begun + (number + at / len(messages)) * seconds
                if (pause := due - time.time()) > 0:
                    time.sleep(pause)
                self._produce(message, shared)
            sent += len(messages)
        self._flush()
        return Sent(sent, begun, time.time())

    def _through(self, messages: Iterable[Message], shared: bool) -> Sent:
        begun, number = time.time(), 0
        for number, message in enumerate(messages, 1):  # noqa: B007
            self._produce(message, shared)
        last = time.time()
        self._flush()
        return Sent(number, begun, last)

    def _produce(self, message: Message, shared: bool) -> None:
        now = datetime.now(UTC).isoformat()
        headers: Any = {**message.headers, "ce_time": now}
        topic = SHARED if shared else topic_of(message.site)
        while True:
            try:
                self._producer.produce(topic, message.data, message.site, headers=headers, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(0.05)
        self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def _flush(self) -> None:
        left = self._producer.flush(60.0)
        assert (left, self._failures) == (0, []), f"{left} not sent; {self._failures[:3]}"


def _serve(bootstrap: str, pipe: Any) -> None:
    sender = _Sender(bootstrap)
    while (told := pipe.recv()) is not None:
        name, args = told
        try:
            pipe.send((getattr(sender, name)(*args), None))
        except Exception as error:
            pipe.send((None, f"{type(error).__name__}: {error}"))


class Feeder:
    """What it is given to make messages with must be importable: a function of a module, perhaps a `partial` of one."""

    def __init__(self, bootstrap: str) -> None:
        self._pipe, there = _SPAWN.Pipe()
        self._process = spawn(_serve, bootstrap, there)

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def _ask(self, name: str, *args: object) -> None:
        self._pipe.send((name, args))

    def answer(self, meanwhile: Callable[[], None] = lambda: None) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._pipe.poll(0.1):
            assert time.monotonic() < deadline, "the sender says nothing"
            meanwhile()
        found, error = self._pipe.recv()
        assert error is None, error
        return found

    def prepare(self, make: Make) -> int:
        self._ask("prepare", make)
        return int(self.answer())

    def send(self, shared: bool = False) -> Sent:
        self._ask("send", shared)
        found: Sent = self.answer()
        return found

    def stream(self, make: Make, shared: bool = False) -> Sent:
        self._ask("stream", make, shared)
        found: Sent = self.answer()
        return found

    def begin_pace(self, make: Paced, rounds: int, seconds: float, shared: bool = False) -> None:
        """Its answer comes when all is sent."""
        self._ask("pace", make, rounds, seconds, shared)

    def stop(self) -> None:
        self._pipe.send(None)
        self._process.join(30)


@contextmanager
def feeding(bootstrap: str) -> Iterator[Feeder]:
    feeder = Feeder(bootstrap)
    try:
        yield feeder
    finally:
        feeder.stop()


def made(make: Callable[..., Iterable[Message]], *args: object) -> Make:
    return partial(make, *args)
