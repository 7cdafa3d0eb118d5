from __future__ import annotations

from collections.abc import Callable

import msgspec
from pydantic import Field

from trunkline.core.scalars import Whole
from trunkline.routes.clusters import RedisServer
from trunkline.routes.ends import Place, Sending
from trunkline.routes.event import Event
from trunkline.routes.plugin import Around, Runs, SenderPlugin
from trunkline.routes.senders.prepared import json_of


class RedisSenderConfig(RedisServer):
    """An entry of a stream in Redis for each event: the payload as JSON in the field `event`, and in `id` an id that stays the
    same when it is sent again.

    Entries of one call are in their order. How durable they are is the server's setting (`appendfsync`)."""

    max_length: Whole | None = Field(
        default=None, ge=1, examples=[100_000], description="about how many entries the stream keeps; none: all"
    )


class Entry(msgspec.Struct, frozen=True):
    """`event`: JSON."""

    event: str


def compile_entry(config: RedisSenderConfig, around: Around) -> Callable[[Event], Entry]:
    return lambda event: Entry(json_of("payload", event.payload))


async def _open(config: RedisSenderConfig, place: Place) -> Sending:
    from trunkline.routes.senders.redis_sending import RedisSending

    return RedisSending(config)


REDIS = SenderPlugin("redis", RedisSenderConfig, Runs.BOTH, compile_entry, Entry, _open, spread=True)
