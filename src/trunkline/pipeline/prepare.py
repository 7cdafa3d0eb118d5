"""What makes later starts quicker, done once per installation."""

from __future__ import annotations

import tempfile
from pathlib import Path

from trunkline.pipeline.scratch import Scratch
from trunkline.pipeline.session import make_archive
from trunkline.pipeline.warm import warm_up


def prepare() -> bool:
    """False if everything was prepared already."""
    with tempfile.TemporaryDirectory(prefix="trunkline-") as folder, Scratch(Path(folder)) as scratch:
        return make_archive(scratch, lambda spark: warm_up(spark, scratch))
