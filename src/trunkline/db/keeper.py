"""Keeping a lease: who tries to win it and when, and until when the winner may act.

Rules, numbered as the hazards they prevent:

H02  Whoever heard of a higher epoch than its own says so (`raise_above`): the grant is exchanged for one above it before
     anybody acts under it.
H03  A holder stops by its own monotonic clock before the lease can lapse, counted from the *start* of its last
     successful renewal (`Tenure.holds`). A database that is down, or does not answer at all, counts as no answer. That is
     why there are two threads: one may hang in the database while the other, which never asks it, looks at the clock.
H04  A preference is no claim: the preferred try at once, the others when the lease was free for FREE_SECONDS by their own
     clock. The lease is let go only after `on_lost` returned, so work that drains there is done before another begins.
     A holder whose work fails lets go and rests (`give_up`), so that another gets its turn.

`on_won(grant)` and `on_lost()` alternate, one at a time; `on_lost` comes before the lease can be another's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import structlog

from trunkline.core.clock import Clock
from trunkline.db.away import in_one_line
from trunkline.db.lease import Grant, Holding, Terms, acquire, look, raise_above, release, renew

FREE_SECONDS = 2.0

log = structlog.get_logger(__name__)


@dataclass
class Tenure:
    """How long a grant may be acted upon, by this process's own clock (H03)."""

    clock: Clock
    terms: Terms
    grant: Grant | None = None
    _until: float = field(default=0.0)

    def won(self, grant: Grant, asked_at: float) -> None:
        self.grant = grant
        self._until = asked_at + self.terms.seconds - self.terms.margin

    def lost(self) -> None:
        self.grant = None

    def holds(self) -> bool:
        return self.grant is not None and self.clock.monotonic() < self._until


@dataclass
class Eagerness:
    """Whether to try now, by preference and by how long the lease has been seen free (H04)."""

    preferred: Callable[[], bool]
    free_since: float | None = None
    rests_until: float = 0.0

    def tries(self, held: Holding | None, now: float) -> bool:
        if held is not None and held.live:
            self.free_since = None
            return False
        if self.free_since is None:
            self.free_since = now
        return now >= self.rests_until and (self.preferred() or now - self.free_since >= FREE_SECONDS)


class LeaseKeeper:
    """Wins a lease, renews it, and says when it is won and lost. `owner` is what others read about the holder.

    `seen` is what a keeper that does not hold it last read of the lease, `trouble` why it could not ask.
    """

    def __init__(
        self, dsn: str, name: str, terms: Terms, clock: Clock,
        on_won: Callable[[Grant], None], on_lost: Callable[[], None],
        owner: str = "", preferred: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self.seen: Holding | None = None
        self.seen_at = clock.monotonic()
        self.trouble = ""
        self._dsn, self._name, self._terms, self._clock, self._owner = dsn, name, terms, clock, owner
        self._on_won, self._on_lost = on_won, on_lost
        self._tenure = Tenure(clock, terms)
        self._eagerness = Eagerness(preferred)
        self._known_epoch = 0
        self._turn = threading.RLock()  # held while the tenure changes and while a callback runs
        self._stop, self._wake = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=run, name=f"lease-{name}-{run.__name__.strip('_')}", daemon=True)
            for run in (self._keep, self._watch)
        ]
        self._conn: psycopg.Connection[Any] | None = None

    @property
    def grant(self) -> Grant | None:
        return self._tenure.grant if self._tenure.holds() else None

    @property
    def rests(self) -> float:
        """Seconds until this keeper tries again after `give_up`; 0 when it does."""
        return max(0.0, self._eagerness.rests_until - self._clock.monotonic())

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Lets go of the lease, so that the next holder need not wait for it to lapse."""
        self._stop.set()
        self._wake.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(10)
        self._lose()

    def give_up(self, seconds: float) -> None:
        """Lets go soon, and leaves the lease to others for so long."""
        self._eagerness.rests_until = self._clock.monotonic() + seconds
        self._wake.set()

    def raise_above(self, epoch: int) -> None:
        """Somebody knows of this epoch: a grant below it is exchanged, now or when it is won."""
        self._known_epoch = max(self._known_epoch, epoch)
        self._wake.set()

    def _keep(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._step())
            self._wake.clear()
        try:
            self._let_go()
        except psycopg.Error:
            pass  # it lapses by itself
        finally:
            self._disconnect()

    def _watch(self) -> None:
        while not self._stop.wait(min(0.1, self._terms.margin / 4)):
            if not self._tenure.holds():
                self._lose()

    def _step(self) -> float:
        """One try; returns the seconds until the next."""
        try:
            self._try()
            self.trouble = ""
        except Exception as error:
            self._complain(in_one_line(error))
            self._disconnect()
        if self._tenure.grant is None or self._conn is None:
            return min(0.25, self._terms.margin / 2)
        return self._terms.renew_every

    def _try(self) -> None:
        asked_at, grant = self._clock.monotonic(), self._tenure.grant
        if grant is None:
            self.seen, self.seen_at = look(self._connection(), self._name), self._clock.monotonic()
            if self._eagerness.tries(self.seen, asked_at):
                self._try_to_win(asked_at)
        elif self.rests:
            self._let_go()
        elif grant.epoch < self._known_epoch:
            self._exchange(grant, asked_at)
        elif renew(self._connection(), grant, self._terms.seconds):
            self._prolong(grant, asked_at)
        else:
            self._lose()

    def _try_to_win(self, asked_at: float) -> None:
        grant = acquire(self._connection(), self._name, self._terms.seconds, self._owner)
        if grant is not None and grant.epoch < self._known_epoch:
            grant = raise_above(self._connection(), grant, self._known_epoch, self._terms.seconds)
        if grant is not None:
            self._begin(grant, asked_at)

    def _exchange(self, grant: Grant, asked_at: float) -> None:
        """The old grant is over with the statement that makes the new one: whoever works under it stops first."""
        raised = raise_above(self._connection(), grant, self._known_epoch, self._terms.seconds)
        self._lose()
        if raised is not None:
            self._begin(raised, asked_at)

    def _begin(self, grant: Grant, asked_at: float) -> None:
        with self._turn:
            self._tenure.won(grant, asked_at)
            if self._tenure.holds():
                self._on_won(grant)
                return
            self._tenure.lost()  # the answer came too late to begin
        release(self._connection(), grant)

    def _prolong(self, grant: Grant, asked_at: float) -> None:
        with self._turn:
            if self._tenure.holds():
                self._tenure.won(grant, asked_at)
                return
        self._lose()  # the answer came too late to go on as if nothing had been
        release(self._connection(), grant)

    def _let_go(self) -> None:
        held = self._tenure.grant
        self._lose()
        if held is not None:
            release(self._connection(), held)

    def _lose(self) -> None:
        with self._turn:
            if self._tenure.grant is not None:
                self._tenure.lost()
                self.seen, self.seen_at = None, self._clock.monotonic()
                self._on_lost()

    def _complain(self, trouble: str) -> None:
        """Once per reason, not once per try."""
        if trouble != self.trouble:
            self.trouble = trouble
            log.warning("cannot keep the lease; trying again", lease=self._name, reason=trouble)

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            # Autocommit: a process that is paused between a statement and its COMMIT must not keep the row locked.
            self._conn = psycopg.connect(
                self._dsn, connect_timeout=2, autocommit=True, tcp_user_timeout=3000,
                application_name=f"trunkline-lease-{self._name}", options="-c statement_timeout=1000 -c lock_timeout=1000",
            )  # fmt: skip
        return self._conn

    def _disconnect(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
