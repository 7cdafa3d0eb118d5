"""The bundle envelope: what goes out comes back, and what is wrong is refused by `Invalid` and nothing else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.bundle import LARGEST, Bundle, Dependency, Mode, Version, parse_bundle
from trunkline.core.errors import Invalid

names = st.from_regex(r"[a-z0-9]([a-z0-9_.-]{0,20}[a-z0-9])?", fullmatch=True)
versions = st.builds(Version, st.integers(0, LARGEST), st.integers(0, LARGEST))
bundles = st.builds(
    Bundle,
    id=st.text(min_size=1, max_size=20),
    source=names,
    type=names,
    time=st.sampled_from(["", "2031-05-01T12:00:00Z"]),
    mode=st.sampled_from(Mode),
    version=versions,
    dependency=st.none() | st.builds(Dependency, names, versions),
    data=st.binary(max_size=20),
)

GOOD = {
    "ce_specversion": "1.0",
    "ce_id": "1",
    "ce_source": "leaf",
    "ce_type": "events",
    "ce_time": "2031-05-01T12:00:00Z",
    "ce_mode": "append",
    "ce_incarnation": "17",
    "ce_generation": "4",
}


@given(bundles)
def test_a_bundle_survives_its_headers(bundle: Bundle) -> None:
    assert parse_bundle(bundle.headers(), bundle.data, bundle.source) == bundle


def test_the_headers_are_cloudevents_attributes() -> None:
    bundle = Bundle(
        id="1", source="leaf", type="events", time=GOOD["ce_time"], mode=Mode.APPEND, version=Version(17, 4)
    )  # fmt: skip
    assert bundle.headers() == GOOD


@pytest.mark.parametrize("name", ["ce_id", "ce_source", "ce_type", "ce_mode", "ce_incarnation", "ce_generation"])
def test_a_missing_or_empty_attribute_is_named(name: str) -> None:
    without = {key: value for key, value in GOOD.items() if key != name}
    for headers in (without, {**without, name: ""}):
        with pytest.raises(Invalid, match=name):
            parse_bundle(headers, b"", "leaf")


def test_all_missing_attributes_are_named_at_once() -> None:
    with pytest.raises(Invalid, match="ce_id, ce_source, ce_type, ce_mode, ce_incarnation, ce_generation"):
        parse_bundle({}, b"", "leaf")


def test_nobody_speaks_for_another_site() -> None:
    with pytest.raises(Invalid, match="not its sender 'other'"):
        parse_bundle(GOOD, b"", "other")


@pytest.mark.parametrize(
    "wrong",
    [
        {"ce_mode": "replace"},
        {"ce_type": "Not A Name"},
        {"ce_incarnation": "-1"},
        {"ce_incarnation": "1.5"},
        {"ce_generation": "x"},
        {"ce_generation": "²"},
        {"ce_generation": str(LARGEST + 1)},
        {"ce_incarnation": "9" * 5000},
        {"ce_dependency": "events"},
        {"ce_dependency": "events@1"},
        {"ce_dependency": "@1.2"},
        {"ce_dependency": "Events@1.2"},
    ],
)
def test_a_wrong_attribute_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        parse_bundle({**GOOD, **wrong}, b"", "leaf")


@given(st.dictionaries(st.sampled_from([*GOOD, "ce_dependency"]), st.text(max_size=8)))
def test_nothing_but_invalid_is_ever_raised(changed: dict[str, str]) -> None:
    with suppress(Invalid):
        assert parse_bundle({**GOOD, **changed}, b"", "leaf").source == "leaf"


def test_versions_are_ordered_by_incarnation_then_generation() -> None:
    ordered = [Version(0, 0), Version(0, 10), Version(1, 0), Version(1, 2), Version(1, 10), Version(2, 1), Version(10, 0)]
    backward = ordered[::-1]
    assert sorted(backward) == ordered


@given(versions, versions)
def test_the_order_of_versions_is_that_of_their_numbers(one: Version, other: Version) -> None:
    numbers = ((v.incarnation, v.generation) for v in (one, other))
    first, second = numbers
    assert (one < other) is (first < second)


@given(versions)
def test_a_version_survives_its_text(version: Version) -> None:
    assert Version.parse(str(version)) == version


@given(names, versions)
def test_a_dependency_survives_its_text(kind: str, version: Version) -> None:
    assert Dependency.parse(str(Dependency(kind, version))) == Dependency(kind, version)
