"""Frames out over the links, and what happens when a link takes no more.

1. A link whose TRUNK, SIGNAL or TOPOLOGY queue is full is closed: a peer that takes so little is no use, and nothing is lost
   silently. Over the next link the trunk asks again, and the topology tells all its rows, not what has changed.
2. A frame that the STORE queue of a link does not take is told to the core, and one task per such link waits until there is
   room again. It ends with its link.
3. Bulk, which is chunks of snapshots, waits here while more than BULK_QUEUED is in the TRUNK queue, so that it neither fills
   that nor delays records by much; one task per such link hands it over. What waits already is not taken a second time: on a
   slow link a chunk is asked for again before it has left. What is beyond BULK_WAITING is dropped, and asked for again, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from trunkline.core.clock import Clock
from trunkline.core.ids import NodeId
from trunkline.net.channels import DATA, Channel
from trunkline.net.link import Link
from trunkline.node.sitecore import Effect, Frame, SiteCore
from trunkline.node.supervise import Supervisor

ENOUGH_ROOM = 1024 * 1024  # a few of the store's largest messages, so that a link does not fill again with the first
# What a link of 30 Mbit/s takes in a second; records wait no longer behind bulk.
BULK_QUEUED = 4 * 1024 * 1024
# Eight snapshots' windows, or those of eight sites behind this link.
BULK_WAITING = 32 * 1024 * 1024
# Where records alone keep the queue that full, a chunk gets its turn after so many seconds, if there is room for a large one.
BULK_SECONDS = 1.0

Links = Callable[[], Mapping[NodeId, Link]]


class Outflow:
    def __init__(
        self, core: SiteCore, supervisor: Supervisor, clock: Clock, links: Links, do: Callable[[Iterable[Effect]], None]
    ) -> None:
        self._core, self._supervisor, self._clock, self._links, self._do = core, supervisor, clock, links, do
        self._full: set[Link] = set()
        self._bulk: dict[Link, dict[bytes, None]] = {}

    @property
    def full_links(self) -> int:
        return len(self._full)

    def send(self, link: Link, frame: Frame) -> None:
        if frame.bulk:
            self._send_bulk(link, frame)
            return
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

    def _send_bulk(self, link: Link, frame: Frame) -> None:
        waiting = self._bulk.get(link)
        if waiting is None:
            if link.queued(frame.channel) <= BULK_QUEUED and link.send(frame.channel, frame.body):
                return
            waiting = self._bulk[link] = {}
            self._supervisor.once("bulk", partial(self._hand_over, link, waiting), lambda error: link.close("this node failed"))
        if sum(map(len, waiting)) + len(frame.body) <= BULK_WAITING:
            waiting[frame.body] = None

    async def _hand_over(self, link: Link, waiting: dict[bytes, None]) -> None:
        try:
            while waiting and await _room_for_bulk(link):
                body = next(iter(waiting))
                del waiting[body]
                link.send(Channel.TRUNK, body)
        finally:
            del self._bulk[link]


async def _room_for_bulk(link: Link) -> bool:
    """False when the link is closing."""
    queue = DATA[Channel.TRUNK].queue
    try:
        async with asyncio.timeout(BULK_SECONDS):
            return await link.wait_room(Channel.TRUNK, queue - BULK_QUEUED)
    except TimeoutError:
        return await link.wait_room(Channel.TRUNK, queue // 2)
