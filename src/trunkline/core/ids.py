"""Names of sites and nodes, and the position in an origin's log.

A position is (seq, mark). Every round of the stamper draws a random mark, so that two histories with the same
numbers (a restored or failed-over source) are told apart by their marks. (0, 0) is before the first entry.
"""

from __future__ import annotations

import re

import msgspec

from trunkline.core.errors import Invalid

ALL_SITES = "*"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_.-]{0,61}[a-z0-9])?")
_WHY = "a name is 1 to 63 lower-case letters, digits, '.', '_' or '-', beginning and ending with a letter or digit"


def check_name(kind: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Invalid(f"{kind} {name!r}", _WHY, f"rename the {kind}")
    return name


class Position(msgspec.Struct, frozen=True, array_like=True, order=True):
    seq: int
    mark: int


START = Position(0, 0)


class NodeId(msgspec.Struct, frozen=True, array_like=True, order=True):
    site: str
    node: str

    def __str__(self) -> str:
        return f"{self.site}/{self.node}"

    @classmethod
    def parse(cls, text: str) -> NodeId:
        site, slash, node = text.partition("/")
        if not slash:
            raise Invalid(f"node id {text!r}", "it has no '/'", "write it as <site>/<node>")
        return cls(check_name("site", site), check_name("node", node))
