"""Kafka messages as status messages: whose each is, and its headers as ours.

M1  A message is its topic's site's, or on a topic that sites share its key's. What a header says of it is judged later, against
    this.
M2  Messages that have our headers go on as they are, so only those of other senders pay for being rewritten.
M3  What cannot be read goes on as well: intake refuses it with a reason, and keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
from confluent_kafka import Message

from trunkline.bridge.envelope import normalise
from trunkline.core.errors import Invalid
from trunkline.core.ids import check_name
from trunkline.core.jsoncodec import dumps
from trunkline.pipeline.arrivals import ARRIVALS, HEADER_COLUMNS
from trunkline.pipeline.kafka.records import BATCH_BYTES, batches, millis
from trunkline.pipeline.kafka.settings import Subscription
from trunkline.pipeline.newest import Choice, Newest
from trunkline.queues.kinds import Kind

# Every header set of ours has it, and no other does.
_OURS = "ce_incarnation"
_KNOWN = frozenset(HEADER_COLUMNS)
_MOST_KEPT = 5_000
# It says nothing more of a message that has our headers.
_NO_OTHERS = _KNOWN | {"content-type"}

Headers = dict[str, str]


class Senders:
    """Whose a message is; '' where there is no telling."""

    def __init__(self, subscription: Subscription) -> None:
        self._shared = subscription.topics
        self._pattern = re.compile(subscription.pattern) if subscription.pattern else None
        if self._pattern is not None and "site" not in self._pattern.groupindex:
            raise Invalid(
                f"topic pattern {subscription.pattern}", "it does not say which part of a name is the site",
                "put that part in a group (?P<site>...)",
            )  # fmt: skip
        self._of_topic = lru_cache(maxsize=20_000)(self._matched)
        self._of_key = lru_cache(maxsize=20_000)(_site)

    def is_shared(self, topic: str) -> bool:
        return topic in self._shared

    def of_topic(self, topic: str) -> str:
        return self._of_topic(topic)

    def of(self, topic: str, key: bytes | None) -> str:
        return self._of_key(key) if topic in self._shared else self._of_topic(topic)

    def _matched(self, topic: str) -> str:
        found = self._pattern.fullmatch(topic) if self._pattern else None
        return found["site"] or "" if found else ""


def _site(key: bytes | None) -> str:
    try:
        return check_name("site", (key or b"").decode())
    except (UnicodeDecodeError, Invalid):
        return ""


def conflated(fetched: Iterable[Sequence[Message]], senders: Senders, newest: Newest) -> Iterator[pa.RecordBatch]:
    """Only what goes on; nothing is made of the others, which in overload are most."""
    choice: Choice[Message] = newest.choice()
    for messages in fetched:
        for queue, site, message in zip(*places(messages, senders), messages, strict=True):
            choice.add(message, queue, site, dict(message.headers() or ()))  # type: ignore[arg-type]
        if len(choice) >= _MOST_KEPT or sum(len(message) for message, _ in choice.kept()) >= BATCH_BYTES:
            yield from _kept(choice, senders)
            choice = newest.choice()
    if len(choice):
        yield from _kept(choice, senders)


def _kept(choice: Choice[Message], senders: Senders) -> Iterator[pa.RecordBatch]:
    kept = choice.kept()
    copies = iter([copies for _, copies in kept])
    return batches([m for m, _ in kept], lambda part: batch(part, senders, [next(copies) for _ in part]))


def batch(messages: Sequence[Message], senders: Senders, copies: Sequence[int] = ()) -> pa.RecordBatch:
    queues, sites = places(messages, senders)
    stamps = millis(messages)
    known, others, payloads = _contents(messages)
    columns = [
        pa.array(queues, pa.string()),
        pa.array([m.offset() for m in messages], pa.int64()),
        pa.array(sites, pa.string()),
        *known,
        others,
        payloads,
        pa.array([None if at is None else at / 1000 for at in stamps], pa.float64()),
        pa.array([int(Kind.LOG_ENTRY)] * len(messages), pa.int32()),
        pa.array(copies or [1] * len(messages), pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARRIVALS)


def places(messages: Sequence[Message], senders: Senders) -> tuple[list[str], list[str]]:
    """The queue and the site of each."""
    queues: list[str] = []
    sites: list[str] = []
    names: dict[tuple[str | None, int | None], str] = {}
    for m in messages:
        topic, partition = m.topic(), m.partition()
        queue = names.get((topic, partition))
        if queue is None:
            queue = names[topic, partition] = f"{topic}@{partition}"
        queues.append(queue)
        sites.append(senders.of(topic, m.key()))  # type: ignore[arg-type]
    return queues, sites


def _contents(messages: Sequence[Message]) -> tuple[list[pa.Array], pa.Array, pa.Array]:
    """The columns of `HEADER_COLUMNS`, what else there is of headers, and payloads."""
    rows: list[dict[str, bytes | None]] = [dict(m.headers() or ()) for m in messages]  # type: ignore[arg-type]
    if all(_OURS in row and _NO_OTHERS.issuperset(row) for row in rows):
        try:
            known = [pa.array([row.get(name) for row in rows], pa.string()) for name in HEADER_COLUMNS]
            return known, pa.nulls(len(messages), pa.string()), pa.array([_body(m) for m in messages], pa.binary())
        except pa.ArrowInvalid:
            pass  # one of them is not UTF-8
    contents = [read(m) for m in messages]
    texts = [pa.array([headers.get(name) for headers, _ in contents], pa.string()) for name in HEADER_COLUMNS]
    return (
        texts,
        pa.array([_others(h) for h, _ in contents], pa.string()),
        pa.array([body for _, body in contents], pa.binary()),
    )


def _body(message: Message) -> bytes:
    value: bytes | None = message.value()
    return value or b""


def _texts(message: Message) -> Headers:
    pairs: dict[str, bytes | None] = dict(message.headers() or ())  # type: ignore[arg-type]
    return {name: value.decode(errors="backslashreplace") for name, value in pairs.items() if value is not None}


def read(message: Message) -> tuple[Headers, bytes]:
    """Its headers as ours, and its payload."""
    headers = _texts(message)
    return (headers, _body(message)) if _OURS in headers else normalise(headers, _body(message))


def _others(headers: Headers) -> str | None:
    others = {name: value for name, value in headers.items() if name not in _KNOWN}
    return dumps(others).decode() if others else None
