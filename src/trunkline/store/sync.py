"""The three-way sync: what one side asks, what the other answers. Pure.

The asking side drives: it goes down from the root to the leaves that differ, tells its headers there, takes what is better at
the other side and gives what is better here. Every message is bounded, so a million keys come in many small steps between
which the event loop is free. Changes that happen meanwhile are flooded; those to a peer that is not yet in step wait for it.

The answering side keeps no state. So it cannot be left with any.

1. An answer must be of the kind that was asked for, and speak only of what was asked.
2. A leaf is asked again only while that is of use: values that cannot be taken do not make an endless sync.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from trunkline.core.errors import RemoteProtocolError
from trunkline.store.digest import LEAVES, ROW_BYTES, WIDTH, differing
from trunkline.store.messages import (
    MOST_BYTES,
    MOST_RECEIVED,
    MOST_VALUES,
    Answer,
    AskKeys,
    AskLeaves,
    AskRoot,
    Difference,
    Leaves,
    Question,
    Ranges,
    Same,
    size_of,
)
from trunkline.store.table import Table
from trunkline.store.values import Header, Value, difference

RANGES_AT_ONCE: Final = 16
LEAVES_AT_ONCE: Final = 64


@dataclass
class Sync:
    """One sync with one peer, as the asking side holds it."""

    area: str
    id: int
    deadline: float
    backwards: bool = False
    """From the last range to the first. Of two sides that ask each other one does: they meet in the middle, and what one told
    the other need not tell."""
    gave: bool = False
    _open: Question | None = None
    _ranges: deque[int] = field(default_factory=deque)
    _leaves: deque[int] = field(default_factory=deque)

    def begin(self, table: Table) -> Question:
        self._open = AskRoot(self.area, self.id, table.digest.root())
        return self._open

    def take(self, answer: Answer, table: Table) -> None:
        """Notes what is still to be asked; values and wishes of a Difference are the caller's."""
        match self._open, answer:
            case AskRoot(), Same():
                pass
            case AskRoot(), Ranges(sums=sums):
                self._ranges.extend(self._in_order(differing(table.digest.ranges(), _row(sums))))
            case AskLeaves(ranges=ranges), Leaves(sums=rows):
                _only(rows, ranges)
                for index in self._in_order(sorted(rows)):
                    self._leaves.extend(differing(table.digest.leaves(index), _row(rows[index]), index * WIDTH))
            case AskKeys(leaves=leaves, headers=headers), Difference(values=values, wanted=wanted, again=again):
                if len(values) > MOST_RECEIVED:
                    raise _wrong(f"{len(values)} values at once")
                if not values and len(again) >= len(leaves):
                    raise _wrong("an answer tells nothing")
                _only(wanted, headers)
                _only(again, leaves)
                self._leaves.extendleft(reversed(again))
            case _:
                raise _wrong(f"{type(answer).__name__} does not answer what was asked")

    def _in_order(self, indices: Sequence[int]) -> Sequence[int]:
        return indices[::-1] if self.backwards else indices

    def leave_one(self) -> None:
        """What came was of no use: the first leaf to ask again would bring the same."""
        self._leaves.popleft()

    def next_question(self, table: Table) -> Question | None:
        """None: all is asked."""
        if self._leaves:
            question: Question = self._ask_keys(table)
        elif self._ranges:
            taken = tuple(self._ranges.popleft() for _ in range(min(RANGES_AT_ONCE, len(self._ranges))))
            question = AskLeaves(self.area, self.id, taken)
        else:
            return None
        self._open = question
        return question

    def _ask_keys(self, table: Table) -> AskKeys:
        """As many leaves as one message holds, and at least one."""
        leaves: list[int] = []
        keys: list[str] = []
        while self._leaves and len(leaves) < LEAVES_AT_ONCE and len(keys) < MOST_VALUES:
            leaves.append(self._leaves.popleft())
            keys += table.digest.keys(leaves[-1:])
        return AskKeys(self.area, self.id, tuple(leaves), table.headers(keys))


def answer(question: Question, table: Table, now: float) -> Answer:
    area, number = question.area, question.id
    match question:
        case AskRoot(root=root):
            if root == table.digest.root():
                return Same(area, number)
            return Ranges(area, number, table.digest.ranges())
        case AskLeaves(ranges=ranges):
            wanted = [_check(index, WIDTH) for index in ranges[:RANGES_AT_ONCE]]
            return Leaves(area, number, {index: table.digest.leaves(index) for index in wanted})
        case AskKeys(leaves=leaves, headers=headers):
            return _difference(area, number, [_check(n, LEAVES) for n in leaves[:LEAVES_AT_ONCE]], headers, table, now)


def _difference(area: str, number: int, leaves: list[int], headers: dict[str, Header], table: Table, now: float) -> Difference:
    if len(headers) > MOST_RECEIVED * LEAVES_AT_ONCE:
        raise _wrong(f"{len(headers)} headers at once")
    begun, keys = _first_of(leaves, table)
    mine = {key: table.entries[key].value for key in (*keys, *(k for k in headers if k in table.entries))}
    give, want = difference(mine, headers, keys)
    values, held_back = _fitting(give, table, now)
    unfinished = [n for n in leaves[:begun] if held_back and not held_back.isdisjoint(table.digest.keys((n,)))]
    return Difference(area, number, values, tuple(want), (*unfinished, *leaves[begun:]))


def _first_of(leaves: Sequence[int], table: Table) -> tuple[int, list[str]]:
    """How many leaves, and their keys, are enough for one message."""
    keys: list[str] = []
    for count, index in enumerate(leaves):
        if len(keys) >= MOST_VALUES:
            return count, keys
        keys += table.digest.keys((index,))
    return len(leaves), keys


def _fitting(keys: Iterable[str], table: Table, now: float) -> tuple[dict[str, Value], set[str]]:
    """What fits one message, and the keys that do not."""
    values: dict[str, Value] = {}
    held_back: set[str] = set()
    size = 0
    for key in keys:
        if size >= MOST_BYTES or len(values) >= MOST_VALUES:
            held_back.add(key)
        elif (value := table.outgoing(key, now)) is not None:
            values[key] = value
            size += size_of(key, value)
    return values, held_back


def _row(sums: bytes) -> bytes:
    if len(sums) != ROW_BYTES:
        raise _wrong(f"{len(sums)} bytes of sums")
    return sums


def _check(index: int, bound: int) -> int:
    if not 0 <= index < bound:
        raise _wrong(f"there is no part {index} of a store")
    return index


def _only(told: Collection[Hashable], asked: Collection[Hashable]) -> None:
    if len(told) > len(asked) or not set(told) <= set(asked):
        raise _wrong("an answer tells what was not asked")


def _wrong(why: str) -> RemoteProtocolError:
    return RemoteProtocolError("store message", why, "run the same, unmodified version on both sides")
