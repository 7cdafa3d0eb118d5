"""Log and Sink in memory: for the simulator, and the yardstick of the conformance suite."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence, Set

from trunkline.core.errors import LocalProtocolError
from trunkline.core.ids import START, Position
from trunkline.trunk.log import LOST, NOTHING_APPLIED, Applied, Chunk, Entry
from trunkline.trunk.wants import is_held

Message = tuple[str, tuple[str, ...], dict[str, str], bytes]
"""client, destinations, headers, payload"""


class MemoryLog:
    def __init__(self, log_id: str) -> None:
        self._log_id = log_id
        self._entries: list[Entry] = []
        self._ends: list[int] = []  # last seq of every transaction
        self._marks: list[int] = []  # the mark of that transaction
        self._clients: dict[str, int] = {}
        self._lowest = START

    @property
    def log_id(self) -> str:
        return self._log_id

    def commit(self, messages: Sequence[Message], mark: int) -> Position:
        """One transaction, stamped at once with a round's mark."""
        for client, destinations, headers, payload in messages:
            seq = len(self._entries) + 1
            self._entries.append(Entry(seq, client, destinations, headers, payload))
            self._clients.setdefault(client, seq)
        self._ends.append(len(self._entries))
        self._marks.append(mark)
        return self.head()

    def head(self) -> Position:
        return Position(self._ends[-1], self._marks[-1]) if self._ends else START

    def trim(self, seq: int) -> Position:
        """Forgets whole transactions up to `seq`."""
        last = bisect_right(self._ends, seq) - 1
        if last >= 0 and self._ends[last] > self._lowest.seq:
            self._lowest = Position(self._ends[last], self._marks[last])
        return self._lowest

    def lowest(self) -> Position:
        return self._lowest

    def mark_at(self, seq: int) -> int | None:
        if seq == 0:
            return 0
        if not self._lowest.seq <= seq <= len(self._entries) or seq < 0:
            return None
        return self._marks[bisect_left(self._ends, seq)]

    def clients(self) -> Mapping[str, int]:
        return dict(self._clients)

    def trimmed_for(self, site: str) -> Mapping[str, int]:
        return {e.client: e.seq for e in self._entries[: self._lowest.seq] if e.is_for({site})}

    def missed_by(self, site: str) -> Set[str]:
        return frozenset()  # it knows nothing of acknowledgements

    def read(self, after: int, limit: int, destinations: Set[str]) -> Chunk:
        first = bisect_right(self._ends, after)
        last = bisect_left(self._ends, after + limit, lo=first)
        last = min(last, len(self._ends) - 1)
        if last < first:
            return Chunk((), Position(after, self.mark_at(after) or 0))
        end = self._ends[last]
        entries = tuple(e for e in self._entries[after:end] if e.is_for(destinations))
        return Chunk(entries, Position(end, self._marks[last]))


class MemorySink:
    def __init__(self) -> None:
        self._applied: dict[str, Applied] = {}
        self.received: dict[str, list[Entry]] = {}
        self.held: dict[str, set[str]] = {}
        """Origin → clients of which nothing is taken."""

    def applied(self, origin: str) -> Applied:
        applied = self._applied.get(origin, NOTHING_APPLIED)
        return Applied(applied.log_id, applied.clients, tuple(sorted(self.held.get(origin, ()))))

    def append(self, origin: str, log_id: str, entries: Sequence[Entry], upto: Position, clients: Sequence[str]) -> bool:
        applied = self.applied(origin)
        if applied.log_id not in ("", log_id):
            raise LocalProtocolError(
                f"log of {origin}", f"positions are of log {applied.log_id}, entries of {log_id}", "reset the origin first"
            )
        received, taken = self.received.setdefault(origin, []), [c for c in clients if not is_held(applied, c)]
        fresh = [e for e in entries if e.client in taken and e.seq > applied.clients.get(e.client, START).seq]
        received.extend(message for e in fresh for message in e.apart())
        reached = {c: max(upto, applied.clients.get(c, START), key=lambda p: p.seq) for c in taken}
        self._applied[origin] = Applied(log_id, {**applied.clients, **reached})
        return False

    def lost(self, origin: str, log_id: str, upto: Position, clients: Sequence[str]) -> None:
        has = self.applied(origin).clients
        behind = [c for c in clients if has.get(c, START).seq < upto.seq]
        records = [Entry(upto.seq, c, (), {LOST: f"{has.get(c, START).seq + 1}-{upto.seq}"}, b"") for c in behind]
        self.append(origin, log_id, records, upto, behind)

    def reset(self, origin: str, log_id: str) -> None:
        self._applied[origin] = Applied(log_id, {})
