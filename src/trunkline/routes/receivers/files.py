from __future__ import annotations

from typing import Literal

from pydantic import Field

from trunkline.core.scalars import Whole
from trunkline.routes.fields import RouteModel
from trunkline.routes.plugin import ReceiverPlugin, Runs


class FilesReceiverConfig(RouteModel):
    """Files of a folder, each read once: those that are there, and then those that come. A file must appear as a whole: write
    it under a hidden name, then rename it. One that is written anew is read again. One that cannot be read is passed, with its
    reason in the table pipeline.file_failed."""

    path: str = Field(
        min_length=1,
        examples=["/data/in", "s3://bucket/in"],
        description="folder, or any address of one that pyarrow can open: s3://, gs://, hdfs://; not those below it",
    )
    pattern: str = Field(
        default="*", min_length=1, description="which of its files, such as *.jsonl; names that begin with . or _ are hidden"
    )
    format: Literal["jsonl", "json", "text", "parquet"] = Field(
        default="jsonl",
        description="jsonl: an event per line; json: an event per file; text: a text per line; parquet: an event per row",
    )
    max_files: Whole = Field(default=100, ge=1, le=100_000, description="how many new files are read at once at most")


FILES = ReceiverPlugin("files", FilesReceiverConfig, Runs.SPARK)
