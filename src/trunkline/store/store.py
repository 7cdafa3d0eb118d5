"""All areas of one node, over one link per peer.

`fleet` spans all nodes; `site:<id>` the nodes of one site, and nobody else's messages reach it; others are joined by
configuration. A key never crosses from one area to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trunkline.core.errors import Invalid, RemoteProtocolError
from trunkline.core.ids import NodeId
from trunkline.store.area import Area
from trunkline.store.messages import Message, Publish, Question, Refused, Send
from trunkline.store.settings import Settings

FLEET = "fleet"
_SITE = "site:"


def site_area(site: str) -> str:
    return _SITE + site


def _is_open_to(area: str, node: NodeId) -> bool:
    return not area.startswith(_SITE) or area == site_area(node.site)


class Store:
    def __init__(
        self,
        node: NodeId,
        random: Callable[[], float],
        settings: Settings | None = None,
        areas: Iterable[str] = (),
        noted: tuple[str, ...] = (),
    ) -> None:
        names = dict.fromkeys((FLEET, site_area(node.site), *areas))
        for name in names:
            if not _is_open_to(name, node):
                raise Invalid(f"area {name!r}", f"it is another site's, and {node} is not of it", "join areas of other names")
        self.areas = {name: Area(str(node), name, random, settings, noted if name == FLEET else ()) for name in names}

    @property
    def fleet(self) -> Area:
        return self.areas[FLEET]

    def area(self, name: str) -> Area:
        found = self.areas.get(name)
        if found is None:
            raise Invalid(f"area {name!r}", "this node is not in it", f"ask for one of {', '.join(sorted(self.areas))}")
        return found

    @property
    def synced(self) -> bool:
        """Every area was in step, once; one without peers always is."""
        return all(area.synced for area in self.areas.values())

    def peers_known(self, now: float) -> None:
        for area in self.areas.values():
            area.peers_known(now)

    def link_up(self, peer: NodeId, now: float) -> list[Send]:
        return [send for area in self._shared_with(peer) for send in area.link_up(str(peer), now)]

    def link_down(self, peer: NodeId, now: float) -> list[Send]:
        return [send for area in self.areas.values() for send in area.link_down(str(peer), now)]

    def not_sent(self, peer: NodeId, message: Message, now: float) -> None:
        if message.area in self.areas:
            self.areas[message.area].not_sent(str(peer), message, now)

    def has_room(self, peer: NodeId, now: float) -> list[Send]:
        return [send for area in self._shared_with(peer) for send in area.has_room(str(peer), now)]

    def receive(self, peer: NodeId, message: Message, now: float) -> list[Send]:
        area = self.areas.get(message.area)
        if not _is_open_to(message.area, peer):
            raise RemoteProtocolError("store message", f"{peer} is not of area {message.area[:80]}", "run an unmodified node")
        if area is not None:
            return area.receive(str(peer), message, now)
        if isinstance(message, Question):
            return [Send(str(peer), Refused(message.area, message.id, "this node is not in that area"))]
        if isinstance(message, Publish):
            raise RemoteProtocolError("publication", f"area {message.area[:80]!r} is not ours", "sync before you publish")
        return []

    def tick(self, now: float) -> list[Send]:
        return [send for area in self.areas.values() for send in area.tick(now)]

    def _shared_with(self, peer: NodeId) -> Iterable[Area]:
        return (area for name, area in self.areas.items() if _is_open_to(name, peer))
