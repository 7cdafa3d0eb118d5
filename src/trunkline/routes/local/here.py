"""The process that a local runner works in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trunkline.core.clock import Clock
from trunkline.routes.ends import Pool


@dataclass(frozen=True)
class Here:
    """`pool`: connections to the site's own database, `database` where that is."""

    site: str
    instance: str
    database: str
    pool: Pool
    clock: Clock
    random: Callable[[], float]
