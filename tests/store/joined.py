"""Areas joined by wires in virtual time: in order, through the codec, with a delay per hop, and counted.

The wires neither lose nor reorder; `hold` keeps what one node sends to another, `unlink` cuts.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from random import Random

from trunkline.store.area import Area
from trunkline.store.filters import Filter
from trunkline.store.messages import CODEC, Message, Publish, Send
from trunkline.store.settings import Settings
from trunkline.store.values import Value, sealed
from trunkline.store.watch import Watch, WatchEvent

TICK = 0.05
QUICK = Settings(first_backoff=0.1, longest_backoff=4.0, answer_seconds=2.0)


class Joined:
    def __init__(
        self, *names: str, settings: Settings = QUICK, delay: float = 0.001, area: str = "fleet", **changed: object
    ) -> None:
        random = Random(1)
        self.settings = replace(settings, **changed)  # type: ignore[arg-type]
        self.areas = {name: Area(name, area, random.random, self.settings) for name in names}
        self.now, self.delay = 100.0, delay
        self.sent: Counter[tuple[str, str]] = Counter()
        self.sent_bytes: Counter[tuple[str, str]] = Counter()
        self.log: list[tuple[float, str, str, Message]] = []
        """when it arrived, from, to, what"""
        self.links: set[frozenset[str]] = set()
        self.held: dict[tuple[str, str], list[bytes]] = {}
        self._agenda: list[tuple[float, int, str, str, bytes]] = []
        self._count = 0
        self._next_tick = self.now + TICK
        self._watches: dict[str, Watch] = {}
        self._seen: defaultdict[str, list[WatchEvent]] = defaultdict(list)

    def __getitem__(self, name: str) -> Area:
        return self.areas[name]

    # -- wires

    def link(self, a: str, b: str) -> None:
        self.links.add(frozenset((a, b)))
        self.say(a, self.areas[a].link_up(b, self.now))
        self.say(b, self.areas[b].link_up(a, self.now))

    def link_one(self, a: str, b: str) -> None:
        """Only `a` takes the other for a peer."""
        self.links.add(frozenset((a, b)))
        self.say(a, self.areas[a].link_up(b, self.now))

    def chain(self, *names: str) -> None:
        for a, b in pairwise(names):
            self.link(a, b)

    def unlink(self, a: str, b: str) -> None:
        self.links.discard(frozenset((a, b)))
        self.say(a, self.areas[a].link_down(b, self.now))
        self.say(b, self.areas[b].link_down(a, self.now))

    def hold(self, sender: str, receiver: str) -> None:
        self.held[sender, receiver] = []

    def release(self, sender: str, receiver: str) -> None:
        for body in self.held.pop((sender, receiver)):
            self._schedule(sender, receiver, body)

    def say(self, sender: str, sends: Iterable[Send]) -> None:
        for send in sends:
            self.sent[sender, send.peer] += 1
            body = CODEC.encode(send.message)
            self.sent_bytes[sender, send.peer] += len(body)
            if (sender, send.peer) in self.held:
                self.held[sender, send.peer].append(body)
            else:
                self._schedule(sender, send.peer, body)

    def _schedule(self, sender: str, receiver: str, body: bytes) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (self.now + self.delay, self._count, sender, receiver, body))

    # -- time

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            at = min(self._next_tick, self._agenda[0][0] if self._agenda else end + 1)
            if at > end:
                break
            self.now = at
            if at == self._next_tick:
                self._next_tick += TICK
                self._tick()
            else:
                self._deliver(*heapq.heappop(self._agenda)[2:])
        self.now = end

    def _tick(self) -> None:
        for name, area in self.areas.items():
            self.say(name, area.tick(self.now))

    def _deliver(self, sender: str, receiver: str, body: bytes) -> None:
        if frozenset((sender, receiver)) in self.links:
            message = CODEC.decode(body)
            self.log.append((self.now, sender, receiver, message))
            self.say(receiver, self.areas[receiver].receive(sender, message, self.now))

    # -- doing and looking

    def put(self, name: str, key: str, data: bytes, version: int = 1, ttl_ms: int = 300_000, **more: object) -> None:
        value = sealed(key, version, str(more.pop("originator", name)), data, ttl_ms, **more)  # type: ignore[arg-type]
        sends, refused = self.areas[name].put({key: value}, self.now)
        assert not refused, refused
        self.say(name, sends)

    def value(self, name: str, key: str) -> Value | None:
        return self.areas[name].get(key, self.now)

    def data(self, key: str) -> dict[str, bytes | None]:
        found = {name: self.value(name, key) for name in self.areas}
        return {name: None if value is None else value.data for name, value in found.items()}

    def contents(self, name: str) -> dict[str, tuple[int, str, bytes | None]]:
        return {key: (v.version, v.originator, v.data) for key, v in self.areas[name].table.values()}

    def publications(self, receiver: str) -> list[Publish]:
        return [m for _, _, to, m in self.log if to == receiver and isinstance(m, Publish)]

    def watched(self, name: str, with_ttl: bool = False) -> list[WatchEvent]:
        """Everything a watcher of that node has seen so far; it begins with the first call."""
        if name not in self._watches:
            self._watches[name] = Watch(Filter(), with_ttl)
            self.areas[name].watch(self._watches[name])
        while events := self.areas[name].read(self._watches[name], 1000, self.now):
            self._seen[name] += events
        return self._seen[name]
