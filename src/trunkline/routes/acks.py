"""Ack trees: what became of each event of a source, whatever a route made of it.

A *root* stands for an event as its source gave it. Whoever makes events of an event makes *children* of its node, one for each,
and then acks the node itself. Nobody here knows a clock or a source: roots that are finished are handed out by `take`.

    A1  A node is done when it was acked itself and all its children are done; a root that is done is acked at its source.
    A2  The first nack anywhere in a tree finishes its root at once, with the reason.
    A3  A node can be acked once. Whatever comes later, and whatever comes to a tree that is finished, changes nothing.
    A4  A root that is not finished by its deadline is finished by `expire`, as timed out. So each is finished exactly once.
    A5  A child can be made of several nodes (a batch of events): all of them wait for it, and its nack is theirs.
    A6  Children are made before their node is acked. Later the tree may be finished without them, so this is a defect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from trunkline.core.errors import LocalProtocolError
from trunkline.routes.chain import ErrorPolicy, Ran
from trunkline.routes.event import Event
from trunkline.routes.outcome import Done, Outcome


class Node:
    """`waits`: for its own ack and its children."""

    __slots__ = ("acked", "parents", "waits")

    def __init__(self, parents: tuple[Node, ...]) -> None:
        self.parents = parents
        self.waits = 1
        self.acked = False


class Root(Node):
    __slots__ = ("finished", "group", "of")

    def __init__(self, of: Any, group: _Group) -> None:
        self.parents = ()
        self.waits = 1
        self.acked = False
        self.of, self.group, self.finished = of, group, False


class _Group:
    """The roots of one batch: they have one deadline."""

    __slots__ = ("open", "roots", "seconds")

    def __init__(self, seconds: float) -> None:
        self.roots: list[Root] = []
        self.open, self.seconds = 0, seconds


class Acks:
    """All trees of one source. `counts`: roots that were finished, by outcome; `open`: those that are not."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Outcome, 0)
        self.open = 0
        self._done: list[Done] = []
        self._deadlines: list[tuple[float, int, _Group]] = []
        self._groups = 0

    def roots(self, items: Iterable[Any], now: float, seconds: float) -> list[Root]:
        """One for each, with `seconds` from now to be finished."""
        group = _Group(seconds)
        group.roots = roots = [Root(item, group) for item in items]
        group.open = len(roots)
        self.open += len(roots)
        self._groups += 1
        if roots:
            heappush(self._deadlines, (now + seconds, self._groups, group))
        return list(roots)

    def child(self, *parents: Node) -> Node:
        for parent in parents:
            if parent.acked:
                raise LocalProtocolError("ack tree", "a child of a node that is acked already", "make children first, then ack")
            parent.waits += 1
        return Node(parents)

    def ack(self, node: Node) -> None:
        if not node.acked:
            node.acked = True
            self._one_less(node)

    def nack(self, node: Node, reason: str) -> None:
        if not node.acked:
            node.acked = True
            for root in roots_of(node):
                self._finish(root, Outcome.NACKED, reason)

    def expire(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            group = heappop(self._deadlines)[2]
            for root in list(group.roots):
                self._finish(root, Outcome.TIMED_OUT, f"not done within {group.seconds:g} s")

    def due(self) -> float | None:
        """The next deadline that somebody may miss."""
        while self._deadlines and not self._deadlines[0][2].open:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def take(self) -> list[Done]:
        """What was finished since it was asked last, in that order."""
        done, self._done = self._done, []
        return done

    def _one_less(self, node: Node) -> None:
        node.waits -= 1
        if node.waits:
            return
        for parent in node.parents:
            self._one_less(parent)
        if isinstance(node, Root):
            self._finish(node, Outcome.ACKED, "")

    def _finish(self, root: Root, outcome: Outcome, reason: str) -> None:
        if root.finished:
            return
        root.finished = True
        self.open -= 1
        self.counts[outcome] += 1
        self._done.append(Done(root.of, outcome, reason))
        group = root.group
        group.open -= 1
        if not group.open:
            group.roots = []


def roots_of(node: Node) -> list[Root]:
    if isinstance(node, Root):
        return [node]
    return [root for parent in node.parents for root in roots_of(parent)]


class Entered:
    """The nodes of the events that are in a chain: those of a batch while it runs, then those that its filters hold back.

    The first event made of another takes over its node, and the others are children beside it."""

    def __init__(self, acks: Acks) -> None:
        self._acks = acks
        self._nodes: dict[int, Node] = {}  # by the identity of the event, which lives as long as it is in `_events`
        self._events: list[Event] = []

    def enter(self, events: Sequence[Event], nodes: Sequence[Node]) -> None:
        self._nodes.update(zip(map(id, events), nodes, strict=True))
        self._events += events
        if len(self._nodes) != len(self._events):
            raise LocalProtocolError("ack tree", "an event entered twice", "let each root have an event of its own")

    def settle(self, ran: Ran, held: Iterable[Event] = ()) -> list[Node]:
        """A node for each event that came out; acks what is done with, and nacks what failed."""
        nodes, acks = self._nodes, self._acks
        kept = {id(e): e for event in held for e in _entered(event)}
        left = {key: node for key, node in nodes.items() if key not in kept} if kept else nodes.copy()
        out = [self._of(event, left) for event in ran.out]
        for fault in ran.faults:
            if fault.policy is ErrorPolicy.FAIL:
                for event in _entered(fault.event):
                    acks.nack(nodes[id(event)], f"{fault.step}: {fault.reason}")
        self._nodes, self._events = {key: nodes[key] for key in kept}, list(kept.values())
        for node in left.values():
            acks.ack(node)
        return out

    def fail(self, reason: str) -> None:
        """Nobody knows any more what became of the events that are in the chain."""
        for node in self._nodes.values():
            self._acks.nack(node, reason)
        self._nodes, self._events = {}, []

    def __len__(self) -> int:
        return len(self._events)

    def _of(self, event: Event, left: dict[int, Node]) -> Node:
        entered = event.entered
        if len(entered) > 1:
            return self._acks.child(*[self._nodes[id(e)] for e in entered])
        key = id(entered[0]) if entered else id(event)
        return left.pop(key, None) or self._acks.child(self._nodes[key])


def _entered(event: Event) -> tuple[Event, ...]:
    return event.entered or (event,)
