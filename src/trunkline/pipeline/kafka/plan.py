"""A batch as it is promised to Spark: the partitions that move, and the topics that are no longer what they were. Pure.

A plan names the offsets it begins at by a digest of all of them, so it stays small beside thousands of idle partitions and
still fits only one standing of its group.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from trunkline.core.jsoncodec import dumps
from trunkline.pipeline.kafka.judge import Change, Gap, Move, Offsets, Standing


def stand_of(offsets: Offsets) -> str:
    return hashlib.blake2b(dumps(msgspec.to_builtins(offsets, str_keys=True)), digest_size=16).hexdigest()


class Plan(msgspec.Struct, frozen=True):
    stand: str
    moves: tuple[Move, ...]
    changes: tuple[Change, ...] = ()
    epoch: int = 0

    def __bool__(self) -> bool:
        return bool(self.moves or self.changes)

    def rows(self) -> int:
        """At most: offsets may have holes."""
        return sum(move.rows for move in self.moves)

    def gaps(self) -> Iterator[Gap]:
        for m in self.moves:
            if m.start is not None and m.start < m.first:
                yield Gap(m.topic, m.partition, m.id, m.start, m.first)

    def applied_to(self, offsets: Offsets) -> dict[str, Standing]:
        changed = {change.topic for change in self.changes}
        after = {topic: standing for topic, standing in offsets.items() if topic not in changed}
        moved: dict[str, Standing] = {}
        for m in self.moves:
            moved.setdefault(m.topic, Standing(m.id, {})).next[m.partition] = m.end
        for topic, standing in moved.items():
            before = after[topic].next if topic in after else {}
            after[topic] = Standing(standing.id, {**before, **standing.next})
        return after

    def still_holds(self, moves: Iterable[Move], changes: Iterable[Change]) -> bool:
        """Whether the broker can still give all of it, and nothing more was lost."""
        ends = {(m.topic, m.partition, m.id, m.start, m.first): m.end for m in moves}
        kept = all(ends.get((m.topic, m.partition, m.id, m.start, m.first), -1) >= m.end for m in self.moves)
        return kept and set(map(_name, self.changes)) <= set(map(_name, changes))


def _name(change: Change) -> tuple[str, str, str | None]:
    return change.topic, change.old.id, change.new_id
