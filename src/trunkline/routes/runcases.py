"""Runs test cases through the very closures that a node calls, without one: no network, no other time than the case's own."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trunkline.core.errors import Invalid
from trunkline.routes.cases import Case, CaseEvent, FileCase, no_such_route
from trunkline.routes.chain import ErrorPolicy, Ran
from trunkline.routes.compile import CompiledRoute, compile_route
from trunkline.routes.equality import same
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import RouteKey
from trunkline.routes.messages import shown_message
from trunkline.routes.plugin import Around
from trunkline.routes.route import Route


class Difference(msgspec.Struct, frozen=True):
    """`about`: the key of the case that says what was expected."""

    about: str
    expected: Any
    got: Any

    def lines(self) -> list[str]:
        """As people compare: what was expected and is not there with -, what came instead with +."""
        if not isinstance(self.expected, list):
            return [f"- {self.expected}", f"+ {self.got}"]
        expected, got = (_pretty(value).splitlines() for value in (self.expected, self.got))
        return [line.rstrip() for line in difflib.ndiff(expected, got) if not line.startswith("?")]


class Verdict(msgspec.Struct, frozen=True):
    """`wrong`: why the case cannot be run at all."""

    of: FileCase
    route: str
    differences: tuple[Difference, ...] = ()
    wrong: str = ""

    @property
    def ok(self) -> bool:
        return not self.differences and not self.wrong


class _Came(msgspec.Struct):
    """What became of a case's events."""

    messages: list[dict[str, Any]] = msgspec.field(default_factory=list)
    payloads: list[Any] = msgspec.field(default_factory=list)
    dead_letters: list[str] = msgspec.field(default_factory=list)
    failed: list[str] = msgspec.field(default_factory=list)
    dropped: int = 0
    held: int = 0


class Cases:
    """Runs cases of these routes. A route that remembers nothing is compiled once for all its cases."""

    def __init__(self, routes: Mapping[RouteKey, Route]) -> None:
        self._routes = routes
        self._compiled: dict[tuple[RouteKey, str], CompiledRoute] = {}
        self._now = 0.0

    def run(self, of: FileCase, beside: Sequence[RouteKey]) -> Verdict:
        """`beside`: the routes of the file that the case stands beside."""
        try:
            key = self._key(of.case, beside)
            came = self._came(of.case, self._route(key, of.case.site))
        except Invalid as error:
            return Verdict(of, of.case.route, wrong=str(error))
        return Verdict(of, key.id, tuple(_differences(of.case, came)))

    def _key(self, case: Case, beside: Sequence[RouteKey]) -> RouteKey:
        if not case.route and len(beside) == 1:
            return beside[0]
        key = RouteKey(case.tenant, case.route)
        if key not in self._routes:
            raise no_such_route(case, sorted(one.id for one in (beside or self._routes)))
        return key

    def _route(self, key: RouteKey, site: str) -> CompiledRoute:
        known = self._compiled.get((key, site))
        if known is not None and known.chain.stateful is None:
            return known
        made = compile_route(self._routes[key], Around({"site": site}, now=lambda: self._now))
        self._compiled[key, site] = made
        return made

    def _came(self, case: Case, route: CompiledRoute) -> _Came:
        came = _Came()
        for coming in case.coming:
            self._pass(case.at + coming.after, route, came)
            self._give(coming, route, came)
        if case.until is not None:
            self._pass(case.at + case.until, route, came)
        came.held = len(route.chain.held())
        return came

    def _give(self, coming: CaseEvent, route: CompiledRoute, came: _Came) -> None:
        source = Source(tenant=route.config.key.tenant, trace_id=coming.trace_id, at=self._now)
        held = len(route.chain.held())
        ran = route.chain.run([Event(coming.payload, coming.metadata, source)])
        kept = [fault for fault in ran.faults if fault.policy is not ErrorPolicy.DROP]
        came.dropped += not ran.out and not kept and len(route.chain.held()) <= held
        _take(ran, route, came)

    def _pass(self, until: float, route: CompiledRoute, came: _Came) -> None:
        """Time goes on to there; what filters give on the way comes at its own time."""
        while (due := route.chain.due()) is not None and due <= until:
            self._now = due
            _take(route.chain.flush(due), route, came)
        self._now = until


def _take(ran: Ran, route: CompiledRoute, came: _Came) -> None:
    if ran.upset:
        raise Invalid(f"route {route.id}", ran.upset, "this is a defect of the filter")
    for event in ran.out:
        try:
            came.messages.append(shown_message(route.message(event)))
        except Invalid as error:
            came.dead_letters.append(f"sender {route.config.sender.plugin}: {error.what}: {error.why}")
        else:
            came.payloads.append(event.payload)
    for fault in ran.faults:
        told = {ErrorPolicy.DEAD_LETTER: came.dead_letters, ErrorPolicy.FAIL: came.failed}.get(fault.policy)
        if told is not None:
            told.append(f"{fault.step}: {fault.reason}")


def _differences(case: Case, came: _Came) -> Iterator[Difference]:
    expected = list(case.out or ())
    if (case.out is not None or case.messages is None) and not same(expected, came.payloads):
        yield Difference("out", expected, came.payloads)
    if case.messages is not None:
        yield from _message_differences(list(case.messages), came.messages)
    for about, wanted, got in (
        ("dead_letters", case.dead_letters, came.dead_letters),
        ("failed", case.failed, came.failed),
    ):
        if len(wanted) != len(got) or not all(text in reason for text, reason in zip(wanted, got, strict=True)):
            yield Difference(about, list(wanted), got)
    for about, count, found in (("dropped", case.dropped, came.dropped), ("held", case.held, came.held)):
        if count is not None and count != found:
            yield Difference(about, count, found)


def _message_differences(wanted: list[dict[str, Any]], got: list[dict[str, Any]]) -> Iterator[Difference]:
    """Of each message that comes at the place of an expected one, only what is expected of it is compared."""
    asked = [{key: one[key] for key in want if key in one} for want, one in zip(wanted, got, strict=False)]
    compared = [*asked, *got[len(wanted) :]]
    if not same(wanted, compared):
        yield Difference("messages", wanted, compared)


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)
