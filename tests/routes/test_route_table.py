"""The routing table: the design document's use cases, and each invariant under its number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.routes.canonical import content_hash
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.shared import Effects, End, PluginKey, SharedPlugins, plugins_of
from trunkline.routes.storage.base import Listed, Scan
from trunkline.routes.table import NOTHING, Kind, Known, Plan, Table

TENANT = Tenant("myorg", "myapp")
A, B, C = (RouteKey(TENANT, id) for id in "abc")
REST = "it is inactive"


def table_of(**routes: str) -> Table:
    """Ids with the hashes they use, each at a revision of its own: 1, 2 ..."""
    table = Table()
    for revision, (id, hash) in enumerate(routes.items(), 1):
        table.settle(RouteKey(TENANT, id), Known(hash, revision))
    return table


def scan_of(revision: int, *routes: tuple[RouteKey, str, int]) -> Scan:
    return Scan(revision, [Listed(*route) for route in routes], {})


USE_CASES = {
    "remove: the id does not exist": ({}, A, None, Plan(), "", {}),
    "remove: one of two": ({"a": "h", "b": "h"}, A, None, Plan(), "", {"h": 1}),
    "remove: the last": ({"a": "h"}, A, None, Plan(stop="h"), "h", {}),
    "add: neither id nor hash exists": ({}, A, "h", Plan(uses="h", start="h"), "", {"h": 1}),
    "add: the id exists with the same hash": ({"a": "h"}, A, "h", Plan(uses="h"), "", {"h": 1}),
    "add: the hash exists under another id": ({"b": "h"}, A, "h", Plan(uses="h"), "", {"h": 2}),
    "update: to a new hash": ({"a": "h"}, A, "i", Plan(uses="i", start="i", instead_of="h"), "h", {"i": 1}),
    "update: others keep the old hash": ({"a": "h", "b": "h"}, A, "i", Plan(uses="i", start="i"), "", {"h": 1, "i": 1}),
    "update: to a hash that exists": ({"a": "h", "b": "i"}, A, "i", Plan(uses="i", stop="h"), "h", {"i": 2}),
    "update: both hashes are shared": ({"a": "h", "b": "h", "c": "i"}, A, "i", Plan(uses="i"), "", {"h": 1, "i": 2}),
}


@pytest.mark.parametrize("case", USE_CASES)
def test_the_use_cases_of_the_design_document(case: str) -> None:
    before, key, hash, plan, unused, live = USE_CASES[case]
    table = table_of(**before)
    wanted = Known(hash, 9) if hash else None
    assert table.plan(key, wanted) == plan
    assert table.settle(key, wanted) == unused
    assert table.live == live
    assert table.ids.get(key) == wanted


def test_t1_ids_that_share_a_hash_part_and_meet_again() -> None:
    table = table_of(a="h", b="h")
    assert table.settle(A, Known("i", 3)) == ""
    assert table.live == {"h": 1, "i": 1}
    assert table.plan(B, Known("i", 4)) == Plan(uses="i", stop="h")
    assert table.settle(B, Known("i", 4)) == "h"
    assert table.settle(A, Known("h", 5)) == ""
    assert table.live == {"i": 1, "h": 1}
    assert table.settle(B, Known("h", 6)) == "i"
    assert table.live == {"h": 2}


def test_t2_what_does_not_start_is_refused_and_the_id_keeps_what_it_has() -> None:
    table = table_of(a="h")
    table.refuse(A, Known("i", 5), "the broker is away")
    assert table.ids[A] == Known("h", 1)
    assert table.live == {"h": 1}
    assert (table.refused[A].revision, table.refused[A].reason) == (5, "the broker is away")


def test_t2_what_was_refused_is_planned_again_and_forgotten_when_it_is_settled_or_removed() -> None:
    table = table_of(a="h", b="h")
    for key in (A, B):
        table.refuse(key, Known("i", 5), "no")
        assert table.plan(key, Known("i", 5)).start == "i"
    table.settle(A, Known("i", 5))
    table.settle(B, None)
    assert table.refused == {}


@pytest.mark.parametrize("revision", [1, 2, 4, 5])
def test_t3_what_is_not_newer_changes_nothing(revision: int) -> None:
    table = Table()
    table.settle(A, Known("h", 5))
    assert table.plan(A, Known("i" if revision < 5 else "h", revision)) == NOTHING


def test_t3_what_is_older_than_a_removal_or_a_refusal_changes_nothing() -> None:
    table = Table()
    table.settle(A, Known("h", 5))
    table.settle(A, None)
    table.refuse(B, Known("h", 5), "no")
    assert table.plan(A, Known("h", 5)) == NOTHING
    assert table.plan(B, Known("g", 4)) == NOTHING
    assert table.plan(A, Known("h", 7)) == Plan(uses="h", start="h")


def test_t3_a_removal_that_is_heard_of_again_and_again_keeps_its_revision() -> None:
    table = Table()
    table.settle(A, Known("h", 5))
    for _ in range(5):
        table.settle(A, None)
    assert table.gone[A].revision == 6
    assert table.plan(A, Known("h", 7)).start == "h"


def test_t4_a_route_that_rests_is_known_and_not_live() -> None:
    table = table_of(a="h")
    assert table.plan(A, Known("i", 2, REST)) == Plan(stop="h")
    assert table.settle(A, Known("i", 2, REST)) == "h"
    assert (table.ids[A], table.live) == (Known("i", 2, REST), {})
    assert table.plan(A, Known("h", 3)) == Plan(uses="h", start="h")
    assert table.settle(A, Known("h", 3)) == ""
    assert table.live == {"h": 1}


def test_t4_removing_a_route_that_rests_stops_nothing() -> None:
    table = Table()
    table.settle(A, Known("h", 1, REST))
    assert table.plan(A, None) == Plan()
    assert table.settle(A, None) == ""


def test_a_reload_builds_the_live_route_anew_once_for_all_ids_of_it() -> None:
    table = table_of(a="h", b="h")
    assert table.plan(A, Known("h", 3, reloaded="r1")) == Plan(uses="h", start="h", instead_of="h")
    assert table.settle(A, Known("h", 3, reloaded="r1")) == ""
    assert table.plan(B, Known("h", 3, reloaded="r1")) == Plan(uses="h")
    assert table.settle(B, Known("h", 3, reloaded="r1")) == ""
    assert table.live == {"h": 2}
    assert table.plan(B, Known("h", 4, reloaded="r2")).start == "h"


def test_t5_a_scan_shows_what_is_missing_extra_and_different() -> None:
    table = table_of(a="h", b="h")
    number = table.begin_scan()
    assert table.differences(scan_of(9, (B, "i", 8), (C, "h", 9)), number) == {
        A: Kind.EXTRA,
        B: Kind.DIFFERENT,
        C: Kind.MISSING,
    }


def test_t5_a_scan_that_is_as_the_table_shows_nothing_whether_routes_rest_or_not() -> None:
    table = table_of(a="h")
    table.settle(B, Known("i", 2, REST))
    assert table.differences(scan_of(2, (A, "h", 1), (B, "i", 2)), table.begin_scan()) == {}


def test_t5_what_was_refused_is_wrong_until_it_runs_or_is_not_stored_any_more() -> None:
    table = table_of(a="h")
    table.refuse(A, Known("i", 3), "no")
    table.refuse(B, Known("i", 4), "no")
    number = table.begin_scan()
    assert table.differences(scan_of(4, (A, "i", 3), (B, "i", 4)), number) == {A: Kind.DIFFERENT, B: Kind.MISSING}
    assert table.differences(scan_of(5, (A, "i", 3)), number) == {A: Kind.DIFFERENT, B: Kind.EXTRA}


def test_h40_a_scan_neither_kills_what_was_added_nor_resurrects_what_was_removed_since_it_was_made() -> None:
    table = table_of(a="h", b="h")
    number = table.begin_scan()
    scan = scan_of(2, (A, "h", 1), (B, "h", 2))
    table.settle(A, None)
    table.settle(B, Known("i", 4))
    table.settle(C, Known("h", 5))
    assert table.differences(scan, number) == {}


def test_h40_a_removal_is_remembered_until_a_scan_that_began_after_it_is_done() -> None:
    table = table_of(a="h")
    before = table.begin_scan()
    table.settle(A, None)
    table.end_scan(before)
    assert A in table.gone
    after = table.begin_scan()
    assert table.differences(scan_of(7, (A, "h", 7)), after) == {A: Kind.MISSING}
    table.end_scan(after)
    assert table.gone == {}


STEPS = st.lists(st.tuples(st.sampled_from([A, B, C]), st.none() | st.sampled_from("hij"), st.booleans()), max_size=30)


@given(STEPS)
def test_t1_counts_are_those_of_the_ids_whatever_happens(steps: list[tuple[RouteKey, str | None, bool]]) -> None:
    """And what is started and stopped along the plans is what is live."""
    table, running = Table(), set[str]()
    for revision, (key, hash, rests) in enumerate(steps, 1):
        wanted = Known(hash, revision, REST if rests else "") if hash else None
        plan = table.plan(key, wanted)
        assert plan.start not in running
        running |= {plan.start} - {""}
        unused = table.settle(key, wanted)
        assert unused == (plan.instead_of or plan.stop)
        running -= {unused}
        used = [known.hash for known in table.ids.values() if not known.rests]
        assert table.live == {hash: used.count(hash) for hash in used}
        assert running == set(used)


def plugin(end: End, name: str, plugin: str = "debug", tenant: Tenant = TENANT, config: str = "c") -> PluginKey:
    return PluginKey(end, tenant, plugin, name, config)


RA, RB, SA, SB = (plugin(end, name) for end in (End.RECEIVER, End.SENDER) for name in "AB")


def test_p1_what_makes_a_plugin_another_one() -> None:
    config = {"rounds": 5}
    body = {"receiver": {"plugin": "debug", "config": config}, "sender": {"plugin": "debug", "config": config}}
    sender, receiver = plugins_of(TENANT, body, content_hash)
    others = [
        plugins_of(Tenant("myorg", "other"), body, content_hash)[1],
        plugins_of(TENANT, {**body, "receiver": {**body["receiver"], "name": "mine"}}, content_hash)[1],
        plugins_of(TENANT, {**body, "receiver": {**body["receiver"], "plugin": "nop"}}, content_hash)[1],
        plugins_of(TENANT, {**body, "receiver": {**body["receiver"], "config": {"rounds": 6}}}, content_hash)[1],
    ]
    assert len({sender, receiver, *others}) == 6
    assert plugins_of(TENANT, {**body, "name": "another route"}, content_hash) == [sender, receiver]


def test_p2_plugins_start_with_the_first_and_stop_with_the_last() -> None:
    plugins = SharedPlugins()
    assert plugins.join([SA, RA]) == [SA, RA]
    assert plugins.join([SB, RA]) == [SB]
    assert plugins.join([SB, RB]) == [RB]
    assert dict(plugins.users) == {SA: 1, SB: 2, RA: 2, RB: 1}
    assert plugins.leave([SB, RA]) == []
    assert plugins.leave([SB, RB]) == [RB, SB]
    assert plugins.leave([SA, RA]) == [RA, SA]
    assert dict(plugins.users) == {}


def test_p2_who_takes_over_keeps_what_both_use() -> None:
    plugins = SharedPlugins()
    plugins.join([SA, RA])
    assert plugins.swap([SA, RA], [SA, RA]) == Effects([], [])
    assert plugins.swap([SA, RA], [SB, RA]) == Effects([SB], [SA])
    assert dict(plugins.users) == {SB: 1, RA: 1}
