from __future__ import annotations

from collections.abc import Sequence

from trunkline.routes.ends import Place, Sendable, Undelivered
from trunkline.routes.fields import RouteModel
from trunkline.routes.plugin import Runs, SenderPlugin


class NopSenderConfig(RouteModel):
    """Sends nothing: an event that comes here is done."""


class NopSender:
    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        return [None] * len(messages)

    async def close(self) -> None: ...


async def open_nop(config: NopSenderConfig, place: Place) -> NopSender:
    return NopSender()


NOP = SenderPlugin("nop", NopSenderConfig, Runs.BOTH, open=open_nop, spread=True)
