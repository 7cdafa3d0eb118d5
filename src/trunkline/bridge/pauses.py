"""Types that a reporter cannot answer for now, because the application's source of them failed: each rests by itself.

A source is the application's, so anything may come out of it. It costs its own type a while, and no other type anything.
"""

from __future__ import annotations

from random import random

import structlog

from trunkline.core.backoff import Backoff
from trunkline.core.clock import Clock

FIRST_SECONDS = 1.0
MOST_SECONDS = 60.0

log = structlog.get_logger(__name__)


class Pauses:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._backoffs: dict[str, Backoff] = {}
        self._until: dict[str, float] = {}

    def rests(self, type_: str) -> bool:
        return self._clock.monotonic() < self._until.get(type_, float("-inf"))

    def failed(self, type_: str, error: Exception) -> None:
        seconds = self._backoffs.setdefault(type_, Backoff(FIRST_SECONDS, MOST_SECONDS, random)).after_failure()
        self._until[type_] = self._clock.monotonic() + seconds
        why = f"{type(error).__name__}: {error}".strip()
        log.error("status of a type cannot be read", type=type_, error=why, retry_seconds=round(seconds, 2), exc_info=error)

    def worked(self, type_: str) -> None:
        self._backoffs.pop(type_, None)
        self._until.pop(type_, None)
