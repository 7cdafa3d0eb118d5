"""The words of the bridge: a person who reads them knows what is the matter, why, and what happens next."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.bridge.explain import next_steps, notes
from trunkline.bridge.types import BundleType, Match, Missing, Types
from trunkline.core.bundle import Mode
from trunkline.core.span import about


def declared(name: str, mode: Mode = Mode.COMPLETE, base: str | None = None, match: Match = Match.EXACT) -> BundleType:
    return BundleType(name, 0, base, mode, f"t.{name}", ("id",), (("id", "text"),), Missing.GONE, match)


TYPES = Types(
    [
        declared("base"),
        declared("judged", base="base"),
        declared("loose", base="base", match=Match.AT_LEAST),
        declared("delta", Mode.DELTA, "judged"),
    ]
)
WISH = {"holds": None, "reason": "it never came", "asks": 2, "age_seconds": 80.0, "asked_seconds": 20.0}


def part(type_: str, **changed: Any) -> dict[str, Any]:
    nothing = {"version": None, "waiting": 0, "next": None, "quarantined": None, "resync": None}
    return {"type": type_, **nothing, **changed}


def head(needs: str | None = "12.6", has: str | None = "12.5", **changed: Any) -> dict[str, Any]:
    told = {
        "version": "12.3",
        "parked": True,
        "held": False,
        "base": "base",
        "needs": needs,
        "has": has,
        "waiting_seconds": 4.0,
    }
    return told | changed


def aside(mode: str = "complete", **changed: Any) -> dict[str, Any]:
    told = {"id": 7, "entries": 1, "reason": "no column name", "age_seconds": 200.0, "version": "12.3", "mode": mode}
    return told | changed


def site(*types: dict[str, Any], state: str = "active") -> dict[str, Any]:
    return {"site": "paris", "state": state, "last_seen": "2030-01-02T00:00:00", "silence_seconds": 7200.0, "types": types}


def words(*types: dict[str, Any], **changed: Any) -> list[str]:
    return [note["words"] for note in notes(TYPES, site(*types, **changed))]


def test_nothing_is_said_of_a_site_that_is_well() -> None:
    assert words(part("base", version="12.5"), part("judged", waiting=1, next=head(parked=False))) == []


def test_a_parked_bundle_says_what_it_was_made_for_what_is_there_and_what_was_asked() -> None:
    first, second = words(part("judged", waiting=1, next=head()), part("base", resync=WISH))
    assert first == (
        "judged 12.3 waits: it was made for base 12.6, but 12.5 is applied; it goes on when that comes. "
        "A resync was asked for 2 times, last 20 s ago"
    )
    assert second == "all of base is wanted anew since 80 s: it never came. A resync was asked for 2 times, last 20 s ago"


@pytest.mark.parametrize(
    ("type_", "needs", "has", "why"),
    [
        ("judged", "12.6", None, "it was made for base 12.6, but none is applied yet"),
        ("judged", "0.6", "12.5", "it was made for base 6, but 5 is applied"),
        ("loose", "12.6", "12.5", "it needs base 12.6 or newer, but 12.5 is applied"),
        ("unknown", "12.6", "12.5", "it was made for base 12.6, but 12.5 is applied"),
    ],
)
def test_a_dependency_is_told_as_its_type_means_it(type_: str, needs: str, has: str | None, why: str) -> None:
    assert words(part(type_, waiting=1, next=head(needs, has))) == [f"{type_} 12.3 waits: {why}; it goes on when that comes"]


def test_a_held_delta_says_that_what_is_before_it_is_lost_and_how_many_wait_behind_it() -> None:
    assert words(part("delta", waiting=15, next=head(held=True))) == [
        "delta 12.3 waits, and 14 more behind it: one before it is lost, so that it cannot be right; "
        "it goes on when the resync has come"
    ]


def test_what_is_ready_is_spoken_of_only_when_it_waits_for_long() -> None:
    assert words(part("base", waiting=1, next=head(parked=False, waiting_seconds=29.0))) == []
    assert words(part("base", waiting=1, next=head(parked=False, waiting_seconds=300.0))) == [
        "base 12.3 waits for 5 min: nothing is in its way but a database worker that is free"
    ]


def test_a_resync_that_was_not_asked_for_yet_says_so_and_what_waits_for_it() -> None:
    wish = WISH | {"asks": 0, "asked_seconds": None, "holds": "delta"}
    assert words(part("judged", resync=wish)) == [
        "all of judged is wanted anew since 80 s: it never came; delta waits for it. A resync is wanted, and not asked for yet"
    ]
    once = words(part("judged", resync=WISH | {"asks": 1}))
    assert once[0].endswith("A resync was asked for once, last 20 s ago")


@pytest.mark.parametrize(
    ("type_", "mode", "version", "until"),
    [
        ("base", "complete", "12.2", "12.2 stays visible until a newer one comes"),
        ("base", "complete", None, "Nothing of it is visible"),
        ("events", "append", "12.2", "Its rows are missing until it is tried again; all others are there"),
        (
            "delta",
            "delta",
            "12.2",
            "It changes rows, so what follows it waits until all of it has come anew, which is asked for",
        ),
    ],
)
def test_a_quarantined_bundle_says_what_is_wrong_since_when_and_what_that_means(
    type_: str, mode: str, version: str | None, until: str
) -> None:
    assert words(part(type_, version=version, quarantined=aside(mode))) == [
        f"{type_} 12.3 was set aside 3 min ago: no column name. {until}; see `trunkline bridge quarantine show 7`"
    ]


def test_what_was_no_bundle_at_all_is_a_message() -> None:
    (told,) = words(part("", quarantined=aside("", version=None, entries=3)))
    assert told.startswith("a message that is no bundle (and 2 more) was set aside")


def test_a_silent_site_s_rows_are_hidden_and_come_back() -> None:
    assert words(state="silent") == [
        "nothing was heard since 2030-01-02T00:00:00 (2 h ago): it is silent, and its rows are hidden, not deleted; "
        "they come back with its next bundle"
    ]


@pytest.mark.parametrize(
    ("type_", "mode", "state", "first", "steps"),
    [
        ("base", "complete", "open", "once its cause is gone, try it again: trunkline bridge quarantine retry 7", 3),
        ("events", "append", "open", "once its cause is gone, try it again: trunkline bridge quarantine retry 7", 2),
        ("delta", "delta", "open", "nothing: what follows it waits until all of it has come anew", 2),
        ("", "", "open", "correct what sends it", 2),
        ("base", "complete", "cleared", "nothing: it is cleared", 1),
    ],
)
def test_the_next_steps_are_those_that_work(type_: str, mode: str, state: str, first: str, steps: int) -> None:
    found = next_steps({"id": 7, "site": "paris", "type": type_, "mode": mode, "state": state})
    assert found[0].startswith(first)
    assert len(found) == steps


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0 s"), (-5, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200000, "2 d")]
)
def test_a_span_is_told_in_the_largest_unit_of_which_there_are_two(seconds: float, told: str) -> None:
    assert about(seconds) == told
