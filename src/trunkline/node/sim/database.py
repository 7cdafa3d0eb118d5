"""A site's database in memory: what stays when processes die.

The lease row follows the rules of `trunkline.db.lease` on the database's clock:

H01  a fenced step is done only while its grant holds (`fenced`)
H02  a new epoch is greatest(old + 1, unix seconds), the holder a uuid per acquisition
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from trunkline.core.ids import Position
from trunkline.db.lease import Grant
from trunkline.node.sim.witness import Witness
from trunkline.trunk.memory import MemoryLog, MemorySink, Message

LEADER = "leader"
_T = TypeVar("_T")

Transaction = tuple[Sequence[Message], int]
"""Its messages, and the mark it will be stamped with."""


@dataclass
class LeaseRow:
    wall: Callable[[], float]
    epoch: int = 0
    holder: uuid.UUID | None = None
    expires_at: float = 0.0

    def acquire(self, holder: uuid.UUID, seconds: float) -> Grant | None:
        now = self.wall()
        if self.expires_at > now:
            return None
        self.epoch, self.holder, self.expires_at = max(self.epoch + 1, int(now)), holder, now + seconds
        return Grant(LEADER, holder, self.epoch)

    def renew(self, grant: Grant, seconds: float) -> bool:
        if not self.holds(grant):
            return False
        self.expires_at = self.wall() + seconds
        return True

    def release(self, grant: Grant) -> None:
        if (self.holder, self.epoch) == (grant.holder, grant.epoch):
            self.expires_at = 0.0

    def holds(self, grant: Grant) -> bool:
        return (self.holder, self.epoch) == (grant.holder, grant.epoch) and self.expires_at > self.wall()


@dataclass
class Database:
    site: str
    log: MemoryLog
    lease: LeaseRow
    witness: Witness
    sink: MemorySink = field(default_factory=MemorySink)
    epoch: int = 0
    acknowledged: dict[str, dict[str, Position]] = field(default_factory=dict)
    unstamped: list[Transaction] = field(default_factory=list)
    stored_upto: dict[str, int] = field(default_factory=dict)
    """How far this site says it has each origin's log, since the last reset."""
    led: int = 0
    """The newest epoch under which somebody began to lead."""
    _due: dict[str, tuple[Position, list[int]]] = field(default_factory=dict)

    def stamp(self) -> Position:
        """What applications committed becomes the log, in order."""
        pending, self.unstamped = self.unstamped, []
        for messages, mark in pending:
            self.log.commit(messages, mark)
        return self.log.head()

    def due_to(self, site: str) -> list[int]:
        """Of the log what is for that site."""
        head = self.log.head()
        at, due = self._due.get(site, (None, []))
        if at != head:
            due = [e.seq for e in self.log.read(0, head.seq + 1, {site}).entries]
            self._due[site] = head, due
        return due

    def fenced(self, grant: Grant, step: Callable[[], _T]) -> _T | None:
        """None: the grant is over, and nothing was done."""
        if not self.lease.holds(grant):
            return None
        if grant.epoch < self.led:
            self.witness.saw("H01", f"{self.site}: epoch {grant.epoch} wrote after epoch {self.led} had begun")
        return step()
