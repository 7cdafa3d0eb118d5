"""Hybrid bundles: what is folded is what one after the other would have left, in memory and in the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from fleet_words import Fleet, cluster, lists, named, part, policy, work
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trunkline.bridge.hybrid import Barrier, Delete, Named, Operation, Put, fold
from trunkline.bridge.objects import POLICIES
from trunkline.core.bundle import Version
from trunkline.core.errors import Invalid


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("queues", "bridge")


@pytest.fixture
def fleet(database: str) -> Iterator[Fleet]:
    with psycopg.connect(database) as conn:
        yield Fleet(conn)


@dataclass
class Row:
    namespace: str
    name: str
    payload: Any
    version: Version
    is_deleted: bool = False


@dataclass
class Reference:
    """One operation after the other, in the plainest way."""

    rows: dict[str, Row] = field(default_factory=dict)

    def apply(self, one: Operation) -> None:
        if isinstance(one, Put):
            self.rows[one.who.id] = Row(one.who.namespace, one.who.name, one.payload, one.version)
            return
        for id_, row in self.rows.items():
            goes = self._is_meant(one.who, id_, row) if isinstance(one, Delete) else self._is_barred(one, id_, row)
            if goes and not row.is_deleted:
                row.is_deleted, row.version = True, one.version

    def _is_meant(self, who: Named, id_: str, row: Row) -> bool:
        if who.id:
            return who.id == id_
        return who.name == row.name and who.namespace in ("", row.namespace)

    def _is_barred(self, barrier: Barrier, id_: str, row: Row) -> bool:
        return row.version <= barrier.version and not any(self._is_meant(who, id_, row) for who in barrier.listed)

    def state(self) -> dict[str, tuple[str, str, Any, bool]]:
        return {id_: (row.namespace, row.name, row.payload, row.is_deleted) for id_, row in self.rows.items()}


IDS = st.sampled_from("abcd")
NAMES = st.sampled_from(["n1", "n2"])
SPACES = st.sampled_from(["s1", "s2"])
VERSIONS = st.builds(Version, st.just(1), st.integers(1, 5))
WHO = st.one_of(
    st.builds(Named, IDS, st.just(""), st.just("")),
    st.builds(Named, st.just(""), SPACES | st.just(""), NAMES),
)
PUT = st.builds(Put, st.builds(Named, IDS, SPACES, NAMES), st.fixed_dictionaries({"v": st.integers(0, 1)}), VERSIONS)
OLD = PUT.map(lambda put: Put(put.who, put.payload, Version(1, 1)))  # the ledger lets nothing older pass than was applied
DELETE = st.builds(Delete, WHO, VERSIONS)
BARRIER = st.builds(Barrier, VERSIONS, st.lists(WHO, max_size=3).map(tuple))
OPERATIONS = st.lists(st.one_of(PUT, PUT, DELETE, BARRIER), max_size=12)


@settings(max_examples=200)
@given(before=st.lists(PUT, max_size=4), operations=OPERATIONS)
def test_h36_folding_is_the_same_as_one_by_one(before: list[Put], operations: list[Operation]) -> None:
    reference, folded = Reference(), Reference()
    for one in before:
        reference.apply(one)
        folded.apply(one)
    for operation in operations:
        reference.apply(operation)
    result = fold(operations)
    untouched = Reference({id_: row for id_, row in folded.rows.items() if id_ not in result.puts})
    for left in (*result.deletes, *result.barriers):
        untouched.apply(left)
    brought = {id_: (put.who.namespace, put.who.name, put.payload, put.is_deleted) for id_, put in result.puts.items()}
    assert untouched.state() | brought == reference.state()
    versions = {id_: put.version for id_, put in result.puts.items()}
    assert versions == {id_: reference.rows[id_].version for id_ in versions}


def _document(one: Operation) -> dict[str, Any]:
    if isinstance(one, Put):
        return {"update": [policy(one.who.id, one.who.name, one.who.namespace, **one.payload)]}
    if isinstance(one, Delete):
        return {"delete": [named(one.who.id, one.who.name, one.who.namespace)]}
    return {"resync_metadata": [named(who.id, who.name, who.namespace) for who in one.listed]}


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.lists(OLD, max_size=4), sites=st.tuples(OPERATIONS, OPERATIONS))
def test_h36_the_tables_of_two_sites_hold_what_one_by_one_would_leave(
    fleet: Fleet, before: list[Put], sites: tuple[list[Operation], list[Operation]]
) -> None:
    fleet.conn.execute("TRUNCATE fleet.policy")
    references = {"h1": Reference(), "h2": Reference(), "other": Reference()}
    for one in before:
        for site, reference in references.items():
            reference.apply(one)
            fleet.write("policies", work(site, part(_document(one), one.version.generation)))
    works = []
    for site, operations in zip(("h1", "h2"), sites, strict=True):
        for operation in operations:
            references[site].apply(operation)
        works.append(work(site, *(part(_document(one), one.version.generation) for one in operations)))
    fleet.write("policies", *works)
    query = "SELECT policy_id, namespace, name, payload->'v', deleted_at IS NOT NULL FROM fleet.policy WHERE site = %s"
    for site, reference in references.items():
        found = {id_: (space, name, {"v": v}, gone) for id_, space, name, v, gone in fleet.rows(query, site)}
        assert found == reference.state()


def test_deletions_by_id_by_name_and_by_namespace_and_name(fleet: Fleet) -> None:
    fleet.send("h1", "managed-clusters", {"create": [cluster("1"), cluster("2"), cluster("3")]})
    fleet.send("h1", "managed-clusters", {"delete": [named("1"), named(name="c2", ns="c2")]}, 2)
    assert fleet.clusters() == {"1": False, "2": False, "3": True}
    both = [policy("p1", "same", "a"), policy("p2", "same", "b"), policy("p3", "third", "a")]
    for site in ("h1", "h2"):
        fleet.send(site, "policies", {"create": both})
    fleet.send("h1", "policies", {"delete": [named(name="same", ns="b"), named("p3", "other", "a")]}, 2)
    assert fleet.policies() == {"p1": True, "p2": False, "p3": False}
    assert fleet.policies("h2") == {"p1": True, "p2": True, "p3": True}


def test_an_update_and_a_delete_of_one_object_in_one_bundle_leave_the_delete(fleet: Fleet) -> None:
    fleet.send("h1", "managed-clusters", {"update": [cluster("1")], "delete": [named("1")]})
    assert fleet.clusters() == {"1": False}


def test_what_did_not_change_is_not_written(fleet: Fleet) -> None:
    everything = {"resync": [cluster(str(n)) for n in range(20)], "resync_metadata": [named(str(n)) for n in range(20)]}
    assert fleet.send("h1", "managed-clusters", everything).written == 20
    before = fleet.marks("fleet.managed_cluster")
    written = fleet.send("h1", "managed-clusters", everything, 2)
    assert (written.received, written.written) == (20, 0)
    assert fleet.marks("fleet.managed_cluster") == before
    changed = {"update": [cluster("7", note="new"), cluster("8")]}
    assert fleet.send("h1", "managed-clusters", changed, 3).written == 1
    versions = fleet.rows("SELECT generation, count(*) FROM fleet.managed_cluster GROUP BY 1 ORDER BY 1")
    assert versions == [(1, 19), (3, 1)]


def test_a_cluster_without_its_claim_is_left_out(fleet: Fleet) -> None:
    unclaimed = [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}, "status": {"clusterClaims": []}}]
    assert fleet.send("h1", "managed-clusters", {"create": [*unclaimed, cluster("1")]}).written == 1
    assert fleet.clusters() == {"1": True}


def test_compliance_follows_a_name_that_goes_over_to_another_cluster(fleet: Fleet) -> None:
    fleet.send("h1", "managed-clusters", {"create": [cluster("old", "c1"), cluster("2", "c2")]})
    fleet.send("h1", "clusters-per-policy", [lists("P1", compliant=["c1", "c2"])])
    fleet.send("h1", "managed-clusters", {"delete": [named("old")]}, 2)
    fleet.send("h1", "managed-clusters", {"create": [cluster("new", "c1")]}, 3)
    assert fleet.cluster_ids() == {("P1", "c1"): "new", ("P1", "c2"): "2"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"[1", "not JSON"),
        (b"[]", "not an object of"),
        ({"creat": []}, "not an object of"),
        ({"create": [{"metadata": {"uid": "1"}}]}, "no metadata.name"),
        ({"create": [{"metadata": {"name": "n"}}]}, "no metadata.uid"),
        ({"create": [7]}, "not a list of objects"),
        ({"delete": [{"ns": "a"}]}, "neither an id nor a name"),
        ({"resync_metadata": {"id": "1"}}, "not a list of objects"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(data: Any, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        list(POLICIES.kind.read(part(data), "policies"))


def test_many_deletions_by_name_take_time_in_proportion() -> None:
    version = Version(1, 1)
    puts = [Put(Named(f"i{n}", "s", f"n{n}"), {}, version) for n in range(5_000)]
    deletes = [Delete(Named("", "s", f"n{n}"), version) for n in range(5_000)]
    folded = fold([*puts, *deletes, Barrier(version, tuple(Named("", "s", f"n{n}") for n in range(5_000)))])
    assert all(put.is_deleted for put in folded.puts.values())
