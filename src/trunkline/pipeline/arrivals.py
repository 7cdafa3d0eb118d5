"""Status messages as Spark sees them: the same columns, whatever they came over.

`queue` and `position` say where a message stood (on Kafka "topic@partition" and its offset), `remote` is the authenticated
sender, or '' where there is no telling. The headers of a bundle are columns, so that no payload is parsed to conflate;
`headers` has what else there is, as JSON. `at` is the unix time of the record. `kind` tells what is no bundle at all.
`messages` is how many a row stands for: older ones may have been left out where they were read.
"""

from __future__ import annotations

import pyarrow as pa

HEADER_COLUMNS = (
    "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "ce_mode", "ce_incarnation", "ce_generation", "ce_value",
    "ce_dependency", "ce_session", "ce_chunk",
)  # fmt: skip
ARRIVALS = pa.schema(
    [
        ("queue", pa.string()),
        ("position", pa.int64()),
        ("remote", pa.string()),
        *((name, pa.string()) for name in HEADER_COLUMNS),
        ("headers", pa.string()),
        ("payload", pa.binary()),
        ("at", pa.float64()),
        ("kind", pa.int32()),
        ("messages", pa.int32()),
    ]
)
_SPARK = {pa.int64(): "BIGINT", pa.int32(): "INT", pa.float64(): "DOUBLE", pa.binary(): "BINARY"}
SCHEMA = ", ".join(f"{field.name} {_SPARK.get(field.type, 'STRING')}" for field in ARRIVALS)
