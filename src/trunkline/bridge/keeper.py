"""The keeper: what the bridge does by itself while time passes, in one thread beside the workers, under their lease.

Every round it does what is due: marks sites silent or active, lets chunks expire, drops deltas that are too many, wishes for
bases that do not come, asks sites for the resyncs that are wanted, bounds the quarantine, and makes the partitions of the
months to come.

K1  Each step is a fenced transaction, or some; a step that fails is tried again, and costs no other step. Nothing but `Fenced`
    ends the thread.
K2  What is judged by waiting is judged only when intake has caught up, which is asked before the database is read: what was
    sent meanwhile has been read then.
K3  A resync is asked for until it is applied. A request that was sent and not noted is sent again, never the other way round.
    A transport that fails holds up no other.
K4  A silent site is not asked; when it is heard again, all it has is wanted.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
import structlog

from trunkline.bridge import clearance
from trunkline.bridge.askers import Asker
from trunkline.bridge.expiry import drop_stuck, drop_surplus, expire_chunks, want_bases
from trunkline.bridge.liveness import Heard, Liveness, Verdict
from trunkline.bridge.months import delete_old, drop_old, ensure_partitions
from trunkline.bridge.types import Types
from trunkline.bridge.wishes import Wish, to_ask, wish
from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.core.config import BridgeConfig
from trunkline.core.errors import Fenced, Retryable, TrunklineError
from trunkline.db.away import in_one_line
from trunkline.db.lease import Grant, commit_fenced, connect_fenced

ROUND_SECONDS = 1.0
SURPLUS_SECONDS = 5.0
QUARANTINE_SECONDS = 30.0
PARTITION_SECONDS = 3600.0
MONTHS_AHEAD = 2
MOST_ASKS = 500

_SITES = "SELECT site, extract(epoch FROM last_seen)::float8, state = 'silent' FROM bridge.site"
# Who was heard since the sites were read is not silenced. Rows are locked in the order in which intake locks them.
_TURN = """
UPDATE bridge.site SET state = %(state)s, state_since = now() WHERE site IN (
    SELECT site FROM bridge.site
     WHERE site = ANY (%(sites)s) AND state <> %(state)s AND (%(state)s = 'active' OR last_seen < to_timestamp(%(bound)s))
     ORDER BY site FOR UPDATE)
RETURNING site
"""
_SENT = "SELECT site, type FROM bridge.ledger WHERE site = ANY (%s) ORDER BY site, type"
_DUE = """
SELECT r.site, array_agg(r.type ORDER BY r.type), min(r.reason),
       format('%%s-%%s-%%s', r.site, extract(epoch FROM min(r.wanted_at))::bigint, max(r.asks) + 1)
  FROM bridge.resync r LEFT JOIN bridge.site s ON s.site = r.site
 WHERE (r.asked_at IS NULL OR r.asked_at <= now() - make_interval(secs => %(again)s)) AND s.state IS DISTINCT FROM 'silent'
   AND coalesce(s.transport, %(first)s) = %(transport)s
 GROUP BY r.site ORDER BY min(coalesce(r.asked_at, '-infinity')), r.site LIMIT %(most)s
"""
_ASKED = """
UPDATE bridge.resync SET asked_at = now(), asks = asks + 1 WHERE (site, type) IN (
    SELECT site, type FROM bridge.resync
     WHERE (site, type) IN (SELECT * FROM unnest(%s::text[], %s::text[])) ORDER BY site, type FOR UPDATE)
