"""Two nodes of one site and a neighbour, without I/O: who speaks for the site, and which incarnation counts."""

from __future__ import annotations

from collections import deque

import msgspec
import pytest

from trunkline.core.errors import RemoteProtocolError
from trunkline.core.ids import START, NodeId
from trunkline.node.sitecore import HIGHEST_INCARNATION, NODE_RECORDS, Effect, Frame, NodeRecord, SiteCore
from trunkline.store.settings import Settings

N1, N2, HUB = NodeId("a", "n1"), NodeId("a", "n2"), NodeId("hub", "n1")


class Cores:
    """Cores joined by links that lose nothing."""

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

    def settle(self, most: int = 400) -> None:
        """Ticks for two seconds, and carries every message; the last second is silent."""
        carried = 0
        for tick in range(40):
            self.now += 0.05
            for node, core in self.at.items():
                self.do(node, core.tick(self.now))
            while self._frames:
                assert tick < 20, "they still talk"
                assert carried < most, "they talk too much"
                carried += 1
                sender, frame = self._frames.popleft()
                self.do(frame.peer, self.at[frame.peer].message(sender, frame.channel, frame.body, self.now))

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
    cores.settle()
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


# -- the store under it


def starting(settings: Settings) -> SiteCore:
    core = SiteCore(HUB, ("hub:1",), lambda: 0.5, settings)
    core.lead(1, "log-hub", START, 10.0)
    core.link_up(N1, True, 10.0)
    return core


def asked(core: SiteCore) -> set[str]:
    """The neighbours that were asked for their own records."""
    return {site for site, link in core.topology.table.links.items() if link.asked}


def test_topology_waits_for_the_store(cores: Cores) -> None:
    hub = SiteCore(HUB, ("hub:1",), lambda: 0.5, Settings(synced_seconds=2.0))
    cores.at[HUB] = hub
    cores.at[N1].link_down(HUB, cores.now)
    cores.at[N2].link_down(HUB, cores.now)
    cores.do(HUB, hub.lead(4, "log-hub", START, cores.now))
    assert hub.link_row("hub") is None
    hub.tick(cores.now + 1.9)
    assert not hub.store.fleet.synced
    assert asked(hub) == set()
    cores.link(N1, HUB, carries=True)
    cores.settle()
    assert hub.store.fleet.synced
    assert asked(hub) == {"a"}
    assert hub.link_row("hub") is not None


def test_a_node_that_meets_nobody_counts_as_synced_after_a_while() -> None:
    core = SiteCore(HUB, ("hub:1",), lambda: 0.5, Settings(synced_seconds=2.0))
    core.lead(1, "log-hub", START, 10.0)
    core.tick(11.9)
    core.tick(11.95)
    assert core.link_row("hub") is None
    core.tick(12.0)
    core.tick(12.1)
    assert core.link_row("hub") is not None


def test_a_peer_that_syncs_for_ever_does_not_hold_topology_up() -> None:
    core = starting(Settings(synced_seconds=2.0, link_seconds=1.0, answer_seconds=4.0))
    core.store.fleet.peers.by_name["a/n1"].sync.deadline = 1e9  # type: ignore[union-attr]
    core.tick(14.9)
    assert asked(core) == set()
    core.tick(15.0)
    assert not core.store.fleet.synced
    assert asked(core) == {"a"}


def test_a_publication_that_a_link_did_not_take_is_sent_when_it_has_room(cores: Cores) -> None:
    hub, area = cores.at[HUB], cores.at[HUB].store.fleet
    sends, refused = area.write("app", b"1", 60_000, cores.now)
    frames = [effect for effect in hub.written(sends, cores.now) if isinstance(effect, Frame)]
    assert (refused, {frame.peer for frame in frames}) == (None, {N1, N2})
    for frame in frames:
        hub.not_sent(frame.peer, frame.body, cores.now)
    assert hub.written(area.write("app", b"2", 60_000, cores.now)[0], cores.now) == []
    for peer in (N1, N2):
        cores.do(HUB, hub.has_room(peer, cores.now))
    cores.settle()
    assert [(value.version, value.data) for core in cores.at.values() if (value := core.store.fleet.get("app", cores.now))] == [
        (2, b"2")
    ] * 3


def test_a_node_says_where_its_api_is_and_which_areas_it_is_in() -> None:
    core = SiteCore(HUB, ("hub:1",), lambda: 0.5, areas=("plant",))
    core.begin(1.0)
    assert core.nodes()[HUB] == NodeRecord(("hub:1",), 0, areas=("plant",))
    core.api = "hub:8400"
    core.begin(2.0)
    assert core.nodes()[HUB].api == "hub:8400"


def test_a_record_of_an_earlier_version_is_still_read() -> None:
    earlier = msgspec.msgpack.encode({"addresses": ["a:1"], "incarnation": 3, "capabilities": ["store"]})
    assert NODE_RECORDS.decode(earlier) == NodeRecord(("a:1",), 3)
