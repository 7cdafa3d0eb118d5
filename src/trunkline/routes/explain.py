"""What becomes of one event in each route, and why.

X1  The compiled route decides: the event goes through the very closures that a runner calls, one filter after the other. Only
    the words for it come from elsewhere (`trunkline.routes.why`).
X2  Nothing is sent and nothing is kept. But filters that remember do remember: so explain routes that were compiled for it,
    never those that run. What such a filter saw before is unknown here, and every event is new to `dedup`.
X3  Whether an event comes to a route at all is its receiver's affair: it is named, not judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from trunkline.core.errors import Invalid
from trunkline.routes.chain import ErrorPolicy, Fault, Ran
from trunkline.routes.compile import NOWHERE, CompiledRoute
from trunkline.routes.event import Event
from trunkline.routes.keys import RouteKey
from trunkline.routes.messages import shown_message
from trunkline.routes.plugin import Around
from trunkline.routes.why import why_kept_back


class Verdict(StrEnum):
    TAKEN = "taken"
    DROPPED = "dropped"
    HELD = "held"
    DEAD_LETTER = "dead_letter"
    FAILED = "failed"
    INACTIVE = "inactive"
    ELSEWHERE = "elsewhere"


_BY_POLICY = {
    ErrorPolicy.DROP: Verdict.DROPPED,
    ErrorPolicy.DEAD_LETTER: Verdict.DEAD_LETTER,
    ErrorPolicy.FAIL: Verdict.FAILED,
}


class Passed(msgspec.Struct, frozen=True):
    """How many events came to a filter, and how many went on."""

    step: str
    came: int
    went: int


class Explanation(msgspec.Struct, frozen=True):
    """`step` and `reason`: where the event ended and why, unless it was taken. `messages`: what the sender would be given, as
    JSON. `faults`: what filters could not process, of an event that was split also of its parts."""

    route: RouteKey
    verdict: Verdict
    receiver: str
    step: str = ""
    reason: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    faults: tuple[str, ...] = ()
    steps: tuple[Passed, ...] = ()

    def as_json(self) -> dict[str, Any]:
        rest = {name: getattr(self, name) for name in self.__struct_fields__ if name != "route"}
        tenant = {"orgId": self.route.tenant.org, "appId": self.route.tenant.app}
        return {"id": self.route.id, "tenant": tenant, **msgspec.json.decode(msgspec.json.encode(rest))}


def explain(event: Event, routes: Iterable[CompiledRoute], around: Around = NOWHERE) -> list[Explanation]:
    """`around`: what the routes were compiled with."""
    return [_Explaining(route, around).explained(event) for route in routes]


class _Explaining:
    def __init__(self, route: CompiledRoute, around: Around) -> None:
        self._route, self._around = route, around
        self._steps: list[Passed] = []
        self._faults: list[Fault] = []

    def explained(self, event: Event) -> Explanation:
        if self._route.config.inactive:
            return self._said(Verdict.INACTIVE, "", "it is inactive: it does not run")
        batch = [event]
        for n, step in enumerate(self._route.chain.steps):
            ran = self._route.chain.run(batch, n, n + 1)
            self._steps.append(Passed(step.name, len(batch), len(ran.out)))
            self._faults += ran.faults
            if not ran.out:
                return self._ended(n, batch, ran)
            batch = ran.out
        return self._sent(batch)

    def _ended(self, n: int, batch: list[Event], ran: Ran) -> Explanation:
        step = self._route.chain.steps[n].name
        if ran.faults:
            return self._said(_BY_POLICY[ran.faults[0].policy], step, ran.faults[0].reason)
        verdict = Verdict.HELD if self._route.chain.held() else Verdict.DROPPED
        reason = why_kept_back(self._route.config.filter_chain[n].config, batch[0], self._around)
        return self._said(verdict, step, reason if len(batch) == 1 else f"the first of {len(batch)}: {reason}")

    def _sent(self, batch: list[Event]) -> Explanation:
        try:
            messages = [shown_message(self._route.message(event)) for event in batch]
        except Invalid as error:
            return self._said(Verdict.DEAD_LETTER, f"sender {self._route.config.sender.plugin}", f"{error.what}: {error.why}")
        return self._said(Verdict.TAKEN, "", "", tuple(messages))

    def _said(self, verdict: Verdict, step: str, reason: str, messages: tuple[dict[str, Any], ...] = ()) -> Explanation:
        config = self._route.config
        faults = tuple(f"{fault.step}: {fault.reason}" for fault in self._faults)
        return Explanation(config.key, verdict, config.receiver.plugin, step, reason, messages, faults, tuple(self._steps))
