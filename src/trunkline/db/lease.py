"""The lease: one row (name, holder, epoch, expires_at) on the database's clock.

Rules, numbered as the hazards they prevent:

H01  A fenced transaction ends with the fence, sent together with COMMIT (`commit_fenced`). The fence locks the lease
     row FOR KEY SHARE: a takeover waits for it, a renewal does not.
H02  Epochs never repeat: new epoch = greatest(old + 1, unix seconds), and the holder is a uuid per acquisition, compared
     together with the epoch.
     A holder that hears of a higher epoch than its own, from somebody who remembers what this database forgot, raises
     its own above it (`raise_above`); what it did under the old one is fenced from then on.

How long a grant may be acted upon, and who tries to win when (H03, H04), is `trunkline.db.keeper`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import psycopg

from trunkline.core.errors import Fenced
from trunkline.db.arrays import use_quick_arrays
from trunkline.db.away import attentive

FENCED_STATE = "TL001"
# For whoever tries again: a lock that nobody gives back, or a statement without an end, makes it fail.
PATIENCE = {"lock_timeout": "30s", "statement_timeout": "300s"}
_ASLEEP = {"idle_in_transaction_session_timeout": "3s"}

# ON CONFLICT locks the row before it looks at its WHERE: without the first look, whoever asks in vain would wait for
# fenced work and then hold it up.
_ACQUIRE = """
INSERT INTO site.lease AS l (name, holder, owner, epoch, expires_at)
SELECT %(name)s, %(holder)s, %(owner)s, extract(epoch FROM clock_timestamp())::bigint,
       clock_timestamp() + make_interval(secs => %(seconds)s)
 WHERE NOT EXISTS (SELECT FROM site.lease WHERE name = %(name)s AND expires_at > clock_timestamp())
ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, owner = excluded.owner, epoch = greatest(l.epoch + 1, excluded.epoch),
       expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
 WHERE l.expires_at <= clock_timestamp()
RETURNING epoch
"""
_RENEW = """
UPDATE site.lease SET expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
 WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s AND expires_at > clock_timestamp()
"""
_RAISE = """
UPDATE site.lease
   SET epoch = greatest(epoch + 1, %(above)s + 1, extract(epoch FROM clock_timestamp())::bigint), holder = %(new_holder)s,
       expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
 WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s AND expires_at > clock_timestamp()
RETURNING epoch
"""
_RELEASE = "UPDATE site.lease SET expires_at = '-infinity' WHERE name = %(name)s AND holder = %(holder)s AND epoch = %(epoch)s"
_LOOK = "SELECT owner, epoch, expires_at > clock_timestamp() FROM site.lease WHERE name = %s"


@dataclass(frozen=True)
class Grant:
    """Proof of one acquisition; it goes with every fenced write."""

    name: str
    holder: uuid.UUID
    epoch: int


@dataclass(frozen=True)
class Holding:
    """What the row says to whoever looks."""

    owner: str
    epoch: int
    live: bool


@dataclass(frozen=True)
class Terms:
    seconds: float = 10.0
    renew_every: float = 3.0
    margin: float = 1.0


LEADER_TERMS = Terms()
STANDBY_TERMS = Terms(seconds=5.0, renew_every=1.5, margin=0.5)


def acquire(conn: psycopg.Connection[Any], name: str, seconds: float, owner: str = "") -> Grant | None:
    holder = uuid.uuid4()
    try:
        row = conn.execute(_ACQUIRE, {"name": name, "holder": holder, "owner": owner, "seconds": seconds}).fetchone()
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


def raise_above(conn: psycopg.Connection[Any], grant: Grant, epoch: int, seconds: float) -> Grant | None:
    """The same tenure under a new grant whose epoch is above `epoch`; None when the old one no longer holds."""
    holder = uuid.uuid4()
    row = conn.execute(_RAISE, {**vars(grant), "above": epoch, "new_holder": holder, "seconds": seconds}).fetchone()
    conn.commit()
    return Grant(grant.name, holder, row[0]) if row else None


def look(conn: psycopg.Connection[Any], name: str) -> Holding | None:
    row = conn.execute(_LOOK, (name,)).fetchone()
    conn.commit()
    return Holding(*row) if row else None


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


def connect_fenced(dsn: str, application_name: str = "trunkline", **settings: str) -> psycopg.Connection[Any]:
    """A connection for fenced work: a holder asleep in a transaction loses it after 3 s. `settings`: the server's."""
    options = " ".join(f"-c {name}={value}" for name, value in {**_ASLEEP, **settings}.items())
    conn = psycopg.connect(attentive(dsn), application_name=application_name, options=options)
    use_quick_arrays(conn)
    return conn
