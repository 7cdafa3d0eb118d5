"""How much of what waits goes into one batch, and which task reads what. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trunkline.pipeline.kafka.judge import Move
from trunkline.pipeline.spread import share_out

Piece = tuple[str, int, int, int]
"""topic, partition, first offset, end"""


class Limits(msgspec.Struct, frozen=True):
    """None: as much as there is."""

    rows: int | None = None
    size: int | None = None


def admit(moves: Sequence[Move], sizes: Mapping[str, int], limits: Limits, turn: int = 0) -> list[Move]:
    """The moves with their ends drawn in to the limits; `sizes` are bytes per record of each topic.

    Every partition gets one record before any gets two. Where not even that fits, those before `turn` wait; one record
    always goes, however large. A move without records is kept: it says where a partition stands.
    """
    waiting = {f"{m.topic}/{m.partition}": m for m in moves if m.rows}
    size = {name: max(1, sizes.get(m.topic, 1)) for name, m in waiting.items()}
    names = _fitting(list(waiting), size, limits, turn)
    shares = _by_size({n: waiting[n].rows for n in names}, size, limits.size)
    if limits.rows is not None:
        shares = share_out(shares, max(limits.rows, 1))
    drawn = (_drawn(m, shares.get(f"{m.topic}/{m.partition}", 0)) for m in moves)
    return [m for m in drawn if m.is_needed]


def _drawn(move: Move, rows: int) -> Move:
    return msgspec.structs.replace(move, end=move.first + rows)


def _fitting(names: Sequence[str], size: Mapping[str, int], limits: Limits, turn: int) -> list[str]:
    """As many partitions as can have a record each, from `turn` on, around."""
    at = turn % len(names) if names else 0
    chosen: list[str] = []
    total = 0
    for name in (*names[at:], *names[:at]):
        total += size[name]
        full = limits.size is not None and total > limits.size
        if chosen and (full or len(chosen) == limits.rows):
            break
        chosen.append(name)
    return chosen


def _by_size(rows: Mapping[str, int], size: Mapping[str, int], most: int | None) -> dict[str, int]:
    if most is None:
        return dict(rows)
    more = {name: (count - 1) * size[name] for name, count in rows.items()}
    left = max(0, most - sum(size[name] for name in rows))
    return {name: 1 + share // size[name] for name, share in share_out(more, left).items()}


def pack(moves: Sequence[Move], tasks: int) -> list[list[Piece]]:
    """At most `tasks` lists of about equal length. A partition is never cut, so its order survives in one task."""
    pieces = sorted((m for m in moves if m.rows), key=lambda m: (-m.rows, m.topic, m.partition))
    packed: list[list[Piece]] = [[] for _ in range(min(tasks, len(pieces)))]
    loads = [0] * len(packed)
    for m in pieces:
        lightest = loads.index(min(loads))
        packed[lightest].append((m.topic, m.partition, m.first, m.end))
        loads[lightest] += m.rows
    return packed
