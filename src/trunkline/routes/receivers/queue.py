from __future__ import annotations

from typing import Literal

from pydantic import Field

from trunkline.core.scalars import Number, Whole
from trunkline.routes.ends import Place, Receiving
from trunkline.routes.fields import ClientName, RouteModel
from trunkline.routes.plugin import ReceiverPlugin, Runs


class QueueReceiverConfig(RouteModel):
    """Entries of this site's receive queues of a client: what other sites sent to it, each site's in its order.

    One that failed is given again, with growing pauses, and what its site sent after it waits; other sites go on. What is not
    JSON comes as a text, with `metadata.queue.text` true. Records of snapshots come like others, with `metadata.queue.kind`."""

    client: ClientName = Field(examples=["alarms"], description="whose queue it is")
    start_at: Literal["oldest", "newest"] = Field(default="oldest", description="where a new route begins to read")
    batch_entries: Whole = Field(default=1_000, ge=1, le=100_000, description="how many are read at once at most")
    acknowledge_timeout: Number = Field(
        default=60.0, gt=0, le=3_600, description="seconds after which an event that is not done counts as failed"
    )


async def _open(config: QueueReceiverConfig, place: Place) -> Receiving:
    from trunkline.routes.receivers.queue_receiving import QueueReceiving

    return QueueReceiving(config, place)


QUEUE = ReceiverPlugin("queue", QueueReceiverConfig, Runs.BOTH, _open, cluster=lambda config: config.client)
