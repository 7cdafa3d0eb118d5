"""What waits to be sent on one link: a bounded queue and an allowance of credit per channel, served in turn.

1. A channel's queue never holds more than its bound; what does not fit is not taken.
2. Within a channel frames leave in the order they came.
3. A channel without credit waits alone: the others go on.
4. Channels that can send share the link by bytes: each turn adds TURN to a channel's share and takes frames while the
   share lasts. The last frame may overdraw it, and later turns pay for that. Who cannot send saves nothing up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate

from trunkline.core.errors import LocalProtocolError, RemoteProtocolError
from trunkline.net.channels import Bounds, Channel
from trunkline.net.credit import Allowance
from trunkline.net.frames import encode_frames

TURN = 64 * 1024  # small against a write, so that two busy channels meet in each; large against a frame


class _Lane:
    def __init__(self, bounds: Bounds) -> None:
        self.bound = bounds.queue
        self.queued = 0
        self.credit = Allowance(bounds.window)
        self._frames: deque[bytes] = deque()
        self._share = 0

    @property
    def ready(self) -> bool:
        return bool(self._frames) and self.credit.left > 0

    def put(self, frames: list[bytes]) -> int:
        size, room = sum(map(len, frames)), self.bound - self.queued
        if size > room:
            sizes = list(accumulate(map(len, frames)))
            frames = frames[: bisect_right(sizes, room)]
            size = sizes[len(frames) - 1] if frames else 0
        self._frames.extend(frames)
        self.queued += size
        return len(frames)

    def turn(self, out: list[bytes]) -> int:
        """Appends to `out` what this turn allows; how many bytes that was."""
        self._share += TURN
        size = self._take(min(self._share, self.credit.left), out)
        if size:
            self.credit.spend(size, len(out[-1]))
            self.queued -= size
            self._share -= size
        if not self.ready:
            self._share = min(self._share, 0)
        return size

    def _take(self, allowed: int, out: list[bytes]) -> int:
        frames = self._frames
        if self.queued <= allowed:
            out += frames
            frames.clear()
            return self.queued
        size, append, next_frame = 0, out.append, frames.popleft
        while size < allowed:
            frame = next_frame()
            append(frame)
            size += len(frame)
        return size


class Outbox:
    def __init__(self, bounds: Mapping[Channel, Bounds]) -> None:
        self._lanes = {channel: _Lane(each) for channel, each in bounds.items()}
        self._turns = deque(self._lanes.values())

    @property
    def queued_bytes(self) -> int:
        return sum(lane.queued for lane in self._lanes.values())

    def put(self, channel: Channel, bodies: Sequence[bytes]) -> int:
        """How many were taken, from the front on."""
        return self._lane(channel).put(encode_frames(channel, bodies))

    def queued(self, channel: Channel) -> int:
        return self._lane(channel).queued

    def room(self, channel: Channel) -> int:
        lane = self._lane(channel)
        return lane.bound - lane.queued

    def bound(self, channel: Channel) -> int:
        return self._lane(channel).bound

    def credit(self, channel: Channel) -> int:
        """Bytes that may go now; zero or below: the peer has to handle some first."""
        return self._lane(channel).credit.left

    def returned(self, number: int, size: int) -> None:
        """The peer gives back credit of the channel of this number."""
        for channel, lane in self._lanes.items():
            if channel == number:
                return lane.credit.returned(size)
        raise RemoteProtocolError("credit", f"channel {number} has none", "return credit for data channels only")

    def take(self, most: int) -> list[bytes]:
        """The next frames to write: about `most` bytes, one frame at least if any may go."""
        frames: list[bytes] = []
        size = 0
        while size < most and (lane := self._next()) is not None:
            size += lane.turn(frames)
        return frames

    def _next(self) -> _Lane | None:
        for _ in range(len(self._turns)):
            lane = self._turns[0]
            self._turns.rotate(-1)
            if lane.ready:
                return lane
        return None

    def _lane(self, channel: Channel) -> _Lane:
        lane = self._lanes.get(channel)
        if lane is None:
            raise LocalProtocolError("control message", "the link itself speaks on CONTROL", "send on another channel")
        return lane
