"""The connections of the simulated network, as two hosts with TCP between them would see them.

Theory of operation
-------------------
Pairs that may have a link dial again and again while either end lacks it. A connection is two ways, each ordered in itself with
random delays, and each end has its own view of it: it may be up at one end and not yet, or never, or no longer at the other.

1. A host has at most one connection per peer. A new one replaces the old, and what the old one still brings is dropped. Until
   the receiver has the new one it takes what comes on the old, even though the sender has left that.
2. An end that leaves a connection says so behind everything it sent. Whoever hears nothing for SILENCE leaves, too; a host
   that was itself paused waits another round, since what it missed may still lie in its buffers.
3. A way that is cut holds what is sent (TCP repeats it): it comes late when the cut ends before somebody gives up. A muted
   way swallows it, and the connection looks alive. A lost frame is gone, and what follows it still arrives.
4. Dialling needs both ways, and both processes awake.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from trunkline.net.channels import Channel
from trunkline.net.simhost import Greeting

if TYPE_CHECKING:
    from trunkline.net.simnet import SimNet

SILENCE = 2.0
REDIAL = (0.05, 0.5)
DELAY = (0.001, 0.02)

Ends = tuple[str, str]
"""Of a way: its sender and its receiver."""


@dataclass(eq=False)
class Way:
    """One direction of a connection."""

    connection: Connection
    sender: str
    receiver: str
    random: Random
    arrival: float = 0.0
    held_until: float = 0.0
    quiet_since: float | None = None
    muted: bool = False
    stuck: list[tuple[Channel | None, bytes]] = field(default_factory=list)


@dataclass(eq=False)
class Connection:
    number: int
    pair: Ends
    greetings: dict[str, Greeting]
    ways: dict[str, Way] = field(default_factory=dict)
    """By sender."""

    def other(self, end: str) -> str:
        return self.pair[1] if end == self.pair[0] else self.pair[0]


class Wires:
    def __init__(self, net: SimNet, loss: float) -> None:
        self.loss = loss
        self.frames = 0
        self.pairs: dict[Ends, None] = {}
        self.cuts: Counter[Ends] = Counter()
        self.delays: dict[Ends, float] = {}
        """Seconds that every frame of a way takes on top of the usual."""
        self.spikes: dict[Ends, float] = {}
        """Seconds by which a way's delay may grow."""
        self.bursts: dict[Ends, float] = {}
        """Loss on top of the usual."""
        self._net = net
        self._links: dict[Ends, Connection] = {}
        self._dialling: set[Ends] = set()
        self._numbers = itertools.count(1)

    def connect(self, a: str, b: str) -> None:
        pair = (a, b) if a < b else (b, a)
        self.pairs[pair] = None
        self._dial_later(pair)

    def linked(self, end: str, peer: str) -> bool:
        return (end, peer) in self._links

    # -- faults

    def cut(self, ways: Iterable[Ends]) -> None:
        for ends in ways:
            self.cuts[ends] += 1
            self._changed(ends)

    def mend(self, ways: Iterable[Ends]) -> None:
        for ends in ways:
            self.cuts[ends] -= 1
            self._changed(ends)

    def mute(self, ways: Iterable[Ends]) -> list[Way]:
        """Connections that are up now swallow everything; a new one will not."""
        muted = [self._links[ends].ways[ends[0]] for ends in ways if ends in self._links]
        for way in muted:
            way.muted = True
            self._listen(way.connection)
        return muted

    def unmute(self, muted: Iterable[Way]) -> None:
        for way in muted:
            way.muted = False
            self._listen(way.connection)

    def reset(self, end: str, peer: str, late: float) -> None:
        """One end breaks. What it has under way comes that much later, so that a new connection may overtake it."""
        connection, host = self._links.get((end, peer)), self._net.hosts[end]
        if connection is None:
            return
        connection.ways[end].held_until = self._net.now + late
        if host.paused:
            host.wait(self.leave, end, peer, "reset")
        else:
            self.leave(end, peer, "reset")

    def abandon(self, name: str, told: bool) -> None:
        """The process is gone. Its kernel ends its connections, unless that is gone, too (`told` is False)."""
        for peer, connection in self._links_of(name):
            del self._links[name, peer]
            if told:
                self._put(connection.ways[name], None, b"")
            self._listen(connection)
            self._dial_later(connection.pair)

    def listen_to(self, name: str) -> None:
        """After a pause began or ended there."""
        for _, connection in self._links_of(name):
            self._listen(connection)

    # -- frames

    def send(self, sender: str, receiver: str, channel: Channel, body: bytes) -> None:
        connection = self._links.get((sender, receiver))
        if connection is None:
            return
        self.frames += 1
        way = connection.ways[sender]
        loss = self.loss + self.bursts.get((sender, receiver), 0.0)
        if loss and way.random.random() < loss:
            self._net.note_frame("lost", way, channel, body)
        else:
            self._put(way, channel, body)

    def _put(self, way: Way, channel: Channel | None, body: bytes) -> None:
        """`channel` None is the end of the connection."""
        ends = (way.sender, way.receiver)
        if way.muted:
            self._net.note_frame("swallowed", way, channel, body)
        elif self.cuts[ends]:
            way.stuck.append((channel, body))
        else:
            delay = way.random.uniform(*DELAY) + way.random.random() * self.spikes.get(ends, 0.0) + self.delays.get(ends, 0.0)
            way.arrival = max(self._net.now + delay, way.arrival)
            self._net.at(way.arrival, self._arrive, way, channel, body)

    def _arrive(self, way: Way, channel: Channel | None, body: bytes) -> None:
        net, receiver = self._net, self._net.hosts[way.receiver]
        if way.held_until > net.now:
            net.at(way.held_until, self._arrive, way, channel, body)
        elif receiver.process is None:
            return
        elif receiver.paused:
            receiver.wait(self._arrive, way, channel, body)
        elif self._links.get((way.receiver, way.sender)) is not way.connection:
            net.note_frame("late", way, channel, body)
        elif channel is None:
            self.leave(way.receiver, way.sender, "ended by the peer")
        else:
            net.note_frame("frame", way, channel, body)
            net.call(receiver, receiver.process.message, way.sender, channel, body, receiver.clock.monotonic())

    def _changed(self, ends: Ends) -> None:
        """A cut began or ended: on whichever connections the two ends have, listen anew and let go what was held."""
        for connection in {self._links.get(ends): None, self._links.get((ends[1], ends[0])): None}:
            if connection is None:
                continue
            self._listen(connection)
            way = connection.ways[ends[0]]
            if not self.cuts[ends]:
                stuck, way.stuck = way.stuck, []
                for channel, body in stuck:
                    self._put(way, channel, body)

    # -- connections

    def _links_of(self, name: str) -> list[tuple[str, Connection]]:
        return [(peer, c) for (end, peer), c in self._links.items() if end == name]

    def _dial_later(self, pair: Ends) -> None:
        if pair not in self._dialling:
            self._dialling.add(pair)
            self._net.at(self._net.now + self._net.stream(f"dial {pair}").uniform(*REDIAL), self._dial, pair)

    def _dial(self, pair: Ends) -> None:
        self._dialling.discard(pair)
        present = self._links.get(pair)
        if present is not None and present is self._links.get((pair[1], pair[0])):
            return
        hosts = [self._net.hosts[name] for name in pair]
        if self.cuts[pair] or self.cuts[pair[1], pair[0]] or not all(host.awake() for host in hosts):
            self._dial_later(pair)
            return
        greetings = {host.name: host.process.greeting() for host in hosts if host.process is not None}
        connection = Connection(next(self._numbers), pair, greetings)
        for host in hosts:
            way = self._way(connection, connection.other(host.name), host.name)
            self._net.at(way.arrival, self._up, connection, host.name, host.life)

    def _way(self, connection: Connection, sender: str, receiver: str) -> Way:
        random = self._net.stream(f"{sender}>{receiver}")
        way = connection.ways[sender] = Way(connection, sender, receiver, random, self._net.now + random.uniform(*DELAY))
        return way

    def _up(self, connection: Connection, end: str, life: int) -> None:
        host, peer = self._net.hosts[end], connection.other(end)
        if host.paused:
            host.wait(self._up, connection, end, life)
            return
        if host.life != life or host.process is None:
            self._put(connection.ways[end], None, b"")
            self._dial_later(connection.pair)
            return
        self.leave(end, peer, "replaced by a new one")
        self._links[end, peer] = connection
        self._net.note("link", end, peer, connection.number)
        self._listen(connection)
        mine, theirs = connection.greetings[end], connection.greetings[peer]
        self._net.call(host, host.process.link_up, peer, mine, theirs, host.clock.monotonic())

    def leave(self, end: str, peer: str, reason: str) -> None:
        connection = self._links.pop((end, peer), None)
        if connection is None:
            return
        host = self._net.hosts[end]
        self._net.note("unlink", end, peer, connection.number, reason)
        self._put(connection.ways[end], None, b"")
        self._listen(connection)
        self._dial_later(connection.pair)
        if host.process is not None:
            self._net.call(host, host.process.link_down, peer, host.clock.monotonic())

    # -- silence

    def _listen(self, connection: Connection) -> None:
        """After anything that may have made a way quiet, or audible again."""
        for way in connection.ways.values():
            if not self._quiet(way):
                way.quiet_since = None
            elif way.quiet_since is None:
                way.quiet_since = self._net.now
                self._net.at(self._net.now + SILENCE, self._silence, way)

    def _quiet(self, way: Way) -> bool:
        left = self._links.get((way.sender, way.receiver)) is not way.connection
        return left or way.muted or self.cuts[way.sender, way.receiver] > 0 or not self._net.hosts[way.sender].awake()

    def _silence(self, way: Way) -> None:
        receiver, now = self._net.hosts[way.receiver], self._net.now
        if way.quiet_since is None or self._links.get((way.receiver, way.sender)) is not way.connection:
            return
        due = max(way.quiet_since, receiver.woke_at) + SILENCE
        if receiver.paused or due > now:
            self._net.at(max(due, now + SILENCE / 4), self._silence, way)
        else:
            self.leave(way.receiver, way.sender, "silent")
