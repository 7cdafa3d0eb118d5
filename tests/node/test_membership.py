"""Whom a node dials: a pure choice from what the store knows, and what its areas know of it afterwards."""

from __future__ import annotations

from collections import Counter

import pytest

from trunkline.core.errors import Invalid
from trunkline.core.ids import NodeId
from trunkline.node.membership import Membership, chosen
from trunkline.node.sitecore import NodeRecord
from trunkline.store.store import Store

ME = NodeId("a", "n1")


def fleet(sites: int, nodes: int = 1, **areas: str) -> dict[NodeId, NodeRecord]:
    """`areas` says of a site which further area its nodes are in."""
    ids = [NodeId(f"s{site}", f"n{node}") for site in range(sites) for node in range(nodes)]
    return {node: record(str(node), areas.get(node.site)) for node in ids}


def record(address: str, area: str | None = None) -> NodeRecord:
    return NodeRecord((f"{address}:1",), 1, areas=(area,) if area else ())


def reached(graph: dict[NodeId, set[NodeId]], start: NodeId) -> set[NodeId]:
    """From one node over links that either side dialled."""
    both: dict[NodeId, set[NodeId]] = {node: set(others) for node, others in graph.items()}
    for node, others in graph.items():
        for other in others:
            both[other].add(node)
    seen, todo = {start}, [start]
    while todo:
        new = both[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


@pytest.mark.parametrize(
    ("nodes", "sites", "most", "expected"),
    [
        ((), ("a",), 8, set()),
        (("a/n1",), ("a",), 8, set()),
        (("a/n1", "a/n2", "a/n3"), ("a",), 0, {"a/n2", "a/n3"}),
        (("a/n1", "hub/n1", "hub/n2", "c/n1"), ("a", "hub"), 0, {"hub/n1", "hub/n2"}),
        (("a/n1", "hub/n1", "c/n1"), ("a", "hub"), 1, {"hub/n1", "c/n1"}),
        (("a/n1", "b/n1", "c/n1"), ("a",), 8, {"b/n1", "c/n1"}),
    ],
)
def test_its_own_and_linked_sites_are_wanted_whole_and_of_the_others_as_many_as_it_may(
    nodes: tuple[str, ...], sites: tuple[str, ...], most: int, expected: set[str]
) -> None:
    known = {NodeId.parse(name): record(name) for name in nodes}
    assert {str(node) for node in chosen(ME, known, sites, (), most)} == expected


def test_a_node_without_an_address_is_not_dialled() -> None:
    assert chosen(ME, {NodeId("b", "n1"): NodeRecord((), 1)}, ("a",), (), 8) == set()


@pytest.mark.parametrize("size", [2, 3, 10, 100, 300])
@pytest.mark.parametrize("most", [1, 8])
def test_who_knows_the_same_nodes_is_in_one_graph_and_nobody_is_a_hot_spot(size: int, most: int) -> None:
    nodes = fleet(size)
    graph = {node: chosen(node, nodes, (node.site,), (), most) for node in nodes}
    assert all(len(others) == min(most, size - 1) for others in graph.values())
    assert reached(graph, next(iter(nodes))) == nodes.keys()
    dialled_by = Counter(other for others in graph.values() for other in others)
    assert max(dialled_by.values()) <= 3 * most + 1


def test_a_further_area_is_one_graph_of_its_own_nodes() -> None:
    inside = [f"s{n}" for n in range(0, 60, 5)]
    nodes = fleet(60, **dict.fromkeys(inside, "plant"))
    members = {node for node in nodes if node.site in inside}
    graph = {node: chosen(node, nodes, (node.site,), ("plant",), 2) & members for node in members}
    assert reached(graph, next(iter(members))) == members


def test_a_newcomer_moves_few_links() -> None:
    before, after = fleet(100), fleet(101)
    moved = sum(len(chosen(n, before, (n.site,), (), 8) - chosen(n, after, (n.site,), (), 8)) for n in before)
    assert 0 < moved <= 20


@pytest.fixture
def store() -> Store:
    return Store(ME, lambda: 0.5, areas=("plant",))


@pytest.fixture
def membership(store: Store) -> Membership:
    return Membership(ME, store, ("a",), ("plant",), 2)


def names(store: Store, area: str) -> set[str]:
    return set(store.area(area).peers.by_name)


def test_each_area_knows_the_peers_it_shares(store: Store, membership: Membership) -> None:
    b, c, n2 = NodeId("b", "n1"), NodeId("c", "n1"), NodeId("a", "n2")
    nodes = {ME: record("a/n1"), b: record("b/n1", "plant"), c: record("c/n1"), n2: record("a/n2")}
    assert membership.update(nodes, 0.0) == {b: ("b/n1:1",), c: ("c/n1:1",), n2: ("a/n2:1",)}
    assert names(store, "fleet") == {"b/n1", "c/n1", "a/n2"}
    assert names(store, "site:a") == {"a/n2"}
    assert names(store, "plant") == {"b/n1"}
    assert store.fleet.peers.by_name["b/n1"].addresses == ("b/n1:1",)


def test_who_is_gone_leaves_its_areas_at_once_or_with_its_link(store: Store, membership: Membership) -> None:
    b, c = NodeId("b", "n1"), NodeId("c", "n1")
    membership.update({b: record("b/n1"), c: record("c/n1")}, 0.0)
    store.link_up(b, 0.0)
    assert membership.update({}, 1.0) == {}
    assert names(store, "fleet") == {"b/n1"}
    store.link_down(b, 2.0)
    assert names(store, "fleet") == set()


def test_a_changed_address_keeps_the_peer(store: Store, membership: Membership) -> None:
    b = NodeId("b", "n1")
    membership.update({b: record("old")}, 0.0)
    store.link_up(b, 0.0)
    peer = store.fleet.peers.by_name["b/n1"]
    assert membership.update({b: record("new")}, 1.0) == {b: ("new:1",)}
    assert store.fleet.peers.by_name["b/n1"] is peer
    assert (peer.linked, peer.addresses) == (True, ("new:1",))


def test_a_peer_added_by_name_is_dialled_until_it_is_deleted(store: Store, membership: Membership) -> None:
    z = NodeId("z", "n9")
    membership.add("fleet", "z/n9", ["z.example.com:7400"])
    assert membership.update({}, 0.0) == {z: ("z.example.com:7400",)}
    assert names(store, "fleet") == {"z/n9"}
    membership.add("fleet", "z/n9", ["z2.example.com:7400"])
    assert membership.update({z: record("z/n9")}, 0.0) == {z: ("z2.example.com:7400",)}
    assert membership.delete("fleet", "z/n9", 1.0)
    assert not membership.delete("fleet", "z/n9", 1.0)
    assert membership.update({z: record("z/n9")}, 1.0) == {}
    assert names(store, "fleet") == set()
    membership.add("fleet", "z/n9", ["z.example.com:7400"])
    assert membership.update({z: record("z/n9")}, 1.0).keys() == {z}


def test_a_thousand_peers_added_and_deleted_leave_nothing(store: Store, membership: Membership) -> None:
    for n in range(1000):
        membership.add("fleet", f"z/n{n}", ["z.example.com:7400"])
        membership.update({}, 0.0)
        assert membership.delete("fleet", f"z/n{n}", 0.0)
        membership.update({}, 0.0)
    assert membership == Membership(ME, store, ("a",), ("plant",), 2)
    assert names(store, "fleet") == set()


@pytest.mark.parametrize(
    ("area", "name", "addresses", "why"),
    [
        ("nowhere", "b/n1", ["b:1"], "this node is not in it"),
        ("fleet", "b", ["b:1"], "it has no '/'"),
        ("fleet", "B/n1", ["b:1"], "lower-case"),
        ("fleet", "a/n1", ["b:1"], "this is the node itself"),
        ("fleet", "b/n1", [], "it has no address"),
        ("fleet", "b/n1", ["b"], "it is not <host>:<port>"),
        ("fleet", "b/n1", ["0.0.0.0:7"], "nobody can dial it"),
        ("site:a", "b/n1", ["b:1"], "it is not of site:a"),
    ],
)
def test_a_peer_that_cannot_be_one_is_refused(
    membership: Membership, area: str, name: str, addresses: list[str], why: str
) -> None:
    with pytest.raises(Invalid, match=why):
        membership.add(area, name, addresses)
    assert membership.update({}, 0.0) == {}


def test_what_the_configuration_wants_is_not_deleted_by_name(store: Store, membership: Membership) -> None:
    membership.update({NodeId("a", "n2"): record("a/n2")}, 0.0)
    with pytest.raises(Invalid, match="configuration wants it"):
        membership.delete("site:a", "a/n2", 0.0)
    assert names(store, "site:a") == {"a/n2"}
