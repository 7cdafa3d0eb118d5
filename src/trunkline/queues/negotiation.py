"""How a source answers a session that asks how to go on. The first rule that fits decides.

1. A snapshot that is there for the session is taken before anything else, and one that is coming is waited for.
2. A session that lacks nothing goes on by the log, even where the log was trimmed beyond its position: what counts is
   whether anything for this site was in the trimmed part.
3. Otherwise a client with a provider gets a snapshot; one without gets what the log has, and a record of what it has not.
4. A session in the midst of a snapshot never goes on by the log: it needs a snapshot to its end.
5. One that is to be brought up anew, because a consumer of it missed something, gets a snapshot although it lacks nothing.

Marks are not compared here: the stream's subscription does that, and a position of another history comes back as a reset (H11).
Below what was trimmed there are no marks. Where entries went that a site had not acknowledged, its position there counts only
as far as it did: it may be of another history.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from trunkline.core.ids import START, Position
from trunkline.queues.messages import Negotiate, Verdict
from trunkline.queues.sessionrows import RequestRow

RESYNC = "resync"
"""The reason of rule 5."""


@dataclass(frozen=True)
class Facts:
    """What a source knows of its log and of how far others are. Pairs are (destination, client)."""

    head: Position = START
    lowest: Position = START
    """Up to and including this one, entries were trimmed."""
    trimmed: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """The last trimmed entry for it, those for all sites counted (H17); none: nothing for it was trimmed."""
    last: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """The last entry for it, trimmed or not."""
    missed: Collection[tuple[str, str]] = ()
    """Those for whom entries were trimmed that they had not acknowledged."""
    acknowledged: Mapping[tuple[str, str], Position] = field(default_factory=dict)
    sent: Mapping[tuple[str, str], int] = field(default_factory=dict)
    behind: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Entries not acknowledged yet, about."""


@dataclass(frozen=True)
class Choice:
    verdict: Verdict
    base: Position = START
    lost: tuple[int, int] | None = None
    ask: bool = False
    """No snapshot is on its way: one must be asked for."""


@dataclass(frozen=True)
class Case:
    site: str
    asked: Negotiate
    log_id: str
    facts: Facts
    request: RequestRow | None
    """The newest open one for this session."""
    provided: bool

    @property
    def position(self) -> Position | None:
        """Where the session stands in this log; None when it stands in none, or in another one."""
        position, facts, pair = self.asked.position, self.facts, (self.site, self.asked.client)
        if position is None or self.asked.log_id != self.log_id or position.seq > facts.head.seq:
            return None
        if self.asked.reason == "resume":
            return None
        if pair in facts.missed and position.seq <= facts.lowest.seq and position != facts.lowest:
            return min(position, facts.acknowledged.get(pair, START))
        return position

    @property
    def trimmed(self) -> int:
        return self.facts.trimmed.get((self.site, self.asked.client), 0)


def _lacks_nothing(case: Case) -> bool:
    return case.position is not None and case.position.seq >= case.trimmed


def _with_loss(case: Case) -> Choice:
    return Choice(Verdict.LOG, case.facts.lowest, lost=((case.position or START).seq + 1, case.trimmed))


RULES: tuple[tuple[Callable[[Case], bool], Callable[[Case], Choice]], ...] = (
    (
        lambda c: c.request is not None and c.request.usable,
        lambda c: Choice(Verdict.SNAPSHOT, c.request.base if c.request else START),
    ),
    (lambda c: c.request is not None, lambda c: Choice(Verdict.WAIT)),
    (lambda c: c.provided and c.asked.reason == RESYNC, lambda c: Choice(Verdict.WAIT, ask=True)),
    (_lacks_nothing, lambda c: Choice(Verdict.LOG, c.position or START)),
    (lambda c: c.provided or c.asked.reason == "resume", lambda c: Choice(Verdict.WAIT, ask=c.provided)),
    (lambda c: not c.trimmed, lambda c: Choice(Verdict.LOG, c.position or START)),
    (lambda c: True, _with_loss),
)


def decide(case: Case) -> Choice:
    return next(choose(case) for fits, choose in RULES if fits(case))