"""

Connection = psycopg.Connection[Any]
Step = Callable[[Connection, bool], None]

log = structlog.get_logger(__name__)


class Keeper:
    """`askers` by transport. `caught_up`: all that was sent has been read. Workers find out by themselves what has gone from
    the inbox and what is held."""

    def __init__(
        self,
        dsn: str,
        grant: Grant,
        types: Types,
        config: BridgeConfig,
        clock: Clock,
        askers: Mapping[str, Asker],
        caught_up: Callable[[], bool],
        on_fenced: Callable[[], None],
    ) -> None:
        self._dsn, self._grant, self._types, self._config, self._clock = dsn, grant, types, config, clock
        self._askers, self._caught_up, self._on_fenced = askers, caught_up, on_fenced
        self._liveness = Liveness(config.silent_seconds)
        self._backoff = Backoff(0.2, 5.0, random.random)
        self._steps: dict[str, tuple[Step, float]] = {
            "liveness": (self._judge, ROUND_SECONDS),
            "chunks": (self._expire, ROUND_SECONDS),
            "deltas": (self._drop, SURPLUS_SECONDS),
            "bases": (self._want, SURPLUS_SECONDS),
            "requests": (self._ask, ROUND_SECONDS),
            "quarantine": (self._clear, QUARANTINE_SECONDS),
            "partitions": (self._partition, PARTITION_SECONDS),
        }
        self._due = dict.fromkeys(self._steps, float("-inf"))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bridge-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 10.0) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def round(self, conn: Connection) -> None:
        """What is due now; `Fenced` when the lease is another's."""
        caught_up = self._caught_up()
        for name in self._steps:
            now = self._clock.monotonic()
            if self._due[name] <= now and not self._stopping.is_set():
                self._due[name] = now + self._tried(name, conn, caught_up)

    def _tried(self, name: str, conn: Connection, caught_up: bool) -> float:
        """After how many seconds to do it again."""
        step, seconds = self._steps[name]
        try:
            step(conn, caught_up)
            self._backoff.success()
            return seconds
        except Fenced:
            raise
        except Exception as error:
            if conn.closed:
                raise
            conn.rollback()
            pause = self._backoff.after_failure()
            _say("keeping waits", error, pause, step=name)
            return pause

    def _run(self) -> None:
        conn: Connection | None = None
        pause = 0.0
        try:
            while not self._stopping.wait(pause):
                try:
                    conn = conn if conn is not None and not conn.closed else self._connect()
                    self.round(conn)
                    pause = ROUND_SECONDS
                except Fenced:
                    raise
                except Exception as error:
                    pause = self._backoff.after_failure()
                    _say("keeper waits", error, pause)
        except Fenced:
            self._stopping.set()
            self._on_fenced()
        finally:
            for one in (conn, *self._askers.values()):
                if one is not None:
                    one.close()

    def _connect(self) -> Connection:
        conn = connect_fenced(self._dsn, "trunkline-keeper")
        conn.execute(f"SET statement_timeout = {int(self._config.statement_seconds * 1000)}")
        conn.commit()
        return conn

    # -- the steps

    def _judge(self, conn: Connection, caught_up: bool) -> None:
        sites = {site: Heard(last_seen, silent) for site, last_seen, silent in conn.execute(_SITES).fetchall()}
        verdict = self._liveness.judge(self._clock.monotonic(), caught_up, sites)
        if not verdict.silent and not verdict.active:
            return conn.rollback()
        for state, of in (("silent", verdict.silent), ("active", verdict.active)):
            self._turn(conn, state, of, verdict)
        return commit_fenced(conn, self._grant)

    def _turn(self, conn: Connection, state: str, sites: tuple[str, ...], verdict: Verdict) -> None:
        turned = conn.execute(_TURN, {"state": state, "sites": list(sites), "bound": verdict.bound}).fetchall()
        if state == "active":
            self._want_all(conn, [site for (site,) in turned])
        for (site,) in turned:
            log.info("site is " + state, site=site)

    def _want_all(self, conn: Connection, sites: list[str]) -> None:
        sent = [(site, to_ask(self._types, type_)) for site, type_ in conn.execute(_SENT, (sites,)) if type_ in self._types]
        wish(conn, [Wish(site, asked, None, "it was silent, and is heard again") for site, asked in sent if asked])

    def _expire(self, conn: Connection, caught_up: bool) -> None:
        expired = expire_chunks(conn, self._types, self._config.chunk_seconds) if caught_up else 0
        self._end(conn, expired)
        if expired:
            log.warning("chunks expired", chunks=expired)

    def _drop(self, conn: Connection, caught_up: bool) -> None:
        dropped = drop_surplus(conn, self._types, self._config.waiting_deltas)
        dropped += drop_stuck(conn, self._types, self._config.waiting_rows)
        self._end(conn, len(dropped))
        for site, type_ in dropped:
            log.warning("waiting bundles dropped", site=site, type=type_)

    def _want(self, conn: Connection, caught_up: bool) -> None:
        self._end(conn, want_bases(conn, self._config.resync_seconds))

    def _ask(self, conn: Connection, caught_up: bool) -> None:
        failed: dict[str, Exception] = {}
        for transport, asker in self._askers.items():
            due = self._due_over(conn, transport)
            try:
                for site, types, reason, id_ in due:
                    asker.ask(site, types, reason, id_)
                if due:
                    asker.flush()
            except Exception as error:
                failed[transport] = error
            else:
                self._asked(conn, [(site, type_) for site, types, _, _ in due for type_ in types])
        if failed:
            reasons = "; ".join(f"over {transport}: {in_one_line(error)}" for transport, error in failed.items())
            raise Retryable("requests for resyncs", reasons, "they are sent again")

    def _due_over(self, conn: Connection, transport: str) -> list[tuple[Any, ...]]:
        """Sites of no known transport are asked over the first."""
        wanted = {"again": self._config.resync_seconds, "first": next(iter(self._askers)), "transport": transport}
        due = conn.execute(_DUE, wanted | {"most": MOST_ASKS}).fetchall()
        conn.rollback()
        return due

    def _asked(self, conn: Connection, pairs: list[tuple[str, str]]) -> None:
        if pairs:
            conn.execute(_ASKED, [list(column) for column in zip(*pairs, strict=True)])
            commit_fenced(conn, self._grant)

    def _clear(self, conn: Connection, caught_up: bool) -> None:
        changed = clearance.clear_superseded(conn) + clearance.drop_settled(conn, self._config.quarantine_days)
        gone, open_of = clearance.drop_surplus(conn, self._config.quarantine_bundles)
        self._end(conn, changed + gone)
        if open_of:
            log.warning("the oldest of too many quarantined bundles are gone", sites=open_of[:20], bundles=gone)

    def _partition(self, conn: Connection, caught_up: bool) -> None:
        ensure_partitions(conn, MONTHS_AHEAD)
        commit_fenced(conn, self._grant)
        if self._config.keep_months is None:
            return
        delete_old(conn, self._config.keep_months)
        commit_fenced(conn, self._grant)
        dropped = drop_old(conn, self._config.keep_months)
        commit_fenced(conn, self._grant)
        if dropped:
            log.info("old months dropped", partitions=dropped)

    def _end(self, conn: Connection, changes: int) -> None:
        commit_fenced(conn, self._grant) if changes else conn.rollback()


def _say(what: str, error: Exception, pause: float, **of: str) -> None:
    """A failure that nobody thought of is a defect, and says where."""
    known = isinstance(error, psycopg.Error | TrunklineError)
    say = log.warning if known else log.error
    say(what, **of, error=in_one_line(error), retry_seconds=round(pause, 2), exc_info=None if known else error)
