"""The channels of a link. A message is one frame: length, channel, body; the layer that owns a channel owns its bodies."""

from __future__ import annotations

from enum import IntEnum


class Channel(IntEnum):
    CONTROL = 0
    STORE = 1
    TRUNK = 2
