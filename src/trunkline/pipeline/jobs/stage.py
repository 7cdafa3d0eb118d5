"""The routing stage: events of a receiver through all its routes in one pass, wherever they were read.

S1  The match index finds the routes, and filters run over their part of a batch: the same closures that a node runs
    (`trunkline.routes`), those of equal routes once for all (`programs`). What becomes of an event is the same, and has the
    same id.
S2  A chain is cut at its first filter that remembers. What comes there goes to the driver, in its order.
S3  Messages of senders that several processes may use at once are sent right here, in the order of each route. What could not
    be sent, and what comes behind it, is told to be kept (H33); so is everything of a route that had something waiting
    when the batch was planned.
S4  What a filter gives back (`onError: fail`), and what a plugin's defect costs, is told: the driver decides.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import chain
from typing import Any, Protocol

import msgspec
import structlog

from trunkline.core.errors import Invalid
from trunkline.pipeline.jobs.loaded import Loaded, LoadedRoute
from trunkline.pipeline.jobs.outcomes import Outcome, RouteCount, TaskCounts, Told
from trunkline.pipeline.jobs.programs import Program, Takers
from trunkline.pipeline.jobs.receivers import Receiver
from trunkline.routes.chain import MAX_REASON, ErrorPolicy, Fault, Ran
from trunkline.routes.ends import Sendable, Undelivered
from trunkline.routes.event import Event
from trunkline.routes.local.keeping import MESSAGE, SENDER
from trunkline.routes.local.lane import BEHIND
from trunkline.routes.naming import numbered

AT_ONCE = 1_000  # messages of a sender that are handed over together
GATHER, MOST_CHUNKS = 4, 8
"""Events per program that are waited for: its filters cost as much for one as for some. And what fits a worker."""
_POLICIES = {ErrorPolicy.DEAD_LETTER: Told.DEAD, ErrorPolicy.FAIL: Told.FAILED}

log = structlog.get_logger(__name__)


class Item(msgspec.Struct, frozen=True, eq=False):
    route: LoadedRoute
    sendable: Sendable
    source: str
    came: float


class Unsent(msgspec.Struct, frozen=True):
    item: Item
    why: Undelivered


class Deliver(Protocol):
    """Sends what tasks may send."""

    def put(self, items: Sequence[Item]) -> None:
        """All of one sender, in their order, behind what it was given before. May wait, so that little is under way."""

    def finish(self) -> tuple[list[Item], list[Unsent]]:
        """Returns when nothing is under way: what was sent, and what was not, since it was last asked."""


class Nowhere:
    """A `Deliver` of a stage that sends nothing."""

    def put(self, items: Sequence[Item]) -> None:
        raise NotImplementedError("this stage tells what there is to send")

    def finish(self) -> tuple[list[Item], list[Unsent]]:
        return [], []


Sends = Callable[[LoadedRoute], bool]
"""Whether a route's messages are sent here. If not, they are told."""


def what_is_spread(route: LoadedRoute) -> bool:
    return route.spread


def everything(route: LoadedRoute) -> bool:
    return True


def nothing(route: LoadedRoute) -> bool:
    return False


