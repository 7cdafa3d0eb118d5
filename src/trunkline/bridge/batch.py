"""What intake reads of one batch, whichever transport it came by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

import msgspec

from trunkline.core.bundle import Bundle


class Arrived(msgspec.Struct, frozen=True, dict=True):
    """A bundle and where it stood. `queue`: "topic@partition" for Kafka. `at`: the unix time of its record, if it has one."""

    bundle: Bundle
    queue: str
    position: int
    at: float | None = None

    @cached_property
    def sent(self) -> float | None:
        """When the site says that it sent it, but not later than its record is."""
        said = moment(self.bundle.time)
        return self.at if said is None else min(said, said if self.at is None else self.at)


@dataclass(frozen=True)
class Rejected:
    """A message that is no bundle of its authenticated sender, and why."""

    site: str
    headers: Mapping[str, str]
    payload: bytes
    reason: str
    queue: str
    position: int


@dataclass(frozen=True)
class Lost:
    """Records of this site are gone: what was in them can only be had by a resync."""

    site: str
    reason: str


@dataclass(frozen=True)
class Batch:
    """`counts`: messages per site in the batch, all of them. `unkept`: those of them that nothing more is done with."""

    bundles: Sequence[Arrived]
    rejected: Sequence[Rejected]
    counts: Mapping[str, int]
    lost: Sequence[Lost] = ()
    transport: str = "queues"
    unkept: Mapping[str, int] = field(default_factory=dict)


def moment(text: str) -> float | None:
    """The unix time of an RFC 3339 text; a text that is none says nothing."""
    try:
        said = datetime.fromisoformat(text)
        return (said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
