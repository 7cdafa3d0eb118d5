from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from trunkline.core.scalars import Number, Whole
from trunkline.routes.ends import Place, Receiving
from trunkline.routes.fields import RouteModel
from trunkline.routes.placement import Placement
from trunkline.routes.plugin import ReceiverPlugin, Runs


class HttpReceiverConfig(RouteModel):
    """Events posted to the nodes' API or, with a port, to a server of the route's own; the answer comes when they are done.

    A server of its own asks nobody for a token: it listens on loopback unless `address` says otherwise, and whoever reaches it
    can send events. What failed is not kept: whoever posted it is told, and may post it again.

    Where a pipeline routes its events they are done when they are safe in the site's database."""

    HEARS: ClassVar[tuple[str, ...]] = ("address", "port", "method", "path")

    path: str = Field(
        default="",
        pattern="^(/.*)?$",
        examples=["/webhook"],
        description="only requests to this path, and with a / at its end to all below it; none: all",
    )
    method: Literal["POST", "PUT", "GET", "DELETE"] = Field(default="POST", description="the only method that is taken")
    port: Whole | None = Field(
        default=None, ge=1024, le=65_535, examples=[8081], description="of a server of its own; none: the API takes its events"
    )
    address: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="where a server of its own listens; 0.0.0.0: at every address of the node",
    )
    success_status: Whole = Field(default=200, ge=200, le=299, description="the answer's status when the event is done")
    failure_status: Whole = Field(default=400, ge=400, le=599, description="the answer's status when it failed")
    acknowledge_timeout: Number = Field(
        default=5.0, gt=0, le=3_600, description="seconds after which an event that is not done counts as failed"
    )
    trace_payload_on_nack: bool = Field(default=False, description="whether a failed event's trace holds its payload")
    placement: Placement = "auto"


async def _open(config: HttpReceiverConfig, place: Place) -> Receiving:
    from trunkline.routes.receivers.http_receiving import HookReceiving, ServerReceiving

    return HookReceiving(config, place) if config.port is None else await ServerReceiving.open(config, place)


HTTP = ReceiverPlugin("http", HttpReceiverConfig, Runs.LOCAL, _open, everywhere=True)
