"""Kafka messages as Arrow batches.

A tombstone has no value, a record without headers has none: both are null, never empty. The headers of a CloudEvent are
columns; all others are in the map `headers`, as bytes, as is one of ours that is not UTF-8. Of a header that comes twice the
last counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from trunkline.pipeline.queue_source import HEADER_COLUMNS

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
_BATCH_BYTES = 8 << 20

Headers = dict[str, bytes | None]


def batches(messages: Sequence[Message]) -> Iterator[pa.RecordBatch]:
    """One batch, or as many as keep each of them to a size that fits a worker."""
    count = -(-sum(map(len, messages)) // _BATCH_BYTES) or 1
    step = -(-len(messages) // count)
    for first in range(0, len(messages), step):
        yield batch(messages[first : first + step])


def batch(messages: Sequence[Message]) -> pa.RecordBatch:
    found: list[Headers] = [dict(h) if (h := m.headers()) else {} for m in messages]  # type: ignore[arg-type]
    others: list[Headers | None] = [None if _KNOWN.issuperset(h) else _others(h) for h in found]
    texts = [_texts(name, found, others) for name in HEADER_COLUMNS]
    columns = [
        pa.array([m.topic() for m in messages], pa.string()),
        pa.array([m.partition() for m in messages], pa.int32()),
        pa.array([m.offset() for m in messages], pa.int64()),
        pa.array([_millis(m) for m in messages], pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        pa.array([m.key() for m in messages], pa.binary()),
        pa.array([m.value() for m in messages], pa.binary()),
        *texts,
        pa.array([None if h is None else list(h.items()) for h in others], _SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _others(headers: Headers) -> Headers:
    return {name: value for name, value in headers.items() if name not in _KNOWN}


def _millis(message: Message) -> int | None:
    kind, millis = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else millis


def _texts(name: str, found: Sequence[Headers], others: list[Headers | None]) -> pa.Array:
    values = [headers.get(name) for headers in found]
    raw = pa.array(values, pa.binary())
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(name, value, others, row) for row, value in enumerate(values)], pa.string())


def _text(name: str, value: bytes | None, others: list[Headers | None], row: int) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        others[row] = {**(others[row] or {}), name: value}
        return None
