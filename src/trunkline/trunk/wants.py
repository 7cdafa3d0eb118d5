"""Arithmetic of positions: what destinations have, what they want, and where a stream for them begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trunkline.core.ids import ALL_SITES, START, Position
from trunkline.trunk.log import Applied, Entry, Log


def seq_of(want: Applied, client: str) -> int:
    """A client that is not listed starts from 0."""
    return want.clients.get(client, START).seq


def needs(wants: Mapping[str, Applied], entry: Entry) -> bool:
    sites: Iterable[str] = wants if ALL_SITES in entry.destinations else entry.destinations
    return any(entry.seq > seq_of(wants[site], entry.client) for site in sites if site in wants)


def lifted(want: Applied, cursor: Position, clients: Iterable[str], log_id: str) -> Applied:
    """The want of a destination that has got everything up to `cursor` for `clients`."""
    reached = {c: cursor for c in clients if cursor.seq > seq_of(want, c)}
    return Applied(log_id, {**want.clients, **reached}) if reached else want


def joins(want: Applied, asked: Applied, cursor: Position, clients: Iterable[str]) -> bool:
    """True when a stream asked for from `asked`, which stands at `cursor`, brings everything this destination wants.

    That is when it has exactly what the stream takes it to have. With less it would miss what the origin leaves out for
    it; and what it has beyond that, the origin has not checked (H11).
    """
    return _above_start(lifted(asked, cursor, clients, asked.log_id)) == _above_start(want)


def _above_start(want: Applied) -> dict[str, Position]:
    return {client: position for client, position in want.clients.items() if position.seq}


@dataclass(frozen=True)
class Opened:
    """A subscription as the origin's log can serve it."""

    start: Position
    reset: tuple[str, ...]
    clients: tuple[str, ...]


def open_subscription(log: Log, wants: Mapping[str, Applied]) -> Opened:
    """Which wants fit this log (H11), and the position before the first entry that any of them lacks."""
    clients = log.clients()
    valid = {site: want for site, want in wants.items() if _fits(log, want)}
    start = log.head().seq
    for want in valid.values():
        for client, first in clients.items():
            have = seq_of(want, client)
            start = min(start, have if have >= first else first - 1)
    return Opened(
        Position(start, log.mark_at(start) or 0),
        tuple(site for site in wants if site not in valid),
        tuple(clients),
    )


def proven(log: Log, clients: Mapping[str, Position]) -> dict[str, Position]:
    """Of acknowledged positions those that are of this log: a restored origin must not believe in its lost future (H12)."""
    return {client: p for client, p in clients.items() if log.mark_at(p.seq) == p.mark}


def _fits(log: Log, want: Applied) -> bool:
    if not want.clients:
        return True
    return want.log_id == log.log_id and all(log.mark_at(p.seq) == p.mark for p in want.clients.values())
