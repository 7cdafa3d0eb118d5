"""The guarantees by name, and the witness that notes at once whatever may never happen, not even for a moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

CHECKS: dict[str, str] = {
    "G2": "after the faults all stores are equal with their digests, and a key that a node keeps is at what it last set",
    "G3": "each entry is at each of its destinations exactly once",
    "G3-link": "in steady state an entry crosses each link at most once",
    "copies": "in steady state an entry is sent to each site exactly once: one copy per record and site",
    "paths": "once calm every site has a row for every origin it can reach, along a shortest path",
    "loops": "following `via` always ends at the origin",
    "rows": "every site's rows keep R1 to R5",
    "G4": "a destination sees an origin's log in order, with no gap and no regress",
    "acks": "an origin knows what its destinations have: in the end all of it, and never more than is durable",
    "kept": "a node keeps a key that it set until somebody else writes it",
    "lasting": "what was erased, or written without end, is nowhere overcome by anything older",
    "gone": "a key that nobody keeps and that has a ttl is nowhere",
    "watch": "a watcher that reads when it likes ends with what its store has",
    "H01": "nothing is written under an epoch after a newer one began",
    "H02": "epochs of a lease only grow",
    "H03": "an old leader does nothing once a new one began",
    "defect": "no process fails, and none breaks the protocol",
}


@dataclass(frozen=True)
class Failure:
    check: str
    what: str

    def __str__(self) -> str:
        return f"{self.check}: {self.what}"


Crossing = tuple[str, str, str, int]
"""The two ends of a link, sorted; origin; seq."""


@dataclass
class Witness:
    failures: list[Failure] = field(default_factory=list)
    crossings: Counter[Crossing] | None = None
    """Counted only while the universe is steady."""
    on_failure: Callable[[Failure], None] = lambda failure: None

    def saw(self, check: str, what: str) -> None:
        failure = Failure(check, what)
        if failure not in self.failures:
            self.failures.append(failure)
            self.on_failure(failure)
