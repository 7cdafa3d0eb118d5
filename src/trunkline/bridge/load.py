"""A fleet that does not exist: the status bundles that its sites would send, from a seed, for tests and for sizing.

G1  The same scale, seed, incarnation and times give the same bundles, byte by byte.
G2  A site takes turns: in its first it sends all it has, in each later one a share of its rows has changed, and it may have
    grown. Within a turn bases come before what depends on them, and name the versions that were sent.
G3  What a site has is kept in a few bytes per row; documents are made when they are sent.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trunkline.bridge.loadpayloads import PAYLOADS, WITHOUT_POLICIES, Content, Status
from trunkline.bridge.reporter import PART_BYTES, chunked, resync_parts
from trunkline.bridge.types import Types
from trunkline.core.bundle import Bundle, Dependency, Mode, Version
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps

__all__ = ["Estimate", "Made", "Scale", "SiteLoad", "estimate"]


@dataclass(frozen=True)
class Scale:
    """`changed`: share of the rows that change between two turns of a site; `growth`: clusters that each turn adds to it."""

    sites: int
    clusters: int
    policies: int
    types: tuple[str, ...]
    changed: float = 0.01
    growth: int = 0
    seed: int = 1

    def site(self, number: int) -> str:
        return f"load-{number + 1:0{len(str(self.sites))}}"

    def check(self, types: Types) -> Scale:
        unknown = [name for name in self.types if name not in PAYLOADS]
        if unknown:
            raise Invalid(f"bundle type {unknown[0]}", "there is no load of it", f"use some of {', '.join(PAYLOADS)}")
        for name in self.types:
            base = types[name].depends_on
            if base is not None and base not in self.types:
                raise Invalid(f"bundle type {name}", f"it depends on {base}, which is not sent", f"add {base} to the types")
        return self


@dataclass(frozen=True)
class Made:
    """One bundle, in as many messages as it needs. `changed`: rows that are not as they were sent before."""

    messages: tuple[Bundle, ...]
    rows: int
    changed: int

    @property
    def bytes(self) -> int:
        return sum(len(one.data) for one in self.messages)


class SiteLoad:
    def __init__(self, scale: Scale, number: int, types: Types, incarnation: int, part_bytes: int = PART_BYTES) -> None:
        self.name = scale.site(number)
        self._scale, self._incarnation, self._part_bytes = scale, incarnation, part_bytes
        self._types = sorted((types[name] for name in scale.types), key=lambda declared: declared.priority)
        self._generations: dict[str, int] = {}
        digest = hashlib.blake2b(f"{scale.seed} {self.name}".encode(), digest_size=16).digest()
        policies = 0 if WITHOUT_POLICIES.issuperset(scale.types) else scale.policies
        self._status = Status(
            self.name, scale.clusters, policies, random.Random(digest), uuid.UUID(bytes=digest, version=4)
        )  # fmt: skip

    def turn(self, now: float) -> Iterator[Made]:
        time = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        self._status.advance(time, self._scale.changed, self._scale.growth)
        for declared in self._types:
            content = PAYLOADS[declared.name](self._status)
            if not content.rows and not content.is_all and declared.mode is not Mode.COMPLETE:
                continue
            documents: Iterable[Any] = [content.document]
            if declared.mode is Mode.HYBRID and content.is_all:
                documents = resync_parts(content.document, self._part_bytes)
            yield from self._made(declared.name, declared.mode, declared.depends_on, documents, content, time)

    def _made(
        self, name: str, mode: Mode, base: str | None, documents: Iterable[Any], content: Content, time: str
    ) -> Iterator[Made]:
        version = Version(self._incarnation, self._generations.get(name, 0) + 1)
        self._generations[name] = version.generation
        needs = Dependency(base, Version(self._incarnation, self._generations[base])) if base else None
        rows, changed = content.rows, content.changed
        for nth, document in enumerate(documents):
            bundle = Bundle(
                id=f"{self.name}-{name}-{version}-{nth}", source=self.name, type=name, time=time, mode=mode, version=version,
                dependency=needs, data=dumps(document),
            )  # fmt: skip
            yield Made(tuple(chunked(bundle, self._part_bytes)), rows, changed)
            rows = changed = 0  # the first part stands for all


@dataclass(frozen=True)
class Turn:
    """Of one site."""

    bundles: int
    messages: int
    rows: int
    changed: int
    bytes: int


@dataclass(frozen=True)
class Estimate:
    first: Turn
    later: Turn


def estimate(scale: Scale, types: Types) -> Estimate:
    """From two turns of one site; the others are alike."""
    load = SiteLoad(scale, 0, types, 1)
    return Estimate(*(_turn(load.turn(float(number))) for number in (0, 1)))


def _turn(made: Iterable[Made]) -> Turn:
    all_ = list(made)
    return Turn(
        len(all_), sum(len(one.messages) for one in all_), sum(one.rows for one in all_), sum(one.changed for one in all_),
        sum(one.bytes for one in all_),
    )  # fmt: skip
