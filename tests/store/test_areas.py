"""Areas: a key never crosses from one to another, and a site's area is closed to the nodes of other sites."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from trunkline.core.errors import Invalid, RemoteProtocolError
from trunkline.core.ids import NodeId
from trunkline.store.messages import CODEC, AskKeys, AskLeaves, AskRoot, Message, Publish, Refused, Same, Send
from trunkline.store.peers import PeerState
from trunkline.store.settings import Settings
from trunkline.store.store import Store, site_area
from trunkline.store.values import sealed

SETTINGS = Settings(first_backoff=0.1, longest_backoff=4.0, answer_seconds=2.0, sync_seconds=3.0)


class Stores:
    """Whole stores of several nodes; what they say arrives at once, through the codec."""

    def __init__(self, **areas: tuple[str, ...]) -> None:
        self.now = 100.0
        self.stores: dict[NodeId, Store] = {}
        for name, joined in areas.items():
            node = NodeId.parse(name.replace("_", "/"))
            self.stores[node] = Store(node, Random(name).random, SETTINGS, joined)

    def __getitem__(self, name: str) -> Store:
        return self.stores[NodeId.parse(name)]

    def link(self, a: str, b: str) -> None:
        one, other = NodeId.parse(a), NodeId.parse(b)
        self.say(one, self.stores[one].link_up(other, self.now))
        self.say(other, self.stores[other].link_up(one, self.now))

    def say(self, sender: NodeId, sends: list[Send]) -> None:
        todo = deque((sender, send) for send in sends)
        while todo:
            origin, send = todo.popleft()
            receiver = NodeId.parse(send.peer)
            told = self.stores[receiver].receive(origin, CODEC.decode(CODEC.encode(send.message)), self.now)
            todo.extend((receiver, reply) for reply in told)

    def put(self, name: str, area: str, key: str) -> None:
        values = {key: sealed(key, 1, name, b"x", 60_000)}
        self.say(NodeId.parse(name), self[name].area(area).put(values, self.now)[0])

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            self.now += 0.1
            for node, store in self.stores.items():
                self.say(node, store.tick(self.now))

    def holders(self, key: str) -> set[tuple[str, str]]:
        return {
            (str(node), name)
            for node, store in self.stores.items()
            for name, area in store.areas.items()
            if area.get(key, self.now) is not None
        }


def state(store: Store, area: str, peer: str) -> PeerState:
    return store.areas[area].peers.by_name[peer].state


# -- 31


def test_s31_a_key_stays_in_its_area() -> None:
    stores = Stores(a_n=("pod",), b_n=("pod", "plane"), c_n=("plane",))
    stores.link("a/n", "b/n")
    stores.link("b/n", "c/n")
    stores.put("a/n", "pod", "early")
    stores.run(1.0)
    stores.put("a/n", "pod", "k")
    stores.put("c/n", "plane", "p")
    stores.run(20.0)  # comparisons included
    assert stores.holders("k") == {("a/n", "pod"), ("b/n", "pod")}
    assert stores.holders("early") == {("a/n", "pod"), ("b/n", "pod")}
    assert stores.holders("p") == {("b/n", "plane"), ("c/n", "plane")}


def test_s31_an_area_that_is_not_known_is_an_error_for_its_user() -> None:
    with pytest.raises(Invalid, match=r"this node is not in it.*ask for one of fleet, pod, site:a"):
        Stores(a_n=("pod",))["a/n"].area("plane")


def test_s31_a_sync_in_an_unknown_area_is_an_error_and_the_peer_is_not_in_step() -> None:
    stores = Stores(a_n=("pod",), b_n=())
    stores.link("a/n", "b/n")
    stores.run(10.0)
    peer = stores["a/n"].area("pod").peers.by_name["b/n"]
    assert peer.state is PeerState.IDLE
    assert peer.reason == "it refuses: this node is not in that area"
    assert peer.backoff.failures >= 3
    assert stores["a/n"].area("pod").counters["full_syncs_ok"] == 0
    assert state(stores["a/n"], "fleet", "b/n") is PeerState.INITIALIZED  # the others do not notice
    stores.put("a/n", "pod", "k")
    stores.run(10.0)
    assert stores.holders("k") == {("a/n", "pod")}


@pytest.mark.parametrize("question", [AskRoot("plane", 7, 1), AskLeaves("plane", 7, (1,)), AskKeys("plane", 7, (1,), {})])
def test_s31_every_question_in_an_unknown_area_is_refused(question: Message) -> None:
    (send,) = Stores(a_n=())["a/n"].receive(NodeId("b", "n"), question, 100.0)
    assert send == Send("b/n", Refused("plane", 7, "this node is not in that area"))


def test_s31_a_publication_in_an_unknown_area_is_the_peers_fault_and_an_answer_has_no_effect() -> None:
    store, peer = Stores(a_n=())["a/n"], NodeId("b", "n")
    publication = Publish("plane", {"k": sealed("k", 1, "b/n", b"x", 60_000)}, ("b/n",))
    with pytest.raises(RemoteProtocolError, match="'plane' is not ours"):
        store.receive(peer, publication, 100.0)
    assert store.receive(peer, Same("plane", 1), 100.0) == []
    store.not_sent(peer, publication, 100.0)
    assert all(len(area.table) == 0 for area in store.areas.values())


def test_s31_the_area_of_a_site_reaches_its_nodes_and_no_others() -> None:
    stores = Stores(a_1=(), a_2=(), b_1=())
    stores.link("a/1", "a/2")
    stores.link("a/2", "b/1")
    stores.link("a/1", "b/1")
    stores.put("a/1", "site:a", "secret")
    stores.put("a/1", "fleet", "hint")
    stores.run(10.0)
    assert stores.holders("secret") == {("a/1", "site:a"), ("a/2", "site:a")}
    assert stores.holders("hint") == {(node, "fleet") for node in ("a/1", "a/2", "b/1")}
    assert set(stores["a/2"].area("site:a").peers.by_name) == {"a/1"}
    assert set(stores["b/1"].area("site:b").peers.by_name) == set()


@pytest.mark.parametrize(
    "message",
    [
        AskRoot("site:a", 1, 1),
        Same("site:a", 1),
        Publish("site:a", {"k": sealed("k", 1, "b/1", b"x", 60_000)}, ("b/1",)),
    ],
)
def test_s31_a_node_of_another_site_that_speaks_in_a_sites_area_breaks_the_protocol(message: Message) -> None:
    store = Stores(a_1=())["a/1"]
    with pytest.raises(RemoteProtocolError, match="b/1 is not of area site:a"):
        store.receive(NodeId("b", "1"), message, 100.0)
    assert len(store.area("site:a").table) == 0
    (answered,) = store.receive(NodeId("a", "2"), AskRoot("site:a", 1, 1), 100.0)
    assert answered.peer == "a/2"


def test_nobody_joins_the_area_of_another_site_by_configuration() -> None:
    with pytest.raises(Invalid, match="site:b"):
        Store(NodeId("a", "1"), Random(1).random, SETTINGS, areas=("site:b",))


# -- the store as a whole


def test_s29_a_store_is_synced_when_all_its_areas_are_and_one_without_peers_is() -> None:
    stores = Stores(a_1=("pod",), b_1=("pod",))
    store, peer = stores["a/1"], NodeId("b", "1")
    store.fleet.add_peer("b/1", stores.now)
    store.area("pod").add_peer("b/1", stores.now)
    store.peers_known(stores.now)
    assert [name for name, area in store.areas.items() if area.synced] == [site_area("a")]
    assert not store.synced
    questions = store.link_up(peer, stores.now)
    stores.say(NodeId("a", "1"), questions[:1])
    assert not store.synced
    stores.say(NodeId("a", "1"), questions[1:])
    assert store.synced


def test_links_go_down_and_up_in_all_areas_of_both() -> None:
    stores = Stores(a_1=("pod",), a_2=("pod",))
    stores.link("a/1", "a/2")
    store = stores["a/1"]
    assert {name: state(store, name, "a/2") for name in store.areas} == dict.fromkeys(
        ("fleet", "site:a", "pod"), PeerState.INITIALIZED
    )
    assert store.link_down(NodeId("a", "2"), stores.now) == []
    assert all(len(area.peers) == 0 for area in store.areas.values())


def test_a_full_link_is_full_for_all_areas_until_it_has_room() -> None:
    stores = Stores(a_1=("pod",), a_2=("pod",))
    stores.link("a/1", "a/2")
    store, peer = stores["a/1"], NodeId("a", "2")
    for name in ("fleet", "pod"):
        sends, _ = store.area(name).put({"k": sealed("k", 1, "a/1", b"x", 60_000)}, stores.now)
        store.not_sent(peer, sends[0].message, stores.now)
    told = store.has_room(peer, stores.now)
    assert [(send.message.area, type(send.message)) for send in told] == [("fleet", Publish), ("pod", Publish)]
