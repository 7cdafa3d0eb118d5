"""A simulated machine: one process over durable state, with a clock, a disk, and the power to stop all three.

A process is booted by a function over whatever the host keeps, so a crash loses the process and nothing else.

1. Whatever happens to a process passes through its host. While the process is paused (SIGSTOP) everything waits, in order,
   and comes at once when it goes on; what waits is lost with the process.
2. A process reads time from its host's clock only. Its monotonic clock may leap forward and never goes back.
3. Durable work is done by the disk in the order it was asked for. Then the answer travels back: a process that dies in between
   has done the work and never hears of it, and a process that is paused does not stop the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from trunkline.core.clock import Clock
from trunkline.net.channels import Channel

WALL_START = 1_700_000_000.0
DISK_SECONDS = (0.001, 0.01)

Action = tuple[Callable[..., None], tuple[Any, ...]]


@dataclass(frozen=True)
class Greeting:
    """What the two ends of a connection tell each other before it is a link."""

    leads: bool = True
    incarnation: int = 0
    capable: bool = True
    """Whether it tells rows and takes subscriptions by origin."""


class Process(Protocol):
    """`link_up` and `link_down` alternate per peer, and messages come only between."""

    def greeting(self) -> Greeting: ...

    def link_up(self, peer: str, mine: Greeting, theirs: Greeting, now: float) -> None: ...

    def link_down(self, peer: str, now: float) -> None: ...

    def message(self, peer: str, channel: Channel, body: bytes, now: float) -> None: ...

    def tick(self, now: float) -> None: ...


class Outlet(Protocol):
    """What a process may do to its surroundings."""

    clock: Clock
    random: Random

    def send(self, peer: str, channel: Channel, body: bytes) -> None: ...

    def close(self, peer: str) -> None:
        """Ends the link with that peer; `link_down` follows."""

    def disk(self, work: Callable[[], Any], answer: Callable[[Any, float], None]) -> None:
        """Does `work()` after the latency of the disk, then calls `answer(result, now)`, unless the process dies before."""

    def note(self, text: str) -> None:
        """Something worth a line in the trace."""


Boot = Callable[[Outlet, float], Process]


class Agenda(Protocol):
    """What is to happen, by time."""

    now: float

    def at(self, time: float, action: Callable[..., None], *args: Any) -> None: ...


@dataclass
class HostClock:
    agenda: Agenda
    leapt: float = 0.0
    wall_error: float = 0.0

    def monotonic(self) -> float:
        return self.agenda.now + self.leapt

    def wall(self) -> float:
        return self.agenda.now + WALL_START + self.wall_error


@dataclass
class Disk:
    """One queue of durable work; several hosts may share it, as the nodes of a site share their database."""

    agenda: Agenda
    random: Random
    slowness: float = 1.0
    _stalls: int = 0
    _free: float = 0.0
    _stuck: list[Action] = field(default_factory=list)

    def ask(self, done: Callable[..., None], *args: Any) -> None:
        took = self.random.uniform(*DISK_SECONDS) * self.slowness
        self._free = max(self._free, self.agenda.now) + took
        self.agenda.at(self._free, self._finish, done, args)

    def stall(self) -> None:
        self._stalls += 1

    def go_on(self) -> None:
        self._stalls -= 1
        if not self._stalls:
            stuck, self._stuck = self._stuck, []
            for done, args in stuck:
                done(*args)

    def _finish(self, done: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._stalls:
            self._stuck.append((done, args))
        else:
            done(*args)


@dataclass
class Host:
    name: str
    boot: Boot
    clock: HostClock
    disk: Disk
    process: Process | None = None
    life: int = 0
    """Grows with every start and every crash."""
    paused: bool = False
    woke_at: float = 0.0
    _detached: int = 0
    _waiting: list[Action] = field(default_factory=list)
    _unreached: list[Action] = field(default_factory=list)

    def awake(self) -> bool:
        return self.process is not None and not self.paused

    def start(self, outlet: Outlet) -> None:
        self.process = self.boot(outlet, self.clock.monotonic())

    def die(self) -> None:
        self.process, self.paused = None, False
        self.life += 1
        self._waiting, self._unreached = [], []

    def wait(self, action: Callable[..., None], *args: Any) -> None:
        """For when the process goes on."""
        self._waiting.append((action, args))

    def wake(self, now: float) -> list[Action]:
        """What waited; the caller makes it happen."""
        self.paused, self.woke_at = False, now
        waiting, self._waiting = self._waiting, []
        return waiting

    # -- the way to its disk

    def ask_disk(self, done: Callable[..., None], *args: Any) -> None:
        if self._detached:
            self._unreached.append((done, args))
        else:
            self.disk.ask(done, *args)

    def detach(self) -> None:
        """It no longer reaches its disk: a node without its database."""
        self._detached += 1

    def attach(self) -> None:
        self._detached -= 1
        if not self._detached:
            unreached, self._unreached = self._unreached, []
            for done, args in unreached:
                self.disk.ask(done, *args)
