"""Who of the fleet a node dials, and which peers its areas know by name. Pure.

1. All nodes of its own site and of the sites it exchanges records with. Seeds are dialled too, elsewhere: they have no name.
2. Of the others at most `most`. All nodes, put in the order of a hash of their names, form a ring, and each dials its
   successor; so whoever knows the same nodes is in one connected graph. The same holds for the nodes of each further area,
   whose keys pass through its own nodes only. What is left goes to those nearest by a hash of both names: every node is
   chosen by about as many as it chooses, and one that comes or goes moves few links.
3. Those that were added by name, whoever they are, and none that was deleted by name, until it is added again.
4. A peer that is no longer dialled leaves its areas at once if it has no link, and with its link otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from trunkline.core.address import check_dialled
from trunkline.core.errors import Invalid
from trunkline.core.ids import NodeId
from trunkline.node.sitecore import NodeRecord
from trunkline.store.store import FLEET, Store, site_area

Addresses = tuple[str, ...]


def chosen(
    me: NodeId, nodes: Mapping[NodeId, NodeRecord], sites: Collection[str], areas: Sequence[str], most: int
) -> set[NodeId]:
    """`sites`: of which all nodes are wanted. `areas`: the further ones this node is in."""
    others = {node for node in nodes if node != me and nodes[node].addresses}
    near = {node for node in others if node.site in sites}
    far: dict[NodeId, None] = {}
    for node in _by_need(me, others, nodes, areas):
        if len(far) >= most:
            break
        if node not in near:
            far[node] = None
    return near | far.keys()


def _by_need(me: NodeId, others: set[NodeId], nodes: Mapping[NodeId, NodeRecord], areas: Sequence[str]) -> Iterator[NodeId]:
    rings = [others, *({node for node in others if area in nodes[node].areas} for area in areas)]
    yield from (_successor(me, ring) for ring in rings if ring)
    shared = set().union(*rings[1:])
    yield from sorted(others, key=lambda node: (node not in shared, _hash(me, node)))


def _successor(me: NodeId, ring: set[NodeId]) -> NodeId:
    own = _hash(me)
    placed = ((_hash(node), node) for node in ring)
    return min((place < own, place, node) for place, node in placed)[2]


def _hash(*nodes: NodeId) -> bytes:
    return blake2b(" ".join(map(str, nodes)).encode(), digest_size=8).digest()


@dataclass
class Membership:
    me: NodeId
    store: Store
    sites: Collection[str]
    areas: tuple[str, ...]
    most: int
    _added: dict[tuple[str, NodeId], Addresses] = field(default_factory=dict)
    _deleted: set[tuple[str, NodeId]] = field(default_factory=set)
    _known: set[tuple[str, NodeId]] = field(default_factory=set)

    # -- wishes

    def add(self, area: str, name: str, addresses: Sequence[str]) -> None:
        self.store.area(area)
        node = NodeId.parse(name)
        if node == self.me:
            raise Invalid(f"peer {name}", "this is the node itself", "name another one")
        if area.startswith("site:") and area != site_area(node.site):
            raise Invalid(f"peer {name}", f"it is not of {area}", f"add it to {FLEET}")
        if not addresses:
            raise Invalid(f"peer {name}", "it has no address", "give at least one, like hub.example.com:7400")
        self._added[area, node] = tuple(check_dialled(address) for address in addresses)
        self._deleted.discard((area, node))

    def delete(self, area: str, name: str, now: float) -> bool:
        node = NodeId.parse(name)
        if (area, node) in self._known - self._added.keys() and node.site in self.sites:
            next_step = f"take {node.site} out of link.links or link.follows first"
            raise Invalid(f"peer {name}", "this node's configuration wants it", next_step)
        was_there = self.store.area(area).delete_peer(name, now)
        self._added.pop((area, node), None)
        self._known.discard((area, node))
        if was_there:
            self._deleted.add((area, node))
        return was_there

    # -- what follows from them

    def update(self, nodes: Mapping[NodeId, NodeRecord], now: float) -> dict[NodeId, Addresses]:
        """Whom to dial now; the areas know them as their peers from here on."""
        peers = {
            (area, node): nodes[node].addresses
            for node in chosen(self.me, nodes, self.sites, self.areas, self.most)
            for area in self._areas_with(node, nodes[node])
            if (area, node) not in self._deleted
        }
        peers |= self._added
        for area, node in self._known - peers.keys():
            self._let_go(area, node, now)
        for (area, node), addresses in peers.items():
            self.store.area(area).add_peer(str(node), now, addresses)
        self._known = set(peers)
        self._deleted = {(area, node) for area, node in self._deleted if node in nodes}
        dialled: dict[NodeId, Addresses] = {}
        for (_, node), addresses in peers.items():
            dialled[node] = tuple(dict.fromkeys((*addresses, *dialled.get(node, ()))))
        return dialled

    def _areas_with(self, node: NodeId, record: NodeRecord) -> Iterable[str]:
        yield FLEET
        if node.site == self.me.site:
            yield site_area(node.site)
        yield from (area for area in self.areas if area in record.areas)

    def _let_go(self, area: str, node: NodeId, now: float) -> None:
        peer = self.store.area(area).peers.by_name.get(str(node))
        if peer is not None and peer.linked:
            peer.kept = False
        elif peer is not None:
            self.store.area(area).delete_peer(str(node), now)
