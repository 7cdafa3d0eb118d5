"""What people may want to know of a live route and of a plugin: counted per batch, read as plain structs."""

from __future__ import annotations

import msgspec

from trunkline.routes.outcome import Outcome
from trunkline.routes.shared import PluginKey


class RouteCounts(msgspec.Struct):
    """`received`: events that came to its filters; `dropped`: those that came to nothing there; `matched`: messages that left
    them. Of these `sent` are where they shall be, `kept` went to the retry outbox, `failed` are gone or back at their source.
    `dead`: dead letters, of filters and of the sender. `last`: when the last event came, in unix seconds. `seconds`: from
    giving to sending, in all."""

    received: int = 0
    matched: int = 0
    dropped: int = 0
    sent: int = 0
    kept: int = 0
    dead: int = 0
    failed: int = 0
    last: float = 0.0
    seconds: float = 0.0


class SenderCounts(msgspec.Struct):
    """`calls`: how often it was given messages; `undelivered`: messages that it could not send."""

    sent: int = 0
    undelivered: int = 0
    calls: int = 0
    last: float = 0.0


class ReceiverStatus(msgspec.Struct, frozen=True):
    """`open`: events that are not done. `failing`: why it does not read, if it should."""

    key: PluginKey
    routes: int
    running: bool
    failing: str
    received: int
    open: int
    done: dict[Outcome, int]
    last: float


class SenderStatus(msgspec.Struct, frozen=True):
    key: PluginKey
    routes: int
    counts: SenderCounts
