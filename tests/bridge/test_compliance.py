"""Compliance: which bundle may make, change and delete which rows, and that it writes nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from fleet_words import Fleet, cluster, lists, part, work
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trunkline.bridge.compliancelists import fold, read
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps

STATES = ("compliant", "pending", "unknown", "non_compliant")  # from best to worst
Pairs = dict[tuple[str, str], str]


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("queues", "bridge")


@pytest.fixture
def fleet(database: str) -> Iterator[Fleet]:
    with psycopg.connect(database) as conn:
        yield Fleet(conn)


def test_clusters_per_policy_replaces_the_rows_of_its_sites_and_no_others(fleet: Fleet) -> None:
    first = [lists("P1", compliant=["c1", "c2"], unknown=["c3"]), lists("P2", pending=["c1"])]
    fleet.write("clusters-per-policy", *(work(site, part(first)) for site in ("h1", "h2", "h3")))
    second = [lists("P1", compliant=["c1"], non_compliant=["c3"]), lists("P3", compliant=["c1"])]
    written = fleet.write("clusters-per-policy", work("h1", part(second, 2)), work("h2", part([], 2)))
    assert fleet.compliance("h1") == {
        ("P1", "c1"): "compliant", ("P1", "c3"): "non_compliant", ("P3", "c1"): "compliant",
    }  # fmt: skip
    assert fleet.compliance("h2") == {}
    assert len(fleet.compliance("h3")) == 4
    assert (written["h1"].received, written["h1"].written) == (3, 4)  # c3 flips, P3 comes, c2 and P2 go
    assert (written["h2"].received, written["h2"].written) == (0, 4)


def test_a_bundle_that_says_the_same_again_writes_nothing(fleet: Fleet) -> None:
    base = [lists(f"P{n}", compliant=[f"c{m}" for m in range(30)], non_compliant=["x"], unknown=[]) for n in range(5)]
    worse = [lists(f"P{n}", non_compliant=["x", "c3"]) for n in range(5)]
    sent = [("clusters-per-policy", base), ("complete-compliance", worse)]
    first = [fleet.send("h1", type_, data).written for type_, data in sent]
    assert first == [5 * 31, 5]
    before = fleet.marks("fleet.compliance")
    assert fleet.send("h1", "complete-compliance", worse, 2).written == 0
    assert fleet.send("h1", "compliance-delta", worse, 2).written == 0
    assert fleet.marks("fleet.compliance") == before


def test_a_pair_that_is_named_twice_has_the_worse_state(fleet: Fleet) -> None:
    data = [lists("P1", compliant=["c1", "c1"], pending=["c1", "c2"]), lists("P1", unknown=["c3"], compliant=["c3"])]
    fleet.send("h1", "clusters-per-policy", data)
    assert fleet.compliance() == {("P1", "c1"): "pending", ("P1", "c2"): "pending", ("P1", "c3"): "unknown"}


def test_deltas_change_rows_that_are_there_and_the_last_counts(fleet: Fleet) -> None:
    for site in ("h1", "h2"):
        fleet.send(site, "clusters-per-policy", [lists("P1", compliant=["c1", "c2", "c3"])])
    deltas = [
        part([lists("P1", non_compliant=["c1", "c2", "nobody"])], 1),
        part([lists("P1", compliant=["c1"], unknown=["c3"]), lists("P9", unknown=["c1"])], 2),
        part([lists("P1", pending=["c3"])], 3),
    ]
    written = fleet.write("compliance-delta", work("h1", *deltas))["h1"]
    assert fleet.compliance() == {("P1", "c1"): "compliant", ("P1", "c2"): "non_compliant", ("P1", "c3"): "pending"}
    assert written.written == 2  # c1 is back where it was
    assert set(fleet.compliance("h2").values()) == {"compliant"}


def test_rows_take_the_id_of_a_cluster_that_is_known_and_keep_it(fleet: Fleet) -> None:
    fleet.send("h1", "managed-clusters", {"create": [cluster("id-1", "c1")]})
    fleet.send("h2", "managed-clusters", {"create": [cluster("id-2", "c2")]})
    fleet.send("h1", "clusters-per-policy", [lists("P1", compliant=["c1", "c2"])])
    assert fleet.cluster_ids() == {("P1", "c1"): "id-1", ("P1", "c2"): None}
    fleet.send("h1", "managed-clusters", {"delete": [{"id": "id-1"}]}, 2)
    assert fleet.send("h1", "clusters-per-policy", [lists("P1", compliant=["c1", "c2"])], 2).written == 0
    assert fleet.cluster_ids() == {("P1", "c1"): "id-1", ("P1", "c2"): None}


def test_names_arrive_as_they_were_sent(fleet: Fleet) -> None:
    odd = ["tab\there", "line\nbreak", "back\\slash", "ü", "'quote\"", "\\N", "return\r", "{a,b}"]
    fleet.send("h\\1", "clusters-per-policy", [lists("P\t1", compliant=odd)])
    assert set(fleet.compliance("h\\1")) == {("P\t1", name) for name in odd}
    fleet.send("h\\1", "complete-compliance", [lists("P\t1", unknown=odd)])
    assert set(fleet.compliance("h\\1").values()) == {"unknown"}


def test_more_than_is_written_at_once_arrives_whole(fleet: Fleet) -> None:
    sizes = {"h1": 3, "h2": 5_000, "h3": 0, "h4": 4_000, "h5": 1}
    told = {site: [lists("P1", compliant=[f"cluster-{n}" for n in range(size)])] for site, size in sizes.items()}
    written = fleet.write("clusters-per-policy", *(work(site, part(data)) for site, data in told.items()))
    assert {site: one.written for site, one in written.items()} == sizes
    assert {site: len(fleet.compliance(site)) for site in sizes} == sizes


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "not JSON"),
        ([7], "not made of objects"),
        ([{"compliantClusters": ["c"]}], "no policyId"),
        ([{"policyId": 3}], "no policyId"),
        ([{"policyId": "P", "compliantClusters": "c1"}], "compliantClusters is not a list of names"),
        ([{"policyId": "P", "nonCompliantClusters": [1]}], "nonCompliantClusters is not a list of names"),
        ([{"policyId": "P", "compliantClusters": ["a\x1fb"]}], "control character"),
        ([{"policyId": "P", "compliantClusters": ["a\x00b"]}], "NUL character"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason_and_nothing_is_written(fleet: Fleet, data: Any, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        fleet.write("clusters-per-policy", work("good", part([lists("P", compliant=["c"])])), work("bad", part(data)))
    fleet.conn.rollback()
    assert fleet.compliance("good") == {}


def _model(told: list[Any]) -> Pairs:
    """Of items that come one after the other the later counts; inside one the worse."""
    pairs: Pairs = {}
    for item in told:
        now: Pairs = {}
        for state in STATES:
            now.update({(item["policyId"], name): state for name in item.get(KEYS[state], [])})
        pairs.update(now)
    return pairs


KEYS = dict(
    zip(
        STATES,
        ("compliantClusters", "pendingComplianceClusters", "unknownComplianceClusters", "nonCompliantClusters"),
        strict=True,
    )
)
CLUSTERS = st.lists(st.sampled_from(["c1", "c2", "c3", "c4"]), max_size=4)
ITEM = st.fixed_dictionaries({"policyId": st.sampled_from(["P1", "P2", "P3"])}, optional=dict.fromkeys(KEYS.values(), CLUSTERS))
BUNDLE = st.lists(ITEM, max_size=4)


@given(bundle=BUNDLE, more=st.lists(BUNDLE, max_size=3))
def test_lists_say_each_pair_once_as_the_model_has_it(bundle: list[Any], more: list[list[Any]]) -> None:
    def pairs(told: list[tuple[str, str, list[str]]]) -> list[tuple[tuple[str, str], str]]:
        return sorted(((policy, name), state) for policy, state, names in told for name in names)

    assert pairs(read(dumps(bundle), "x").lists) == sorted(_model(bundle).items())
    folded = fold([dumps(one) for one in (bundle, *more)], "x").lists
    assert pairs(folded) == sorted(_model([item for one in (bundle, *more) for item in one]).items())


STEP = st.tuples(
    st.sampled_from(["clusters-per-policy", "complete-compliance", "compliance-delta"]), st.sampled_from(["h1", "h2"]), BUNDLE
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=6))
def test_any_sequence_leaves_what_the_model_has_and_counts_what_it_wrote(fleet: Fleet, steps: list[Any]) -> None:
    fleet.conn.execute("TRUNCATE fleet.compliance")
    model: dict[str, Pairs] = {"h1": {}, "h2": {}}
    for type_, site, bundle in steps:
        told, before = _model(bundle), model[site]
        if type_ == "clusters-per-policy":
            after = told
        elif type_ == "complete-compliance":
            after = {pair: told.get(pair, "compliant") for pair in before}
        else:
            after = {pair: told.get(pair, state) for pair, state in before.items()}
        written = fleet.send(site, type_, bundle)
        model[site] = after
        assert fleet.compliance(site) == after
        changed = sum(before.get(pair) != after.get(pair) for pair in before.keys() | after.keys())
        assert (written.received, written.written) == (len(told), changed)
    assert {site: fleet.compliance(site) for site in model} == model
