"""Test cases of routes: events in, and what must become of them. `runcases` runs them.

A file of cases stands beside its routes: `alarms.test.yaml` beside `alarms.yaml`.

    C1  A case says what goes in: `in`, payloads, or `events`, with metadata and times. And what must come: `out`, the payloads
        that come to the sender in their order, or `messages`, as the sender would get them, of which only the keys that are
        written are compared.
    C2  What a case does not mention must not happen: no event comes out, and none becomes a dead letter, fails or is held back.
        `dropped` alone is not asked for if it is not written: whatever did not come out is known anyway.
    C3  Time is the case's own. It begins `at`, an event comes `after` so many seconds, and it ends at `until`. A filter that
        gives something at a certain time (batch) is asked at exactly that time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from trunkline.core.document import read_document
from trunkline.core.errors import Invalid
from trunkline.core.layers import Layers
from trunkline.core.mistakes import Mistake, Mistakes
from trunkline.core.reasons import Unfit
from trunkline.core.scalars import Number, Whole
from trunkline.routes.fields import Json, RouteId, RouteModel
from trunkline.routes.keys import HOUSE, Tenant
from trunkline.routes.model import Part

BEGINNING = 1_767_225_600.0
"""2026-01-01T00:00:00Z: when a case begins that says nothing about it. So its result is the same every day."""

EXPECTED = ("out", "messages", "dropped", "dead_letters", "failed", "held")


class CaseEvent(RouteModel):
    """An event that goes in."""

    payload: Json = Field(description="any JSON value")
    metadata: dict[str, Json] = Field(default_factory=dict, description="what stands beside it")
    after: Number = Field(default=0, ge=0, description="seconds after the case's beginning when it comes")
    trace_id: str = Field(default="", description="what {trace.id} gives")


class Case(RouteModel):
    """Events that go into a route, and what must become of them."""

    name: str = Field(min_length=1, examples=["a test alarm is dropped"], description="a sentence that says what must hold")
    route: RouteId = Field(default="", description="the route's id; if the routes beside it are one, it may be left out")
    org: str = Field(default=HOUSE.org, description="organisation of the route's tenant")
    app: str = Field(default=HOUSE.app, description="its application")
    site: str = Field(default="site", description="what {site} gives")
    at: float = Field(default=BEGINNING, description="when it begins: unix seconds, or a time such as 2026-01-01T00:00:00Z")
    until: Number | None = Field(default=None, ge=0, description="seconds after the beginning when it ends; none: at once")
    in_: tuple[Json, ...] = Field(default=(), alias="in", description="payloads that go in, all at the beginning")
    events: tuple[CaseEvent, ...] = Field(default=(), description="events that go in, with metadata and times")
    out: tuple[Json, ...] | None = Field(default=None, description="payloads that come to the sender, in their order")
    messages: tuple[dict[str, Json], ...] | None = Field(default=None, description="messages as the sender gets them")
    dropped: Whole | None = Field(default=None, ge=0, description="how many events go in and nothing becomes of them")
    dead_letters: tuple[str, ...] = Field(default=(), description="for each, a text that its reason holds")
    failed: tuple[str, ...] = Field(default=(), description="the same for events that fail")
    held: Whole = Field(default=0, ge=0, description="how many events a filter still keeps back at the end")

    @field_validator("at", mode="before")
    @classmethod
    def _as_seconds(cls, value: Any) -> Any:
        if isinstance(value, datetime):
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, str):
            try:
                return cls._as_seconds(datetime.fromisoformat(value))
            except ValueError:
                raise Unfit("it is not a time", "write it like 2026-01-01T00:00:00Z, or in unix seconds") from None
        return value

    @model_validator(mode="after")
    def _says_what_it_expects(self) -> Self:
        if self.in_ and self.events:
            raise ValueError("it has both `in` and `events`; write all of them under events")
        if not self.in_ and not self.events:
            raise ValueError("nothing goes in; write in: and a list of payloads")
        if self.model_fields_set.isdisjoint(EXPECTED):
            raise ValueError("it expects nothing; write out: and a list of payloads, or out: [] if nothing must come")
        return self

    @property
    def tenant(self) -> Tenant:
        return Tenant(self.org, self.app)

    @property
    def coming(self) -> tuple[CaseEvent, ...]:
        """All that goes in, in the order of time."""
        plain = tuple(CaseEvent(payload=payload) for payload in self.in_)
        return tuple(sorted((*plain, *self.events), key=lambda event: event.after))


class FileCase(msgspec.Struct, frozen=True):
    case: Case
    file: str
    line: int | None


def read_cases(path: Path) -> tuple[list[FileCase], list[Mistake]]:
    """Of one file: a map with `cases`."""
    try:
        written = Layers(read_document(path, f"cases {path}", "name an existing file"))
    except Mistakes as error:
        return [], list(error.mistakes)
    whole = Part(written, (), written.value)
    cases = whole.below("cases")
    if not isinstance(cases.value, list):
        return [], [whole.mistake((), "there are no cases in it", "write cases: and a list of them")]
    strange = [
        whole.mistake((key,), "there is no such key beside cases", "put it into a case, or remove it")
        for key in sorted(whole.value.keys() - {"cases"}, key=str)
    ]
    read, wrong = _all(cases)
    return read, [*strange, *written.twice(), *wrong]


def _all(cases: Part) -> tuple[list[FileCase], list[Mistake]]:
    found: list[FileCase] = []
    mistakes: list[Mistake] = []
    for n in range(len(cases.value)):
        case, wrong = cases.below(n).examine(Case)
        mistakes += wrong
        if case is not None and not wrong:
            found.append(FileCase(case, *cases.place((n,))))
    return found, mistakes


def no_such_route(case: Case, known: list[str]) -> Invalid:
    if not case.route:
        return Invalid("route", "it is not said which one", f"write route: and one of {', '.join(known) or 'those beside it'}")
    return Invalid(f"route {case.route}", f"there is none of {case.tenant} in these files", f"known: {', '.join(known)}")
