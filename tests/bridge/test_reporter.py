"""What a reporter sends, and under which version: without a transport."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.bridge.reporter import Changes, Composer, Known, Last, chunked, identity, next_incarnation
from trunkline.bridge.shipped import SHIPPED
from trunkline.core.bundle import Bundle, Dependency, Mode, Version, parse_bundle
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads

NOW = 1_800_000_000.0
COMPOSER = Composer("berlin", SHIPPED, full_seconds=100.0, part_bytes=200)
BASE = Last(Version(7, 3), "x", NOW)


def cluster(name: str) -> dict[str, Any]:
    claims = [{"name": "id.k8s.io", "value": f"id-{name}"}]
    return {"metadata": {"name": name, "namespace": name, "uid": f"u-{name}"}, "status": {"clusterClaims": claims}}


def sent(type_: str, content: Any, known: Known, now: float = NOW, force: bool = False) -> tuple[list[Bundle], Last]:
    outgoing = COMPOSER.compose(type_, content, known, now, force)
    assert outgoing is not None
    return list(outgoing.bundles), outgoing.last


def test_h02_an_incarnation_is_above_the_one_before_and_never_below_the_unix_time() -> None:
    assert next_incarnation(None, 1000.9) == 1000
    assert next_incarnation(1000, 1000.5) == 1001
    assert next_incarnation(5000, 1000.0) == 5001


def test_a_complete_bundle_is_sent_when_it_has_changed_or_is_too_old_or_of_another_run() -> None:
    [bundle], last = sent("clusters", [{"name": "c"}], Known(7))
    assert (bundle.version, bundle.mode, bundle.source, bundle.dependency) == (Version(7, 1), Mode.COMPLETE, "berlin", None)
    assert loads(bundle.data) == [{"name": "c"}]
    again = lambda content, now, incarnation=7, force=False: COMPOSER.compose(  # noqa: E731
        "clusters", content, Known(incarnation, last), now, force
    )
    assert again([{"name": "c"}], NOW + 99) is None
    for outgoing in (
        again([{"name": "d"}], NOW),
        again([{"name": "c"}], NOW + 100),
        again([{"name": "c"}], NOW, force=True),
    ):
        assert outgoing is not None
        assert outgoing.version == Version(7, 2)
    other_run = again([{"name": "c"}], NOW, incarnation=8)
    assert other_run is not None
    assert other_run.version == Version(8, 2)


def test_a_dependent_names_the_base_that_was_sent_last_and_needs_one() -> None:
    [bundle], _ = sent("compliance", [], Known(7, None, BASE))
    assert bundle.dependency == Dependency("clusters", Version(7, 3))
    with pytest.raises(Invalid, match="no clusters was sent yet"):
        COMPOSER.compose("compliance", [], Known(7), NOW)


def test_one_that_matches_its_base_exactly_is_sent_again_after_the_base_another_is_not() -> None:
    newer = Last(Version(7, 4), "x", NOW)
    for type_, follows in (("complete-compliance", True), ("compliance", False)):
        _, last = sent(type_, [], Known(7, None, BASE))
        assert (COMPOSER.compose(type_, [], Known(7, last, newer), NOW) is not None) is follows


def test_deltas_changes_and_events_are_sent_whenever_there_are_any() -> None:
    own = Last(Version(7, 9), "", NOW)
    for type_, some, none in (
        ("compliance-delta", [{"policyId": "p"}], []),
        ("managed-clusters", Changes(create=[cluster("a")], delete=[identity(cluster("b"))]), Changes()),
        ("cluster-events", [{"eventName": "e"}], []),
    ):
        for _ in range(2):
            [bundle], last = sent(type_, some, Known(7, own, BASE))
            assert (bundle.version, bundle.mode, last.digest) == (Version(7, 10), SHIPPED[type_].mode, "")
            assert SHIPPED.accept(bundle) is bundle
        assert COMPOSER.compose(type_, none, Known(7, own, BASE), NOW) is None


def test_hybrid_changes_have_the_form_of_their_type_and_nothing_else_is_taken() -> None:
    [bundle], _ = sent("managed-clusters", Changes(update=[cluster("a")], delete=[identity(cluster("b"))]), Known(7))
    assert loads(bundle.data) == {"update": [cluster("a")], "delete": [{"id": "id-b", "ns": "b", "name": "b"}]}
    with pytest.raises(Invalid, match="report changes"):
        COMPOSER.compose("managed-clusters", [cluster("a")], Known(7), NOW)
    with pytest.raises(Invalid, match="report rows"):
        COMPOSER.compose("clusters", Changes(), Known(7), NOW)


def test_a_resync_is_all_objects_in_parts_and_then_the_list_of_them_under_one_generation() -> None:
    objects = [cluster(name) for name in "abcd"]
    outgoing = Composer("berlin", SHIPPED, part_bytes=300).restore(
        "managed-clusters", objects, Known(7, Last(Version(7, 4), "", 0)), NOW
    )
    assert {bundle.version for bundle in outgoing.bundles} == {Version(7, 5)}
    assert len({bundle.id for bundle in outgoing.bundles}) == len(outgoing.bundles) == 3
    *parts, listed = [loads(bundle.data) for bundle in outgoing.bundles]
    assert [one for part in parts for one in part["resync"]] == objects
    assert listed == {"resync_metadata": [identity(one) for one in objects]}
    empty = COMPOSER.restore("managed-clusters", [], Known(7), NOW)
    assert [loads(bundle.data) for bundle in empty.bundles] == [{"resync_metadata": []}]


def test_a_restored_complete_type_is_sent_though_nothing_changed_and_others_cannot_be_restored() -> None:
    _, last = sent("clusters", [], Known(7))
    assert COMPOSER.restore("clusters", [], Known(7, last), NOW).version == Version(7, 2)
    for type_ in ("compliance-delta", "cluster-events"):
        with pytest.raises(Invalid, match="resync of"):
            COMPOSER.restore(type_, [], Known(7), NOW)


def test_a_request_is_answered_with_bases_first_and_what_must_match_them_exactly() -> None:
    assert COMPOSER.to_send(["compliance-delta"]) == ("complete-compliance",)
    assert COMPOSER.to_send(["clusters-per-policy"]) == ("clusters-per-policy", "complete-compliance")
    assert COMPOSER.to_send(["compliance", "clusters", "cluster-events", "unheard-of"]) == ("clusters", "compliance")


@given(st.binary(min_size=1, max_size=2000), st.integers(1, 700))
def test_parts_of_a_payload_are_the_payload(data: bytes, most: int) -> None:
    bundle = Bundle(id="b", source="berlin", type="clusters", time="", mode=Mode.COMPLETE, version=Version(7, 1), data=data)
    parts = [parse_bundle(part.headers(), part.data, "berlin") for part in chunked(bundle, most)]
    assert b"".join(part.data for part in parts) == data
    assert all(len(part.data) <= most for part in parts)
    assert {part.version for part in parts} == {Version(7, 1)}
    if len(data) > most:
        ends = [part.chunk.end for part in parts if part.chunk]
        assert ends == sorted(ends)
        assert ends[-1] == len(data)
        assert {part.chunk.size for part in parts if part.chunk} == {len(data)}
    else:
        assert parts == [bundle]


@given(st.lists(st.tuples(st.sampled_from(["report", "restart", "late", "force"]), st.integers(0, 2)), max_size=30))
def test_no_version_is_ever_sent_with_two_contents_and_the_newest_is_always_known(steps: list[tuple[str, int]]) -> None:
    """The model: a hub that keeps the newest version it was sent has what the site has."""
    incarnation, last, now, seen, newest = 1, None, NOW, dict[Version, bytes](), Version(0, 0)
    for step, content in steps:
        incarnation += step == "restart"
        now += 200 if step == "late" else 1
        outgoing = COMPOSER.compose("clusters", [content], Known(incarnation, last), now, step == "force")
        if outgoing is not None:
            [bundle], last = list(outgoing.bundles), outgoing.last
            assert bundle.version not in seen
            assert bundle.version > newest
            seen[bundle.version], newest = bundle.data, bundle.version
        assert loads(seen[newest]) == [content]
