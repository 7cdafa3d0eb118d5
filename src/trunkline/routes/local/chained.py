"""A chain with the ack nodes of what is inside, and with what its filters remember.

T3  Events that a filter holds back are not done (H32): if the process ends before they are flushed, they come again.
T4  What failed comes again, and must not meet a filter that remembers it as seen. So filters that hold nothing are then put
    back to what they remembered when nothing was under way in this route; at worst something passes twice.
T5  A message's number is its place among all that became of the same event here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from trunkline.routes.acks import Acks, Entered, Node
from trunkline.routes.chain import Chain, ErrorPolicy, Fault, Ran
from trunkline.routes.event import Event
from trunkline.routes.plugin import StatefulFilter


class Made(msgspec.Struct, frozen=True):
    """What came of a run. `letters`: faults that become dead letters. `failed`: events that were given back; `dropped`: those
    that came to nothing."""

    out: list[tuple[Event, Node]]
    letters: list[tuple[Fault, Node]]
    failed: int = 0
    dropped: int = 0


class Chained:
    def __init__(self, chain: Chain, acks: Acks) -> None:
        self.chain = chain
        self.remembers = chain.stateful is not None
        self._acks, self._entered = acks, Entered(acks)
        self._memory: dict[str, Any] = chain.state()
        self._numbers: dict[int, int] = {}
        self._others: Chained | None = None

    @property
    def holds(self) -> bool:
        return len(self._entered) > 0

    def straight(self, events: list[Event], nodes: list[Node]) -> Made:
        """The whole way of a batch through filters that remember nothing. Where one event came of each, it has its node."""
        ran = self.chain.run(events)
        if not ran.faults and len(ran.out) == len(events) and all(map(_became, events, ran.out)):
            return Made(list(zip(ran.out, nodes, strict=True)), [])
        self._entered.enter(events, nodes)
        return self.settle(ran)

    def enter(self, events: list[Event], nodes: Sequence[Node], quiet: bool) -> list[Event]:
        """`quiet`: nothing is under way in this route."""
        if self.remembers:
            if quiet and not self.holds:
                self._memory = self.chain.state()
            events = [Event(event.payload, event.metadata, event.source) for event in events]  # one may come again meanwhile
        self._entered.enter(events, nodes)
        return events

    def enter_again(self, event: Event, node: Node) -> list[Event]:
        """One that has been through some of the filters before."""
        entered = event.entered or (event,)
        self._entered.enter(entered, [node] * len(entered))
        return [event]

    def settle(self, ran: Ran) -> Made:
        if ran.upset:
            lost = len(self._entered)
            self._entered.fail(ran.upset)
            self.chain.restore(self._memory)
            return Made([], [], failed=lost)
        letters = ran.faults_by(ErrorPolicy.DEAD_LETTER) if ran.faults else []
        told = Ran(ran.out + [fault.event for fault in letters], ran.faults) if letters else ran
        came = len(self._entered)
        nodes = self._entered.settle(told, self._held() if self.remembers else ())
        failed = sum(fault.policy is ErrorPolicy.FAIL for fault in ran.faults)
        made = list(zip(ran.out, nodes, strict=False))
        return Made(made, list(zip(letters, nodes[len(made) :], strict=True)), failed, self._dropped(ran, came))

    def number(self, event: Event) -> int:
        key = id(event.entered[0]) if event.entered else id(event)
        number = self._numbers.get(key, 0)
        self._numbers[key] = number + 1
        return number

    def numbered(self) -> None:
        """All that came out has its number."""
        if not self.remembers:
            self._numbers = {}
        elif self._numbers:
            held = {id(one) for event in self._held() for one in event.entered or (event,)}
            self._numbers = {key: number for key, number in self._numbers.items() if key in held}

    def forget(self) -> None:
        filters = {str(n): step.filter for n, step in enumerate(self.chain.steps)}
        holding = {n for n, filter in filters.items() if isinstance(filter, StatefulFilter) and filter.held()}
        self.chain.restore({n: state for n, state in self._memory.items() if n not in holding})

    def flush(self, now: float = math.inf) -> Ran:
        return self.chain.flush(now)

    def take_over(self, old: Chained, same: set[int]) -> None:
        """Goes on with the filters at these places of the old chain and what they hold; the old one keeps the rest."""
        mine, theirs = list(self.chain.steps), list(old.chain.steps)
        for n in same:
            mine[n], theirs[n] = (
                msgspec.structs.replace(mine[n], filter=theirs[n].filter),
                msgspec.structs.replace(theirs[n], filter=mine[n].filter),
            )
        self.chain, old.chain = Chain(mine), Chain(theirs)
        self._entered, self._numbers, old._others = old._entered, old._numbers, self
        self._memory |= {n: state for n, state in old._memory.items() if int(n) in same}

    def _held(self) -> list[Event]:
        return self.chain.held() + (self._others.chain.held() if self._others is not None else [])

    def _dropped(self, ran: Ran, came: int) -> int:
        """Of so many that were in the chain: those that are not held, and of which nothing came but faults to be dropped."""
        left = came - len(self._entered)
        if len(ran.out) == left and not ran.faults and not self.remembers:
            return 0
        told = ran.out + [fault.event for fault in ran.faults if fault.policy is not ErrorPolicy.DROP]
        dealt_with = {id(one) for event in told for one in event.entered or (event,)}
        if self.remembers:
            dealt_with -= {id(one) for event in self._held() for one in event.entered or (event,)}
        return max(0, left - len(dealt_with))


def _became(event: Event, out: Event) -> bool:
    return out is event or (len(out.entered) == 1 and out.entered[0] is event)
