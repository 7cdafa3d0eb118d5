"""Looks at a Kafka cluster: which topics there are, who they are, and from where to where their records go.

One call for all partitions, whatever their number. Earliest offsets and topic ids are asked only of topics that moved, and
not of those that stood at their ends at the look before: what came since is too young to be trimmed. Should it be gone all
the same, or the topic be another one, then the batch fails while it is read or before it is committed, and the first look
of the query's next start asks everything, of topics that did not move as well: one made anew may end where the old one did.

An offset says nothing of the topic's id, and a topic can be made anew between two calls. But an id never returns. So ends
belong to an id that was true before and is true after them: they are *settled*. What is not settled is asked once more, and
otherwise waits for the next look. What happens after that is found by `ask_same_topics`: an id that is still true when
the records have been read was true all the while.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from trunkline.core.errors import Retryable
from trunkline.pipeline.kafka.clients import configuration
from trunkline.pipeline.kafka.judge import Offsets, Seen, Span, Standing
from trunkline.pipeline.kafka.plan import Plan

Place = tuple[str, int]
"""topic, partition"""

# One partition without a leader, or one topic that is just made or just deleted, must not stop the others.
_PASSING = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
}

_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]

K = TypeVar("K")
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Look:
    seen: Mapping[str, Seen] = field(default_factory=dict)
    gone: Collection[str] = ()
    ends: Mapping[Place, int] = field(default_factory=dict)


class Cluster:
    def __init__(self, bootstrap: str, client: Mapping[str, str], patience_seconds: float) -> None:
        self._bootstrap, self._patience = bootstrap, patience_seconds
        self._admin = AdminClient(configuration(bootstrap, {}, client))
        self._silent: set[Place] = set()
        self._ends: Mapping[Place, int] = {}
        self._is_first = True

    def look(self, wants: Callable[[str], bool], offsets: Offsets) -> Look:
        """What moved of the wanted topics, beside `offsets`; `gone` are those of them that are no more."""
        try:
            topics = self._topics(wants)
            seen, unsettled, ends = self._settle(topics, {}, offsets)
            again, _, _ = self._settle({t: topics[t] for t in unsettled}, unsettled, offsets)
        except KafkaException as error:
            raise self._away(error) from None
        self._tell_silent({(t, p) for t, partitions in topics.items() for p in partitions} - ends.keys())
        self._ends, self._is_first = ends, False
        gone = sorted(t for t in offsets if wants(t) and t not in topics)
        return Look({**seen, **again}, gone, ends)

    def _tell_silent(self, silent: set[Place]) -> None:
        """Once, not with every look."""
        if silent - self._silent:
            some = [f"{topic}/{partition}" for topic, partition in sorted(silent)[:5]]
            log.warning("Kafka partitions without a leader wait for the next look", count=len(silent), some=some)
        self._silent = silent

    def ask_same_topics(self, plan: Plan) -> Callable[[], None]:
        """For after the records were read: what was read of a topic is of that topic only if it is still the same one. Asks
        at once; what is returned waits for the answer and raises if it is another."""
        planned = {m.topic: m.id for m in plan.moves if m.rows}
        asked = self._ask_ids(planned)

        def require() -> None:
            try:
                found = _ids(asked)
            except KafkaException as error:
                raise self._away(error) from None
            others = sorted(topic for topic, topic_id in planned.items() if found.get(topic) != topic_id)
            if others:
                raise Retryable(
                    f"Kafka topics {', '.join(others[:5])}", "deleted or made anew while they were read",
                    "the query starts anew and plans again",
                )  # fmt: skip

        return require

    def _away(self, error: KafkaException) -> Retryable:
        why = error.args[0].str() if error.args and isinstance(error.args[0], KafkaError) else str(error)
        return Retryable(f"Kafka at {self._bootstrap}", why, "see whether its brokers run and can be reached")

    def _topics(self, wants: Callable[[str], bool]) -> dict[str, list[int]]:
        listed = self._admin.list_topics(timeout=self._patience).topics
        return {name: list(found.partitions) for name, found in listed.items() if wants(name)}

    def _settle(
        self, topics: Mapping[str, list[int]], ids: Mapping[str, str], offsets: Offsets
    ) -> tuple[dict[str, Seen], dict[str, str], dict[Place, int]]:
        """Topics that are settled; ids of those that are not; all ends."""
        before = {t: ids.get(t) or offsets[t].id for t in topics if t in ids or t in offsets}
        before |= _ids(self._ask_ids([t for t in topics if t not in before]))
        ends = _offsets(self._ask_offsets([(t, p) for t, partitions in topics.items() for p in partitions], _LATEST))
        moved = [
            place for place, end in ends.items() if self._is_first or not _stands_at(offsets.get(place[0]), before, place, end)
        ]
        same = {t: offsets[t] for t, topic_id in before.items() if t in offsets and offsets[t].id == topic_id}
        asked = {place[0] for place in moved if not self._follows(same.get(place[0]), place, ends[place])}
        firsts, names = self._ask_offsets([m for m in moved if m[0] in asked], _EARLIEST), self._ask_ids(asked)
        earliest, after = _offsets(firsts), _ids(names)
        seen = {t: Seen(i, {}) for t, i in after.items() if before.get(t) == i}
        for t, p in moved:
            if t not in asked:
                seen.setdefault(t, Seen(before[t], {})).spans[p] = Span(offsets[t].next[p], ends[t, p])
            elif t in seen and (t, p) in earliest:
                seen[t].spans[p] = Span(earliest[t, p], max(ends[t, p], earliest[t, p]))
        return seen, {t: i for t, i in after.items() if t not in seen}, ends

    def _follows(self, standing: Standing | None, place: Place, end: int) -> bool:
        """Whether all up to `end` came since the last look."""
        return standing is not None and standing.next.get(place[1], end) == self._ends.get(place, -1) < end

    def _ask_ids(self, topics: Iterable[str]) -> Mapping[str, Future[Any]]:
        names = list(topics)
        return self._admin.describe_topics(TopicCollection(names), request_timeout=self._patience) if names else {}

    def _ask_offsets(self, places: Collection[Place], which: OffsetSpec) -> Mapping[TopicPartition, Future[Any]]:
        if not places:
            return {}
        asked = {TopicPartition(t, p): which for t, p in places}
        committed = IsolationLevel.READ_COMMITTED
        return self._admin.list_offsets(asked, isolation_level=committed, request_timeout=self._patience)


def _ids(asked: Mapping[str, Future[Any]]) -> dict[str, str]:
    return {name: str(found.topic_id) for name, found in _answers(asked).items()}


def _offsets(asked: Mapping[TopicPartition, Future[Any]]) -> dict[Place, int]:
    return {(at.topic, at.partition): found.offset for at, found in _answers(asked).items()}


def _stands_at(standing: Standing | None, ids: Mapping[str, str], place: Place, end: int) -> bool:
    topic, partition = place
    return standing is not None and standing.id == ids.get(topic) and standing.next.get(partition) == end


def _answers(asked: Mapping[K, Future[Any]]) -> dict[K, Any]:
    """Those that came; a part that is not to be had now is left out, a cluster that is not there raises."""
    answers: dict[K, Any] = {}
    for key, future in asked.items():
        error = future.exception()
        if error is None:
            answers[key] = future.result()
        elif not (isinstance(error, KafkaException) and error.args[0].code() in _PASSING):
            raise error
    return answers
