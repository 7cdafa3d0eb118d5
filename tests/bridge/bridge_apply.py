"""Applies that stop where a test wants them, and small types of every mode."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from bridge_hub import AT, Hub

from trunkline.bridge.apply import Outcome, apply_wave
from trunkline.bridge.demotypes import DEMO_TYPES
from trunkline.bridge.handler import Work, Written
from trunkline.bridge.types import BundleType, Match, Missing, Types
from trunkline.bridge.workers import Workers
from trunkline.core.bundle import Bundle, Dependency, Mode, Version
from trunkline.core.clock import SystemClock
from trunkline.core.config import BridgeConfig
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps, loads
from waiting import eventually

_ids = itertools.count(1)


class Interleaved:
    """An apply that stops where the test wants it: on a lock that the test holds."""

    def __init__(self, hub: Hub, type_: str, *sites: str) -> None:
        self.hub = hub
        self.conn = hub.connect()
        self.ended: list[list[Outcome] | Exception] = []
        self._thread = threading.Thread(target=self._run, args=(type_, sites))

    def _run(self, type_: str, sites: Sequence[str]) -> None:
        try:
            self.ended.append(apply_wave(self.conn, self.hub.grant, self.hub.types, type_, sites))
        except Exception as error:
            self.ended.append(error)

    def start_until_blocked(self) -> None:
        self._thread.start()
        watcher = self.hub.connect()
        watcher.autocommit = True
        pid = self.conn.info.backend_pid
        while watcher.execute("SELECT pg_blocking_pids(%s) = '{}'", (pid,)).fetchone() == (True,):
            assert self._thread.is_alive(), f"the apply ended with {self.ended} and was never blocked"

    def join(self) -> list[Outcome] | Exception:
        self._thread.join(30)
        return self.ended[0]

    def outcome(self) -> Outcome:
        ended = self.join()
        assert isinstance(ended, list), ended
        [outcome] = ended
        return outcome


class Members:
    """A hybrid's rows are the members of a site: {create, delete, resync, resync_metadata}, the last two lists of all."""

    def write(self, conn: psycopg.Connection[Any], declared: BundleType, work: Sequence[Work]) -> Mapping[str, Written]:
        return {one.site: self._write(conn, one) for one in work}

    def _write(self, conn: psycopg.Connection[Any], work: Work) -> Written:
        received = written = 0
        for part in work.parts:
            document = loads(part.data)
            if "bad" in document:
                raise Invalid("members", "they are bad", "send good ones")
            added = [*document.get("create", []), *document.get("resync", [])]
            received += len(added)
            for name in added:
                insert = "INSERT INTO member (site, name) VALUES (%s, %s) ON CONFLICT DO NOTHING"
                written += conn.execute(insert, (work.site, name)).rowcount
            delete = "DELETE FROM member WHERE site = %s AND name = ANY(%s)"
            written += conn.execute(delete, (work.site, document.get("delete", []))).rowcount
            if "resync_metadata" in document:
                keep = "DELETE FROM member WHERE site = %s AND name <> ALL(%s)"
                written += conn.execute(keep, (work.site, document["resync_metadata"])).rowcount
        return Written(received, written)


def _base(name: str, table: str, mode: Mode, **more: Any) -> BundleType:
    columns = (("name", "text"), ("level", "bigint"))
    return BundleType(
        name=name, table=table, mode=mode, key=("name",), columns=columns,
        **({"priority": 0, "depends_on": None, "missing": Missing.GONE} | more),
    )  # fmt: skip


LEVELS = _base("levels", "level", Mode.COMPLETE)
LEVEL_DELTAS = _base(
    "level-deltas", "level", Mode.DELTA, priority=1, depends_on="levels", match=Match.EXACT, missing=Missing.KEPT
)
MEMBERS = _base("members", "member", Mode.HYBRID, priority=2, missing=Missing.KEPT, handler=Members())
TYPES = Types((*DEMO_TYPES, LEVELS, LEVEL_DELTAS, MEMBERS))

TABLES = """
CREATE TABLE level (site text, name text, level bigint NOT NULL CHECK (level < 1000), updated_at timestamptz,
                    PRIMARY KEY (site, name));
CREATE TABLE member (site text, name text, PRIMARY KEY (site, name));
"""


def make_tables(hub: Hub) -> None:
    hub.conn.execute(TABLES)
    hub.conn.commit()


def _bundle(site: str, declared: BundleType, version: Version, rows: Any, **more: Any) -> Bundle:
    return Bundle(
        id=f"x{next(_ids)}", source=site, type=declared.name, time=AT, mode=declared.mode, version=version,
        data=dumps(rows), **more,
    )  # fmt: skip


def levels(site: str, generation: int, value: int | None = None, **rows: int) -> Bundle:
    """`value` is what deltas name."""
    return _bundle(site, LEVELS, Version(1, generation), _named(rows), value=value)


def delta(site: str, generation: int, needs: int, **rows: int) -> Bundle:
    """`needs` is the value of the levels it was made for, whatever run they are of."""
    dependency = Dependency("levels", Version(0, needs))
    return _bundle(site, LEVEL_DELTAS, Version(1, generation), _named(rows), dependency=dependency)


def members(site: str, generation: int, **document: Any) -> Bundle:
    return _bundle(site, MEMBERS, Version(1, generation), document)


def _named(rows: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "level": level} for name, level in rows.items()]


class Running:
    """Workers over the hub's inbox."""

    def __init__(self, hub: Hub, count: int, waves: Any = None, **settings: Any) -> None:
        self.hub = hub
        self.fenced = threading.Event()
        config = BridgeConfig(workers=count, **settings)
        self.workers = Workers(hub.dsn, hub.grant, hub.types, config, SystemClock(), self.fenced.set, waves)
        self.workers.start()

    def arrive(self, *bundles: Bundle) -> None:
        self.hub.take_in(*bundles)
        self.workers.notice(self.hub.noticed)

    def until(self, holds: Callable[[], object], seconds: float = 60.0) -> None:
        eventually(holds, seconds, lambda: (self.workers.sizes(), self.hub.inbox()[:10]))

    def until_empty(self, seconds: float = 60.0) -> None:
        self.until(lambda: self.hub.rows("SELECT count(*) FROM bridge.inbox") == [(0,)], seconds)


Run = Callable[..., Running]


@contextmanager
def runner(hub: Hub) -> Iterator[Run]:
    started: list[Running] = []

    def start(count: int = 3, **settings: Any) -> Running:
        started.append(Running(hub, count, **settings))
        return started[-1]

    try:
        yield start
    finally:
        for running in started:
            running.workers.stop()
        assert not any(t.name.startswith("db-worker") for t in threading.enumerate())
