from __future__ import annotations

import asyncio

from trunkline.db.lease import Grant
from trunkline.routes.ends import Give, Place
from trunkline.routes.fields import RouteModel
from trunkline.routes.plugin import ReceiverPlugin, Runs


class NopReceiverConfig(RouteModel):
    """Receives nothing: for routes that get their events one by one over the API."""


class NopReceiver:
    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        await stop.wait()

    async def close(self) -> None: ...


async def open_nop(config: NopReceiverConfig, place: Place) -> NopReceiver:
    return NopReceiver()


NOP = ReceiverPlugin("nop", NopReceiverConfig, Runs.LOCAL, open_nop, everywhere=True)
