"""Arithmetic of positions: what destinations have, what they want, and where a stream for them begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trunkline.core.ids import ALL_SITES, START, Position
from trunkline.trunk.log import UNLISTED, Applied, Entry, Log

_NEVER = 1 << 63


def seq_of(want: Applied, client: str) -> int:
    """Entries above this one are wanted; a client that is not listed starts from 0, or not yet."""
    return _NEVER if is_held(want, client) else want.clients.get(client, START).seq


def is_held(want: Applied, client: str) -> bool:
    return client in want.held or is_strange(want, client)


def is_strange(want: Applied, client: str) -> bool:
    """Nothing is known of this client at a destination that wants to know it first."""
    return UNLISTED in want.held and client not in want.held and client not in want.clients


def lowest_of(want: Applied) -> int:
    return min((p.seq for client, p in want.clients.items() if client not in want.held), default=0)


def needed_above(wants: Mapping[str, Applied], entry: Entry) -> int | None:
    """Entries like this one are wanted when their seq is above; None: by nobody."""
    sites: Iterable[str] = wants if ALL_SITES in entry.destinations else entry.destinations
    return min((seq_of(wants[site], entry.client) for site in sites if site in wants), default=None)


def lifted(want: Applied, cursor: Position, clients: Iterable[str], log_id: str) -> Applied:
    """The want of a destination that has got everything up to `cursor` for `clients`."""
    reached = {c: cursor for c in clients if cursor.seq > seq_of(want, c)}
    return Applied(log_id, {**want.clients, **reached}, want.held) if reached else want


def joins(want: Applied, asked: Applied, cursor: Position, clients: Iterable[str]) -> bool:
    """True when a stream asked for from `asked`, which stands at `cursor`, brings everything this destination wants.

    That is when it has exactly what the stream takes it to have. With less it would miss what the origin leaves out for
    it; and what it has beyond that, the origin has not checked (H11).
    """
    reached = lifted(asked, cursor, clients, asked.log_id)
    same = reached.clients == want.clients if UNLISTED in want.held else _above_start(reached) == _above_start(want)
    return same and set(asked.held) == set(want.held)


def _above_start(want: Applied) -> dict[str, Position]:
    return {client: position for client, position in want.clients.items() if position.seq}


@dataclass(frozen=True)
class Opened:
    """A subscription as the origin's log can serve it."""

    start: Position
    reset: tuple[str, ...]
    clients: tuple[str, ...]
    gaps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Destination → clients of which it lacks entries that were trimmed."""
    lowest: Position = START


def open_subscription(log: Log, wants: Mapping[str, Applied]) -> Opened:
    """Which wants fit this log (H11) and were not trimmed, and the position before the first entry that any of them lacks."""
    start = log.head().seq  # read first: whose entry is at or below it is among the clients, and is made known
    clients, lowest = log.clients(), log.lowest()
    valid = {site: want for site, want in wants.items() if _fits(log, want, lowest)}
    gaps = {site: _lacks(log, site, want) for site, want in valid.items()}
    for want in valid.values():
        for client, first in clients.items():
            start = min(start, max(seq_of(want, client), first - 1, lowest.seq))
    return Opened(
        lowest if start == lowest.seq else Position(start, log.mark_at(start) or 0),
        tuple(site for site in wants if site not in valid),
        tuple(clients),
        {site: trimmed for site, trimmed in gaps.items() if trimmed},
        lowest,
    )


def _lacks(log: Log, site: str, want: Applied) -> tuple[str, ...]:
    """Clients of which entries for this destination were trimmed that it does not have; of a quiet one there are none.

    A position below what was trimmed may be of another history: where the origin knows that entries went before this
    destination had them, such a position proves nothing.
    """
    missed = log.missed_by(site)

    def lacks(client: str, last: int) -> bool:
        if is_held(want, client) or seq_of(want, client) < last:
            return not is_held(want, client)
        return client in missed and not _is_of(log, want.clients[client])

    return tuple(client for client, last in log.trimmed_for(site).items() if lacks(client, last))


def _is_of(log: Log, position: Position) -> bool:
    return log.mark_at(position.seq) == position.mark


def proven(log: Log, clients: Mapping[str, Position]) -> dict[str, Position]:
    """Of acknowledged positions those that are of this log: a restored origin must not believe in its lost future (H12)."""
    return {client: p for client, p in clients.items() if _is_of(log, p)}


def _fits(log: Log, want: Applied, lowest: Position) -> bool:
    """Below what was trimmed there is nothing to compare with: that is a gap, not another history."""
    if not _above_start(want):
        return True
    return want.log_id == log.log_id and all(_has(log, p, lowest) for p in want.clients.values())


def _has(log: Log, position: Position, lowest: Position) -> bool:
    mark = log.mark_at(position.seq)
    return mark == position.mark or (mark is None and 0 <= position.seq <= lowest.seq)
