"""Two nodes of one site and a neighbour, without I/O: who speaks for the site, and which incarnation counts."""

from __future__ import annotations

from collections import deque

import pytest

from trunkline.core.errors import RemoteProtocolError
from trunkline.core.ids import START, NodeId
from trunkline.node.sitecore import HIGHEST_INCARNATION, Effect, Frame, SiteCore

N1, N2, HUB = NodeId("a", "n1"), NodeId("a", "n2"), NodeId("hub", "n1")


class Cores:
    """Cores joined by links that lose nothing; `settle` carries messages until there are none."""

    def __init__(self, *ids: NodeId) -> None:
        self.at = {node: SiteCore(node, (str(node),), lambda: 0.5) for node in ids}
        self.now = 0.0
        self._frames: deque[tuple[NodeId, Frame]] = deque()
        for node, core in self.at.items():
            self.do(node, core.begin(0.0))

    def do(self, node: NodeId, effects: list[Effect]) -> None:
        self._frames += [(node, effect) for effect in effects if isinstance(effect, Frame)]

    def link(self, one: NodeId, two: NodeId, carries: bool) -> None:
        self.do(one, self.at[one].link_up(two, carries, self.now))
        self.do(two, self.at[two].link_up(one, carries, self.now))

    def settle(self, most: int = 200) -> int:
        for carried in range(most):
            if not self._frames:
                return carried
            sender, frame = self._frames.popleft()
            effects = self.at[frame.peer].message(sender, frame.channel, frame.body, self.now)
            self.do(frame.peer, effects)
        raise AssertionError(f"still talking after {most} messages")

    def lead(self, node: NodeId, epoch: int) -> None:
        self.do(node, self.at[node].lead(epoch, f"log-{node.site}", START, self.now))


@pytest.fixture
def cores() -> Cores:
    cores = Cores(N1, N2, HUB)
    cores.lead(N1, 5)
    cores.lead(HUB, 3)
    cores.link(N1, N2, carries=False)
    cores.link(N2, HUB, carries=False)
    cores.link(N1, HUB, carries=True)
    cores.settle()
    return cores


def incarnations(cores: Cores) -> list[int]:
    rows = [core.link_row("a") for core in cores.at.values()]
    return [row.incarnation for row in rows if row is not None]


def test_after_a_change_of_leaders_the_row_is_the_new_one_s_and_nobody_fights_over_it(cores: Cores) -> None:
    assert incarnations(cores) == [5, 5, 5]
    cores.at[N1].step_down()
    cores.lead(N2, 6)
    cores.settle()
    assert incarnations(cores) == [6, 6, 6]


def test_h02_a_leader_that_finds_a_higher_incarnation_of_its_site_in_the_store_knows_what_to_raise_above(cores: Cores) -> None:
    assert cores.at[N1].outdone_by(5) == 0
    cores.at[N1].step_down()
    cores.lead(N2, 9)
    cores.at[N2].step_down()
    cores.settle()
    cores.lead(N1, 6)  # as after a restore: the database forgot 9
    cores.settle()
    assert cores.at[N1].outdone_by(6) == 9
    cores.at[N1].step_down()
    cores.lead(N1, 10)
    cores.settle()
    assert cores.at[N1].outdone_by(10) == 0
    assert incarnations(cores) == [10, 10, 10]


def test_h02_the_highest_incarnation_ever_told_is_what_a_peer_hears_of_itself(cores: Cores) -> None:
    hub = cores.at[HUB]
    assert hub.known_incarnation("a") == 5
    hub.heard_of("a", 8)
    hub.heard_of("a", 2)
    assert hub.known_incarnation("a") == 8
    assert hub.known_incarnation("never-seen") == 0


def test_h02_an_incarnation_that_cannot_be_raised_above_is_refused(cores: Cores) -> None:
    with pytest.raises(RemoteProtocolError, match="no site is at incarnation"):
        cores.at[N1].heard_of("a", HIGHEST_INCARNATION + 1)
    assert cores.at[N1].outdone_by(5) == 0


def test_only_the_link_between_leaders_is_a_neighbour_s(cores: Cores) -> None:
    assert cores.at[HUB].neighbours() == ("a",)
    assert cores.at[HUB].carries_with(N1)
    assert not cores.at[HUB].carries_with(N2)
    assert cores.at[N2].neighbours() == ()
