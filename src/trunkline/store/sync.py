"""The three-way sync: what one side asks, what the other answers. Pure.

The asking side drives: it goes down from the root to the leaves that differ, tells its headers there, takes what is better at
the other side and gives what is better here. Every message is bounded, so a million keys come in many small steps between
which the event loop is free. Changes that happen meanwhile are flooded; those to a peer that is not yet in step wait for it.

The answering side keeps no state. So it cannot be left with any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
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
_ANSWERS: Final[dict[type, type]] = {Same: AskRoot, Ranges: AskRoot, Leaves: AskLeaves, Difference: AskKeys}


@dataclass
class Sync:
    """One sync with one peer, as the asking side holds it."""

    area: str
    id: int
    deadline: float
    questions: int = 0
    gave: bool = False
    _ranges: deque[int] = field(default_factory=deque)
    _leaves: deque[int] = field(default_factory=deque)
    _asked: type = AskRoot

    def begin(self, table: Table) -> Question:
        self.questions = 1
        return AskRoot(self.area, self.id, table.digest.root())

    def take(self, answer: Answer, table: Table) -> None:
        """Notes what is still to be asked; values and wishes of a Difference are the caller's."""
        if _ANSWERS.get(type(answer)) is not self._asked:
            raise RemoteProtocolError("store message", f"{type(answer).__name__} answers no question", "run an unmodified node")
        match answer:
            case Ranges(sums=sums):
                self._ranges.extend(differing(table.digest.ranges(), _row(sums)))
            case Leaves(sums=rows):
                for index in sorted(rows):
                    _check(index, WIDTH)
                    self._leaves.extend(differing(table.digest.leaves(index), _row(rows[index]), index * WIDTH))
            case Difference(again=again):
                self._leaves.extendleft(reversed([_check(index, LEAVES) for index in again]))

    def next_question(self, table: Table) -> Question | None:
        """None: all is asked."""
        if self._leaves:
            question: Question = self._ask_keys(table)
        elif self._ranges:
            taken = tuple(self._ranges.popleft() for _ in range(min(RANGES_AT_ONCE, len(self._ranges))))
            question = AskLeaves(self.area, self.id, taken)
        else:
            return None
        self._asked = type(question)
        self.questions += 1
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
        raise RemoteProtocolError("store message", f"{len(headers)} headers at once", "run an unmodified node")
    keys = table.digest.keys(leaves)
    mine = {key: table.entries[key].value for key in (*keys, *(k for k in headers if k in table.entries))}
    give, want = difference(mine, headers, keys)
    values, held_back = _fitting(give, table, now)
    again = {n for n in leaves if held_back and not held_back.isdisjoint(table.digest.keys((n,)))}
    return Difference(area, number, values, tuple(want), tuple(sorted(again)))


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
        raise RemoteProtocolError("store message", f"{len(sums)} bytes of sums", "run the same version on both sides")
    return sums


def _check(index: int, bound: int) -> int:
    if not 0 <= index < bound:
        raise RemoteProtocolError("store message", f"there is no part {index} of a store", "run an unmodified node")
    return index
