"""What a live route gives to be kept: messages for another try, and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from trunkline.routes.keys import RouteKey

SENDER = "sender"
"""The step of a letter that the sender refused."""
MESSAGE = "message"
"""The step of a letter of which no message could be made for the sender."""


class LaneName(msgspec.Struct, frozen=True):
    """A live route, as its outbox calls it. `plugin`: its sender's."""

    hash: str
    key: RouteKey
    plugin: str


class Kept(msgspec.Struct, frozen=True):
    """A message that waits for another try. `message`: JSON. `came`: when its event came in, in unix seconds."""

    id: str
    source: str
    message: bytes
    reason: str
    came: float


class Letter(msgspec.Struct, frozen=True):
    """`content`: JSON of the message that could not be sent (`step` is SENDER), else of the event as it came to that step."""

    lane: LaneName
    step: str
    id: str
    source: str
    content: bytes
    reason: str
    came: float
    tries: int = 0


class Keeper(Protocol):
    """Raises `Retryable` while it is away; then nothing was kept."""

    async def append(self, lane: LaneName, messages: Sequence[Kept]) -> int:
        """Behind what the lane has already. Gives how many found room; the others are dead letters."""

    async def bury(self, letters: Sequence[Letter]) -> None: ...

    async def inherit(self, old: LaneName, new: LaneName) -> None:
        """What waits in the old lane goes to the new one, or becomes dead letters if that has another sender."""

    async def waits(self, hash: str) -> bool:
        """Whether there is something in the lane's outbox."""
