"""Where the routes of receivers run that only nodes can read.

Unless such a receiver says `local`, its events are appended to the site's ingest (`trunkline.routes.local.ingest`) while a
pipeline is there that routes them; all of a site are one receiver group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from trunkline.core.secret import Secret
from trunkline.routes.canonical import content_hash
from trunkline.routes.groups import Group
from trunkline.routes.instances import Instance, Kind

INGEST = Group("ingest", "")

Placement = Annotated[
    Literal["auto", "local"],
    Field(description="where its routes run; auto: at a pipeline where one runs at the site, else at the nodes"),
]


def is_placed(config: Any) -> bool:
    """Whether a receiver leaves its routes to a pipeline."""
    return getattr(config, "placement", "local") == "auto"


def source_of(config: Any) -> str:
    """The same for receivers that hear the same (`HEARS` of their models), however they are configured otherwise."""
    values = {name: getattr(config, name) for name in config.HEARS}
    return content_hash({name: value.shown if isinstance(value, Secret) else value for name, value in values.items()})


def pipeline_takes(alive: Iterable[Instance]) -> bool:
    return any(instance.kind is Kind.PIPELINE and INGEST.plugin in instance.runs for instance in alive)
