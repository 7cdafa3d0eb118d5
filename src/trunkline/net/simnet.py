"""A deterministic network in memory: virtual time, one seed = one run.

Hosts run processes (`simhost`), wires join them (`simwires`), and this is the time they share: an agenda of what is to happen,
done strictly in order. The weather of every way, disk and host comes from a stream of random numbers of its own, so that a
fault at one place does not change the weather at another. Everything that happens is noted; the digest of the notes is the
run's fingerprint.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from trunkline.core.clock import Clock
from trunkline.core.errors import RemoteProtocolError
from trunkline.net.channels import Channel
from trunkline.net.simhost import Boot, Disk, Host, HostClock
from trunkline.net.simwires import Way, Wires

TICK = 0.1
ANSWER_SECONDS = 0.0005
ASK_SECONDS = 0.1


class Note(NamedTuple):
    at: float
    kind: str
    who: str
    to: str = ""
    connection: int = 0
    text: str = ""
    channel: Channel | None = None
    body: bytes = b""


class _HostOutlet:
    """A dead process's outlet does nothing."""

    def __init__(self, net: SimNet, host: Host) -> None:
        self._net, self._host, self._life = net, host, host.life
        self.clock: Clock = host.clock
        self.random = net.stream(host.name)

    def send(self, peer: str, channel: Channel, body: bytes) -> None:
        if self._host.life == self._life:
            self._net.wires.send(self._host.name, peer, channel, body)

    def close(self, peer: str) -> None:
        if self._host.life == self._life:
            self._net.at(self._net.now, self._net.wires.leave, self._host.name, peer, "closed by its process")

    def disk(self, work: Callable[[], Any], answer: Callable[[Any, float], None]) -> None:
        if self._host.life == self._life:
            self._host.ask_disk(self._net.durable, self._host, self._life, work, answer)

    def note(self, text: str) -> None:
        if self._net.observer is not None:
            self._net.observer(Note(self._net.now, "does", self._host.name, text=text))


class SimNet:
    def __init__(self, seed: int, loss: float = 0.0) -> None:
        self.seed = seed
        self.now = 0.0
        self.observer: Callable[[Note], None] | None = None
        self.on_error: Callable[[str, Exception], None] = _raise
        self.hosts: dict[str, Host] = {}
        self.disks: dict[str, Disk] = {}
        self.wires = Wires(self, loss)
        self._streams: dict[str, Random] = {}
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, name: str, boot: Boot, disk: str = "") -> None:
        """`disk` is shared by all hosts that name it."""
        disk = disk or name
        if disk not in self.disks:
            self.disks[disk] = Disk(self, self.stream(f"disk of {disk}"))
        self.hosts[name] = Host(name, boot, HostClock(self), self.disks[disk])
        self.restart(name)

    def stream(self, name: str) -> Random:
        if name not in self._streams:
            self._streams[name] = Random(f"{self.seed} {name}")
        return self._streams[name]

    # -- time

    def at(self, time: float, action: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._agenda, (time, next(self._order), action, args))

    def run(self, until: float, done: Callable[[], bool] | None = None) -> bool:
        """Runs to the given time, or until `done`, asked ten times a virtual second."""
        ask_at = self.now + ASK_SECONDS
        agenda, pop = self._agenda, heapq.heappop
        while agenda and agenda[0][0] <= until:
            self.now, _, action, args = pop(agenda)
            action(*args)
            if done is not None and self.now >= ask_at:
                ask_at = self.now + ASK_SECONDS
                if done():
                    return True
        self.now = until
        return done is not None and done()

    # -- what was seen

    def fingerprint(self) -> str:
        return self._digest.hexdigest()

    def note(self, kind: str, who: str, to: str = "", number: int = 0, text: str = "") -> None:
        self._digest.update(f"{self.now:.6f} {kind} {who} {to} {number} {text}\n".encode())
        if self.observer is not None:
            self.observer(Note(self.now, kind, who, to, number, text))

    def note_frame(self, kind: str, way: Way, channel: Channel | None, body: bytes) -> None:
        if channel is None:
            return
        number = way.connection.number
        self._digest.update(b"%f %b %d %d" % (self.now, kind.encode(), number, way.sender < way.receiver))
        self._digest.update(body)
        if self.observer is not None:
            self.observer(Note(self.now, kind, way.sender, way.receiver, number, "", channel, body))

    # -- hosts

    def crash(self, name: str, told: bool = True) -> None:
        host = self.hosts[name]
        if host.process is not None:
            host.die()
            self.note("crash", name)
            self.wires.abandon(name, told)

    def restart(self, name: str) -> None:
        host = self.hosts[name]
        if host.process is None:
            host.life += 1
            self.note("start", name)
            host.start(_HostOutlet(self, host))
            self.at(self.now + TICK, self._tick, host, host.life)

    def pause(self, name: str) -> int:
        """SIGSTOP. Returns which life of the process it was."""
        host = self.hosts[name]
        if host.awake():
            host.paused = True
            self.note("pause", name)
            self.wires.listen_to(name)
        return host.life

    def resume(self, name: str, life: int) -> None:
        """SIGCONT, if that process still lives."""
        host = self.hosts[name]
        if host.life != life or not host.paused:
            return
        waiting = host.wake(self.now)
        self.note("resume", name, text=f"{len(waiting)} things waited")
        for action, args in waiting:
            action(*args)
        self.wires.listen_to(name)

    def durable(self, host: Host, life: int, work: Callable[[], Any], answer: Callable[[Any, float], None]) -> None:
        if host.life == life:
            self.call(host, lambda: self.at(self.now + ANSWER_SECONDS, self._answer, host, life, answer, work()))

    def _answer(self, host: Host, life: int, answer: Callable[[Any, float], None], result: Any) -> None:
        if host.life != life:
            return
        if host.paused:
            host.wait(self._answer, host, life, answer, result)
        else:
            self.call(host, answer, result, host.clock.monotonic())

    def _tick(self, host: Host, life: int) -> None:
        if host.life != life or host.process is None:
            return
        if host.paused:
            host.wait(self._tick, host, life)
            return
        self.call(host, host.process.tick, host.clock.monotonic())
        self.at(self.now + TICK, self._tick, host, life)

    def call(self, host: Host, handler: Callable[..., None], *args: Any) -> None:
        """A breach of the protocol costs the peer, the first argument, its link; any other error ends the process."""
        try:
            handler(*args)
        except RemoteProtocolError as error:
            self.on_error(host.name, error)
            self.wires.leave(host.name, str(args[0]) if args else "", error.why)
        except Exception as error:
            self.on_error(host.name, error)
            self.crash(host.name)


def _raise(name: str, error: Exception) -> None:
    raise error
