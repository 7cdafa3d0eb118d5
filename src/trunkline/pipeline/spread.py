"""Dividing work: a batch's rows among queues, and a plan's ranges among tasks. Pure."""

from __future__ import annotations

from collections.abc import Mapping

Piece = tuple[str, int, int]
"""queue, first position, end"""


def share_out(backlog: Mapping[str, int], most: int) -> dict[str, int]:
    """At most `most` rows in all; no queue gets less than another because that one has more waiting."""
    shares: dict[str, int] = {}
    left = most
    by_size = sorted(backlog.items(), key=lambda item: (item[1], item[0]))
    for served, (queue, waiting) in enumerate(by_size):
        shares[queue] = min(waiting, left // (len(by_size) - served))
        left -= shares[queue]
    return shares


def pack(ranges: Mapping[str, range], tasks: int) -> list[list[Piece]]:
    """All positions in at most `tasks` lists of about equal length; a long range is cut, a short one kept whole."""
    total = sum(map(len, ranges.values()))
    if not total:
        return []
    longest = -(-total // tasks)
    pieces = [
        (queue, first, min(first + longest, span.stop))
        for queue, span in ranges.items()
        for first in range(span.start, span.stop, longest)
    ]
    packed: list[list[Piece]] = [[] for _ in range(min(tasks, len(pieces)))]
    loads = [0] * len(packed)
    for piece in sorted(pieces, key=lambda p: (p[1] - p[2], p)):
        lightest = loads.index(min(loads))
        packed[lightest].append(piece)
        loads[lightest] += piece[2] - piece[1]
    return packed
