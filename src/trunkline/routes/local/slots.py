"""What stands at the root of an ack tree: an event's place in the batch that its receiver gave, and who watches it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from trunkline.routes.acks import Node, roots_of
from trunkline.routes.ends import Sendable, Took, Watch
from trunkline.routes.event import Event
from trunkline.routes.outcome import Done


class Given:
    """A batch of a receiver. `until`: its deadline, by the monotonic clock."""

    __slots__ = ("done", "future", "left", "until", "watch")

    def __init__(self, events: Sequence[Event], future: asyncio.Future[list[Done]], until: float, watch: Watch | None) -> None:
        self.done: list[Done] = [_UNKNOWN] * len(events)
        self.left, self.future, self.until, self.watch = len(events), future, until, watch
        if not events:
            future.set_result([])

    def finish(self, place: int, done: Done) -> None:
        self.done[place] = done
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(self.done)


class Slot:
    __slots__ = ("given", "id", "place")

    def __init__(self, given: Given, place: int, id: str) -> None:
        self.given, self.place, self.id = given, place, id


class Taking:
    """What one route makes of one watched event; `left`: messages and letters that are not done."""

    __slots__ = ("_kept", "_letters", "_route", "_sent", "_watch", "left")

    def __init__(self, route: str, watch: Watch) -> None:
        self._route, self._watch = route, watch
        self._sent = self._kept = self.left = 0
        self._letters: list[str] = []

    def one(self, sent: int = 0, kept: int = 0, letter: str = "") -> None:
        self._sent += sent
        self._kept += kept
        if letter:
            self._letters.append(letter)
        self.left -= 1
        if not self.left:
            self._watch.took(Took(self._route, self._sent, self._kept, tuple(self._letters)))


class Pending:
    """Something that became of an event, with the node that waits for it. `closed`: that is known."""

    __slots__ = ("closed", "node", "takings")

    def __init__(self, node: Node) -> None:
        self.node, self.closed = node, False
        self.takings: tuple[Taking, ...] = ()

    @property
    def until(self) -> float:
        """Until when its source waits."""
        return float(min(root.of.given.until for root in roots_of(self.node)))

    @property
    def in_vain(self) -> bool:
        """Its source has counted it as failed already: it comes again."""
        return all(root.finished for root in roots_of(self.node))


class Item(Pending):
    """A message on its way to the sender. `at`: when its event was given (monotonic); `came`: in unix seconds."""

    __slots__ = ("at", "came", "sendable", "source")

    def __init__(self, sendable: Sendable, node: Node, event: Event, at: float) -> None:
        super().__init__(node)
        self.sendable, self.at = sendable, at
        self.source, self.came = event.source.id, event.source.at


_UNKNOWN = Done("", None)  # type: ignore[arg-type]
