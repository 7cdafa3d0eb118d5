"""The faults: for each kind what it strikes, for how long and how hard, and how it is done to the network.

`begin` does it and returns what ends it, if it has an end. A fault that finds nothing to strike does nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from random import Random

from trunkline.core.errors import Invalid
from trunkline.net.simnet import SimNet
from trunkline.net.simwires import Ends
from trunkline.node.sim.history import Fault
from trunkline.node.sim.setup import Setup

End = Callable[[], None]
Span = tuple[float, float]


class Subject(StrEnum):
    HOST = "a host"
    DISK = "a site's disk"
    LINK = "a link, one way or both"
    WAY = "one way of a link"
    GROUP = "some hosts against the rest"


@dataclass(frozen=True)
class Kind:
    about: str
    subject: Subject
    begin: Callable[[SimNet, Fault], End | None]
    seconds: Span | None = None
    amount: Span | None = None


# -- striking


def ways_of(subject: str) -> tuple[Ends, ...]:
    """Of `a<>b` both, of `a>b` one."""
    a, arrow, b = re.split(r"(<?>)", subject, maxsplit=1)
    return ((a, b), (b, a)) if arrow == "<>" else ((a, b),)


def _crash(net: SimNet, fault: Fault, told: bool) -> End | None:
    if net.hosts[fault.subject].process is None:
        return None
    net.crash(fault.subject, told)
    return partial(net.restart, fault.subject)


def _pause(net: SimNet, fault: Fault) -> End | None:
    if not net.hosts[fault.subject].awake():
        return None
    return partial(net.resume, fault.subject, net.pause(fault.subject))


def _leap(net: SimNet, fault: Fault) -> None:
    net.hosts[fault.subject].clock.leapt += fault.amount


def _wall(net: SimNet, fault: Fault) -> None:
    net.hosts[fault.subject].clock.wall_error += fault.amount


def _slow_disk(net: SimNet, fault: Fault) -> End:
    disk = net.disks[fault.subject]
    disk.slowness += fault.amount

    def end() -> None:
        disk.slowness = max(1.0, round(disk.slowness - fault.amount, 6))

    return end


def _stall(net: SimNet, fault: Fault) -> End:
    net.disks[fault.subject].stall()
    return net.disks[fault.subject].go_on


def _detach(net: SimNet, fault: Fault) -> End:
    net.hosts[fault.subject].detach()
    return net.hosts[fault.subject].attach


def _cut(net: SimNet, fault: Fault) -> End:
    ways = ways_of(fault.subject)
    net.wires.cut(ways)
    return partial(net.wires.mend, ways)


def _split(net: SimNet, fault: Fault) -> End:
    inside = set(fault.subject.split(","))
    crossing = [pair for pair in net.wires.pairs if len(inside.intersection(pair)) == 1]
    ways = [way for a, b in crossing for way in ((a, b), (b, a))]
    net.wires.cut(ways)
    return partial(net.wires.mend, ways)


def _mute(net: SimNet, fault: Fault) -> End:
    return partial(net.wires.unmute, net.wires.mute(ways_of(fault.subject)))


def _raised(table: Callable[[SimNet], dict[Ends, float]], net: SimNet, fault: Fault) -> End:
    """Raises a number of each way, and takes the same away again."""

    def change(by: float) -> None:
        for way in ways_of(fault.subject):
            table(net)[way] = max(0.0, round(table(net).get(way, 0.0) + by, 6))

    change(fault.amount)
    return partial(change, -fault.amount)


def _reset(net: SimNet, fault: Fault) -> None:
    net.wires.reset(*ways_of(fault.subject)[0], fault.amount)


KINDS: dict[str, Kind] = {
    "crash": Kind("kill -9: the process is gone, its peers are told", Subject.HOST, partial(_crash, told=True), (0.2, 8)),
    "power": Kind("the machine goes dark: nobody is told", Subject.HOST, partial(_crash, told=False), (0.2, 8)),
    "pause": Kind("SIGSTOP: nothing happens, then everything at once", Subject.HOST, _pause, (0.2, 16)),
    "leap": Kind("the monotonic clock leaps forward", Subject.HOST, _leap, amount=(0.5, 400)),
    "wall": Kind("the wall clock jumps, forward or back", Subject.HOST, _wall, amount=(-3600, 3600)),
    "slowdisk": Kind("durable work takes many times as long", Subject.DISK, _slow_disk, (0.5, 8), (5, 100)),
    "stall": Kind("no durable work is done", Subject.DISK, _stall, (0.5, 6)),
    "nodb": Kind("a node does not reach its database", Subject.HOST, _detach, (0.5, 14)),
    "cut": Kind("what is sent waits for the end of the cut", Subject.LINK, _cut, (0.3, 8)),
    "split": Kind("a partition", Subject.GROUP, _split, (0.3, 8)),
    "mute": Kind("connections stay up and swallow everything", Subject.LINK, _mute, (0.3, 5)),
    "slow": Kind("delays grow", Subject.LINK, partial(_raised, lambda net: net.wires.spikes), (0.5, 5), (0.05, 1.5)),
    "loss": Kind("many frames vanish", Subject.LINK, partial(_raised, lambda net: net.wires.bursts), (0.5, 5), (0.1, 0.7)),
    "reset": Kind("one end breaks; what was under way comes late", Subject.WAY, _reset, amount=(0.01, 1.0)),
}


def kind_of(fault: Fault) -> Kind:
    if fault.kind not in KINDS:
        raise Invalid(f"event {fault}", f"there is no fault {fault.kind!r}", f"use one of {', '.join(KINDS)}")
    kind = KINDS[fault.kind]
    joined = ">" in fault.subject
    if joined != (kind.subject in (Subject.LINK, Subject.WAY)):
        raise Invalid(f"event {fault}", f"its subject is not {kind.subject}", "write a host as a, a link as a<>b, a way as a>b")
    return kind


# -- drawing

_SUBJECTS: dict[Subject, Callable[[Random, Setup], str]] = {
    Subject.HOST: lambda random, setup: random.choice(setup.hosts),
    Subject.DISK: lambda random, setup: random.choice(setup.sites),
    Subject.LINK: lambda random, setup: random.choice(("<>", ">")).join(_some_way(random, setup)),
    Subject.WAY: lambda random, setup: ">".join(_some_way(random, setup)),
    Subject.GROUP: lambda random, setup: ",".join(sorted(random.sample(setup.hosts, random.randint(1, len(setup.hosts) // 2)))),
}


def _some_way(random: Random, setup: Setup) -> tuple[str, str]:
    a, b = random.choice(setup.links)
    return (a, b) if random.random() < 0.5 else (b, a)


def _some(random: Random, span: Span) -> float:
    """Between positive bounds small values are as likely as large ones."""
    low, high = span
    value = random.uniform(low, high) if low <= 0 else math.exp(random.uniform(math.log(low), math.log(high)))
    return round(value, 3)


def draw_fault(random: Random, name: str, at: float, calm: float, setup: Setup) -> Fault:
    """Ends before all is calm."""
    kind = KINDS[name]
    subject = _SUBJECTS[kind.subject](random, setup)
    seconds = min(_some(random, kind.seconds), round(calm - at, 3)) if kind.seconds else 0.0
    return Fault(at, name, subject, seconds, _some(random, kind.amount) if kind.amount else 0.0)


def draw_faults(random: Random, names: tuple[str, ...], calm: float, setup: Setup) -> list[Fault]:
    """Some alone, some two or three at once."""
    faults: list[Fault] = []
    for _ in range(random.randint(2, 6)):
        at = round(random.uniform(0.0, calm - 0.5), 3)
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            near = min(round(at + random.uniform(0.0, 0.3), 3), calm - 0.2)
            faults.append(draw_fault(random, random.choice(names), near, calm, setup))
    return faults
