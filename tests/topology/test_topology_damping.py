"""A link that comes and goes."""

from __future__ import annotations

import pytest
from topologies import Lone, rows_of

from trunkline.topology.damping import Damping
from trunkline.topology.effects import Manner, Move, Publish
from trunkline.topology.links import LinkRow
from trunkline.topology.pacing import Pacing

TRIANGLE = rows_of(b="x c", c="x b")


@pytest.mark.parametrize(("losses", "delay"), [(0, 0.0), (1, 2.0), (2, 4.0), (3, 8.0), (4, 16.0), (5, 30.0), (60, 30.0)])
def test_the_delay_doubles_with_every_recent_loss(losses: int, delay: float) -> None:
    damping = Damping(2.0, 30.0)
    for _ in range(losses):
        damping.lost("b", 5.0)
    assert damping.delay("b", 6.0) == delay
    assert damping.delay("c", 6.0) == 0.0


def test_losses_of_long_ago_are_forgotten() -> None:
    damping = Damping(2.0, 30.0)
    damping.lost("b", 0.0)
    assert damping.delay("b", 59.0) == 2.0
    assert damping.delay("b", 60.0) == 0.0


def test_a_link_that_returns_counts_after_it_was_stable() -> None:
    lone = Lone(TRIANGLE)
    lone.up("b", "c")
    lone.wait()
    lone.down("c")
    assert lone.vias() == {"b": "b", "c": "b"}
    lone.since()
    lone.up("c")
    lone.wait(1.9)
    assert [e for e in lone.since() if isinstance(e, Move | Publish)] == []
    view = lone.core.neighbours()[1]
    assert (view.site, view.damped_until, view.losses) == ("c", view.since + 2.0, 1)
    lone.wait(0.2)
    effects = [e for e in lone.since() if isinstance(e, Move | Publish)]
    assert effects == [Move("c", "c", Manner.GENTLE), Publish(LinkRow(1, ("b", "c")))]
    assert lone.core.neighbours()[1].damped_until is None


def test_a_damped_flap_writes_no_row_and_moves_nothing() -> None:
    lone = Lone(TRIANGLE)
    lone.up("b", "c")
    lone.wait()
    lone.down("c")
    lone.since()
    for _ in range(9):
        lone.up("c")
        lone.wait(0.5)
        lone.down("c")
        lone.wait(0.5)
    assert [e for e in lone.since() if isinstance(e, Move | Publish)] == []
    assert lone.core.counts["damped"] == 9
    assert lone.vias() == {"b": "b", "c": "b"}


def test_a_link_to_a_site_that_is_otherwise_out_of_reach_is_not_damped() -> None:
    lone = Lone(rows_of(b="x"))
    lone.up("b")
    lone.down("b")
    lone.since()
    lone.up("b")
    assert Move("b", "b", Manner.FIRST) in lone.since()
    assert lone.vias() == {"b": "b"}


def test_damping_ends_when_the_other_way_is_lost() -> None:
    lone = Lone(TRIANGLE)
    lone.up("b", "c")
    lone.wait()
    lone.down("c")
    lone.up("c")
    lone.since()
    lone.links(b="x")
    lone.wait(0.1)
    assert lone.vias() == {"b": "b", "c": "c"}


def test_computations_wait_a_little_and_under_churn_longer() -> None:
    pacing = Pacing(0.01, 0.5)
    waits = []
    now = 0.0
    for _ in range(12):
        pacing.want(now)
        assert pacing.due is not None
        waits.append(round(pacing.due - now, 6))
        now = pacing.due
        pacing.done(now)
    assert waits[:5] == [0.01] * 5
    assert waits[5:9] == [0.02, 0.04, 0.08, 0.16]
    assert max(waits) <= 0.5
    assert pacing.wait(now + 1.0) == 0.01


def test_changes_that_come_together_are_one_computation() -> None:
    lone = Lone(TRIANGLE)
    lone.up("b", "c")
    lone.wait()
    before = lone.core.counts["computed"]
    for site in "defgh":
        lone.links(**{site: "b"})
    lone.wait(0.05)
    assert lone.core.counts["computed"] == before + 1


def test_a_lost_link_waits_for_nothing() -> None:
    lone = Lone(TRIANGLE)
    lone.up("b", "c")
    lone.wait()
    for number in range(30):
        lone.links(d="b" if number % 2 else "c")
        lone.wait(0.02)
    lone.since()
    lone.down("c")
    assert Move("c", "b", Manner.FORCED) in lone.moves()
