"""Positions of queues in Postgres: what a batch reads of them, and which task reads what. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trunkline.pipeline.spread import share_out

AT_ONCE = 5_000  # events of a chunk: with many routes each gets few of them, and a call for each
CHUNK_BYTES = 8 << 20
_TASK_ROWS = 1_000  # below this a second task costs more than it saves


class Span(msgspec.Struct, frozen=True):
    """Of one receiver, from `first` up to and without `end`. `queue`: its number, where a receiver has several."""

    receiver: str
    first: int
    end: int
    queue: int = 0
    remote: str = ""

    @property
    def rows(self) -> int:
        return self.end - self.first

    @property
    def place(self) -> tuple[str, int, str]:
        return self.receiver, self.queue, self.remote


def rows_of(spans: Sequence[Span]) -> int:
    return sum(span.rows for span in spans)


def still_there(planned: Sequence[Span], waiting: Sequence[Span]) -> bool:
    """Whether all of the plan begins where its readers stand, and can be read."""
    here = {span.place: span for span in waiting}
    found = [(span, here.get(span.place)) for span in planned]
    return all(at is not None and at.first == span.first and at.end >= span.end for span, at in found)


def by_rows(waiting: Sequence[Span], most: int) -> list[Span]:
    """The spans drawn in to so many rows in all."""
    named = {f"{span.receiver}/{span.queue}": span for span in waiting}
    shares = share_out({name: span.rows for name, span in named.items()}, most)
    return [_drawn(span, shares[name]) for name, span in named.items() if shares[name]]


def by_bytes(spans: Sequence[Span], sizes: Sequence[int], most: int) -> list[Span]:
    """The spans drawn in to about so many bytes in all, as if the rows of each were of one size. One row of each always goes,
    however large."""
    if sum(sizes) <= most:
        return list(spans)
    shares = share_out({str(n): size for n, size in enumerate(sizes)}, most)
    return [_drawn(span, max(1, span.rows * shares[str(n)] // max(1, sizes[n]))) for n, span in enumerate(spans)]


def packed(spans: Sequence[Span], tasks: int) -> list[tuple[Span, ...]]:
    """At most `tasks` lists of about equal length. A span is never cut, so its order survives in one task."""
    count = min(tasks, len(spans), -(-rows_of(spans) // _TASK_ROWS))
    lists: list[list[Span]] = [[] for _ in range(count)]
    loads = [0] * count
    for span in sorted(spans, key=lambda s: (-s.rows, s.place)):
        lightest = loads.index(min(loads))
        lists[lightest].append(span)
        loads[lightest] += span.rows
    return [tuple(one) for one in lists]


def _drawn(span: Span, rows: int) -> Span:
    return msgspec.structs.replace(span, end=span.first + rows)
