"""The bundle envelope: one status message of a site, a CloudEvent in binary mode.

The attributes travel as headers beside the payload (never inside it), under the names they have on Kafka, so that
intake can conflate without parsing a payload and both transports give the same columns:

    ce_specversion ce_id ce_source ce_type ce_time    as CloudEvents says; source is the site
    ce_mode                                           complete | delta | hybrid | append
    ce_incarnation ce_generation                      the version: ordered by incarnation, then generation
    ce_value                                          what dependents name, where it is not the generation
    ce_dependency                                     "<type>@<incarnation>.<value>": not before that is applied
    ce_session                                        of which run the sender is, where its incarnation is "auto"
    ce_chunk                                          "<end>/<size>": the part of a larger payload that ends there

A *complete* bundle carries every row the site has of its type: the newest replaces the older ones. A *delta* changes rows of
the base it depends on; a *hybrid* one creates, changes and deletes rows by itself and is brought back in line by a resync.
Both are applied in the order they came. An *append* bundle carries rows of its own, is never conflated, and is idempotent by
(source, type, id).

A sender that cannot keep an incarnation says "auto": intake then tells its runs apart, by their session or, where there is
none, by a generation that begins again at 0. In a dependency the incarnation 0 means whatever run the base is of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from trunkline.core.errors import Invalid
from trunkline.core.ids import check_name

SPEC_VERSION = "1.0"
LARGEST = 2**63 - 1  # what a bigint of Postgres holds
_TWO_NUMBERS = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})")


AUTO = "auto"
ANY_RUN = 0
UNTOLD = -1  # the incarnation of a bundle whose run intake has not told yet


class Mode(StrEnum):
    COMPLETE = "complete"
    DELTA = "delta"
    HYBRID = "hybrid"
    APPEND = "append"

    @property
    def is_ordered(self) -> bool:
        """Each is applied, in the order they came."""
        return self in (Mode.DELTA, Mode.HYBRID)


class Version(msgspec.Struct, frozen=True, array_like=True, order=True):
    incarnation: int
    generation: int

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.generation}"

    @classmethod
    def parse(cls, text: str) -> Version:
        found = _TWO_NUMBERS.fullmatch(text)
        if found is not None and max(version := (int(found[1]), int(found[2]))) <= LARGEST:
            return cls(*version)
        incarnation, _, generation = text.partition(".")
        if not (incarnation.isascii() and incarnation.isdigit() and generation.isascii() and generation.isdigit()):
            raise Invalid(f"version {text[:60]!r}", "it is not <incarnation>.<generation>", "send two whole numbers")
        raise Invalid(f"version {text[:60]!r}", f"it has a number above {LARGEST}", "send numbers of 63 bits")


class Dependency(msgspec.Struct, frozen=True, array_like=True):
    """This version of that type of the same site must be applied first; its type says whether a newer one will do."""

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


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A part of a payload of `size` bytes; it ends before byte `end`."""

    end: int
    size: int

    def __str__(self) -> str:
        return f"{self.end}/{self.size}"

    @classmethod
    def parse(cls, text: str) -> Chunk:
        end, _, size = text.partition("/")
        numbers = [int(n) for n in (end, size) if n.isascii() and n.isdigit() and len(n) < 13]
        if len(numbers) != 2 or not 0 < numbers[0] <= numbers[1]:
            raise Invalid(
                f"chunk {text[:60]!r}", "it is not <end>/<size>", "say where the part ends, and the size of the whole"
            )
        return cls(*numbers)


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    source: str
    type: str
    time: str
    mode: Mode
    version: Version
    value: int | None = None
    dependency: Dependency | None = None
    session: str = ""
    chunk: Chunk | None = None
    data: bytes = b""

    @property
    def named(self) -> Version:
        """What a bundle that depends on this one names."""
        return self.version if self.value is None else Version(self.version.incarnation, self.value)

    def headers(self) -> dict[str, str]:
        found = {
            "ce_specversion": SPEC_VERSION,
            "ce_id": self.id,
            "ce_source": self.source,
            "ce_type": self.type,
            "ce_time": self.time,
            "ce_mode": str(self.mode),
            "ce_incarnation": AUTO if self.version.incarnation == UNTOLD else str(self.version.incarnation),
            "ce_generation": str(self.version.generation),
        }
        if self.value is not None:
            found["ce_value"] = str(self.value)
        if self.dependency is not None:
            found["ce_dependency"] = str(self.dependency)
        if self.session:
            found["ce_session"] = self.session
        if self.chunk is not None:
            found["ce_chunk"] = str(self.chunk)
        return found


_REQUIRED = ("ce_id", "ce_source", "ce_type", "ce_mode", "ce_incarnation", "ce_generation")


def parse_bundle(headers: Mapping[str, str], data: bytes, sender: str) -> Bundle:
    """The bundle of a message that `sender` was authenticated to send; raises `Invalid` and nothing else."""
    if not all(map(headers.get, _REQUIRED)):
        missing = [name for name in _REQUIRED if not headers.get(name)]
        raise Invalid("bundle", f"no header {', '.join(missing)}", "send CloudEvents attributes as ce_ headers")
    if headers["ce_source"] != sender:
        raise Invalid("bundle", f"its source {headers['ce_source']!r} is not its sender {sender!r}", "send as yourself")
    try:
        mode = Mode(headers["ce_mode"])
    except ValueError:
        known = ", ".join(Mode)
        raise Invalid("bundle", f"mode {headers['ce_mode']!r} is unknown", f"use one of {known}") from None
    dependency, value, chunk = (headers.get(name) for name in ("ce_dependency", "ce_value", "ce_chunk"))
    return Bundle(
        id=headers["ce_id"],
        source=sender,
        type=check_name("bundle type", headers["ce_type"]),
        time=headers.get("ce_time", ""),
        mode=mode,
        version=_version(headers["ce_incarnation"], headers["ce_generation"]),
        value=Version.parse(f"0.{value}").generation if value else None,
        dependency=Dependency.parse(dependency) if dependency else None,
        session=headers.get("ce_session", ""),
        chunk=Chunk.parse(chunk) if chunk else None,
        data=data,
    )


def _version(incarnation: str, generation: str) -> Version:
    if incarnation == AUTO:
        return Version(UNTOLD, Version.parse(f"0.{generation}").generation)
    return Version.parse(f"{incarnation}.{generation}")
