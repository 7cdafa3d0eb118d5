"""Areas over links of one constant delay, in virtual time: rings, stars, grids and random graphs of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import pairwise
from random import Random

from trunkline.store.area import Area
from trunkline.store.messages import CODEC, Message, Send

DELAY = 0.01
TTL_MS = 3_600_000

Links = list[tuple[int, int]]


def ring(count: int, random: Random) -> Links:
    return [(n, (n + 1) % count) for n in range(count)]


def star(count: int, random: Random) -> Links:
    return [(0, n) for n in range(1, count)]


def grid(count: int, random: Random) -> Links:
    width = round(count**0.5)
    across = [(n, n + 1) for n in range(count - 1) if (n + 1) % width]
    return across + [(n, n + width) for n in range(count - width)]


def random_of_degree_4(count: int, random: Random) -> Links:
    """Two cycles through all nodes, each in an order of its own."""
    while True:
        orders = [random.sample(range(count), count) for _ in range(2)]
        links = {tuple(sorted(pair)) for order in orders for pair in pairwise([*order, order[0]])}
        if len(links) == 2 * count:
            return [(a, b) for a, b in sorted(links)]


def diameter(links: Links, count: int) -> int:
    near: list[list[int]] = [[] for _ in range(count)]
    for a, b in links:
        near[a].append(b)
        near[b].append(a)
    return max(_farthest(near, start) for start in range(count))


def _farthest(near: list[list[int]], start: int) -> int:
    seen, edge, steps = {start}, [start], -1
    while edge:
        steps += 1
        edge = list({other for node in edge for other in near[node]} - seen)
        seen.update(edge)
    return steps


class Fleet:
    def __init__(self, links: Links) -> None:
        self.areas = {str(n): Area(str(n), "fleet", Random(n).random) for n in range(1 + max(map(max, links)))}
        self.now = 1_000.0
        self.messages = self.bytes = 0
        self.counts_bytes = False
        self._agenda: list[tuple[float, int, str, str, Message]] = []
        for a, b in links:
            self._send(str(a), self.areas[str(a)].link_up(str(b), self.now))
            self._send(str(b), self.areas[str(b)].link_up(str(a), self.now))
        self.run()

    def _send(self, sender: str, sends: Iterable[Send]) -> None:
        for send in sends:
            self.messages += 1
            self.bytes += len(CODEC.encode(send.message)) if self.counts_bytes else 0
            heapq.heappush(self._agenda, (self.now + DELAY, self.messages, sender, send.peer, send.message))

    def run(self, arrived: Callable[[str], None] = lambda receiver: None) -> None:
        """Until nothing is on its way."""
        while self._agenda:
            self.now, _, sender, receiver, message = heapq.heappop(self._agenda)
            self._send(receiver, self.areas[receiver].receive(sender, message, self.now))
            arrived(receiver)

    def live(self, span: int) -> None:
        """With a tick per second."""
        for _ in range(span):
            self.now = round(self.now) + 1.0
            for name, area in self.areas.items():
                self._send(name, area.tick(self.now))
            self.run()

    def spread(self) -> tuple[float, float]:
        """Delays until one new key is everywhere, and the messages per node of it all."""
        begun, before, times = self.now, self.messages, {"0": self.now}
        sends, _ = self.areas["0"].write("app:new", b"z" * 320, TTL_MS, self.now)
        self._send("0", sends)

        def arrived(name: str) -> None:
            if name not in times and "app:new" in self.areas[name].table.entries:
                times[name] = self.now

        self.run(arrived)
        assert len(times) == len(self.areas)
        return (max(times.values()) - begun) / DELAY, (self.messages - before) / len(self.areas)
