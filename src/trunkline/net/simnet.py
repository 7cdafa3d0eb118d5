"""A deterministic network in memory: virtual time, one seed = one run.

Theory of operation
-------------------
Hosts run processes; a process is booted by a function over whatever durable state the host keeps, so a crash loses the
process and nothing else. Pairs that may have a link dial again and again; an established connection is two ordered streams
with random delays, and reorders nothing within itself. Faults:

    loss       a frame vanishes; what follows it still arrives
    cut        frames vanish from now on, and both ends notice only after the silence limit
    partition  all pairs between groups are cut
    crash      the process is gone; its peers notice soon, its timers and unfinished disk work never fire
    restart    the process is booted again from the host's durable state

Everything that happens is written to the trace in order; its digest is the run's fingerprint.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from trunkline.net.channels import Channel

SILENCE = 2.0
TICK = 0.05
REDIAL = (0.05, 0.5)


class Process(Protocol):
    def link_up(self, peer: str, now: float) -> None: ...

    def link_down(self, peer: str, now: float) -> None: ...

    def message(self, peer: str, channel: Channel, body: bytes, now: float) -> None: ...

    def tick(self, now: float) -> None: ...


class Outlet(Protocol):
    """What a process may do to its surroundings."""

    def send(self, peer: str, channel: Channel, body: bytes) -> None: ...

    def disk(self, work: Callable[[float], None]) -> None:
        """Runs `work(now)` after the latency of a disk, in order, unless the process dies before."""


Boot = Callable[[Outlet, float], Process]


@dataclass
class _Host:
    name: str
    boot: Boot
    process: Process | None = None
    life: int = 0
    disk_free: float = 0.0


@dataclass
class _Connection:
    number: int
    ends: tuple[str, str]
    silent: bool = False
    arrival: dict[str, float] = field(default_factory=dict)


class _HostOutlet:
    def __init__(self, net: SimNet, host: _Host) -> None:
        self._net, self._host, self._life = net, host, host.life

    def send(self, peer: str, channel: Channel, body: bytes) -> None:
        if self._host.life == self._life:
            self._net.transfer(self._host.name, peer, channel, body)

    def disk(self, work: Callable[[float], None]) -> None:
        self._net.disk(self._host, self._life, work)


class SimNet:
    def __init__(self, seed: int, delay: tuple[float, float] = (0.001, 0.02), loss: float = 0.0) -> None:
        self.random = Random(seed)
        self.delay, self.loss = delay, loss
        self.disk_delay = (0.001, 0.01)
        self.now = 0.0
        self.frames = 0
        self._trace = hashlib.blake2b(digest_size=16)
        self.lines: list[str] | None = None
        self._hosts: dict[str, _Host] = {}
        self._pairs: dict[frozenset[str], None] = {}
        self._cut: set[frozenset[str]] = set()
        self._connections: dict[frozenset[str], _Connection] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    # -- building and breaking

    def add(self, name: str, boot: Boot) -> None:
        self._hosts[name] = _Host(name, boot)
        self.restart(name)

    def connect(self, a: str, b: str) -> None:
        pair = frozenset((a, b))
        self._pairs[pair] = None
        self._dial_later(pair)

    def cut(self, a: str, b: str) -> None:
        pair = frozenset((a, b))
        self._cut.add(pair)
        connection = self._connections.get(pair)
        if connection is not None:
            connection.silent = True
            self.after(SILENCE, lambda: self._disconnect(pair, connection))
        self._note("cut", *sorted(pair))

    def mend(self, a: str, b: str) -> None:
        self._cut.discard(frozenset((a, b)))
        self._note("mend", a, b)

    def partition(self, group: Iterable[str]) -> None:
        inside = set(group)
        for pair in self._pairs:
            if len(pair & inside) == 1 and pair not in self._cut:
                self.cut(*sorted(pair))

    def heal(self) -> None:
        self._cut.clear()
        self._note("heal")

    def crash(self, name: str) -> None:
        host = self._hosts[name]
        host.process = None
        host.life += 1
        self._note("crash", name)
        for pair, connection in list(self._connections.items()):
            if name in pair:
                connection.silent = True
                self.after(self._some(self.delay), partial(self._disconnect, pair, connection))

    def restart(self, name: str) -> None:
        host = self._hosts[name]
        if host.process is not None:
            return
        host.life += 1
        host.disk_free = self.now
        self._note("start", name)
        host.process = host.boot(_HostOutlet(self, host), self.now)
        self._tick(host, host.life)

    def running(self, name: str) -> bool:
        return self._hosts[name].process is not None

    # -- time

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), action))

    def run(self, until: float, done: Callable[[], bool] | None = None) -> bool:
        """Runs to the given time, or until `done`, asked ten times a virtual second."""
        asked = self.now
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
            if done is not None and self.now >= asked + 0.1:
                asked = self.now
                if done():
                    return True
        self.now = until
        return done is not None and done()

    def fingerprint(self) -> str:
        return self._trace.hexdigest()

    # -- inside

    def transfer(self, sender: str, receiver: str, channel: Channel, body: bytes) -> None:
        pair = frozenset((sender, receiver))
        connection = self._connections.get(pair)
        if connection is None or connection.silent or self.random.random() < self.loss:
            return
        self.frames += 1
        arrival = max(self.now + self._some(self.delay), connection.arrival.get(receiver, 0.0))
        connection.arrival[receiver] = arrival
        self.after(arrival - self.now, lambda: self._arrive(connection, pair, sender, receiver, channel, body))

    def _arrive(
        self, connection: _Connection, pair: frozenset[str], sender: str, receiver: str, channel: Channel, body: bytes
    ) -> None:
        process = self._hosts[receiver].process
        if self._connections.get(pair) is connection and not connection.silent and process is not None:
            self._note("frame", sender, receiver, str(int(channel)), hashlib.blake2b(body, digest_size=4).hexdigest())
            process.message(sender, channel, body, self.now)

    def disk(self, host: _Host, life: int, work: Callable[[float], None]) -> None:
        host.disk_free = max(host.disk_free, self.now) + self._some(self.disk_delay)
        self.after(host.disk_free - self.now, lambda: work(self.now) if host.life == life else None)

    def _tick(self, host: _Host, life: int) -> None:
        if host.life == life and host.process is not None:
            host.process.tick(self.now)
            self.after(TICK, lambda: self._tick(host, life))

    def _dial_later(self, pair: frozenset[str]) -> None:
        self.after(self._some(REDIAL), lambda: self._dial(pair))

    def _dial(self, pair: frozenset[str]) -> None:
        a, b = sorted(pair)
        left, right = self._hosts[a].process, self._hosts[b].process
        if pair in self._connections:
            return
        if pair in self._cut or left is None or right is None:
            self._dial_later(pair)
            return
        self._connections[pair] = _Connection(next(self._numbers), (a, b))
        self._note("link", a, b)
        left.link_up(b, self.now)
        right.link_up(a, self.now)

    def _disconnect(self, pair: frozenset[str], connection: _Connection) -> None:
        if self._connections.get(pair) is not connection:
            return
        del self._connections[pair]
        self._note("unlink", *connection.ends)
        for name, peer in _both_ways(connection.ends):
            process = self._hosts[name].process
            if process is not None:
                process.link_down(peer, self.now)
        self._dial_later(pair)

    def _some(self, span: tuple[float, float]) -> float:
        return self.random.uniform(*span)

    def _note(self, *words: str) -> None:
        line = f"{self.now:.6f} {' '.join(words)}"
        self._trace.update(line.encode() + b"\n")
        if self.lines is not None:
            self.lines.append(line)


def _both_ways(ends: tuple[str, str]) -> Iterator[tuple[str, str]]:
    yield ends
    yield ends[1], ends[0]
