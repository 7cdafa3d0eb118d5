"""The lease: one row (name, holder, epoch, expires_at) on the database's clock.

Rules, numbered as the hazards they prevent:

H01  A fenced transaction ends with the fence, sent together with COMMIT (`commit_fenced`). The fence locks the lease
     row FOR KEY SHARE: a takeover waits for it, a renewal does not.
H02  Epochs never repeat: new epoch = greatest(old + 1, unix seconds), and the holder is a uuid per acquisition, compared
     together with the epoch.
H03  A holder stops by its own monotonic clock before the lease can lapse, counted from the *start* of its last
     successful renewal (`Tenure.holds`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from trunkline.core.clock import Clock
from trunkline.core.errors import Fenced

FENCED_STATE = "TL001"

# ON CONFLICT locks the row before it looks at its WHERE: without the first look, whoever asks in vain would wait for
# fenced work and then hold it up.
_ACQUIRE = """
INSERT INTO site.lease AS l (name, holder, epoch, expires_at)
SELECT %(name)s, %(holder)s, extract(epoch FROM clock_timestamp())::bigint,
       clock_timestamp() + make_interval(secs => %(seconds)s)
 WHERE NOT EXISTS (SELECT FROM site.lease WHERE name = %(name)s AND expires_at > clock_timestamp())
ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, epoch = greatest(l.epoch + 1, excluded.epoch),
       expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
 WHERE l.expires_at <= clock_timestamp()
RETURNING epoch
"""
_RENEW = """
UPDATE site.lease SET expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
 WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s AND expires_at > clock_timestamp()
"""
_RELEASE = "UPDATE site.lease SET expires_at = '-infinity' WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s"


@dataclass(frozen=True)
class Grant:
    """Proof of one acquisition; it goes with every fenced write."""

    name: str
    holder: uuid.UUID
    epoch: int


@dataclass(frozen=True)
class Terms:
    seconds: float = 10.0
    renew_every: float = 3.0
    margin: float = 1.0


LEADER_TERMS = Terms()
STANDBY_TERMS = Terms(seconds=5.0, renew_every=1.5, margin=0.5)


def acquire(conn: psycopg.Connection[Any], name: str, seconds: float) -> Grant | None:
    holder = uuid.uuid4()
    try:
        row = conn.execute(_ACQUIRE, {"name": name, "holder": holder, "seconds": seconds}).fetchone()
    except psycopg.errors.UniqueViolation:
        # Two made the first row of this name in one instant: ON CONFLICT settles (name) only, not (name, epoch).
        conn.rollback()
        return None
    conn.commit()
    return Grant(name, holder, row[0]) if row else None


def renew(conn: psycopg.Connection[Any], grant: Grant, seconds: float) -> bool:
    done = conn.execute(_RENEW, {**vars(grant), "seconds": seconds}).rowcount == 1
    conn.commit()
    return done


def release(conn: psycopg.Connection[Any], grant: Grant) -> None:
    conn.execute(_RELEASE, vars(grant))
    conn.commit()


def commit_fenced(conn: psycopg.Connection[Any], grant: Grant) -> None:
    """Commits the open transaction if the grant still holds, else rolls it back and raises `Fenced`."""
    try:
        psycopg.ClientCursor(conn).execute(
            "SELECT site.fence(%s::text, %s::bigint, %s::uuid); COMMIT", (grant.name, grant.epoch, grant.holder)
        )
    except psycopg.Error as error:
        conn.rollback()
        if error.sqlstate == FENCED_STATE:
            raise Fenced(f"lease {grant.name}", f"epoch {grant.epoch} is over", "stop; the new holder goes on") from None
        raise


def connect_fenced(dsn: str) -> psycopg.Connection[Any]:
    """A connection for fenced work: a holder that falls asleep in a transaction loses it after 3 s."""
    return psycopg.connect(dsn, options="-c idle_in_transaction_session_timeout=3000")


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


class LeaseKeeper:
    """Wins a lease, renews it, and says when it is won and lost.

    `on_won(grant)` and `on_lost()` alternate, one at a time; `on_lost` comes before the lease can be another's. A
    database that is down, or does not answer at all, counts as no answer: the tenure runs out by the clock. That is why
    there are two threads: one may hang in the database while the other, which never asks it, looks at the clock.
    """

    def __init__(
        self, dsn: str, name: str, terms: Terms, clock: Clock,
        on_won: Callable[[Grant], None], on_lost: Callable[[], None],
    ) -> None:  # fmt: skip
        self._dsn, self._name, self._terms, self._clock = dsn, name, terms, clock
        self._on_won, self._on_lost = on_won, on_lost
        self._tenure = Tenure(clock, terms)
        self._turn = threading.RLock()  # held while the tenure changes and while a callback runs
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=f"lease-{name}-{run.__name__.strip('_')}", daemon=True)
            for run in (self._keep, self._watch)
        ]
        self._conn: psycopg.Connection[Any] | None = None

    @property
    def grant(self) -> Grant | None:
        return self._tenure.grant if self._tenure.holds() else None

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Lets go of the lease, so that the next holder need not wait for it to lapse."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(10)
        self._lose()

    def _keep(self) -> None:
        while not self._stop.wait(self._step()):
            pass
        held = self._tenure.grant
        self._lose()
        try:
            if held is not None:
                release(self._connection(), held)
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
        asked_at = self._clock.monotonic()
        grant = self._tenure.grant
        try:
            if grant is None:
                self._try_to_win(asked_at)
            elif renew(self._connection(), grant, self._terms.seconds):
                self._prolong(grant, asked_at)
            else:
                self._lose()
        except psycopg.Error:
            self._disconnect()
        if self._tenure.grant is None or self._conn is None:
            return min(0.25, self._terms.margin / 2)
        return self._terms.renew_every

    def _try_to_win(self, asked_at: float) -> None:
        grant = acquire(self._connection(), self._name, self._terms.seconds)
        if grant is None:
            return
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

    def _lose(self) -> None:
        with self._turn:
            if self._tenure.grant is not None:
                self._tenure.lost()
                self._on_lost()

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            # Autocommit: a process that is paused between a statement and its COMMIT must not keep the row locked.
            self._conn = psycopg.connect(
                self._dsn, connect_timeout=2, autocommit=True, options="-c statement_timeout=1000 -c lock_timeout=1000"
            )
        return self._conn

    def _disconnect(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
