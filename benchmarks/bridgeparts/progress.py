"""What Spark tells of a batch. Its count of rows is of those that a task read; small batches are read by the driver."""

from __future__ import annotations

from pyspark.sql.streaming.listener import StreamingQueryProgress

from trunkline.core.jsoncodec import loads


def went_on(progress: StreamingQueryProgress) -> bool:
    """Whether it was a batch, and no look that found nothing."""
    return any(source.startOffset != source.endOffset for source in progress.sources)


def planned(progress: StreamingQueryProgress) -> int:
    """Records of the batch."""
    if not went_on(progress):
        return 0
    return sum(int(loads(source.latestOffset or "{}")["planned"]) for source in progress.sources)
