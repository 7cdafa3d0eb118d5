"""A made-up fleet: the same from the same seed, and bundles that a hub accepts and understands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.bridge.load import Made, Scale, SiteLoad, estimate
from trunkline.bridge.loadpayloads import LISTS, PAYLOADS
from trunkline.bridge.shipped import SHIPPED
from trunkline.core.bundle import Bundle, Mode, parse_bundle
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads

SCALE = Scale(sites=3, clusters=12, policies=4, types=tuple(SHIPPED), changed=0.1, growth=1, seed=7)


def whole(made: Made) -> Bundle:
    """As the hub puts it together."""
    first = made.messages[0]
    data = b"".join(one.data for one in made.messages)
    return parse_bundle({k: v for k, v in first.headers().items() if k != "ce_chunk"}, data, first.source)


def turns(scale: Scale, number: int, count: int, part_bytes: int = 1 << 20) -> list[list[Bundle]]:
    load = SiteLoad(scale, number, SHIPPED, 5, part_bytes)
    return [[whole(made) for made in load.turn(1000.0 * (turn + 1))] for turn in range(count)]


def of(bundles: Iterable[Bundle], type_: str) -> list[Any]:
    return [loads(bundle.data) for bundle in bundles if bundle.type == type_]


def test_every_shipped_type_has_a_load() -> None:
    assert set(PAYLOADS) == set(SHIPPED)
    assert {bundle.type for bundle in turns(SCALE, 0, 1)[0]} == set(SHIPPED)


@given(st.integers(0, 10**6), st.integers(0, 2))
@settings(max_examples=10)
def test_the_same_seed_gives_the_same_bundles_and_another_gives_others(seed: int, site: int) -> None:
    scale = replace(SCALE, seed=seed)
    assert turns(scale, site, 3) == turns(scale, site, 3)
    assert turns(scale, site, 3) != turns(replace(scale, seed=seed + 1), site, 3)
    assert turns(scale, site, 1) != turns(scale, (site + 1) % 3, 1)


@given(st.integers(1, 30), st.integers(0, 6), st.floats(0, 1), st.integers(0, 3))
@settings(max_examples=25)
def test_a_hub_accepts_all_bundles_in_the_order_they_come(clusters: int, policies: int, changed: float, growth: int) -> None:
    ledger: dict[str, Bundle] = {}
    scale = replace(SCALE, clusters=clusters, policies=policies, changed=changed, growth=growth)
    for bundle in (one for turn in turns(scale, 1, 3) for one in turn):
        assert SHIPPED.accept(bundle) is bundle
        assert bundle.source == "load-2"
        before = ledger.get(bundle.type)
        assert before is None or before.version < bundle.version or bundle.mode is Mode.HYBRID
        if bundle.dependency is not None:
            assert ledger[bundle.dependency.type].named == bundle.dependency.version
        ledger[bundle.type] = bundle


def test_rows_of_the_demonstration_are_as_declared_and_change_by_the_share() -> None:
    scale = replace(SCALE, clusters=100, growth=0)
    first, second = turns(scale, 0, 2)
    for type_, count in (("clusters", 100), ("compliance", 400)):
        before, after = (
            SHIPPED[type_].rows(bundle.data) for turn in (first, second) for bundle in turn if bundle.type == type_
        )
        assert len(before) == len(after) == count
        differing = sum(one != other for one, other in zip(before, after, strict=True))
        assert count * 0.1 <= differing <= count * 0.1 + 1


def test_changes_of_managed_clusters_bring_the_hub_to_what_the_site_has() -> None:
    all_turns = turns(SCALE, 0, 4)
    has: dict[str, Any] = {}
    for document in (document for turn in all_turns for document in of(turn, "managed-clusters")):
        for one in [*document.get("resync", []), *document.get("update", [])]:
            has[one["metadata"]["name"]] = one["status"]["conditions"][0]["status"]
        if "resync_metadata" in document:
            assert {one["name"] for one in document["resync_metadata"]} == set(has)
    [rows] = of(all_turns[-1], "clusters")
    assert has == {row["name"]: "True" if row["health"] == "ok" else "False" for row in rows}
    assert len(has) == 12 + 3


def test_the_three_compliance_types_tell_one_story() -> None:
    for turn in turns(SCALE, 0, 3):
        [full], [part], [delta], [rows] = (
            of(turn, type_) for type_ in ("clusters-per-policy", "complete-compliance", "compliance-delta", "compliance")
        )
        states = {(one["policyId"], name): kind for one in full for kind in LISTS for name in one[kind]}
        assert len(states) == len(rows)
        bad = {(one["policyId"], name): kind for one in part for kind in LISTS[1:] for name in one[kind]}
        assert bad == {pair: kind for pair, kind in states.items() if kind != LISTS[0]}
        changes = {(one["policyId"], name): kind for one in delta for kind in LISTS for name in one[kind]}
        assert changes.keys() <= states.keys()
        assert all(states[pair] != kind for pair, kind in changes.items())
        total = sum(row["state"] == "compliant" for row in rows)
        assert total == sum(kind == LISTS[0] for kind in (states | changes).values())


def test_large_bundles_come_in_parts() -> None:
    load = SiteLoad(SCALE, 0, SHIPPED, 5, part_bytes=500)
    made = list(load.turn(1000.0))
    assert all(len(message.data) <= 500 for one in made for message in one.messages)
    assert any(len(one.messages) > 2 for one in made)
    assert len([one for one in made if one.messages[0].type == "managed-clusters"]) > 2
    assert {one.type for one in map(whole, made)} == set(SHIPPED)


def test_the_estimate_is_what_a_site_sends() -> None:
    found = estimate(SCALE, SHIPPED)
    load = SiteLoad(SCALE, 1, SHIPPED, 5)
    first, later = list(load.turn(1.0)), list(load.turn(2.0))
    assert found.first.bundles == len(first)
    assert found.first.changed == sum(one.changed for one in first)
    assert found.later.rows == pytest.approx(sum(one.rows for one in later), rel=0.2)
    assert found.first.bytes == pytest.approx(sum(one.bytes for one in first), rel=0.05)


def test_types_without_their_base_and_unknown_types_are_refused() -> None:
    with pytest.raises(Invalid, match="add clusters to the types"):
        replace(SCALE, types=("compliance",)).check(SHIPPED)
    with pytest.raises(Invalid, match="there is no load of it"):
        replace(SCALE, types=("unheard-of",)).check(SHIPPED)
    assert replace(SCALE, types=("clusters", "compliance")).check(SHIPPED).types == ("clusters", "compliance")
