"""Kafka as a feed: all topics of one cluster that live routes name, read together.

Looking, judging, admitting and fetching are those of `trunkline.pipeline.kafka`; offsets are kept in the same tables, under the
group's name.

K1  A topic that nobody has read yet begins at its end, or at its first record if one of its receivers says `earliest`. One
    that was not there when its route came begins at its first record, whatever they say.
K2  Receivers of one topic share its offsets: who joins later begins where the others are.
K3  An event's id names the topic by its id, too: one that was made anew under its name has other events.
K4  A topic that goes backward stands still until somebody says where it is to be read on; the others are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import structlog
from confluent_kafka import Consumer, Message

from trunkline.core.errors import Terminal
from trunkline.pipeline.jobs.feed import Connection, Read
from trunkline.pipeline.jobs.receivers import Receiver, Receivers
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.pipeline.kafka.admit import Limits, admit, pack
from trunkline.pipeline.kafka.clients import borrowed, configuration
from trunkline.pipeline.kafka.cluster import Cluster, Look
from trunkline.pipeline.kafka.fetch import CONSUMER, fetch
from trunkline.pipeline.kafka.judge import Change, Move, Offsets, Seen, Standing, judge
from trunkline.pipeline.kafka.offsets import begin_at, read_offsets, remembered, store_offsets
from trunkline.pipeline.kafka.plan import Plan, stand_of
from trunkline.pipeline.kafka.records import millis
from trunkline.pipeline.kafka.sizes import PROBE, Sizes
from trunkline.routes.event import Event, Source
from trunkline.routes.receivers.reading import read_or_text
from trunkline.routes.senders.kafka_settings import cluster_settings

AT_ONCE, BYTES_AT_ONCE = 5_000, 8 << 20
"""Events of a chunk: while they are routed the client fetches the next."""
_TASK_ROWS = 1_000  # below this a second task costs more than it saves
_NAMED = 3  # topics that stand still
NOT_THERE = ""
"""The id of a topic that was wanted before it was made."""

log = structlog.get_logger(__name__)


class KafkaPiece(msgspec.Struct, frozen=True):
    """(topic, partition, first, end) of whole partitions' shares, and the topics' ids."""

    shares: tuple[tuple[str, int, int, int], ...]
    ids: dict[str, str]


class KafkaFeed:
    def __init__(self, settings: JobSettings) -> None:
        self._settings = settings
        self._cluster: Cluster | None = None
        self._sizes: Sizes | None = None
        self._turn = 0
        self._backward: dict[str, str] = {}

    @property
    def stuck(self) -> str:
        """K4."""
        reasons = list(self._backward.values())
        more = [f"and {len(reasons) - _NAMED} more"] if len(reasons) > _NAMED else []
        return "; ".join([*reasons[:_NAMED], *more])

    # -- planning

    def next(self, conn: Connection, receivers: Receivers, open_body: Any | None) -> tuple[Any | None, int]:
        if not receivers:
            return None, 0
        topics = {receiver.config.topic for receiver in receivers.values()}
        offsets: Offsets = read_offsets(conn, self._settings.group)
        look = self._known(receivers).look(topics.__contains__, offsets)
        offsets = self._begun(conn, receivers, topics, offsets, look)
        moves, changes = self._judged(conn, offsets, look)
        stand = stand_of(offsets)
        if open_body is not None:
            plan = msgspec.convert(open_body, Plan, str_keys=True)
            if plan.stand == stand and plan.still_holds(moves, changes):
                return open_body, sum(m.rows for m in moves) - plan.rows()
        plan = Plan(stand, tuple(self._admitted(receivers, moves)), tuple(changes))
        behind = sum(m.rows for m in moves) - plan.rows()
        return (msgspec.to_builtins(plan, str_keys=True) if plan else None), behind

    def _begun(self, conn: Connection, receivers: Receivers, topics: set[str], offsets: Offsets, look: Look) -> Offsets:
        """K1."""
        new = {t: seen for t, seen in look.seen.items() if t not in offsets}
        returned = remembered(conn, self._settings.group, [seen.id for seen in new.values()])
        early = {r.config.topic for r in receivers.values() if r.config.start_at == "earliest"}
        begins = {t: _at_end(seen) for t, seen in new.items() if t not in early and t not in returned}
        here = {topic for topic, _ in look.ends}
        begins |= {t: Standing(NOT_THERE, {0: 0}) for t in topics - here - offsets.keys()}
        if begins:
            begin_at(conn, self._settings.group, begins)
        return {**offsets, **begins}

    def _judged(self, conn: Connection, offsets: Offsets, look: Look) -> tuple[list[Move], list[Change]]:
        returned = remembered(conn, self._settings.group, [s.id for topic, s in look.seen.items() if topic not in offsets])
        moves: list[Move] = []
        changes = [Change(topic, offsets[topic], None) for topic in look.gone if offsets[topic].id != NOT_THERE]
        backward: dict[str, str] = {}
        for topic, seen in sorted(look.seen.items()):
            try:
                onward, change = judge(topic, offsets.get(topic) or returned.get(topic), seen)
            except Terminal as error:
                backward[topic] = str(error)
                if topic not in self._backward:
                    log.error("a topic is not read on; others are", topic=topic, reason=error.why, next_step=error.next_step)
                continue
            moves += onward
            changes += [change] if change else []
        self._backward = backward
        return moves, changes

    def _admitted(self, receivers: Receivers, moves: Sequence[Move]) -> list[Move]:
        if self._sizes is None:
            self._sizes = Sizes(_config(receivers, PROBE))
        limits = Limits(self._settings.max_rows, self._settings.max_bytes)
        self._turn += 1
        return admit(moves, self._sizes.of(moves), limits, self._turn)

    def partition(self, source: str) -> str:
        return source.rpartition("/")[0]

    def rows(self, body: Any) -> int:
        return msgspec.convert(body, Plan, str_keys=True).rows()

    def pieces(self, body: Any, tasks: int) -> Sequence[KafkaPiece]:
        plan = msgspec.convert(body, Plan, str_keys=True)
        ids = {move.topic: move.id for move in plan.moves}
        count = min(tasks, -(-plan.rows() // _TASK_ROWS))
        packed = pack(plan.moves, count) if count else []
        return [KafkaPiece(tuple(shares), {t: ids[t] for t, *_ in shares}) for shares in packed]

    # -- in a task

    def read(self, piece: KafkaPiece, receivers: Receivers) -> Iterator[Read]:
        of_topic: dict[str, list[Receiver]] = {}
        for receiver in receivers.values():
            of_topic.setdefault(receiver.config.topic, []).append(receiver)
        with borrowed(Consumer, _config(receivers, CONSUMER)) as consumer:
            for messages in _chunks(fetch(consumer, piece.shares, self._settings.patience_seconds)):
                by_topic: dict[str, list[Message]] = {}
                for message in messages:
                    by_topic.setdefault(message.topic(), []).append(message)  # type: ignore[arg-type]
                for topic, of_it in by_topic.items():
                    name = f"{topic}@{piece.ids[topic][:8]}/"
                    for receiver, events in _events(name, of_it, of_topic.get(topic, ())):
                        yield receiver, events

    # -- in the driver

    def move(self, conn: Connection, body: Any) -> None:
        store_offsets(conn, self._settings.group, msgspec.convert(body, Plan, str_keys=True))

    def check(self, body: Any, receivers: Receivers) -> None:
        if receivers:
            self._known(receivers).ask_same_topics(msgspec.convert(body, Plan, str_keys=True))()

    def close(self) -> None:
        if self._sizes is not None:
            self._sizes.close()
        self._cluster = None

    def _known(self, receivers: Receivers) -> Cluster:
        if self._cluster is None:
            client = _client(receivers)
            self._cluster = Cluster(client.pop("bootstrap.servers"), client, self._settings.patience_seconds)
        return self._cluster


def _client(receivers: Receivers) -> dict[str, Any]:
    """All receivers of a group reach their cluster in the same way."""
    return cluster_settings(next(iter(receivers.values())).config)


def _config(receivers: Receivers, own: dict[str, Any]) -> dict[str, Any]:
    client = _client(receivers)
    return configuration(client.pop("bootstrap.servers"), own, client)


def _at_end(seen: Seen) -> Standing:
    return Standing(seen.id, {partition: span.end for partition, span in seen.spans.items()})


def _chunks(fetched: Iterator[list[Message]]) -> Iterator[list[Message]]:
    chunk: list[Message] = []
    size = 0
    for messages in fetched:
        chunk += messages
        size += sum(map(len, messages))
        if len(chunk) >= AT_ONCE or size >= BYTES_AT_ONCE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _events(name: str, messages: Sequence[Message], receivers: Sequence[Receiver]) -> Iterator[Read]:
    read = [_read(name, message, at) for message, at in zip(messages, millis(messages), strict=True)]
    for receiver in receivers:
        tenant = receiver.tenant
        yield receiver, [Event(payload, about, Source(id, tenant, "", at)) for payload, about, id, at in read]


def _read(name: str, message: Message, at: int | None) -> tuple[Any, dict[str, Any], str, float]:
    value = message.value()
    payload, is_json = read_or_text(value) if value is not None else (None, True)
    partition, offset, key = message.partition(), message.offset(), message.key()
    headers: Any = message.headers()
    about: dict[str, Any] = {"topic": message.topic(), "partition": partition, "offset": offset}
    if key is not None:
        about["key"] = key.decode(errors="replace") if isinstance(key, bytes) else key
    if headers:
        about["headers"] = {h: v.decode(errors="replace") if isinstance(v, bytes) else v for h, v in headers}
    if not is_json:
        about["text"] = True
    return payload, {"kafka": about}, f"{name}{partition}/{offset}", (at or 0) / 1000