class Stage:
    """Of one task of one batch, or of the driver, which sends by all senders. `waiting`: routes that only append to their
    outbox."""

    def __init__(
        self, loaded: Loaded, deliver: Deliver, waiting: Set[str] = frozenset(), sends: Sends = what_is_spread,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._loaded, self._deliver, self._waiting, self._now = loaded, deliver, waiting, now
        self._sends = sends
        self._counts: dict[LoadedRoute, RouteCount] = {}
        self._passed: list[Sequence[tuple[LoadedRoute, ...]]] = []
        self._events = 0
        self._told: list[Outcome] = []
        self._outgoing: dict[str, list[Item]] = {}
        self._gathered: dict[str, list[list[Event]]] = {}

    def take(self, receiver: Receiver, events: list[Event]) -> None:
        """In the order of the receiver, perhaps together with those that come next."""
        self._events += len(events)
        waiting = self._gathered.setdefault(receiver.name, [])
        waiting.append(events)
        if len(waiting) == MOST_CHUNKS or sum(map(len, waiting)) >= GATHER * len(self._loaded.programs):
            self._route(receiver.name)

    def _route(self, receiver: str) -> None:
        gathered, index = self._gathered.pop(receiver), self._loaded.index(receiver)
        events = gathered[0] if len(gathered) == 1 else [event for chunk in gathered for event in chunk]
        alone: dict[LoadedRoute, list[Event]] = dict.fromkeys(index.residual(), events)
        together: dict[Program, Takers[LoadedRoute]] = {}
        for event, routes in index.found(events):
            for route in routes:
                program = route.program or route.programmed()
                if program.own:
                    alone.setdefault(route, []).append(event)
                elif program in together:
                    together[program].add(event, route)
                else:
                    together[program] = Takers(event, route)
        for route, batch in alone.items():
            self.run(route, batch)
        for program, takers in together.items():
            self._run_together(program, takers)

    def run(self, route: LoadedRoute, batch: list[Event]) -> None:
        """Through all filters, or up to the first that remembers."""
        ran = route.chain.run(batch, last=route.cut)
        self._ran(route, batch, ran.out, ran.faults)

    def _ran(self, route: LoadedRoute, batch: Sequence[Event], out: Sequence[Event], faults: Sequence[Fault]) -> None:
        counts, numbers = self.count(route), dict[str, int]()
        counts.received += len(batch)
        if faults or len(out) != len(batch):
            counts.dropped += _dropped(batch, out, faults)
            self.faults(route, faults, numbers)
        if route.cut is not None:
            for event in out:
                self._event(route, event)
        elif out:
            self.messages(route, out, numbers)

    def _run_together(self, program: Program, takers: Takers[LoadedRoute]) -> None:
        """The same for routes of one program. Where one message came of each event, they are written in one go."""
        ran = program.chain.run(takers.events)
        if not ran.faults and [event.source for event in ran.out] == [event.source for event in takers.events]:
            self._messages_together(program, ran.out, takers.routes)
        else:
            self._ran_apart(takers, ran)

    def _ran_apart(self, takers: Takers[LoadedRoute], ran: Ran) -> None:
        routes = takers.by_source()
        out: dict[LoadedRoute, list[Event]] = {}
        faults: dict[LoadedRoute, list[Fault]] = {}
        for event in ran.out:
            for route in routes[event.source]:
                out.setdefault(route, []).append(event)
        for fault in ran.faults:
            for route in routes[fault.event.source]:
                faults.setdefault(route, []).append(fault)
        for route, batch in takers.by_route().items():
            self._ran(route, batch, out.get(route, ()), faults.get(route, ()))

    def _messages_together(self, program: Program, events: Sequence[Event], takers: Sequence[tuple[LoadedRoute, ...]]) -> None:
        make, one, items = program.message, takers[0][0], list[Item]()
        once = one.once
        for event, routes in zip(events, takers, strict=True):
            source = event.source
            of, at = source.id, source.at
            for route in routes:
                id = f"{of}:{route.label}:0"
                try:
                    message = make(event)
                except Exception as error:
                    self._no_message(route, event, id, error)
                else:
                    items.append(Item(route, Sendable(id, message, once), of, at))
        self._passed.append(takers)
        self.hand_over(one, items)

    def messages(self, route: LoadedRoute, events: Sequence[Event], numbers: dict[str, int], named: str = "") -> None:
        """Events that left the filters. `numbers`: how many messages and letters became of source events before, by their ids.
        `named`: what ids begin with, if not with source and route."""
        make, label, once, items = route.compiled.message, route.label, route.once, list[Item]()
        for event in events:
            entered, source = event.entered, event.source
            origin = entered[0].source.id if entered else source.id
            number = numbers.get(origin, 0)
            numbers[origin] = number + 1
            nth = numbered(number, event) if len(entered) > 1 else number
            id = f"{named}:{nth}" if named else f"{origin}:{label}:{nth}"
            try:
                message = make(event)
            except Exception as error:
                self._no_message(route, event, id, error)
            else:
                items.append(Item(route, Sendable(id, message, once), source.id, source.at))
        self.count(route).matched += len(events)
        self.hand_over(route, items)

    def hand_over(self, route: LoadedRoute, items: list[Item]) -> None:
        """Of this route, or of several with the same sender and delivery mode."""
        if self._waiting and route.sure:
            self.tell([item for item in items if item.route.hash in self._waiting], Told.KEEP, BEHIND)
            items = [item for item in items if item.route.hash not in self._waiting]
        if self._sends(route):
            self._send(route, items)
        else:
            self.tell(items, Told.MESSAGE)

    def finish(self) -> Iterator[Outcome]:
        """Everything that is left to tell; the counts come last."""
        for receiver in list(self._gathered):
            self._route(receiver)
        for outgoing in self._outgoing.values():
            if outgoing:
                self._deliver.put(outgoing)
        self._outgoing = {}
        sent, unsent = self._deliver.finish()
        self.settle(sent, unsent)
        yield from self._told
        custom, lines = self._loaded.said.take()
        told = TaskCounts(self._events, self._counted(), custom, lines)
        yield Outcome(Told.COUNTS, content=msgspec.json.encode(told))

    def settle(self, sent: Sequence[Item], unsent: Sequence[Unsent]) -> None:
        now = self._now()
        for item in sent:
            counts = self.count(item.route)
            counts.sent += 1
            counts.seconds += max(0.0, now - item.came)
        for one in unsent:
            if not one.item.route.sure:
                self.count(one.item.route).failed += 1
            elif one.why.again:
                self.tell([one.item], Told.KEEP, one.why.reason)
            else:
                self.tell([one.item], Told.DEAD, one.why.reason)

    def tell(self, items: Sequence[Item], told: Told, reason: str = "") -> None:
        for item in items:
            what, why = told, reason
            try:
                content = msgspec.json.encode(item.sendable.message)
            except Exception as error:
                what, why, content = Told.FAILED, f"{reason}; it cannot be kept: {error}", _shown(item.sendable.message)
            id = item.sendable.id
            self._told.append(Outcome(what, item.route.hash, id, item.source, SENDER, why[:MAX_REASON], content, item.came))

    def count(self, route: LoadedRoute) -> RouteCount:
        counts = self._counts.get(route)
        if counts is None:
            counts = self._counts[route] = RouteCount()
        return counts

    def _counted(self) -> dict[str, RouteCount]:
        for route, passed in Counter(chain.from_iterable(chain.from_iterable(self._passed))).items():
            counts = self.count(route)
            counts.received += passed
            counts.matched += passed
        return {route.hash: counts for route, counts in self._counts.items()}

    def _send(self, route: LoadedRoute, items: Sequence[Item]) -> None:
        name = route.sender_name
        outgoing = self._outgoing.get(name)
        if outgoing is None:
            outgoing = self._outgoing[name] = []
        outgoing += items
        if len(outgoing) >= AT_ONCE:
            self._outgoing[name] = []
            self._deliver.put(outgoing)

    def _no_message(self, route: LoadedRoute, event: Event, id: str, error: Exception) -> None:
        if isinstance(error, Invalid):
            self._dead(route, event, id, MESSAGE, f"{error.what}: {error.why}", Told.DEAD)
        else:
            self._dead(route, event, id, MESSAGE, f"it raised {type(error).__name__}: {error}", Told.FAILED)

    def faults(self, route: LoadedRoute, faults: Sequence[Fault], numbers: dict[str, int], named: str = "") -> None:
        """Told before the messages of the same run: so their numbers are those that a node gives."""
        for fault in faults:
            if fault.policy in _POLICIES:
                source = fault.event.origin.source.id
                number = numbers.get(source, 0)
                if fault.policy is ErrorPolicy.DEAD_LETTER:
                    numbers[source] = number + 1
                id = f"{named or f'{source}:{route.label}'}:{numbered(number, fault.event)}"
                self._dead(route, fault.event, id, fault.step, fault.reason, _POLICIES[fault.policy])

    def _dead(self, route: LoadedRoute, event: Event, id: str, step: str, reason: str, told: Told) -> None:
        source, content = event.source, _shown(event)
        self._told.append(Outcome(told, route.hash, id, source.id, step, reason[:MAX_REASON], content, source.at))

    def _event(self, route: LoadedRoute, event: Event) -> None:
        source = event.source
        try:
            content = msgspec.json.encode(event)
        except Exception as error:
            self._dead(route, event, f"{source.id}:{route.label}:0", MESSAGE, f"it cannot be kept: {error}", Told.FAILED)
        else:
            self._told.append(Outcome(Told.EVENT, route.hash, source.id, source.id, "", "", content, source.at))


def _shown(value: Any) -> bytes:
    """As JSON, even where that cannot be read again."""
    try:
        return msgspec.json.encode(value, enc_hook=repr)
    except Exception:
        return msgspec.json.encode(repr(value).encode(errors="replace").decode())


def _dropped(batch: Sequence[Event], out: Sequence[Event], faults: Sequence[Fault]) -> int:
    """Those whose fault is to be dropped are dropped, too."""
    if len(out) == len(batch) and not faults:
        return 0
    dealt_with = {id(fault.event.origin) for fault in faults if fault.policy in _POLICIES}
    return max(0, len(batch) - len(dealt_with | {id(event.origin) for event in out}))
