"""What the route jobs of a process came to, added up and written to Postgres for everybody to see.

A batch costs some additions in memory. A thread writes what was added since it last wrote, in one transaction, at most every
WRITE_SECONDS: of a hundred thousand routes only those that had events. What could not be written is kept, and written later.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import psycopg
import structlog

from trunkline.db.away import in_one_line
from trunkline.pipeline.jobs.job import Job
from trunkline.pipeline.jobs.loaded import LoadedRoute
from trunkline.pipeline.jobs.outcomes import RouteCount, TaskCounts
from trunkline.routes.counted import COUNTED, CountRow, GroupRow, fold, write_counts, write_custom, write_groups
from trunkline.routes.groups import Group
from trunkline.routes.keys import RouteKey

WRITE_SECONDS = 2.0
FOLD_EVERY = 300  # writes: some ten minutes
MOST_CUSTOM = 1_000
"""Names of counters that filters may make: each is a row, and a series of somebody's Prometheus."""
OTHER = "other"

Jobs = Callable[[], Mapping[Group, Job]]
Named = tuple[RouteKey, str, str]
"""A route, and the plugins at its ends."""

log = structlog.get_logger(__name__)


class GroupCount(msgspec.Struct):
    events: int = 0
    batches: int = 0
    seconds: float = 0.0


class Added(msgspec.Struct):
    """Since it was last written."""

    routes: dict[Named, RouteCount] = {}
    groups: dict[str, GroupCount] = {}
    custom: Counter[str] = Counter()

    def take(self, told: TaskCounts, routes: Mapping[str, LoadedRoute]) -> None:
        for hash, count in told.routes.items():
            self.routes.setdefault(_named(routes[hash]), RouteCount()).add(count)
        for name, number in told.custom.items():
            self.custom[name] += number
        group = self.groups.setdefault(told.group, GroupCount())
        group.events += told.events
        if told.took is not None:
            group.batches += 1
            group.seconds += told.took

    def add(self, later: Added) -> None:
        for named, count in later.routes.items():
            self.routes.setdefault(named, RouteCount()).add(count)
        for name, group in later.groups.items():
            mine = self.groups.setdefault(name, GroupCount())
            mine.events, mine.batches = mine.events + group.events, mine.batches + group.batches
            mine.seconds += group.seconds
        self.custom.update(later.custom)


class Counters:
    """`start` before the first batch, `stop` after the last; `tell` from any thread."""

    def __init__(self, dsn: str, every: float = WRITE_SECONDS) -> None:
        self._dsn, self._every = dsn, every
        self._lock = threading.Lock()
        self._added = _nothing()
        self._shown: dict[str, GroupRow] = {}
        self._conn: psycopg.Connection[Any] | None = None
        self._names: set[str] = set()
        self._writes = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(self, told: TaskCounts, routes: Mapping[str, LoadedRoute]) -> None:
        with self._lock:
            self._added.take(msgspec.structs.replace(told, custom=self._bounded(told.custom)), routes)
        for line in told.lines:
            log.info("a route says", said=line)

    def start(self, instance: str, jobs: Jobs) -> None:
        self._thread = threading.Thread(target=self._run, args=(instance, jobs), name="route-counters", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """What was told is written when it returns, if the database answers."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self._conn is not None:
            self._conn.close()

    def _bounded(self, custom: Mapping[str, int]) -> dict[str, int]:
        """Names beyond the bound are counted together."""
        found: Counter[str] = Counter()
        for name, number in custom.items():
            if name not in self._names and len(self._names) < MOST_CUSTOM:
                self._names.add(name)
            found[name if name in self._names else OTHER] += number
        return found

    def _run(self, instance: str, jobs: Jobs) -> None:
        while not self._stopping.wait(self._every):
            self._try(instance, jobs)
        self._try(instance, dict)

    def _try(self, instance: str, jobs: Jobs) -> None:
        with self._lock:
            added, self._added = self._added, _nothing()
        try:
            self._write(instance, added, jobs())
        except Exception as error:  # of the database, or of a query that ends while it is asked
            log.warning("counts of routes wait to be written", reason=in_one_line(error))
            with self._lock:
                added.add(self._added)
                self._added = added

    def _write(self, instance: str, added: Added, jobs: Mapping[Group, Job]) -> None:
        groups = {row.name: row for row in self._groups(added, jobs)}
        if not groups and not added.routes and not added.custom and self._writes % FOLD_EVERY:
            self._writes += 1
            return
        conn = self._connection()
        with conn.transaction():
            write_counts(conn, instance, [_row(named, count) for named, count in sorted(added.routes.items(), key=_order)])
            write_groups(conn, instance, groups.values())
            write_custom(conn, instance, sorted(added.custom.items()))
            if self._writes % FOLD_EVERY == 0:
                fold(conn)
        self._writes += 1
        self._shown |= groups

    def _groups(self, added: Added, jobs: Mapping[Group, Job]) -> Iterator[GroupRow]:
        """Those that changed: a group that is held no longer is said to be so once."""
        held = {group.lease: job for group, job in jobs.items()}
        for name in sorted(held.keys() | added.groups.keys() | self._shown.keys()):
            job, count = held.get(name), added.groups.get(name, GroupCount())
            behind, failing = (job.behind, job.failing) if job is not None else (0, "")
            row = GroupRow(name, job is not None, count.events, count.batches, count.seconds, behind, failing)
            before = self._shown.get(name)
            if before is None or count.batches or count.events or _state(row) != _state(before):
                yield row

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = psycopg.connect(
                self._dsn, autocommit=True, application_name="trunkline-job-counters", connect_timeout=5, tcp_user_timeout=5_000
            )
        return self._conn


def _nothing() -> Added:
    return Added({}, {}, Counter())


def _named(route: LoadedRoute) -> Named:
    body: Any = route.member.body
    return route.member.key, body["receiver"]["plugin"], body["sender"]["plugin"]


def _row(named: Named, count: RouteCount) -> CountRow:
    return CountRow(*named, tuple(getattr(count, name) for name in COUNTED), count.seconds)


def _order(one: tuple[Named, RouteCount]) -> Named:
    return one[0]


def _state(row: GroupRow) -> tuple[bool, int, str]:
    return row.holds, row.behind, row.failing
