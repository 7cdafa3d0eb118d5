"""What a carrier asks of its host, and which of its methods takes the answer."""

from __future__ import annotations

from dataclasses import dataclass

from trunkline.core.ids import Position
from trunkline.trunk.log import NOTHING_APPLIED, Applied, Entry
from trunkline.trunk.messages import TrunkMessage


@dataclass(frozen=True)
class Send:
    site: str
    message: TrunkMessage


@dataclass(frozen=True)
class Load:
    """Answer with `loaded`: what the sink has of this origin."""

    origin: str


@dataclass(frozen=True)
class Open:
    """Answer with `opened`: how the own log can serve these wants."""

    child: str
    id: int
    wants: dict[str, Applied]


@dataclass(frozen=True)
class Read:
    """Answer with `read`: the next chunk of the own log for these destinations, of about so many bytes."""

    child: str
    id: int
    after: int
    destinations: frozenset[str]
    size: int


@dataclass(frozen=True)
class Append:
    """Answer with `appended` when it is durable. At most one is under way per origin.

    `since` is the very answer of the sink that the stream began with. Once it has given another one, this must not be done:
    what it held before would be passed over. Answer with `loaded` then.
    """

    origin: str
    log_id: str
    entries: tuple[Entry, ...]
    upto: Position
    clients: tuple[str, ...]
    since: Applied = NOTHING_APPLIED


@dataclass(frozen=True)
class ResetSink:
    """Answer with `loaded` when the sink has forgotten the origin's positions."""

    origin: str
    log_id: str


@dataclass(frozen=True)
class Acknowledged:
    """A destination of the own log says how far it is."""

    destination: str
    generation: int
    log_id: str
    clients: dict[str, Position]


@dataclass(frozen=True)
class Accepted:
    """That neighbour serves this origin now: the first batch of the subscription came."""

    origin: str
    site: str


@dataclass(frozen=True)
class Deliver:
    """A message for this site; at most once."""

    source: str
    body: bytes


@dataclass(frozen=True)
class Lost:
    """The origin trimmed what this site lacks. Answer with `loaded` when that is on record for each of these clients."""

    origin: str
    log_id: str
    upto: Position
    clients: tuple[str, ...]


Effect = Accepted | Deliver | Lost | Send | Load | Open | Read | Append | ResetSink | Acknowledged
