"""What waits of one site and type: the words of `trunkline.bridge.units`, and the slots it keeps them in.

A slot of a complete type holds the newest bundle only. A slot of any other type holds all that wait, by arrival: its *head* is
the first of them. The head decides when the slot may be applied, and its job stands for all that wait behind it.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Collection
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from trunkline.bridge.types import Match
from trunkline.core.bundle import Mode, Version

SlotKey = tuple[str, str]
"""(type, key): key is '' but for complete types that keep several bundles of a site"""
Name = Version | int
"""What tells the entries of one slot apart: the version of complete bundles, the arrival of all others."""


class Place(StrEnum):
    READY = "ready"
    PARKED = "parked"
    DELAYED = "delayed"
    FLYING = "flying"


class Waiting(msgspec.Struct, frozen=True):
    """A bundle in the inbox. `dependency` is the named version of `base` that it wants. `since` is by the clock of `take`."""

    site: str
    group: str
    type: str
    key: str
    version: Version
    dependency: Version | None
    base: str | None
    match: Match
    mode: Mode
    priority: int
    since: float
    arrival: int = 0
    restores: bool = False

    @property
    def slot(self) -> SlotKey:
        return self.type, self.key if self.mode is Mode.COMPLETE else ""

    @property
    def name(self) -> Name:
        return self.version if self.mode is Mode.COMPLETE else self.arrival


class Job(msgspec.Struct, frozen=True):
    """`version` is the newest the units knew of a complete bundle, the head's of others; the worker may find newer ones."""

    site: str
    group: str
    type: str
    key: str
    mode: Mode
    version: Version
    tries: int

    @property
    def slot(self) -> SlotKey:
        return self.type, self.key


class Wave(msgspec.Struct, frozen=True):
    """Jobs of one type, each of another site: one transaction can apply them all."""

    type: str
    mode: Mode
    jobs: tuple[Job, ...]


class Failure(msgspec.Struct, frozen=True):
    """Of the entry that was the head then: another one starts without it."""

    of: Name
    tries: int
    retry_at: float


class Slot(ABC):
    """`place`: none before the first look. `turn`: see U4 of `trunkline.bridge.units`. `base`: the type it depends on.
    `weight`: how many of its entries count as backlog."""

    def __init__(self, first: Waiting) -> None:
        self.site, self.group, self.type, self.mode = first.site, first.group, first.type, first.mode
        self.key = first.slot
        self.base: str | None = None
        self.head: Waiting | None = None
        self.place: Place | None = None
        self.job: Job | None = None
        self.failure: Failure | None = None
        self.turn = 0
        self.weight = 0

    @property
    def tries(self) -> int:
        return self.failure.tries if self.failure and self.head and self.failure.of == self.head.name else 0

    def fly(self) -> Job:
        assert self.head is not None, "what is taken has a head"
        self.job = Job(self.site, self.group, *self.key, self.mode, self.head.version, self.tries)
        return self.job

    @property
    @abstractmethod
    def backlog(self) -> int:
        """Entries that nothing newer makes needless."""

    @abstractmethod
    def names(self) -> set[Name]: ...

    @abstractmethod
    def put(self, entry: Waiting) -> bool:
        """False if it was there, or something newer."""

    @abstractmethod
    def first(self, held: bool) -> Waiting | None:
        """The entry that decides; while the slot is held only one that restores."""

    @abstractmethod
    def leave(self, job: Job, applied: Version | None, upto: int | None) -> None: ...

    @abstractmethod
    def remove(self, names: Collection[Name]) -> None: ...


class Newest(Slot):
    def __init__(self, first: Waiting) -> None:
        super().__init__(first)
        self._entry: Waiting | None = None

    @property
    def backlog(self) -> int:
        return 0

    def names(self) -> set[Name]:
        return {self._entry.version} if self._entry else set()

    def put(self, entry: Waiting) -> bool:
        before = self._entry
        if before is not None and before.version >= entry.version:
            return False
        flies = before is not None and self.job is not None and before.version <= self.job.version
        self._entry = replace(entry, since=min(before.since, entry.since)) if before and not flies else entry
        return True

    def first(self, held: bool) -> Waiting | None:
        return self._entry

    def leave(self, job: Job, applied: Version | None, upto: int | None) -> None:
        if self._entry is not None and self._entry.version <= max(job.version, applied or job.version):
            self._entry = None

    def remove(self, names: Collection[Name]) -> None:
        if self._entry is not None and self._entry.version in names:
            self._entry = None


class Queue(Slot):
    def __init__(self, first: Waiting) -> None:
        super().__init__(first)
        self._entries: dict[Name, Waiting] = {}
        self._order: list[int] = []
        self._restoring: list[int] = []
        self._newest = self._newest_taken = first.arrival

    @property
    def backlog(self) -> int:
        return len(self._entries)

    def names(self) -> set[Name]:
        return set(self._entries)

    def put(self, entry: Waiting) -> bool:
        if entry.arrival in self._entries:
            return False
        self._entries[entry.arrival] = entry
        self._newest = max(self._newest, entry.arrival)
        heapq.heappush(self._order, entry.arrival)
        if entry.restores:
            heapq.heappush(self._restoring, entry.arrival)
        return True

    def first(self, held: bool) -> Waiting | None:
        heap = self._restoring if held and self.mode.is_ordered else self._order
        while heap and heap[0] not in self._entries:
            heapq.heappop(heap)
        return self._entries[heap[0]] if heap else None

    def fly(self) -> Job:
        self._newest_taken = self._newest
        return super().fly()

    def leave(self, job: Job, applied: Version | None, upto: int | None) -> None:
        """Without `upto` nothing that was known when the job was taken is there any more."""
        last = self._newest_taken if upto is None else upto
        for heap in (self._order, self._restoring):
            while heap and heap[0] <= last:
                self._entries.pop(heapq.heappop(heap), None)

    def remove(self, names: Collection[Name]) -> None:
        for name in names:
            self._entries.pop(name, None)


def slot_for(entry: Waiting) -> Slot:
    return Newest(entry) if entry.mode is Mode.COMPLETE else Queue(entry)
