from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from trunkline.core.scalars import Number, Whole
from trunkline.routes.clusters import RedisServer
from trunkline.routes.ends import Place, Receiving
from trunkline.routes.placement import Placement
from trunkline.routes.plugin import ReceiverPlugin, Runs


class RedisReceiverConfig(RedisServer):
    """Entries of a stream in Redis, read as a consumer group: the event is the JSON in an entry's field `event`.

    An entry is acknowledged when it is done. One that failed comes again after `acknowledgeTimeout`, behind those that came
    meanwhile. One that is not JSON comes as a text (or as the map of its fields), with `metadata.redis.malformed` true.

    Where a pipeline routes its events they are done when they are safe in the site's database."""

    HEARS: ClassVar[tuple[str, ...]] = ("endpoint", "database", "channel", "group_id")

    group_id: str = Field(default="", description="the consumer group; none: one that belongs to the route")
    start_at: Literal["latest", "earliest"] = Field(default="latest", description="where a new group begins")
    batch_entries: Whole = Field(default=1_000, ge=1, le=100_000, description="how many are read at once at most")
    acknowledge_timeout: Number = Field(
        default=60.0, gt=0, le=3_600, description="seconds after which an event that is not done counts as failed"
    )
    trace_payload_on_nack: bool = Field(default=False, description="whether a failed event's trace holds its payload")
    placement: Placement = "auto"


async def _open(config: RedisReceiverConfig, place: Place) -> Receiving:
    from trunkline.routes.receivers.redis_receiving import RedisReceiving

    return RedisReceiving(config, place)


REDIS = ReceiverPlugin(
    "redis", RedisReceiverConfig, Runs.LOCAL, _open, cluster=lambda config: f"{config.endpoint.shown}/{config.database}"
)
