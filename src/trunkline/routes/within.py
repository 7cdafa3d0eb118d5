"""A call of a sender that lasts no longer than it may."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from trunkline.routes.ends import Sendable, Sending, TimedSending, Undelivered

_SHARE = 0.9  # of the time is the sender's; the rest is for its answer


async def sent_within(sending: Sending, messages: Sequence[Sendable], seconds: float) -> Sequence[Undelivered | None]:
    """Raises `TimeoutError` when it is not known what was sent."""
    async with asyncio.timeout(seconds):
        if isinstance(sending, TimedSending):
            return await sending.send_within(messages, _SHARE * seconds)
        return await sending.send(messages)
