"""How far a stream's parent may go on: the window is open while no taker here is full.

A full taker holds the window closed, unless that would hold up others who want something of the stream, or have waited for
PATIENCE_SECONDS; then it leaves the stream with what it has queued, and lags.
"""

from __future__ import annotations

from trunkline.trunk.children import SIGN_SECONDS
from trunkline.trunk.desk import Desk
from trunkline.trunk.messages import Taken
from trunkline.trunk.streams import Stream
from trunkline.trunk.taker import Taker

PATIENCE_SECONDS = 2.0


def made_to_lag(stream: Stream, now: float) -> list[Taker]:
    full = [t for t in stream.takers if t.full()]
    roomy = [t for t in stream.takers if t not in full]
    held_up = any(t.took for t in roomy) or (bool(roomy) and now - stream.moved_at > PATIENCE_SECONDS)
    return full if held_up else []


def say_taken(desk: Desk, stream: Stream, now: float) -> None:
    """Lets the parent go on, or says again how far the window is open."""
    if stream.cursor is None or not stream.takers or not stream.id:
        return
    if stream.taken < stream.cursor.seq and not any(t.full() for t in stream.takers):
        stream.taken, stream.moved_at = stream.cursor.seq, now
    elif stream.taken < 0 or now - stream.said_at < SIGN_SECONDS:
        return
    stream.said_at = now
    desk.send(stream.parent, Taken(stream.id, stream.origin, stream.taken))


def is_withheld(stream: Stream) -> bool:
    return stream.cursor is not None and stream.taken < stream.cursor.seq and any(t.full() for t in stream.takers)
