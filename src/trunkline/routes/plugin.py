"""What a plugin declares, once: its name, the model of its configuration, and how that becomes something that runs.

Checking, messages, JSON Schema, `trunkline plugins` and the reference all come from the declaration. Plugins of other packages
are found by the entry point group `trunkline.plugins` (`trunkline.routes.registry`).

F1  A filter is called with a batch and gives the events that go on, in their order. One that it leaves out is dropped.
F2  What it cannot process it tells `faults` and leaves out; it raises for no event. What it raises all the same is taken for a
    fault of the one event that causes it.
F3  It changes no event, and nothing inside of one: other routes hold the same.
F4  Everything that can be wrong with a configuration is found when it is compiled, as `Invalid`.
F5  Without state its answer depends on the batch alone. A stateful filter is one live route's own, never shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from trunkline.routes.ends import OpenBulk, OpenReceiver, OpenSender
from trunkline.routes.event import Event

C = TypeVar("C", bound=BaseModel)


class Faults(Protocol):
    def add(self, event: Event, reason: str) -> None:
        """This event cannot be processed here; what becomes of it is the policy of its place in the chain."""


Filter = Callable[[list[Event], Faults], list[Event]]


def _nowhere(name: str, count: int) -> None: ...


@dataclass(frozen=True)
class Around:
    """What a plugin may use of the place it runs at. `constants`: names that templates may use beside payload and metadata.
    `count`: adds to a counter of people's metrics. `now`: unix seconds."""

    constants: Mapping[str, str] = field(default_factory=dict)
    now: Callable[[], float] = lambda: 0.0
    count: Callable[[str, int], None] = _nowhere
    log: Callable[[Mapping[str, Any]], None] = lambda _: None


class StatefulFilter(ABC):
    """A filter that remembers. A runner asks for its state when a batch is done, keeps it with the offsets, and gives it
    back to the filter that goes on. `joins`: it makes one event of several."""

    joins = False

    @abstractmethod
    def __call__(self, batch: list[Event], faults: Faults) -> list[Event]: ...

    @abstractmethod
    def state(self) -> Any:
        """As JSON."""

    @abstractmethod
    def restore(self, state: Any) -> None: ...

    def held(self) -> Sequence[Event]:
        """Events that it keeps back: they are not done."""
        return ()

    def due(self) -> float | None:
        """When `flush` would give something though no event comes, in unix seconds."""
        return None

    def flush(self, now: float) -> list[Event]:
        return []


@dataclass(frozen=True)
class FilterPlugin(Generic[C]):
    """`blocking`: it may wait (for another process), so it is called in a thread. `pure`: what comes of an event depends on
    that event, the configuration and the clock, and nothing else is done: one call may serve equal filters of several
    routes. `heavy`: to read or compile it may take long, so that is done in a thread, too."""

    name: str
    config: type[C]
    compile: Callable[[C, Around], Filter]
    stateful: bool = False
    blocking: bool = False
    pure: bool = False
    heavy: bool = False


class Runs(StrEnum):
    """Which runner can run it."""

    LOCAL = "local"
    SPARK = "spark"
    BOTH = "both"


@dataclass(frozen=True)
class ReceiverPlugin(Generic[C]):
    """`open`: for the local runner; none: it has nothing to read there. `everywhere`: it runs at every instance that can run
    it; otherwise at one, together with all others of its plugin that have the same `cluster`."""

    name: str
    config: type[C]
    runs: Runs
    open: OpenReceiver | None = None
    everywhere: bool = False
    cluster: Callable[[C], str] = lambda _: ""


Message = Callable[[Event], Any]


def _the_event(config: object, around: Around) -> Message:
    return lambda event: event


@dataclass(frozen=True)
class SenderPlugin(Generic[C]):
    """`message`: (configuration, around) → what becomes of an event that left the chain before it is sent; the
    event itself if there is nothing to prepare. It raises `Invalid` for an event that cannot be sent. `sends`: its type, by
    which a message that was kept as JSON is read again. `once`: it can send one effectively once (N5 of
    `trunkline.routes.ends`). `spread`: several processes may send by it at once, so that Spark's tasks do; `bulk`: how they do
    it, if there is a quicker way than to ask about each message."""

    name: str
    config: type[C]
    runs: Runs
    message: Callable[[C, Around], Message] = _the_event
    sends: type = Event
    open: OpenSender | None = None
    once: bool = False
    spread: bool = False
    bulk: OpenBulk | None = None


Plugin = ReceiverPlugin[Any] | FilterPlugin[Any] | SenderPlugin[Any]
