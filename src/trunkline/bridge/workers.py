"""DB workers and their dispatcher: the apply half of the bridge, beside Spark and all the time.

Each worker is a thread with a connection of its own. A free worker asks the units for a wave, so it is there first and the
bundles are chosen last. The units are fed from the inbox: by a full scan at the start and every second or so, and by
`notice` right after each intake commit; what one of the two misses the other brings.

W1  One hung or slow apply holds one worker; a statement ends by its timeout.
W2  After an error a wave goes site by site. Sites that fail by themselves are *suspects*: they take part in no wave until they
    were applied, so they cost nobody else anything.
W3  A bundle that fails for what it holds is tried again with backoff, then set aside: it costs only itself. Of several that
    belong together each is tried alone first, to find it.
W4  A failure that is not the bundle's is waited out for as long as it takes: by the worker, if it is everybody's (database
    down, deadlock); by the bundle alone, if it is of what its type needs (a statement's timeout, a table that is not there).
W5  `Fenced` in any thread stops them all and is told to the owner once. Whatever else ends a thread, it begins anew.
W6  What the units do not know right costs a look, never an apply: the transaction judges again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import psycopg
import structlog
from msgspec.structs import replace

from trunkline.bridge.apply import MOST_BUNDLES, Outcome, apply_wave, is_elsewhere, is_of_its_type
from trunkline.bridge.connection import connect_worker
from trunkline.bridge.judgement import Verdict
from trunkline.bridge.scan import Scan, held_types
from trunkline.bridge.setaside import apply_or_set_aside
from trunkline.bridge.types import Types
from trunkline.bridge.units import Job, Units, Waiting, Wave
from trunkline.core.backoff import Backoff
from trunkline.core.bundle import Mode
from trunkline.core.clock import Clock
from trunkline.core.config import BridgeConfig
from trunkline.core.errors import Fenced
from trunkline.db.away import cancel, cut
from trunkline.db.lease import Grant

MAX_TRIES = 3
WAVE_SITES = 128
LARGE_WAVE = 8 * 2**20
LOOK_AGAIN_SECONDS = 1.0

_SIZE = "SELECT coalesce(sum(octet_length(data)), 0) FROM bridge.inbox WHERE type = %s AND site = ANY(%s)"

log = structlog.get_logger(__name__)


class Waves(Protocol):
    def run(self, type_name: str, sites: Sequence[str]) -> list[Outcome]:
        """`apply_wave` somewhere else; raises `Fenced` as it does, and anything else for any other failure."""


class Connection:
    """One thread's connection, made when it is needed and made anew after an error."""

    def __init__(self, dsn: str, statement_seconds: float) -> None:
        self._dsn, self._seconds = dsn, statement_seconds
        self._conn: psycopg.Connection[Any] | None = None

    def get(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = connect_worker(self._dsn, self._seconds)
        return self._conn

    def cancel(self) -> None:
        if self._conn is not None and not self._conn.closed:
            cancel(self._conn)

    def cut(self) -> None:
        if self._conn is not None and not self._conn.closed:
            cut(self._conn)

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()


class Workers:
    def __init__(
        self,
        dsn: str,
        grant: Grant,
        types: Types,
        config: BridgeConfig,
        clock: Clock,
        on_fenced: Callable[[], None],
        waves: Waves | None = None,
    ) -> None:
        self._grant, self._types, self._clock, self._on_fenced, self._waves = grant, types, clock, on_fenced, waves
        self._count = config.workers
        self._units = Units(config.linger_seconds)
        self._suspects: dict[tuple[str, str], int] = {}
        self._changed = threading.Condition()
        self._scan = Scan(types, self._units, self._changed, clock)
        self._stopping = threading.Event()
        self._connections = [Connection(dsn, config.statement_seconds) for _ in range(config.workers + 1)]
        bodies = [self._dispatch, *[self._work] * config.workers]
        self._threads = [
            threading.Thread(target=self._guarded, args=(body, conn), name=f"db-worker-{n}", daemon=True)
            for n, (body, conn) in enumerate(zip(bodies, self._connections, strict=True))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def notice(self, waiting: Iterable[Waiting]) -> None:
        """These are in the inbox now; their `since` is unix time."""
        ahead = self._clock.wall() - self._clock.monotonic()
        with self._changed:
            for entry in waiting:
                self._units.arrived(replace(entry, since=entry.since - ahead))
            self._changed.notify_all()

    def backlog(self) -> int:
        """Bundles that wait for workers and are not complete ones."""
        with self._changed:
            return self._units.backlog()

    def sizes(self) -> dict[str, int]:
        with self._changed:
            return self._units.sizes()

    def stop(self, seconds: float = 10.0) -> None:
        """Lets the applies in flight end; what does not end in time is cancelled and rolls back. A server
        that does not even cancel is left alone with it."""
        self._signal_stop()
        deadline = self._clock.monotonic() + seconds
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - self._clock.monotonic()))
        for thread, conn in zip(self._threads, self._connections, strict=True):
            if thread.is_alive():
                conn.cancel()
                thread.join(5)
            if thread.is_alive():
                conn.cut()
                thread.join(5)

    def _signal_stop(self) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()

    def _guarded(self, body: Callable[[Connection], None], conn: Connection) -> None:
        backoff = Backoff(0.2, 30.0, random.random)
        try:
            while not self._stopping.is_set():
                try:
                    body(conn)
                except Fenced:
                    raise
                except Exception:
                    conn.close()
                    pause = backoff.after_failure()
                    log.exception("a thread of the bridge failed", thread=body.__name__, retry_seconds=round(pause, 2))
                    self._stopping.wait(pause)
        except Fenced:
            first = not self._stopping.is_set()
            self._signal_stop()
            if first:
                self._on_fenced()
        finally:
            conn.close()

    def _dispatch(self, conn: Connection) -> None:
        backoff = Backoff(0.2, 5.0, random.random)
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                pause = self._scan.run(conn.get())
                backoff.success()
            except psycopg.Error as error:
                conn.close()
                pause = backoff.after_failure()
                log.warning("inbox cannot be read", error=str(error).strip(), retry_seconds=round(pause, 2))

    def _work(self, conn: Connection) -> None:
        backoff = Backoff(0.2, 5.0, random.random)
        while (wave := self._next_wave()) is not None:
            left = {job.site: job for job in wave.jobs}
            try:
                self._apply(conn, wave, left)
                backoff.success()
            except Fenced:
                raise
            except Exception as error:
                conn.close()
                pause = backoff.after_failure()
                self._failed(left.values(), pause, counts=False)
                reason = str(error).strip()
                log.warning("apply waits", type=wave.type, sites=len(left), error=reason, retry_seconds=round(pause, 2))
                self._stopping.wait(pause)

    def _next_wave(self) -> Wave | None:
        """Not more than this worker's share of what is ready, so that the others have theirs."""
        with self._changed:
            while not self._stopping.is_set():
                now = self._clock.monotonic()
                self._units.tick(now)
                most = min(WAVE_SITES, 1 + self._units.sizes()["ready"] // self._count)
                wave = self._units.take(now, most)
                if wave is not None:
                    return wave
                due = self._units.next_due(now)
                self._changed.wait(max(0.0, due - now) if due is not None else None)
        return None

    def _apply(self, conn: Connection, wave: Wave, left: dict[str, Job]) -> None:
        """Jobs leave `left` when the units have them back."""
        together = [job.site for job in wave.jobs if (job.site, job.type) not in self._suspects]
        if len(together) > 1:
            try:
                self._settle(self._run(conn.get(), wave.type, together), left)
            except Fenced:
                raise
            except Exception as error:
                if is_elsewhere(error) and not is_of_its_type(error):
                    raise
                log.info("a wave goes site by site", type=wave.type, sites=len(together), reason=str(error).strip())
            else:
                together = []
        alone = [site for site in together if site in left] + [job.site for job in wave.jobs if self._is_suspect(job)]
        for site in alone:
            if site in left and not self._stopping.is_set():
                self._apply_alone(conn, left[site], left)
        self._failed([left.pop(site) for site in list(left)], 0.0, counts=False)

    def _is_suspect(self, job: Job) -> bool:
        return (job.site, job.type) in self._suspects

    def _run(self, conn: psycopg.Connection[Any], type_: str, sites: list[str]) -> list[Outcome]:
        if self._waves is not None:
            size = conn.execute(_SIZE, (type_, sites)).fetchone()
            conn.rollback()
            if size is not None and size[0] > LARGE_WAVE:
                return self._waves.run(type_, sites)
        return apply_wave(conn, self._grant, self._types, type_, sites)

    def _apply_alone(self, conn: Connection, job: Job, left: dict[str, Job]) -> None:
        try:
            outcomes = [self._try_each(conn, job)] if job.tries + 1 >= MAX_TRIES else self._try_all(conn, job)
        except Fenced:
            raise
        except Exception as error:
            is_others = is_elsewhere(error)
            if is_others and not is_of_its_type(error):
                raise
            self._suspect(job, left, error, counts=not is_others)
        else:
            self._suspects.pop((job.site, job.type), None)
            self._settle(outcomes, left)

    def _try_all(self, conn: Connection, job: Job) -> list[Outcome]:
        return apply_wave(conn.get(), self._grant, self._types, job.type, [job.site])

    def _try_each(self, conn: Connection, job: Job) -> Outcome:
        """The last try: one by one, until one cannot be written and is set aside."""
        last = None
        for _ in range(1 if job.mode is Mode.COMPLETE else MOST_BUNDLES):
            if self._stopping.is_set():
                break
            outcome, reason = apply_or_set_aside(conn.get(), self._grant, self._types, job.type, job.site, job.version)
            if outcome.verdict in (Verdict.NOTHING, Verdict.PARKED):
                return last or outcome
            last = outcome
            if outcome.verdict is Verdict.SET_ASIDE:
                log.error("bundle quarantined", **_named(job), reason=reason)
                return outcome
        return last or Outcome(job.site, Verdict.PARKED)

    def _suspect(self, job: Job, left: dict[str, Job], error: Exception, counts: bool) -> None:
        """Its pauses grow with every failure, so that many hung sites do not have all the workers all the time."""
        before = self._suspects.get((job.site, job.type), 0)
        self._suspects[job.site, job.type] = before + 1
        pause = Backoff(0.2, 30.0, random.random, before).after_failure()
        self._failed([left.pop(job.site)], pause, counts)
        log.warning("apply is tried again", **_named(job), error=str(error).strip(), retry_seconds=round(pause, 2))

    def _settle(self, outcomes: Iterable[Outcome], left: dict[str, Job]) -> None:
        with self._changed:
            for outcome in outcomes:
                self._give_back(left.pop(outcome.site), outcome)
            self._changed.notify_all()

    def _give_back(self, job: Job, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.PARKED:
            self._units.failed(job, self._clock.monotonic() + LOOK_AGAIN_SECONDS, counts=False)
            return
        if outcome.verdict is Verdict.SET_ASIDE and job.mode.is_ordered:
            self._scan.hold(job.site, job.type)
        self._units.finished(job, outcome.applied, outcome.named, outcome.upto)
        for name in held_types(self._types, job.type, outcome.released):
            self._units.release(job.site, name)

    def _failed(self, jobs: Iterable[Job], seconds: float, counts: bool) -> None:
        with self._changed:
            for job in jobs:
                self._units.failed(job, self._clock.monotonic() + seconds, counts)
            self._changed.notify_all()


def _named(job: Job) -> dict[str, str]:
    return {"site": job.site, "type": job.type, "version": str(job.version)}
