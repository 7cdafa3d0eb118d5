"""Links that lose what is said on purpose: entries, acknowledgements, and words about the window."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from carriers import Fleet

from trunkline.trunk.messages import Ack, Batch, Taken, TrunkMessage, Vector
from trunkline.trunk.taker import WINDOW

PAYLOAD = 64 * 1024


@dataclass
class Lossy:
    """Loses every fifth batch that has entries, and every third answer; adds up what is out and not confirmed."""

    seen: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    out: dict[int, deque[tuple[int, int]]] = field(default_factory=dict)
    """Subscription → (end, bytes) of each batch."""
    most: int = 0

    def __call__(self, sender: str, to: str, message: TrunkMessage) -> bool:
        if isinstance(message, Batch) and message.entries:
            self._went(message)
            return self._every(5, "batch")
        if isinstance(message, Ack | Vector):
            return self._every(3, "answer")
        if isinstance(message, Taken):
            is_lost = self._every(3, "word")
            if not is_lost:
                self._confirmed(message)
            return is_lost
        return False

    def _every(self, nth: int, kind: str) -> bool:
        self.seen[kind] += 1
        is_lost = self.seen[kind] % nth == 0
        self.lost[kind] += is_lost
        return is_lost

    def _went(self, batch: Batch) -> None:
        out = self.out.setdefault(batch.id, deque())
        out.append((batch.upto.seq, sum(len(e.payload) for e in batch.entries)))
        self.most = max(self.most, sum(size for _, size in out))

    def _confirmed(self, word: Taken) -> None:
        out = self.out.get(word.id)
        while out and out[0][0] <= word.seq:
            out.popleft()


def test_s20_lost_entries_and_answers_cost_time_only_and_no_more_is_out_than_the_window() -> None:
    fleet = Fleet([("hub", "leaf")], delay=0.02)
    fleet.lose = lossy = Lossy()
    for n in range(500):
        fleet.commit("hub", "leaf", payload=b"%d" % n + bytes(PAYLOAD))
    fleet.run(600.0)
    assert fleet.got("leaf", "hub") == list(range(1, 501)), "each once, in order"
    assert fleet.acknowledged["hub", "leaf"] == {"policy": fleet.ends["hub"].log.head()}
    assert min(lossy.lost[kind] for kind in ("batch", "answer", "word")) > 10
    assert WINDOW <= lossy.most < WINDOW + 2 * PAYLOAD, "used to its end, and never beyond what was under way then"
