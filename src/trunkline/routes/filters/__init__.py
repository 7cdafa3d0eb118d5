"""What a route's events go through: all filters that are shipped."""

from __future__ import annotations

from typing import Any

from trunkline.routes.filters.batch import BATCH
from trunkline.routes.filters.block import BLOCK
from trunkline.routes.filters.decode import DECODE
from trunkline.routes.filters.dedup import DEDUP
from trunkline.routes.filters.encode import ENCODE
from trunkline.routes.filters.expr import EXPR
from trunkline.routes.filters.hash import HASH
from trunkline.routes.filters.js import JS
from trunkline.routes.filters.log import LOG
from trunkline.routes.filters.mapping import MAPPING
from trunkline.routes.filters.match import DENY, FILTER, MATCH
from trunkline.routes.filters.merge import MERGE
from trunkline.routes.filters.metric import METRIC
from trunkline.routes.filters.modify import MODIFY
from trunkline.routes.filters.pass_ import PASS
from trunkline.routes.filters.regex import REGEX
from trunkline.routes.filters.split import SPLIT
from trunkline.routes.filters.trace import TRACE
from trunkline.routes.filters.transform import TRANSFORM
from trunkline.routes.filters.ttl import TTL
from trunkline.routes.filters.unwrap import UNWRAP
from trunkline.routes.filters.validate import VALIDATE
from trunkline.routes.plugin import FilterPlugin

FILTERS: tuple[FilterPlugin[Any], ...] = (
    BATCH,
    BLOCK,
    DECODE,
    DEDUP,
    DENY,
    ENCODE,
    EXPR,
    FILTER,
    HASH,
    JS,
    LOG,
    MAPPING,
    MATCH,
    MERGE,
    METRIC,
    MODIFY,
    PASS,
    REGEX,
    SPLIT,
    TRACE,
    TRANSFORM,
    TTL,
    UNWRAP,
    VALIDATE,
)
