"""What bundles of compliance tell: lists of clusters by policy and state, and the lines of COPY that they travel in.

L1  Each pair of policy and cluster is told once. Of a cluster named twice for one policy the worse state counts; between
    bundles the later one.
L2  Most bundles are in order and name no pair twice: those are read in one call. All others are looked at item by item, which
    also says what is wrong.
L3  A JSON text without a backslash has no escape, so none of its strings holds a backslash or a control character: its names
    go into COPY as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from trunkline.bridge.payload import objects
from trunkline.bridge.staging import plain
from trunkline.core.errors import Invalid

Lists = list[tuple[str, str, list[str]]]
"""(policy, state, clusters): each pair once"""
Pairs = dict[str, dict[str, str]]
"""policy -> cluster -> state"""

BETWEEN = "\x1f"
# From worst to best.
_LISTS = {
    "nonCompliantClusters": "non_compliant",
    "unknownComplianceClusters": "unknown",
    "pendingComplianceClusters": "pending",
    "compliantClusters": "compliant",
}

_Names = list[str] | None
_Said = tuple[str, list[tuple[str, list[str]]]]
"""A policy, and clusters by state, from worst to best"""


class _Item(msgspec.Struct):
    """One that is in order."""

    policy: Annotated[str, msgspec.Meta(min_length=1)] = msgspec.field(name="policyId")
    non_compliant: _Names = msgspec.field(name="nonCompliantClusters", default=None)
    unknown: _Names = msgspec.field(name="unknownComplianceClusters", default=None)
    pending: _Names = msgspec.field(name="pendingComplianceClusters", default=None)
    compliant: _Names = msgspec.field(name="compliantClusters", default=None)


class Told(msgspec.Struct, frozen=True):
    """`verbatim`: no name needs an escape."""

    lists: Lists
    verbatim: bool

    @property
    def rows(self) -> int:
        return sum([len(clusters) for _, _, clusters in self.lists])

    def lines(self, site: str) -> str:
        """Of COPY, one for each policy and state."""
        begin = plain(site)
        if self.verbatim:
            return "".join([f"{begin}\t{policy}\t{state}\t{BETWEEN.join(names)}\n" for policy, state, names in self.lists])
        return "".join([f"{begin}\t{plain(policy)}\t{state}\t{_joined(names)}\n" for policy, state, names in self.lists])


def read(data: bytes, what: str) -> Told:
    """What one bundle says."""
    items = objects(data, what)
    lists = _in_order(items)
    return Told(_grouped(_folded(_said(items, what))) if lists is None else lists, b"\\" not in data)


def fold(parts: Iterable[bytes], what: str) -> Told:
    """What bundles say one after the other."""
    said = [one for data in parts for one in _said(objects(data, what), what)]
    return Told(_grouped(_folded(said)), verbatim=False)


def _in_order(items: list[dict[str, Any]]) -> Lists | None:
    try:
        told = msgspec.convert(items, list[_Item])
    except msgspec.ValidationError:
        return None
    if len({one.policy for one in told}) != len(told):
        return None
    lists: Lists = []
    for one in told:
        pairs: set[str] = set()
        named = 0
        for state, names in _states(one):
            if names:
                lists.append((one.policy, state, names))
                pairs.update(names)
                named += len(names)
        if len(pairs) != named:
            return None
    return lists


def _states(one: _Item) -> tuple[tuple[str, _Names], ...]:
    return (
        ("non_compliant", one.non_compliant), ("unknown", one.unknown), ("pending", one.pending), ("compliant", one.compliant),
    )  # fmt: skip


def _said(items: Iterable[Mapping[str, Any]], what: str) -> list[_Said]:
    return [_item(item, f"policy {number} of {what}") for number, item in enumerate(items)]


def _item(item: Mapping[str, Any], where: str) -> _Said:
    policy = item.get("policyId")
    if not isinstance(policy, str) or not policy:
        raise Invalid(where, "it has no policyId", "send the policy's id with it")
    return policy, [(state, _clusters(item.get(name) or [], name, where)) for name, state in _LISTS.items()]


def _clusters(names: Any, name: str, where: str) -> list[str]:
    if not isinstance(names, list) or not set(map(type, names)) <= {str}:
        raise Invalid(where, f"{name} is not a list of names", "send names of clusters")
    return names


def _folded(said: Iterable[_Said]) -> Pairs:
    pairs: Pairs = {}
    for policy, lists in said:
        now = {cluster: state for state, clusters in reversed(lists) for cluster in clusters}
        pairs.setdefault(policy, {}).update(now)
    return pairs


def _grouped(pairs: Pairs) -> Lists:
    lists: dict[tuple[str, str], list[str]] = {}
    for policy, clusters in pairs.items():
        for cluster, state in clusters.items():
            lists.setdefault((policy, state), []).append(cluster)
    return [(policy, state, clusters) for (policy, state), clusters in lists.items()]


def _joined(clusters: list[str]) -> str:
    text = BETWEEN.join(clusters)
    if text.count(BETWEEN) != len(clusters) - 1:
        raise Invalid("name of a cluster", "it holds a control character", "send names of clusters")
    return plain(text)
