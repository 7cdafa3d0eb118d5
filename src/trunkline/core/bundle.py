"""The bundle envelope: one status message of a site, a CloudEvent in binary mode.

The attributes travel as headers beside the payload (never inside it), under the names they have on Kafka, so that
intake can conflate without parsing a payload and both transports give the same columns:

    ce_specversion ce_id ce_source ce_type ce_time    as CloudEvents says; source is the site
    ce_mode                                           complete | append
    ce_incarnation ce_generation                      the version: ordered by incarnation, then generation
    ce_dependency                                     "<type>@<incarnation>.<generation>": not before that is applied

A *complete* bundle carries every row the site has of its type: the newest replaces the older ones. An *append* bundle
carries rows of its own, is never conflated, and is idempotent by (source, type, id).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from trunkline.core.errors import Invalid
from trunkline.core.ids import check_name

SPEC_VERSION = "1.0"
LARGEST = 2**63 - 1  # what a bigint of Postgres holds


class Mode(StrEnum):
    COMPLETE = "complete"
    APPEND = "append"


class Version(msgspec.Struct, frozen=True, array_like=True, order=True):
    incarnation: int
    generation: int

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.generation}"

    @classmethod
    def parse(cls, text: str) -> Version:
        incarnation, _, generation = text.partition(".")
        if not (incarnation.isascii() and incarnation.isdigit() and generation.isascii() and generation.isdigit()):
            raise Invalid(f"version {text[:60]!r}", "it is not <incarnation>.<generation>", "send two whole numbers")
        if any(len(number) > 19 or int(number) > LARGEST for number in (incarnation, generation)):
            raise Invalid(f"version {text[:60]!r}", f"it has a number above {LARGEST}", "send numbers of 63 bits")
        return cls(int(incarnation), int(generation))


class Dependency(msgspec.Struct, frozen=True, array_like=True):
    """At least this version of that type of the same site must be applied first."""

    type: str
    version: Version

    def __str__(self) -> str:
        return f"{self.type}@{self.version}"

    @classmethod
    def parse(cls, text: str) -> Dependency:
        kind, at, version = text.partition("@")
        if not at:
            raise Invalid(f"dependency {text!r}", "it has no '@'", "write it as <type>@<incarnation>.<generation>")
        return cls(check_name("bundle type", kind), Version.parse(version))


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    source: str
    type: str
    time: str
    mode: Mode
    version: Version
    dependency: Dependency | None = None
    data: bytes = b""

    def headers(self) -> dict[str, str]:
        out = {
            "ce_specversion": SPEC_VERSION,
            "ce_id": self.id,
            "ce_source": self.source,
            "ce_type": self.type,
            "ce_time": self.time,
            "ce_mode": str(self.mode),
            "ce_incarnation": str(self.version.incarnation),
            "ce_generation": str(self.version.generation),
        }
        if self.dependency is not None:
            out["ce_dependency"] = str(self.dependency)
        return out


_REQUIRED = ("ce_id", "ce_source", "ce_type", "ce_mode", "ce_incarnation", "ce_generation")


def parse_bundle(headers: Mapping[str, str], data: bytes, sender: str) -> Bundle:
    """The bundle of a message that `sender` was authenticated to send; raises `Invalid` and nothing else."""
    missing = [name for name in _REQUIRED if not headers.get(name)]
    if missing:
        raise Invalid("bundle", f"no header {', '.join(missing)}", "send CloudEvents attributes as ce_ headers")
    if headers["ce_source"] != sender:
        raise Invalid("bundle", f"its source {headers['ce_source']!r} is not its sender {sender!r}", "send as yourself")
    try:
        mode = Mode(headers["ce_mode"])
    except ValueError:
        known = ", ".join(Mode)
        raise Invalid("bundle", f"mode {headers['ce_mode']!r} is unknown", f"use one of {known}") from None
    dependency = headers.get("ce_dependency")
    return Bundle(
        id=headers["ce_id"],
        source=sender,
        type=check_name("bundle type", headers["ce_type"]),
        time=headers.get("ce_time", ""),
        mode=mode,
        version=Version.parse(f"{headers['ce_incarnation']}.{headers['ce_generation']}"),
        dependency=Dependency.parse(dependency) if dependency else None,
        data=data,
    )
