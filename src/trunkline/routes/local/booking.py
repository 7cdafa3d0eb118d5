"""What became of a live route's messages: counted, told to whoever watches, and acked or nacked in this order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from trunkline.core.clock import Clock
from trunkline.routes.acks import roots_of
from trunkline.routes.chain import MAX_REASON
from trunkline.routes.local.burying import Dead, Undertaker
from trunkline.routes.local.counts import RouteCounts
from trunkline.routes.local.keeping import SENDER, LaneName, Letter
from trunkline.routes.local.slots import Item, Pending, Taking

if TYPE_CHECKING:
    from trunkline.routes.local.line import Line
    from trunkline.routes.local.track import Track


class Booking:
    """`sure`: messages are done when they are sent or kept, not when they are handed over. `pending`: those that are not
    done."""

    def __init__(self, track: Track, line: Line, name: LaneName, sure: bool, clock: Clock, undertaker: Undertaker) -> None:
        self.counts = RouteCounts()
        self.pending = 0
        self._track, self._line, self._name, self._sure = track, line, name, sure
        self._clock, self._undertaker = clock, undertaker

    def begin(self, items: Sequence[Item], dead: Sequence[Dead]) -> None:
        self.pending += len(items) + len(dead)
        if self._line.watched:
            self._watch([*items, *dead])
        if not self._sure:
            self._handed([*items, *dead])

    def sent(self, items: Sequence[Item]) -> None:
        self.counts.sent += len(items)
        now = self._clock.monotonic()
        self.counts.seconds += now * len(items) - sum(item.at for item in items)
        self._done(items, sent=1)

    def kept(self, items: Sequence[Item]) -> None:
        self.counts.kept += len(items)
        self._done(items, kept=1)

    def buried(self, pending: Sequence[Pending], reason: str) -> None:
        self.counts.dead += len(pending)
        self._done(pending, letter=reason)

    def failed(self, pending: Sequence[Pending], reason: str) -> None:
        left = [one for one in pending if not one.closed]
        self.counts.failed += len(left)
        self.pending -= len(left)
        if self._sure and left:
            for one in left:
                one.closed = True
                self._line.acks.nack(one.node, reason)
            self._track.forget(nacked=True)
            self._line.settle()

    def bury(self, item: Item, reason: str) -> None:
        try:
            content = msgspec.json.encode(item.sendable.message)
        except Exception as error:
            self.failed([item], f"{reason}; it cannot be kept: {error}"[:MAX_REASON])
            return
        letter = Letter(
            self._name, SENDER, item.sendable.id, item.source, content, reason[:MAX_REASON], item.came, tries=1
        )  # fmt: skip
        dead = Dead(letter, item.node, self)
        dead.takings, item.closed = item.takings, True
        self._undertaker.take([dead])

    def room(self, full: bool) -> None:
        self._line.room(self._track, full)

    def _handed(self, pending: Sequence[Pending]) -> None:
        for one in pending:
            for taking in one.takings:
                taking.one()
            one.takings = ()
            self._line.acks.ack(one.node)

    def _done(self, pending: Sequence[Pending], sent: int = 0, kept: int = 0, letter: str = "") -> None:
        self.pending -= len(pending)
        if not self._sure or not pending:
            return
        ack = self._line.acks.ack
        for one in pending:
            one.closed = True
            for taking in one.takings:
                taking.one(sent, kept, letter)
            ack(one.node)
        self._line.settle()

    def _watch(self, pending: Sequence[Pending]) -> None:
        takings: dict[int, Taking] = {}
        for one in pending:
            for root in roots_of(one.node):
                if (watch := root.of.given.watch) is not None:
                    taking = takings.setdefault(id(root), Taking(self._name.key.id, watch))
                    taking.left += 1
                    one.takings += (taking,)
