from __future__ import annotations

import pytest
from bridge_hub import GROUP, Hub

from trunkline.bridge.plan import Plan, commit_plan, open_plan, same_offsets
from trunkline.core.errors import Fenced, Terminal


def test_h29_the_plan_a_dead_holder_committed_is_there_for_the_next(hub: Hub) -> None:
    commit_plan(hub.conn, hub.grant, GROUP, {"q": 3}, {"q": 9, "new": 4})
    hub.take_over()
    plan = open_plan(hub.connect(), GROUP)
    assert plan == Plan({"q": 3}, {"q": 9, "new": 4}, hub.grant.epoch)
    assert plan.rows() == 6 + 3
    assert plan.ranges() == {"q": range(3, 9), "new": range(1, 4)}


def test_h01_a_past_holder_commits_no_plan(hub: Hub) -> None:
    hub.take_over()
    with pytest.raises(Fenced):
        commit_plan(hub.conn, hub.grant, GROUP, {}, {"q": 2})
    assert open_plan(hub.conn, GROUP) is None


def test_one_plan_is_open_per_group_and_the_last_one_counts(hub: Hub) -> None:
    commit_plan(hub.conn, hub.grant, GROUP, {}, {"q": 2})
    commit_plan(hub.conn, hub.grant, GROUP, {}, {"q": 5})
    commit_plan(hub.conn, hub.grant, "other", {}, {"q": 7})
    assert open_plan(hub.conn, GROUP) == Plan({}, {"q": 5}, hub.grant.epoch)


@pytest.mark.parametrize(("start", "end"), [({"q": 5}, {"q": 4}), ({"q": 5}, {}), ({"q": 2, "r": 2}, {"q": 9, "r": 1})])
def test_h28_no_plan_goes_backward(hub: Hub, start: dict[str, int], end: dict[str, int]) -> None:
    with pytest.raises(Terminal, match="goes backward"):
        commit_plan(hub.conn, hub.grant, GROUP, start, end)
    assert open_plan(hub.conn, GROUP) is None


def test_a_queue_that_is_not_named_stands_at_its_first_position() -> None:
    assert same_offsets({}, {"q": 1})
    assert not same_offsets({}, {"q": 2})
    assert not same_offsets({"q": 2}, {"q": 2, "r": 3})
