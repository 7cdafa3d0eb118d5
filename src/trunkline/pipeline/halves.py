"""Both halves of the bridge while one grant of its lease holds: intake on Spark, DB workers beside it.

The halves fail apart. A query that ends is started anew at the stored offsets, with backoff, while the workers go on;
workers that find a grant past stop both, and the lease decides what comes next.
"""

from __future__ import annotations

import threading
from pathlib import Path

import structlog

from trunkline.bridge.workers import Workers
from trunkline.core.clock import Clock
from trunkline.core.config import BridgeConfig
from trunkline.db.lease import Grant
from trunkline.pipeline.intake import Intake
from trunkline.pipeline.query import Supervisor
from trunkline.pipeline.queue_source import Settings
from trunkline.pipeline.session import Spark

GROUP = "bridge"

log = structlog.get_logger(__name__)


class Halves:
    """Called from one thread only; `supervise` as often as one likes."""

    def __init__(self, spark: Spark, dsn: str, bridge: BridgeConfig, grant: Grant, scratch: Path, clock: Clock) -> None:
        self._fenced = threading.Event()
        self._workers = Workers(dsn, grant, bridge.workers, clock, self._fenced.set)
        settings = Settings(dsn, bridge.client, GROUP, grant, spark.cores)
        intake = Intake(spark, settings, bridge.trigger_seconds, scratch / "checkpoints", self._workers, clock)
        self._intake = Supervisor(intake, clock)
        self._stopped = False

    def start(self) -> None:
        self._workers.start()
        self._intake.start()

    def supervise(self) -> None:
        if self._stopped:
            return
        if self._fenced.is_set():
            log.warning("bridge stops", reason="its lease is another's")
            self.stop()
        else:
            self._intake.supervise()

    def stop(self) -> None:
        """Lets the batch and the applies in flight end."""
        if not self._stopped:
            self._stopped = True
            self._intake.stop()
            self._workers.stop()
