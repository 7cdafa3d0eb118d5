"""A watch over the API: one JSON document per line, for as long as the client wants.

1. First what is there, then `snapshot_done`, then every change. What happens faster than the client reads is merged per key in
   the store (`trunkline.store.watch`); here wait one reading of at most `AT_ONCE` events, and what the connection holds.
2. After `ALIVE_SECONDS` without an event comes `alive`, so that a connection that is gone is found out by either side.
3. It ends with `ended` and its reason when the server stops or the node fails, and without when the client has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import FastAPI, Response
from fastapi import Query as Parameter
from starlette.types import Receive, Scope, Send

from trunkline.api.openapi import GUARDED, errors, lines_answer
from trunkline.api.storequery import AreaName, Values
from trunkline.api.storereads import Asking, Wanted
from trunkline.api.storeview import OpenWatch, Query
from trunkline.core.errors import TrunklineError
from trunkline.core.jsoncodec import dumps

AT_ONCE = 32  # with the largest values: 3 MiB
PIECE = 64 * 1024
ALIVE_SECONDS = 5.0
MEDIA_TYPE = "application/x-ndjson"

Event = dict[str, Any]
_EXAMPLE = """{"bytes":2,"event":"value","hash":"91f0c3d2a4b5e677","key":"app/lamp","originator":"paris/node-1","text":"on",…}
{"event":"snapshot_done"}
{"event":"alive"}
{"event":"expired","key":"app/lamp","skipped":0}
{"event":"ended","reason":"the node stops"}
"""
_ABOUT = f"""First what is there, then `snapshot_done`, then every change: `value`, `erased`, `expired`, and `ttl` if it is
asked for. `skipped` says how many changes of the key the line stands for besides its own. `missed`: so many changes were
dropped because the client was slow; everything there is follows anew, up to the next `snapshot_done`. `peer_synced` and
`synced`: this node is in step with one peer, or with all. `alive` comes every {ALIVE_SECONDS:g} seconds when nothing else does.
`ended` is the last line, with its reason."""


class Streams:
    """The open ones of one app, so that a server that stops can end them."""

    def __init__(self) -> None:
        self.ended = False
        self._open: set[asyncio.Event] = set()

    @contextlib.contextmanager
    def one(self) -> Iterator[asyncio.Event]:
        """Set whenever there is something to look at."""
        stirred = asyncio.Event()
        self._open.add(stirred)
        try:
            yield stirred
        finally:
            self._open.discard(stirred)

    def end(self) -> None:
        self.ended = True
        for stirred in self._open:
            stirred.set()


def end_streams(app: FastAPI) -> None:
    streams = getattr(app.state, "streams", None)
    if isinstance(streams, Streams):
        streams.end()


@dataclass
class Watching(Response):
    """Opens its watch before the first byte, so that what is wrong with it is still a problem with its status."""

    asking: Asking
    streams: Streams
    area: str
    query: Query
    ttl: bool
    values: bool
    snapshot: bool
    background: None = None
    _gone: bool = field(default=False, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.streams.one() as stirred:
            watch = await self._opened(stirred)
            leaving = asyncio.create_task(self._until_gone(receive, stirred), name="watch-client")
            try:
                await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", MEDIA_TYPE.encode())]})
                async with contextlib.aclosing(self._pieces(watch, stirred)) as pieces:
                    async for piece in pieces:
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            finally:
                leaving.cancel()
                await asyncio.shield(self.asking.threads.run(_close, watch))

    async def _opened(self, stirred: asyncio.Event) -> OpenWatch:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(stirred.set)

        def opened() -> Any:
            return self.asking.known(self.area, lambda store: store.watch(self.area, self.query, self.ttl, wake))

        watch: OpenWatch = await self.asking.threads.run(opened)
        return watch

    async def _until_gone(self, receive: Receive, stirred: asyncio.Event) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        stirred.set()

    async def _pieces(self, watch: OpenWatch, stirred: asyncio.Event) -> AsyncGenerator[bytes, None]:
        try:
            async with contextlib.aclosing(self._events(watch, stirred)) as batches:
                async for events in batches:
                    for piece in _joined(events):
                        yield piece
            reason = "the node stops"
        except (TrunklineError, TimeoutError) as error:
            reason = str(error) or "the node did not answer in time"
        if not self._gone:
            yield _line({"event": "ended", "reason": reason})

    async def _events(self, watch: OpenWatch, stirred: asyncio.Event) -> AsyncGenerator[list[Event], None]:
        while not self._gone and not self.streams.ended:
            stirred.clear()
            events = await self.asking.threads.run(watch.read, AT_ONCE)
            if events:
                yield [self._trimmed(event) for event in self._after_snapshot(events)]
            elif not self._gone and not self.streams.ended and not await _within(stirred, ALIVE_SECONDS):
                yield [{"event": "alive"}]

    def _after_snapshot(self, events: list[Event]) -> list[Event]:
        if self.snapshot:
            return events
        done = next((at for at, event in enumerate(events) if event["event"] == "snapshot_done"), len(events))
        self.snapshot = done < len(events)
        return events[done:]

    def _trimmed(self, event: Event) -> Event:
        return event if self.values else {name: value for name, value in event.items() if name not in ("text", "base64")}


async def _within(stirred: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await stirred.wait()
    except TimeoutError:
        return False
    return True


def _close(watch: OpenWatch) -> None:
    with contextlib.suppress(TrunklineError, TimeoutError):  # the node is gone, and the watch with it
        watch.close()


def _line(event: Event) -> bytes:
    return dumps(event) + b"\n"


def _joined(events: list[Event]) -> Iterator[bytes]:
    """Lines together, in pieces of about PIECE bytes: between two of them the connection may make us wait."""
    piece = bytearray()
    for event in events:
        piece += _line(event)
        if len(piece) >= PIECE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def offer_store_watch(app: FastAPI, asking: Asking, streams: Streams) -> None:
    @app.get(
        "/v1/store/{area}/watch",
        summary="Watch keys: what is there, then every change",
        description=_ABOUT,
        response_class=Response,
        responses=lines_answer(_EXAMPLE) | errors(*GUARDED, 400, 404),
    )
    async def watch(
        area: AreaName,
        query: Wanted,
        ttl: Annotated[bool, Parameter(description="also when a value only lives longer")] = False,
        values: Values = True,
        snapshot: Annotated[bool, Parameter(description="also what is there already")] = True,
    ) -> Response:
        return Watching(asking, streams, area, query, ttl, values, snapshot)
