"""Both halves of the bridge while one grant of its lease holds: intake on Spark, DB workers beside it.

The halves fail apart. A query that ends is started anew at the stored offsets, with backoff, while the workers go on;
workers that find a grant past stop both, and the lease decides what comes next.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import structlog
from pyspark.errors import PySparkException

from trunkline.bridge.workers import Workers
from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock
from trunkline.core.config import BridgeConfig
from trunkline.db.lease import Grant
from trunkline.pipeline.intake import Intake
from trunkline.pipeline.queue_source import Settings
from trunkline.pipeline.session import Spark

GROUP = "bridge"

log = structlog.get_logger(__name__)


class Halves:
    """Called from one thread only; `supervise` as often as one likes."""

    def __init__(self, spark: Spark, dsn: str, bridge: BridgeConfig, grant: Grant, scratch: Path, clock: Clock) -> None:
        self._clock = clock
        self._fenced = threading.Event()
        self._workers = Workers(dsn, grant, bridge.workers, clock, self._fenced.set)
        settings = Settings(dsn, bridge.client, GROUP, grant, spark.cores)
        self._intake = Intake(spark, settings, bridge.trigger_seconds, scratch / "checkpoints", self._workers, clock)
        self._backoff = Backoff(0.5, 10.0, random.random)
        self._restart_at: float | None = None
        self._started_at = 0.0
        self._stopped = False

    def start(self) -> None:
        self._workers.start()
        self._start_intake()

    def supervise(self) -> None:
        if self._stopped:
            return
        if self._fenced.is_set():
            log.warning("bridge stops", reason="its lease is another's")
            self.stop()
        elif self._restart_at is not None:
            if self._clock.monotonic() >= self._restart_at:
                self._start_intake()
        elif (reason := self._intake.failure()) is not None:
            self._intake.stop()
            self._wait_after(reason)

    def stop(self) -> None:
        """Lets the batch and the applies in flight end."""
        if not self._stopped:
            self._stopped = True
            self._intake.stop()
            self._workers.stop()

    def _start_intake(self) -> None:
        self._restart_at = None
        self._started_at = self._clock.monotonic()
        try:
            self._intake.start()
        except PySparkException as error:
            self._wait_after(str(error).splitlines()[0])

    def _wait_after(self, reason: str) -> None:
        now = self._clock.monotonic()
        if now - self._started_at > self._backoff.maximum:
            self._backoff.success()
        pause = self._backoff.after_failure()
        self._restart_at = now + pause
        log.warning("intake ended and starts anew", reason=reason, retry_seconds=round(pause, 2))
