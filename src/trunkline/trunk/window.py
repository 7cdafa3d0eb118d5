"""How far a stream's parent may go on: the window is open while no taker here is full.

A full taker holds the window closed, and with it the other takers of the stream. A burst is borne: what the slow one leaves
behind would have to cross the link a second time. The time that others were held up adds up and is forgotten at a quarter of
the pace; when it has come to PATIENCE, whoever is full leaves the stream with what it has queued, and lags.
"""

from __future__ import annotations

from trunkline.trunk.children import SIGN_SECONDS
from trunkline.trunk.desk import Desk
from trunkline.trunk.messages import Taken
from trunkline.trunk.streams import Stream
from trunkline.trunk.taker import Taker

PATIENCE_SECONDS = 2.0
FORGETS = 0.25


def made_to_lag(stream: Stream, now: float) -> list[Taker]:
    full = [t for t in stream.takers if t.full()]
    passed, stream.looked_at = now - stream.looked_at, now
    if full and len(full) < len(stream.takers):
        stream.held_up += passed if stream.holds_up else 0.0
        stream.holds_up = True
    else:
        stream.held_up = max(0.0, stream.held_up - passed * FORGETS)
        stream.holds_up = False
    if stream.held_up < PATIENCE_SECONDS:
        return []
    stream.held_up, stream.holds_up = 0.0, False
    return full


def say_taken(desk: Desk, stream: Stream, now: float) -> None:
    """Lets the parent go on, or says again how far the window is open."""
    if stream.cursor is None or not stream.takers or not stream.id:
        return
    if stream.taken < stream.cursor.seq and not any(t.full() for t in stream.takers):
        stream.taken = stream.cursor.seq
    elif stream.taken < 0 or now - stream.said_at < SIGN_SECONDS:
        return
    stream.said_at = now
    desk.send(stream.parent, Taken(stream.id, stream.origin, stream.taken))


def is_withheld(stream: Stream) -> bool:
    return stream.cursor is not None and stream.taken < stream.cursor.seq and any(t.full() for t in stream.takers)
