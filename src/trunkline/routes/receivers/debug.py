from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque

from pydantic import Field

from trunkline.core.scalars import Whole
from trunkline.db.lease import Grant
from trunkline.routes.ends import Give, Place
from trunkline.routes.event import Event, Source
from trunkline.routes.fields import Json, RouteModel
from trunkline.routes.outcome import Done
from trunkline.routes.plugin import ReceiverPlugin, Runs

FOR_EVER = -1
SECONDS = 5.0


class DebugReceiverConfig(RouteModel):
    """Makes events of its own, all alike: to try a route out."""

    interval_ms: Whole = Field(default=100, ge=0, le=86_400_000, description="milliseconds between two events")
    rounds: Whole = Field(default=4, ge=FOR_EVER, description="how many events; -1: for ever")
    payload: Json = Field(default="debug message", description="the payload of each")
    max_history: Whole = Field(default=100, ge=0, le=100_000, description="how many of the newest are kept to be looked at")
    trace_payload_on_nack: bool = Field(default=False, description="whether a failed event's trace holds its payload")


class DebugReceiver:
    """`history`: what became of the newest events, with their payloads if that is wished."""

    def __init__(self, config: DebugReceiverConfig, place: Place) -> None:
        self.history: deque[tuple[Event, Done]] = deque(maxlen=config.max_history)
        self._config, self._place = config, place
        self._made = 0
        self._waiting: set[asyncio.Future[list[Done]]] = set()

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        while not stop.is_set() and self._made != self._config.rounds:
            self._keep(event := self._event(), await give([event], SECONDS))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.interval_ms / 1000):
                    await stop.wait()
        if self._waiting:
            await asyncio.wait(self._waiting)

    async def close(self) -> None: ...

    def _event(self) -> Event:
        self._made += 1
        place = self._place
        source = Source(f"{place.plugin}-{uuid.uuid4().hex}", place.tenant, at=place.clock.wall())
        return Event(self._config.payload, {}, source)

    def _keep(self, event: Event, given: asyncio.Future[list[Done]]) -> None:
        self._waiting.add(given)
        given.add_done_callback(self._waiting.discard)
        given.add_done_callback(lambda future: None if future.cancelled() else self.history.append((event, future.result()[0])))


async def open_debug(config: DebugReceiverConfig, place: Place) -> DebugReceiver:
    return DebugReceiver(config, place)


DEBUG = ReceiverPlugin("debug", DebugReceiverConfig, Runs.LOCAL, open_debug)
