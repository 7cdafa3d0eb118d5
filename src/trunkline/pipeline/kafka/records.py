"""Kafka messages as Arrow batches.

A tombstone has no value, a record without headers has none: both are null, never empty. The headers of a CloudEvent are
columns; all others are in the map `headers`, as bytes, as is one of ours that is not UTF-8. Of a header that comes twice the
last counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from trunkline.pipeline.arrivals import HEADER_COLUMNS

_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        *((name, pa.string()) for name in HEADER_COLUMNS),
        ("headers", pa.map_(pa.string(), pa.binary())),
    ]
)
SCHEMA = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    + "".join(f"{name} STRING, " for name in HEADER_COLUMNS)
    + "headers MAP<STRING, BINARY>"
)
_KNOWN = frozenset(HEADER_COLUMNS)
BATCH_BYTES = 8 << 20

Pairs = list[tuple[str, bytes | None]]
Headers = dict[str, bytes | None]
Values = dict[str, list[bytes | None]]
Others = list[Headers | None]


def batches(messages: Sequence[Message], make: Callable[[Sequence[Message]], pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One batch, or as many as keep each of them to a size that fits a worker."""
    count = -(-sum(map(len, messages)) // BATCH_BYTES) or 1
    step = -(-len(messages) // count)
    for first in range(0, len(messages), step):
        yield make(messages[first : first + step])


def batch(messages: Sequence[Message]) -> pa.RecordBatch:
    texts, others = _headers([m.headers() for m in messages])  # type: ignore[misc]
    columns = [
        pa.array([m.topic() for m in messages], pa.string()),
        pa.array([m.partition() for m in messages], pa.int32()),
        pa.array([m.offset() for m in messages], pa.int64()),
        pa.array(millis(messages), pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        pa.array([m.key() for m in messages], pa.binary()),
        pa.array([m.value() for m in messages], pa.binary()),
        *texts,
        pa.array([None if h is None else list(h.items()) for h in others], _SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _headers(lists: Sequence[Pairs | None]) -> tuple[list[pa.Array], Others]:
    """The columns of `HEADER_COLUMNS`, and what else there is of headers in each row."""
    others: Others = [None] * len(lists)
    values = alike(lists)
    if values is None:
        found: list[Headers] = [dict(pairs or ()) for pairs in lists]
        others = [None if _KNOWN.issuperset(headers) else _others(headers) for headers in found]
        values = {name: [headers.get(name) for headers in found] for name in HEADER_COLUMNS}
    none = [None] * len(lists)
    return [_texts(name, values.get(name, none), others) for name in HEADER_COLUMNS], others


def alike(lists: Sequence[Pairs | None], known: frozenset[str] = _KNOWN) -> Values | None:
    """Values by name, if all rows have the same known headers in the same order, as those of one writer do: half the time."""
    values: Values = {}
    if not all(lists) or len(set(map(len, lists))) > 1:  # type: ignore[arg-type]
        return None
    for pairs in zip(*lists, strict=True):
        name = pairs[0][0]
        values[name] = [value for each, value in pairs if each == name]
        if name not in known or len(values[name]) < len(lists):
            return None
    return values


def _others(headers: Headers) -> Headers:
    return {name: value for name, value in headers.items() if name not in _KNOWN}


def millis(messages: Sequence[Message]) -> list[int | None]:
    stamps = [m.timestamp() for m in messages]
    return [None if kind == TIMESTAMP_NOT_AVAILABLE else millis for kind, millis in stamps]


def _texts(name: str, values: Sequence[bytes | None], others: Others) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(name, value, others, row) for row, value in enumerate(values)], pa.string())


def _text(name: str, value: bytes | None, others: Others, row: int) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        others[row] = {**(others[row] or {}), name: value}
        return None
