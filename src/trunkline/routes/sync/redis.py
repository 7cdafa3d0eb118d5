"""Redis pub/sub, on the channels and with the texts of the design document.

`PUBLISH ears_sync add,rid,iid,sid` and `PUBLISH ears_ack add,rid,iid,sid`. Channels of Redis know no databases: sites that
share a server need a `prefix` of their own, or each would look again for the other's changes. Without one the names are the
document's. Redis keeps no acks: those that come while this instance is away are missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, ReadOnlyError, TimeoutError

from trunkline.core.errors import Retryable
from trunkline.db.away import in_one_line
from trunkline.routes.sync.carrier import Channel, Heard
from trunkline.routes.sync.syncer import Syncer
from trunkline.routes.sync.texts import ack_text, delta_text
from trunkline.routes.sync.waiting import Load

QUIET_SECONDS = 5.0
"""Who hears nothing for so long asks whether the server is there, and gives it as long to answer."""
_CHANNELS = {"ears_sync": Channel.SYNC, "ears_ack": Channel.ACK}
_AWAY = (ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError, OSError)


class RedisCarrier:
    def __init__(self, url: str, prefix: str = "", quiet_seconds: float = QUIET_SECONDS) -> None:
        self._url, self._quiet = url, quiet_seconds
        self._channels = {prefix + name: channel for name, channel in _CHANNELS.items()}
        self._names = {channel: name for name, channel in self._channels.items()}
        self._sender = self._client("trunkline-routes-tell")

    def _client(self, name: str) -> Redis:
        """One that says when its connection is lost, and does not mend it in silence."""
        never = Retry(NoBackoff(), 0)
        client: Redis = Redis.from_url(
            self._url, decode_responses=True, client_name=name, retry=never, socket_timeout=self._quiet
        )  # fmt: skip
        return client

    @property
    def title(self) -> str:
        at = self._sender.connection_pool.connection_kwargs
        return f"Redis at {at.get('host', '')}:{at.get('port', '')}"

    @asynccontextmanager
    async def listening(self, _: Sequence[str]) -> AsyncIterator[AsyncIterator[Heard]]:
        with self._told():
            async with self._client("trunkline-routes-listen") as client, client.pubsub() as pubsub:
                await pubsub.subscribe(*self._channels)
                for _channel in self._channels:
                    await self._next(pubsub)
                yield self._heard(pubsub)

    async def _heard(self, pubsub: PubSub) -> AsyncIterator[Heard]:
        while True:
            message = await pubsub.get_message(timeout=self._quiet)
            if message is None:
                await pubsub.ping()
                message = await self._next(pubsub)
            if message["type"] == "message":
                yield Heard(self._channels[message["channel"]], message["data"])

    async def _next(self, pubsub: PubSub) -> dict[str, Any]:
        message: dict[str, Any] | None = await pubsub.get_message(timeout=self._quiet)
        if message is None:
            raise TimeoutError(f"no answer within {self._quiet:g} s")
        return message

    async def send(self, load: Load) -> None:
        with self._told():
            async with self._sender.pipeline(transaction=False) as pipeline:
                for delta in load.deltas:
                    pipeline.publish(self._names[Channel.SYNC], delta_text(delta))
                for ack in load.acks:
                    pipeline.publish(self._names[Channel.ACK], ack_text(ack))
                await pipeline.execute()

    async def close(self) -> None:
        await self._sender.aclose()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except _AWAY as error:
            raise Retryable(self.title, in_one_line(error), "see that it runs; it is tried again") from None


class RedisSyncer(Syncer):
    def __init__(self, url: str, instance: str, prefix: str = "", quiet_seconds: float = QUIET_SECONDS) -> None:
        super().__init__(instance, RedisCarrier(url, prefix, quiet_seconds))
