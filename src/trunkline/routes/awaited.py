"""Which acks a change still waits for. Pure: time is an argument.

A1  Those expected are the instances that were alive when it was published; what others say does not count.
A2  A session is complete when every expected instance has acked each of its deltas, or *look at everything* instead.
    A refusal is an answer too: the last word of an instance on a delta counts.
A3  After `seconds` a session is over, complete or not: `overdue` gives those that are not, with who is missing, once.
A4  At most `most` sessions are kept; the oldest goes first, and is counted if it was not complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from trunkline.routes.keys import RouteKey
from trunkline.routes.sync.base import Ack, Operation

SECONDS = 10.0
MOST = 10_000


class Outcome(msgspec.Struct, frozen=True):
    """`acked`: the greatest revision that each instance said it has. `refused`: reasons by instance, joined if several."""

    session: str
    acked: dict[str, int]
    refused: dict[str, str]
    missing: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def everywhere(self) -> bool:
        return self.complete and not self.refused


@dataclass
class _Session:
    until: float
    deltas: int
    answers: dict[str, dict[RouteKey, Ack]]
    """By expected instance, the last ack of each delta."""
    looked: set[str] = field(default_factory=set)
    """Instances that looked at everything."""

    def hear(self, ack: Ack) -> None:
        answers = self.answers.get(ack.instance)
        if answers is None:
            return
        if ack.operation is Operation.ALL:
            self.looked.add(ack.instance)
        key = RouteKey(ack.tenant, ack.id)
        if key in answers or len(answers) < self.deltas:
            answers[key] = ack

    def missing(self) -> tuple[str, ...]:
        return tuple(id for id, answers in self.answers.items() if id not in self.looked and len(answers) < self.deltas)

    def outcome(self, session: str) -> Outcome:
        missing = self.missing()
        done = {id: list(answers.values()) for id, answers in self.answers.items() if id not in missing}
        reasons = {id: list(dict.fromkeys(ack.reason for ack in a.values() if ack.reason)) for id, a in self.answers.items()}
        refused = {id: "; ".join(why) for id, why in reasons.items() if why}
        acked = {id: max(ack.revision for ack in acks) for id, acks in done.items() if id not in refused}
        return Outcome(session, acked, refused, missing)


class Awaited:
    def __init__(self, seconds: float = SECONDS, most: int = MOST) -> None:
        self._seconds, self._most = seconds, most
        self._sessions: dict[str, _Session] = {}
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def expect(self, session: str, instances: Iterable[str], now: float, deltas: int = 1) -> None:
        """`deltas`: how many it publishes. Where no instance is expected it is complete at once."""
        self._sessions[session] = _Session(now + self._seconds, deltas, {id: {} for id in instances})
        if len(self._sessions) > self._most:
            oldest = next(iter(self._sessions))
            self.forgotten += bool(self._sessions.pop(oldest).missing())

    def hear(self, ack: Ack) -> bool:
        """Whether this completes its session."""
        session = self._sessions.get(ack.session)
        if session is None or not session.missing():
            return False
        session.hear(ack)
        return not session.missing()

    def outcome(self, session: str) -> Outcome | None:
        known = self._sessions.get(session)
        return known.outcome(session) if known else None

    def overdue(self, now: float) -> list[Outcome]:
        """Sessions are in the order of their time."""
        over: list[Outcome] = []
        while self._sessions:
            name, session = next(iter(self._sessions.items()))
            if session.until > now:
                break
            del self._sessions[name]
            if session.missing():
                over.append(session.outcome(name))
        return over
