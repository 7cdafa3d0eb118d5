"""Whether the peer of a link still lives, judged once per heartbeat from what its connection has received so far.

1. Any byte is a sign of life. Silence of SILENT_HEARTBEATS ends the link.
2. A frame that has begun must become whole: within the same time, and as much longer as its size takes at SLOWEST. Else
   bytes alone could keep a link up, and its memory taken, for ever.
3. If this process itself stood still for a heartbeat or more, nobody is blamed: the peer's bytes may still lie in the
   socket. Both times begin anew.
4. Times are those of the looks, so a judgement comes up to one heartbeat late, and never early.
"""

from __future__ import annotations

from dataclasses import dataclass

from trunkline.core.errors import RemoteProtocolError

SILENT_HEARTBEATS = 4
SLOWEST = 32 * 1024  # bytes per second of the slowest link we mean to serve


@dataclass(frozen=True)
class Progress:
    """Counters of a connection; `unfinished` is the size of the frame that has begun, 0 between frames."""

    bytes: int
    frames: int
    unfinished: int


class Vigil:
    def __init__(self, heartbeat: float, now: float) -> None:
        self._heartbeat = heartbeat
        self._limit = SILENT_HEARTBEATS * heartbeat
        self._seen = Progress(0, 0, 0)
        self._looked = self._heard = self._begun = now

    def look(self, progress: Progress, now: float) -> str | None:
        """Why the link is over, or None. Raises RemoteProtocolError when the peer broke rule 2."""
        if now - self._looked > 2 * self._heartbeat:
            self._heard = self._begun = now
        if progress.bytes > self._seen.bytes:
            self._heard = now
        if not progress.unfinished or progress.frames > self._seen.frames:
            self._begun = now
        self._looked, self._seen = now, progress
        self._check_frame(progress.unfinished, now)
        silence = now - self._heard
        return f"the peer was silent for {silence:.1f} s" if silence >= self._limit else None

    def _check_frame(self, size: int, now: float) -> None:
        took = now - self._begun
        if took > self._limit + size / SLOWEST:
            why = f"a frame of {size} bytes is not whole after {took:.1f} s"
            raise RemoteProtocolError("frame", why, "send frames whole, or mend the slow path between the two")
