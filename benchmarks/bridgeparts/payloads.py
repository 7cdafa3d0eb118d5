"""Status of a fleet as its sites send it, with the payloads of the fleet's types; and the same rows as a table holds them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from trunkline.core.bundle import Bundle, Dependency, Mode, Version

BASE, FLIP = "clusters-per-policy", "complete-compliance"
HEARTBEAT, HUB_INFO, CLUSTERS, POLICIES = "heartbeat", "hub-info", "managed-clusters", "policies"
COMPLIANT, NON_COMPLIANT = "compliant", "non_compliant"
INCARNATION = 1

Row = tuple[str, str, str, str, str]
"""Site, policy, the cluster's name and id, state."""


class Message(NamedTuple):
    site: str
    headers: dict[str, str]
    data: bytes


@dataclass(frozen=True)
class Fleet:
    """`failing`: of a site's clusters, how many are not compliant with any policy."""

    sites: int
    clusters: int
    policies: int
    failing: int = 0
    prefix: str = "site"

    @property
    def rows(self) -> int:
        return self.sites * self.clusters * self.policies

    @property
    def flips(self) -> int:
        return self.sites * self.failing * self.policies

    def flipped(self, failing: int) -> Fleet:
        return replace(self, failing=failing)

    def names(self) -> list[str]:
        return [f"{self.prefix}{n:05}" for n in range(self.sites)]

    def bad(self) -> list[str]:
        return [cluster(n) for n in range(self.failing)]

    def good(self) -> list[str]:
        return [cluster(n) for n in range(self.failing, self.clusters)]

    def table(self) -> list[Row]:
        ids, numbers = [policy(p) for p in range(self.policies)], range(self.clusters)
        return [row for site in self.names() for row in self._rows(site, ids, numbers)]

    def failing_rows(self) -> list[Row]:
        ids, numbers = [policy(p) for p in range(self.policies)], range(self.failing)
        return [row for site in self.names() for row in self._rows(site, ids, numbers)]

    def _rows(self, site: str, ids: Sequence[str], numbers: Iterable[int]) -> Iterator[Row]:
        states = [(cluster(n), cluster_id(site, n), NON_COMPLIANT if n < self.failing else COMPLIANT) for n in numbers]
        return ((site, id_, *state) for id_ in ids for state in states)


def cluster(number: int) -> str:
    return f"cluster-{number:05}"


def cluster_id(site: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{site}/{number}"))


def policy(number: int) -> str:
    return str(uuid.UUID(int=(number + 1) << 64))


def _message(site: str, type_: str, mode: Mode, generation: int, data: bytes, base: Dependency | None = None) -> Message:
    """The time it was sent is added when it is."""
    bundle = Bundle(
        id=f"{site}/{type_}/{generation}", source=site, type=type_, time="", mode=mode,
        version=Version(INCARNATION, generation), dependency=base,
    )  # fmt: skip
    return Message(site, bundle.headers(), data)


def compliance(fleet: Fleet, generation: int) -> Iterator[Message]:
    """Every row of every site."""
    lists = {"compliantClusters": fleet.good(), "nonCompliantClusters": fleet.bad()}
    empty: dict[str, list[str]] = {"unknownComplianceClusters": [], "pendingComplianceClusters": []}
    data = json.dumps([{"policyId": policy(p), **lists, **empty} for p in range(fleet.policies)]).encode()
    return (_message(site, BASE, Mode.COMPLETE, generation, data) for site in fleet.names())


def flip(fleet: Fleet, generation: int, base: int) -> Iterator[Message]:
    """What is not compliant; everything else is."""
    bad: dict[str, list[str]] = {"nonCompliantClusters": fleet.bad(), "unknownComplianceClusters": []}
    entries = [{"policyId": policy(p), **bad, "pendingComplianceClusters": []} for p in range(fleet.policies)]
    data = json.dumps(entries if fleet.failing else []).encode()
    dependency = Dependency(BASE, Version(INCARNATION, base))
    return (_message(site, FLIP, Mode.COMPLETE, generation, data, dependency) for site in fleet.names())


def heartbeat(fleet: Fleet, generation: int) -> Iterator[Message]:
    return (_message(site, HEARTBEAT, Mode.COMPLETE, generation, b"[]") for site in fleet.names())


def hub_info(fleet: Fleet, generation: int) -> Iterator[Message]:
    for number, site in enumerate(fleet.names()):
        words = {"consoleURL": f"https://console.{site}.example.com/{generation}", "grafanaURL": "", "mchVersion": "2.15"}
        data = json.dumps(words | {"clusterId": str(uuid.UUID(int=number + 1))}).encode()
        yield _message(site, HUB_INFO, Mode.COMPLETE, generation, data)


def clusters(fleet: Fleet, generation: int) -> Iterator[Message]:
    return _hybrid(fleet, CLUSTERS, generation, fleet.clusters)


def policies(fleet: Fleet, generation: int) -> Iterator[Message]:
    return _hybrid(fleet, POLICIES, generation, fleet.policies)


def _hybrid(fleet: Fleet, type_: str, generation: int, objects: int) -> Iterator[Message]:
    """So many objects of every site, changed."""
    for site in fleet.names():
        changed = [_OBJECTS[type_](site, number, generation) for number in range(objects)]
        yield _message(site, type_, Mode.HYBRID, generation, json.dumps({"update": changed}).encode())


def _managed_cluster(site: str, number: int, generation: int) -> object:
    id_ = cluster_id(site, number)
    return {
        "metadata": {"name": cluster(number), "uid": id_, "labels": {"generation": str(generation)}},
        "status": {"clusterClaims": [{"name": "id.k8s.io", "value": id_}], "conditions": []},
    }


def _policy(site: str, number: int, generation: int) -> object:
    id_ = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{site}/{number}"))
    spec = {"disabled": False, "remediationAction": "inform", "revision": generation}
    return {"metadata": {"name": f"policy-{number}", "namespace": "default", "uid": id_}, "spec": spec}


_OBJECTS = {CLUSTERS: _managed_cluster, POLICIES: _policy}


def small(names: Sequence[str], generation: int, size: int) -> Iterator[Message]:
    """Compliance with one policy in about `size` bytes, of each site; who is compliant changes from one to the next."""
    all_ = [cluster(n) for n in range((size - 160) // 17)]
    at = generation % len(all_)
    lists = {"compliantClusters": all_[at:], "nonCompliantClusters": all_[:at]}
    entry = {"policyId": policy(0), **lists, "unknownComplianceClusters": [], "pendingComplianceClusters": []}
    data = json.dumps([entry]).encode()
    return (_message(site, BASE, Mode.COMPLETE, generation, data) for site in names)
