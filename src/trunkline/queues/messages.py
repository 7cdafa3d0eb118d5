"""What the two ends of a session say to each other, as messages for one site: at most once each, so whoever asks asks again.

The sink asks and the source answers; only WANTED comes unasked. `pair` is (incarnation of the source, incarnation of the sink)
as the speaker knows them, 0 for one it does not know yet. A message of another pair than the present one is not acted on (H21);
a source answers it with the present pair and nothing else. `ask` numbers the sink's questions: an answer that comes late, or
twice, is known by it. A request's id names one reading of the client's data: what is read anew has another id.

    sink                                source
    NEGOTIATE  where I stand      →
                                  ←     DECISION   log | snapshot | wait
    FETCH      chunk n, at most w →
                                  ←     DATA       chunk n … ; the last one has no body
    DONE       it is applied      →
                                  ←     DECISION   log, from the base
                                  ←     WANTED     a snapshot waits for you, or the one you fetch is over: negotiate
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from trunkline.core.codec import Codec
from trunkline.core.ids import Position

Pair = tuple[int, int]


class Verdict(StrEnum):
    LOG = "log"
    SNAPSHOT = "snapshot"
    WAIT = "wait"
    """A snapshot is on its way to being there: ask again."""


class Negotiate(msgspec.Struct, frozen=True, array_like=True, tag="negotiate"):
    client: str
    pair: Pair
    log_id: str
    position: Position | None
    """None: this session never had a snapshot or a log."""
    reason: str
    """first | reset | gap | forced | resync | resume"""
    request: str = ""
    """The snapshot that is under way here, and the next chunk of it."""
    chunk: int = 0
    ask: int = 0


class Decision(msgspec.Struct, frozen=True, array_like=True, tag="decision"):
    client: str
    pair: Pair
    verdict: Verdict
    log_id: str
    base: Position
    """LOG: take entries after this one. SNAPSHOT: the snapshot's base."""
    request: str = ""
    forced: bool = False
    why: str = ""
    ask: int = 0
    """The question this answers; 0: none."""
    lost: tuple[int, int] | None = None
    """LOG: the first and the last seq of a stretch that is no longer to be had."""


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag="fetch"):
    """All chunks before `chunk` are durable here; `window` of them from there on may be on their way."""

    client: str
    pair: Pair
    request: str
    chunk: int
    window: int


class Data(msgspec.Struct, frozen=True, array_like=True, tag="data"):
    client: str
    pair: Pair
    request: str
    chunk: int
    body: bytes
    last: bool = False
    """The end marker: it carries the request, and stands in place of a chunk."""
    reapplied_to: int = 0
    """Of the end marker: log entries up to this one may be in the snapshot already."""


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    client: str
    pair: Pair
    request: str


class Wanted(msgspec.Struct, frozen=True, array_like=True, tag="wanted"):
    client: str
    pair: Pair
    request: str
    """Empty: ask before you fetch on. What you fetch is over, or this leader knows nothing of it."""


SessionMessage = Negotiate | Decision | Fetch | Data | Done | Wanted
CODEC: Codec[SessionMessage] = Codec("session message", SessionMessage)

Records = list[tuple[dict[str, str], bytes]]
RECORDS: Codec[Records] = Codec("snapshot chunk", Records)
"""A chunk's body: headers and payload of each record."""


def for_source(message: SessionMessage) -> bool:
    """Said by a sink; the others are said by a source."""
    return isinstance(message, Negotiate | Fetch | Done)


def is_bulk(message: SessionMessage) -> bool:
    """Travels beside the signals, so that these never wait for it."""
    return isinstance(message, Data)
