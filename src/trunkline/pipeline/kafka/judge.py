"""What a look at the broker means for a reader: where to read on, what was lost, which topic is another one. Pure.

K1  A topic's id is its identity. Another id under the same name is a new topic: it is read from its earliest record, and
    the reset is recorded; offsets of the two are never compared (H31).
K2  Within one identity a reader only goes forward. An end before its offset is refused (H28): the broker lost its newest
    records, and nobody knows from where on others stand in their place. Whoever bears to read twice begins the topic again
    instead, as if it were a new one.
K3  What the broker trimmed before it was read is lost, and exactly that is said: from the offset up to the earliest record.
    Holes between records (aborted, markers, compacted away) are nobody's loss and are not looked for.
K4  A partition never seen starts at its earliest record; so does every partition of a new topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from trunkline.core.errors import Terminal


class Standing(msgspec.Struct, frozen=True):
    """One topic of a reader group: its identity, and the offset to read next of every partition that was seen."""

    id: str
    next: dict[int, int]


Offsets = Mapping[str, Standing]
"""topic → standing"""


class Span(msgspec.Struct, frozen=True):
    earliest: int
    end: int


class Seen(msgspec.Struct, frozen=True):
    """A topic as the broker shows it; partitions that stand where the reader does may be left out."""

    id: str
    spans: dict[int, Span]


class Move(msgspec.Struct, frozen=True, array_like=True):
    """A partition's offset goes from `start` (none: never seen) to `end`; the records from `first` on are read."""

    topic: str
    partition: int
    id: str
    start: int | None
    first: int
    end: int

    @property
    def rows(self) -> int:
        """At most: offsets may have holes."""
        return self.end - self.first

    @property
    def is_needed(self) -> bool:
        return self.end != self.start


class Gap(msgspec.Struct, frozen=True):
    """Offsets from `first` up to and without `end` were lost."""

    topic: str
    partition: int
    id: str
    first: int
    end: int


class Change(msgspec.Struct, frozen=True):
    """The topic that was `old` is now another one, none, or the same one begun again."""

    topic: str
    old: Standing
    new_id: str | None


def judge(topic: str, stood: Standing | None, seen: Seen, again: bool = False) -> tuple[list[Move], Change | None]:
    """Moves up to the end of all there is. `again`: what lost its newest records is read again."""
    if stood is None or stood.id != seen.id or (again and _is_cut(stood, seen)):
        moves = [Move(topic, p, seen.id, None, span.earliest, span.end) for p, span in sorted(seen.spans.items())]
        return moves, Change(topic, stood, seen.id) if stood else None
    return list(_onward(topic, stood, seen)), None


def _is_cut(stood: Standing, seen: Seen) -> bool:
    return any(span.end < stood.next.get(partition, 0) for partition, span in seen.spans.items())


def _onward(topic: str, stood: Standing, seen: Seen) -> Iterator[Move]:
    for partition, span in sorted(seen.spans.items()):
        start = stood.next.get(partition)
        first = span.earliest if start is None else max(start, span.earliest)
        if first > span.end:
            raise Terminal(
                f"Kafka partition {topic}/{partition}", f"it goes backward: read up to {start}, but it ends at {span.end}",
                "its newest records were lost by the broker: set its offset in pipeline.kafka_offset",
            )  # fmt: skip
        move = Move(topic, partition, seen.id, start, first, span.end)
        if move.is_needed:
            yield move
