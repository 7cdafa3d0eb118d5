"""What was written last to each key, by the order in which stores merge, and whether it must still be there in the end.

A value lasts when nothing ends it soon: it was erased, or its ttl is infinite. It must stay when its writer lived on with a
clock that did not leap, or when some store held it for long enough as the faults ended. What else was lost with those who
held it is no failure: the store is replicated memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trunkline.net.simhost import Host
from trunkline.store.area import Area
from trunkline.store.values import INFINITE, Outcome, Value, merge


@dataclass(frozen=True)
class Written:
    value: Value
    host: str
    life: int
    leapt: float


@dataclass
class Ledger:
    hosts: Mapping[str, Host]
    last: dict[str, Written] = field(default_factory=dict)
    _held: dict[str, Value] = field(default_factory=dict)

    def wrote(self, name: str, key: str, value: Value) -> None:
        before = self.last.get(key)
        if before is None or merge(before.value, value) is Outcome.REPLACED:
            host = self.hosts[name]
            self.last[key] = Written(value, name, host.life, host.clock.leapt)

    def hold(self, stores: Mapping[str, Area], seconds: float) -> None:
        """The faults are over: what some store holds for so long must stay."""
        for name, store in stores.items():
            until = self.hosts[name].clock.monotonic() + seconds
            for key, entry in store.table.entries.items():
                if entry.ends > until and key in self.last and _same(entry.value, self.last[key].value):
                    self._held[key] = entry.value

    def lasting(self) -> Iterator[tuple[str, Value]]:
        for key, written in self.last.items():
            value = written.value
            if (value.erased or value.ttl_ms == INFINITE) and (self._lived_on(written) or _same(self._held.get(key), value)):
                yield key, value

    def _lived_on(self, written: Written) -> bool:
        host = self.hosts[written.host]
        return (host.life, host.clock.leapt) == (written.life, written.leapt)


def _same(one: Value | None, other: Value) -> bool:
    return one is not None and (one.version, one.originator, one.hash) == (other.version, other.originator, other.hash)
