"""What the two halves of a session ask of their host, and which method takes the answer.

No answer is needed in the same call; answers may be lost only together with the half itself. Writes of one sink are done in
the order they were asked for; their answers say whether they were taken: a write that does not fit the table changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from trunkline.core.ids import Position
from trunkline.queues.messages import Pair, Records, SessionMessage


@dataclass(frozen=True)
class Say:
    """At most once; nobody minds when it is lost."""

    to: str
    message: SessionMessage


# -- of the sink


@dataclass(frozen=True)
class UseLog:
    """The session takes log entries after `position`; what was `lost` before it is put on record. Answer with `using_log`."""

    origin: str
    client: str
    log_id: str
    position: Position
    lost: tuple[int, int] | None


@dataclass(frozen=True)
class BeginSnapshot:
    """START goes into the queue, and the session takes no log entries. Answer with `begun`."""

    origin: str
    client: str
    log_id: str
    request: str
    base: Position
    forced: bool


@dataclass(frozen=True)
class StoreChunk:
    """Its records go into the queue if it is the next chunk of the request under way. Answer with `stored`."""

    origin: str
    client: str
    request: str
    chunk: int
    records: Records


@dataclass(frozen=True)
class FinishSnapshot:
    """LAST goes into the queue, and the session takes log entries after the base. Answer with `finished`."""

    origin: str
    client: str
    request: str
    reapplied_to: int = 0


@dataclass(frozen=True)
class Reload:
    """The sessions of this origin changed: tell the carrier what the sink has now, and this half by `sessions`."""

    origin: str


# -- of the source


@dataclass(frozen=True)
class AskSnapshot:
    """Write a request, or join one that is still `wanted`. Answer with `asked`."""

    client: str
    destination: str
    reason: str
    forced: bool


@dataclass(frozen=True)
class ReadChunk:
    """Answer with `chunk`: its body, or None when it is no longer there."""

    request: str
    client: str
    chunk: int
    to: str
    pair: Pair


@dataclass(frozen=True)
class Delivered:
    """This destination has all of it, in its queue and for good."""

    request: str
    destination: str


@dataclass(frozen=True)
class Supersede:
    """Nobody waits for this one: for each of its destinations there is a newer one, or it has it."""

    request: str


SinkEffect = Say | UseLog | BeginSnapshot | StoreChunk | FinishSnapshot | Reload
SourceEffect = Say | AskSnapshot | ReadChunk | Delivered | Supersede
