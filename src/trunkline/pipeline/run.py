"""The pipeline process: a Spark session that is up and warm first, then the leases, and what they are for while they hold:
both halves of the bridge where the site has one, and the receiver groups of its routes.

A standby is the same process that has not won: its session is up, so taking over costs the lease's lapse and the start
of a query.
"""

from __future__ import annotations

import os
import queue
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import psycopg
import structlog

from trunkline.bridge.declared import check_tables, read_types
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.types import Types
from trunkline.core.backoff import Backoff
from trunkline.core.clock import SystemClock
from trunkline.core.config import BridgeConfig, LogConfig, ProcessConfig
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps
from trunkline.core.logs import configure_logs
from trunkline.db.keeper import LeaseKeeper
from trunkline.db.lease import STANDBY_TERMS, Grant
from trunkline.db.migrate import migrate
from trunkline.pipeline.halves import Halves, require_input
from trunkline.pipeline.jobs.counters import Counters
from trunkline.pipeline.jobs.routing import PipelineRouting
from trunkline.pipeline.query import NO_ANSWER
from trunkline.pipeline.scratch import Scratch
from trunkline.pipeline.session import Spark, open_session
from trunkline.pipeline.threads import tune_threads
from trunkline.pipeline.warm import warm_up, warm_up_beside

LEASE = "bridge"
READY_FILE = "pipeline.ready"
_SUPERVISE_SECONDS = 0.1

log = structlog.get_logger(__name__)


def run_pipeline(config: ProcessConfig, fast_start: bool = False, routes: bool = True) -> int:
    """Runs until SIGTERM or SIGINT; 0 after a clean stop. Without its JVM it ends with an error, and lets go of what it holds.
    `routes`: not only the bridge."""
    if config.bridge is None and not routes:
        raise Invalid("bridge", f"site {config.site} has no bridge to run", "add `bridge:` to its configuration")
    if config.bridge is not None:
        require_input(config.bridge)
    declared = read_types(config.bridge.types) if config.bridge is not None else ()
    configure_logs(_log_config(config.log))
    stop = threading.Event()
    _stop_on_signals(stop)
    with Scratch(config.runtime) as scratch:
        spark = open_session(scratch, f"trunkline-{config.site}", fast_start, config.spark)
        _stop_on_signals(stop)  # Spark has put its own handler in place
        try:
            warm_up_beside(spark) if fast_start else warm_up(spark, scratch)
            if not _migrate(config.database.reveal(), stop):
                return 0
            with psycopg.connect(config.database.reveal()) as conn:
                check_tables(conn, declared)
            tune_threads()
            with _ready(config.runtime / READY_FILE, spark), _routes(config, spark, scratch) if routes else nullcontext():
                if config.bridge is not None:
                    _serve(config, config.bridge, Types((*SHIPPED.values(), *declared)), spark, scratch, stop)
                else:
                    while not stop.wait(_SUPERVISE_SECONDS):
                        spark.require_running()
        finally:
            with suppress(*NO_ANSWER):
                spark.stop()
    log.info("pipeline stopped")
    return 0


def _serve(
    config: ProcessConfig, bridge: BridgeConfig, types: Types, spark: Spark, scratch: Path, stop: threading.Event
) -> None:
    clock = SystemClock()
    news: queue.SimpleQueue[Grant | None] = queue.SimpleQueue()
    dsn = config.database.reveal()
    owner = f"{config.site}/pipeline-{os.getpid()}"
    keeper = LeaseKeeper(dsn, LEASE, STANDBY_TERMS, clock, news.put, lambda: news.put(None), owner=owner)
    halves: Halves | None = None
    keeper.start()
    try:
        while not stop.is_set():
            try:
                grant = news.get(timeout=_SUPERVISE_SECONDS)
            except queue.Empty:
                spark.require_running()
                if halves is not None:
                    halves.supervise()
                continue
            halves = _replaced(halves, grant, Halves(spark, dsn, bridge, types, grant, scratch, clock) if grant else None)
    finally:
        try:
            _replaced(halves, None, None)
        finally:
            keeper.stop()


@contextmanager
def _routes(config: ProcessConfig, spark: Spark, scratch: Path) -> Iterator[None]:
    counters = Counters(config.database.reveal())
    routing = PipelineRouting(config, spark, scratch, SystemClock(), counters.tell)
    counters.start(routing.instance.id, lambda: routing.jobs)
    routing.start()
    try:
        yield
    finally:
        routing.stop()
        counters.stop()


def _replaced(before: Halves | None, grant: Grant | None, after: Halves | None) -> Halves | None:
    if before is not None:
        before.stop()
        log.info("bridge stopped", lease=LEASE)
    if after is not None and grant is not None:
        log.info("bridge starts", lease=LEASE, epoch=grant.epoch)
        after.start()
    return after


def _migrate(dsn: str, stop: threading.Event) -> bool:
    """False if told to stop before the database was there."""
    backoff = Backoff(0.2, 5.0, random.random)
    while not stop.is_set():
        try:
            migrate(dsn, "queues", "bridge", "routes", "pipeline")
            return True
        except psycopg.OperationalError as error:
            pause = backoff.after_failure()
            log.warning("database does not answer", error=str(error).strip(), retry_seconds=round(pause, 2))
            stop.wait(pause)
    return False


@contextmanager
def _ready(file: Path, spark: Spark) -> Iterator[None]:
    fresh = file.with_suffix(".new")
    fresh.write_bytes(dumps({"pid": os.getpid(), "filesystem": spark.filesystem, "master": spark.master}))
    fresh.replace(file)
    log.info("pipeline ready", master=spark.master, filesystem=spark.filesystem, sockets=spark.sockets)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _log_config(log: LogConfig) -> LogConfig:
    """A pipeline's log is read by machines, unless its configuration says otherwise."""
    return log if "format" in log.model_fields_set else log.model_copy(update={"format": "json"})


def _stop_on_signals(stop: threading.Event) -> None:
    for word in (signal.SIGTERM, signal.SIGINT):
        signal.signal(word, lambda *_: stop.set())
