"""block: lets nothing pass."""

from __future__ import annotations

from trunkline.routes.fields import RouteModel
from trunkline.routes.plugin import Around, Filter, FilterPlugin


class BlockConfig(RouteModel):
    """Keeps every event back; it is done."""


def compile_block(config: BlockConfig, around: Around) -> Filter:
    return lambda batch, faults: []


BLOCK = FilterPlugin("block", BlockConfig, compile_block, pure=True)
