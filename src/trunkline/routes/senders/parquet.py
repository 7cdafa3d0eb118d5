"""A Parquet file of JSON maps: a column for every key, with the type that fits all its values."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from trunkline.core.jsoncodec import loads


def parquet_of(lines: list[str]) -> bytes | str:
    """The file; or why these do not fit into one."""
    rows = [loads(line) for line in lines]
    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        return bytes(sink.getvalue())
    except (pa.ArrowException, OverflowError) as error:
        return f"no Parquet: {' '.join(str(error).split())}"
