"""Frames out over the links, and what happens when a link takes no more.

1. A link whose TRUNK, SIGNAL or TOPOLOGY queue is full is closed: a peer that takes so little is no use, and nothing is lost
   silently. Over the next link the trunk asks again, and the topology tells all its rows, not what has changed.
2. A frame that the STORE queue of a link does not take is told to the core, and one task per such link waits until there is
   room again. It ends with its link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from trunkline.core.clock import Clock
from trunkline.core.ids import NodeId
from trunkline.net.channels import Channel
from trunkline.net.link import Link
from trunkline.node.sitecore import Effect, Frame, SiteCore
from trunkline.node.supervise import Supervisor

ENOUGH_ROOM = 1024 * 1024  # a few of the store's largest messages, so that a link does not fill again with the first

Links = Callable[[], Mapping[NodeId, Link]]


class Outflow:
    def __init__(
        self, core: SiteCore, supervisor: Supervisor, clock: Clock, links: Links, do: Callable[[Iterable[Effect]], None]
    ) -> None:
        self._core, self._supervisor, self._clock, self._links, self._do = core, supervisor, clock, links, do
        self._full: set[Link] = set()

    @property
    def full_links(self) -> int:
        return len(self._full)

    def send(self, link: Link, frame: Frame) -> None:
        if link.send(frame.channel, frame.body):
            return
        if frame.channel is not Channel.STORE:
            link.close("the peer reads too slowly: its send queue is full")
            return
        self._core.not_sent(frame.peer, frame.body, self._clock.monotonic())
        if link not in self._full:
            self._full.add(link)
            self._supervisor.once("room", partial(self._until_room, link), lambda error: link.close("this node failed"))

    async def _until_room(self, link: Link) -> None:
        try:
            has_room = await link.wait_room(Channel.STORE, ENOUGH_ROOM)
        finally:
            self._full.discard(link)
        if has_room and self._links().get(link.peer) is link:
            self._do(self._core.has_room(link.peer, self._clock.monotonic()))
