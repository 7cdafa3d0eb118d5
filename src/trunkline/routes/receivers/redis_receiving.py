"""Entries of a stream, read as one consumer of a group.

1.  What this instance was given in an earlier life, and never acknowledged, comes first; then what is new.
2.  What is done is acknowledged. What failed stays with the group, and is claimed again when it has lain for
    `acknowledge_timeout`; so is what another consumer left behind. What is under way here is never given twice.
3.  An entry that was trimmed from the stream before it was done is gone. It is acknowledged when this instance reads it again
    at a start; a server from 7 on forgets it by itself.
4.  Acknowledging too little does no harm but repetition: so it needs no fence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from redis.exceptions import ResponseError

from trunkline.core.errors import Retryable, Terminal
from trunkline.db.away import in_one_line
from trunkline.db.lease import Grant
from trunkline.routes.ends import Give, Place
from trunkline.routes.event import Event, Source
from trunkline.routes.outcome import Done, Outcome
from trunkline.routes.receivers.reading import read_or_text
from trunkline.routes.receivers.redis import RedisReceiverConfig
from trunkline.routes.redis_clients import AWAY, passes, redis_client
from trunkline.routes.secrets import scrubbed

MOST_BATCHES = 4  # under way at once: while one is sent, others are filtered
_BLOCK_MS = 250  # so long a read waits for something new; a stop is heard after it
_LOOK = 0.25  # of the time after which an entry counts as failed, at most so many seconds: how often it is claimed
_LOOK_SECONDS = 5.0

Entries = list[tuple[bytes, dict[bytes, bytes] | None]]


class RedisReceiving:
    def __init__(self, config: RedisReceiverConfig, place: Place) -> None:
        self._config, self._place = config, place
        self._redis = redis_client(config, "trunkline-route-receive")
        self._group = config.group_id or f"trunkline-{place.plugin}"
        self._under_way: set[bytes] = set()
        self._batches = 0
        self._done: list[bytes] = []
        self._settled = asyncio.Event()
        self._own: bytes | None = b"0"  # where to read on in what this instance had before; none: all was read
        self._looked = float("-inf")

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        try:
            await self._join()
            while not stop.is_set():
                await self._step(give, stop)
            while self._batches:
                await self._wait()
            await self._acknowledge()
        except (*AWAY, ResponseError) as error:
            if passes(error) or "NOGROUP" in str(error):
                raise Retryable(self._title, self._told(error), "see that it runs; it is tried again") from None
            raise Terminal(self._title, self._told(error), "mend what it says") from None

    async def close(self) -> None:
        await self._redis.aclose()

    @property
    def _title(self) -> str:
        return f"stream {self._config.channel} of Redis at {self._config.endpoint.shown}"

    def _told(self, error: Exception) -> str:
        return scrubbed(in_one_line(error), self._config)

    async def _join(self) -> None:
        begin = "$" if self._config.start_at == "latest" else "0"
        try:
            await self._redis.xgroup_create(self._config.channel, self._group, id=begin, mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        self._own, self._looked = b"0", self._place.clock.monotonic()

    async def _step(self, give: Give, stop: asyncio.Event) -> None:
        await self._acknowledge()
        if self._batches >= MOST_BATCHES:
            await self._wait()
            return
        entries = await self._next()
        if stop.is_set():
            return  # they stay with this consumer, and come first when it runs again
        gone = [id for id, fields in entries if fields is None]
        self._done += gone
        new = [(id, fields) for id, fields in entries if fields is not None and id not in self._under_way]
        if new:
            await self._give(give, new)

    async def _give(self, give: Give, entries: list[tuple[bytes, dict[bytes, bytes]]]) -> None:
        ids = [id for id, _ in entries]
        self._under_way.update(ids)
        self._batches += 1
        try:
            future = await give([self._event(*entry) for entry in entries], self._config.acknowledge_timeout)
        except BaseException:
            self._finished(ids, [])
            raise
        future.add_done_callback(
            lambda done: self._finished(ids, [] if done.cancelled() or done.exception() else done.result())
        )

    def _finished(self, ids: list[bytes], outcomes: Iterable[Done]) -> None:
        self._batches -= 1
        self._under_way.difference_update(ids)
        self._done += [id for id, done in zip(ids, outcomes, strict=False) if done.outcome is Outcome.ACKED]
        self._settled.set()

    async def _wait(self) -> None:
        await self._settled.wait()
        self._settled.clear()

    async def _acknowledge(self) -> None:
        while self._done:
            some = self._done[:1_000]
            await self._redis.xack(self._config.channel, self._group, *some)
            del self._done[: len(some)]

    # -- reading

    async def _next(self) -> Entries:
        if self._own is not None:
            entries = await self._read(self._own, None)
            self._own = entries[-1][0] if entries else None
            return entries
        if self._place.clock.monotonic() - self._looked >= min(_LOOK_SECONDS, _LOOK * self._config.acknowledge_timeout):
            self._looked = self._place.clock.monotonic()
            if claimed := await self._claimed():
                return claimed
        return await self._read(b">", _BLOCK_MS)

    async def _read(self, after: bytes, block: int | None) -> Entries:
        asked = {self._config.channel: after}
        count = self._config.batch_entries
        found: Any = await self._redis.xreadgroup(self._group, self._place.instance, asked, count=count, block=block)  # type: ignore[arg-type]
        entries: Entries = next(iter(found.values()))[0] if isinstance(found, dict) and found else found[0][1] if found else []
        return [(id, fields or None) for id, fields in entries]

    async def _claimed(self) -> Entries:
        """Those that have lain for too long, the oldest first. Servers before 7 tell of trimmed ones only that they are nil."""
        ms = round(1000 * self._config.acknowledge_timeout)
        answer: Any = await self._redis.xautoclaim(
            self._config.channel, self._group, self._place.instance, ms, count=self._config.batch_entries
        )
        return [(id, fields) for id, fields in answer[1] if id is not None]

    def _event(self, id: bytes, fields: dict[bytes, bytes]) -> Event:
        about: dict[str, Any] = {"stream": self._config.channel, "id": id.decode()}
        if (message := fields.get(b"id")) is not None:
            about["messageId"] = message.decode(errors="replace")
        if (text := fields.get(b"event")) is not None:
            payload, whole = read_or_text(text)
        else:
            payload, whole = {k.decode(errors="replace"): v.decode(errors="replace") for k, v in fields.items()}, False
        source = Source(f"{self._config.channel}/{id.decode()}", self._place.tenant, "", self._place.clock.wall())
        return Event(payload, {"redis": about if whole else {**about, "malformed": True}}, source)
