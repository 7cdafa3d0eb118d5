"""What a node shows of its paths and of what it carries is what the API's description promises, and what its core has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel
from scenarios import Fleet, direct, rows

from trunkline.api import topologymodels as models
from trunkline.core.ids import NodeId
from trunkline.node import paths
from trunkline.node.sitecore import SiteCore

CHAIN = direct("ab", "bc") | rows("(A,C,B,2)(C,A,B,2)")
NO_LINKS: Any = SimpleNamespace(endpoint=SimpleNamespace(links=dict))


def fits(model: type[BaseModel], shown: dict[str, Any]) -> bool:
    return model.model_validate(shown, strict=True).model_dump(by_alias=True) == shown


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    """a — b — c, where a has written 30 records."""
    fleet = Fleet("ab bc").up(CHAIN)
    fleet.write("a", 30)
    fleet.until(fleet.delivered)
    fleet.run(3.0)
    return fleet


def core_of(fleet: Fleet, site: str) -> tuple[SiteCore, float]:
    return fleet.universe.sites[site].core, fleet.net.hosts[site].clock.monotonic()


def test_topology_has_neighbours_rows_and_moves(fleet: Fleet) -> None:
    core, now = core_of(fleet, "c")
    shown = paths.topology(core, now)
    assert fits(models.TopologyShown, shown)
    assert (shown["site"], shown["leads"], shown["incarnation"]) == ("c", True, core.incarnation)
    assert [(one["site"], one["hears"], one["cost"], one["damped_seconds"]) for one in shown["neighbours"]] == [
        ("b", True, 1, 0.0)
    ]
    assert [(row["source"], row["via"], row["depth"], row["path"], row["flags"]) for row in shown["rows"]] == [
        ("a", "b", 2, ["b", "a"], []),
        ("b", "b", 1, ["b"], []),
    ]
    assert all(0.0 < row["since_seconds"] <= now for row in shown["rows"])
    assert shown["moves"] == {"first": 2, "forced": 0, "voluntary": 0, "watchdog": 0}


def test_the_table_at_any_site_is_that_of_all_and_names_who_published_nothing(fleet: Fleet) -> None:
    for site in "abc":
        shown = paths.table(*core_of(fleet, site))
        assert fits(models.TableShown, shown)
        assert {(row["subscriber"], row["source"], row["via"], row["depth"]) for row in shown["rows"]} == CHAIN
        assert (shown["sites"], shown["missing"]) == (["a", "b", "c"], [])


def test_why_has_the_choice_the_reason_and_the_candidates(fleet: Fleet) -> None:
    core, now = core_of(fleet, "c")
    shown = paths.why(core, "a", now)
    assert shown is not None
    assert fits(models.WhyShown, shown)
    assert (shown["row"]["via"], shown["manner"]) == ("b", "first")
    assert shown["reason"]
    assert [(one["via"], one["chosen"], one["chain"], one["cursor"]) for one in shown["candidates"]] == [("b", True, True, 30)]


def test_why_of_this_site_and_of_one_that_nobody_told_of_is_nothing(fleet: Fleet) -> None:
    core, now = core_of(fleet, "c")
    assert paths.why(core, "c", now) is None
    assert paths.why(core, "atlantis", now) is None


def test_trunk_counts_what_came_and_says_how_far_it_is(fleet: Fleet) -> None:
    core, _ = core_of(fleet, "b")
    shown = paths.trunk(core, NO_LINKS)
    assert shown["links"]["a"]["received"] == shown["links"]["c"]["relayed"] == 30
    assert [(s["origin"], s["from"], s["cursor"], s["head"], s["lag"]) for s in shown["streams"] if s["origin"] == "a"] == [
        ("a", "a", 30, 30, 0)
    ]
    assert ("a", "c", 30) in [(child["origin"], child["site"], child["sent"]) for child in shown["children"]]
    for site in "abc":
        assert fits(models.TrunkShown, paths.trunk(core_of(fleet, site)[0], NO_LINKS))


def test_a_node_that_does_not_lead_has_neither_rows_nor_streams() -> None:
    core = SiteCore(NodeId("paris", "node-1"), (), lambda: 0.5)
    shown = paths.topology(core, 0.0)
    assert fits(models.TopologyShown, shown)
    assert (shown["leads"], shown["neighbours"], shown["rows"]) == (False, [], [])
    carried = paths.trunk(core, NO_LINKS)
    assert fits(models.TrunkShown, carried)
    assert (carried["leads"], carried["links"], carried["streams"], carried["children"]) == (False, {}, [], [])
