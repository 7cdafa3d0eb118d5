"""What the trunk asks of the two durable ends: the origin's `Log` and the destination's `Sink`.

The trunk itself holds no truth. Both interfaces are synchronous and may block; callers that must not wait run them in a
thread. One conformance suite runs over every implementation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import pairwise
from typing import Protocol

import msgspec

from trunkline.core.ids import ALL_SITES, Position


class Entry(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One payload with its destinations. `seq` is dense per origin, over all clients.

    With `ends` it is a pack: several messages of one transaction, without headers, one after the other in the payload, and
    where each of them ends there. `seq` is the last one's. Positions are ends of transactions: none ever divides a pack.
    """

    seq: int
    client: str
    destinations: tuple[str, ...]
    headers: dict[str, str]
    payload: bytes
    ends: tuple[int, ...] = ()

    @property
    def messages(self) -> int:
        return len(self.ends) or 1

    def apart(self) -> Iterator[Entry]:
        """One for each message."""
        if not self.ends:
            yield self
            return
        for seq, (begin, end) in enumerate(pairwise((0, *self.ends)), self.seq - len(self.ends) + 1):
            yield Entry(seq, self.client, self.destinations, {}, self.payload[begin:end])

    def is_for(self, sites: Set[str]) -> bool:
        return any(d in sites or d == ALL_SITES for d in self.destinations)


def messages_in(entries: Sequence[Entry]) -> int:
    return sum([len(e.ends) or 1 for e in entries])


def size_of(entries: Sequence[Entry]) -> int:
    """About the bytes they take on a link."""
    headers = sum([len(k) + len(v) for e in entries if e.headers for k, v in e.headers.items()])
    return sum([len(e.payload) for e in entries]) + headers + 64 * len(entries)


class Chunk(msgspec.Struct, frozen=True):
    """A stretch of the log in whole transactions: of all entries up to `upto`, those that met the destinations."""

    entries: tuple[Entry, ...]
    upto: Position


class Applied(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a destination is with one origin: per client the highest position durable there, and in which log."""

    log_id: str
    clients: dict[str, Position]
    held: tuple[str, ...] = ()
    """Clients of which it takes nothing now: a snapshot of them comes first, or their queue is full. With UNLISTED among them
    that goes for every client that `clients` does not list: it is met by name before anything of it comes (H16)."""


LOST = "trunkline-lost"
"""Header of the record that stands for entries no longer to be had."""
UNLISTED = "*"
NOTHING_APPLIED = Applied("", {})


class Log(Protocol):
    """The origin's own entries in commit order."""

    @property
    def log_id(self) -> str:
        """Made with the log and never changed; a log that begins anew has another one."""

    def head(self) -> Position:
        """The last entry there is."""

    def lowest(self) -> Position:
        """Up to and including this one, entries were trimmed; the start when none were. Its mark is 0 when not known."""

    def mark_at(self, seq: int) -> int | None:
        """The mark of that entry's round; 0 for seq 0, None when the log does not hold that entry."""

    def clients(self) -> Mapping[str, int]:
        """Each client that ever wrote, with the seq of its first entry."""

    def trimmed_for(self, site: str) -> Mapping[str, int]:
        """Per client, the last seq among the *trimmed* entries for this site, by its name or as one of all (H17)."""

    def missed_by(self, site: str) -> Set[str]:
        """Clients of which entries for this site were trimmed before it had acknowledged them."""

    def read(self, after: int, limit: int, destinations: Set[str]) -> Chunk:
        """Whole transactions after `after`, about `limit` entries; an empty chunk at `after` when there is nothing.

        A stretch in which nothing is for `destinations` still advances `upto`.
        """


class Sink(Protocol):
    """Where entries for this site become durable."""

    def applied(self, origin: str) -> Applied: ...

    def append(self, origin: str, log_id: str, entries: Sequence[Entry], upto: Position, clients: Sequence[str]) -> bool:
        """One durable step: the entries, in order, and position `upto` for every one of `clients`, but for those it holds.

        True: it holds others than `applied` said; ask it again, and subscribe accordingly.

        An entry at or below its client's position is already there and is left out, so a repeated call does no harm; a
        position never goes back. Every entry's client is among `clients`.
        A position under another `log_id` than the stored one is refused with `LocalProtocolError`: call `reset` first.
        """

    def lost(self, origin: str, log_id: str, upto: Position, clients: Sequence[str]) -> None:
        """The origin trimmed entries up to `upto` that were not here yet: one durable step, for each of these clients that is
        behind it: a record of the loss in its queue (`LOST` in its headers: "first-last"), and the position behind that.

        A repeated call adds nothing. Another `log_id` is refused as by `append`.
        """

    def reset(self, origin: str, log_id: str) -> None:
        """The origin's log is another one, or lost entries we have: forget its positions and begin anew at 0."""
