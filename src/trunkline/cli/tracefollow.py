"""One record through all parts of some sites, in the order in which records go: route jobs and outboxes first, then the send
logs, then the receive queues and bridges of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
import psycopg

from trunkline.bridge import tracing as bundles
from trunkline.bridge.types import Types
from trunkline.core.errors import Terminal
from trunkline.db.operated import Connect, operated
from trunkline.db.traced import State, Step, Wanted, is_there
from trunkline.pipeline.jobs import tracing as jobs
from trunkline.queues import tracing as queues
from trunkline.routes import tracing as routes
from trunkline.routes.tracing import RecordId, record_id


class Place(msgspec.Struct, frozen=True):
    """A site, its database, and the types of bundles that its bridge knows."""

    site: str
    connect: Connect
    types: Types


class SiteStep(msgspec.Struct, frozen=True):
    site: str
    step: Step

    def shown(self) -> dict[str, Any]:
        return {"site": self.site, **msgspec.to_builtins(self.step)}


class Trace(msgspec.Struct, frozen=True):
    """`notes`: how far was looked, where a record may be older than that."""

    record: RecordId
    steps: tuple[SiteStep, ...]
    notes: tuple[str, ...] = ()

    @property
    def stands(self) -> SiteStep | None:
        """What keeps it: the first step that failed, or that waits; none: nothing does."""
        held = [one for one in self.steps if one.step.state in (State.FAILED, State.WAITS)]
        return min(held, key=lambda one: one.step.state is not State.FAILED, default=None)

    def verdict(self) -> str:
        if not self.steps:
            return "it was not found: its id is wrong, it has not come yet, or it is older than what is kept"
        if (held := self.stands) is not None:
            return f"it {held.step.state} at {held.site}, {held.step.place}: {held.step.why}"
        last = self.steps[-1]
        return f"nothing keeps it; last seen at {last.site}, {last.step.place}: {last.step.why}"


class _Looking:
    def __init__(self, stack: ExitStack, places: Sequence[Place], record: RecordId) -> None:
        self.record = record
        self.at = {place.site: stack.enter_context(_looked_into(place)) for place in places}
        self.types = {place.site: place.types for place in places}
        self.steps: list[SiteStep] = []

    def with_part(self, tables: Sequence[str]) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
        return ((site, conn) for site, conn in self.at.items() if is_there(conn, tables))

    def add(self, site: str, steps: Iterator[Step] | Sequence[Step]) -> None:
        self.steps += [SiteStep(site, step) for step in steps]


def follow(places: Sequence[Place], text: str) -> Trace:
    record = record_id(text)
    with ExitStack() as stack:
        looking = _Looking(stack, places, record)
        _routed(looking)
        notes = _sent(looking)
        _received(looking)
        return Trace(record, tuple(looking.steps), tuple(notes))


def _routed(looking: _Looking) -> None:
    place = jobs.kafka_place(looking.record.source)
    for site, conn in looking.with_part(jobs.TABLES) if place is not None else ():
        assert place is not None
        looking.add(site, jobs.routed(conn, place, looking.record.route))
    for site, conn in looking.with_part(routes.TABLES):
        looking.add(site, routes.kept(conn, looking.record))


def _sent(looking: _Looking) -> Iterator[str]:
    found: list[str] = []
    for site, conn in looking.with_part(queues.TABLES):
        steps = list(queues.sent(conn, looking.record.wanted))
        looking.add(site, steps)
        if not steps and (older := queues.older(conn)):
            found.append(f"{site}: {older}")
    return iter(found)


def _received(looking: _Looking) -> None:
    entries = [one for one in looking.steps if one.step.place == "send log"]
    headers = [one.step.details["headers"] for one in entries if one.step.details.get("headers")]
    for site, conn in looking.with_part(queues.TABLES):
        steps, arrivals = queues.received(conn, looking.record.wanted)
        if not steps:
            steps = [s for origin in {e.site for e in entries} - {site} for s in _gone(conn, origin, entries)]
        looking.add(site, steps)
        if is_there(conn, bundles.TABLES):
            known = [*headers, *(one.headers for one in arrivals)]
            wanted = looking.record.wanted if arrivals else _as_bundle(looking.record.wanted, known)
            looking.add(site, bundles.taken_in(conn, looking.types[site], wanted, arrivals, known))


def _as_bundle(wanted: Wanted, headers: Sequence[Mapping[str, str]]) -> Wanted:
    """What left its queue is found by the bundle's own id."""
    return Wanted((*wanted.ids, *(one["ce_id"] for one in headers if "ce_id" in one)), wanted.source)


def _gone(conn: psycopg.Connection[Any], origin: str, entries: Sequence[SiteStep]) -> Iterator[Step]:
    return queues.passed(conn, origin, [one.step for one in entries if one.site == origin])


def _looked_into(place: Place) -> Any:
    return operated(place.connect, f"database of {place.site}", _missing(place.site))


def _missing(site: str) -> Callable[[str], Terminal]:
    return lambda why: Terminal(f"database of {site}", why, "start a node of this version on it once")
