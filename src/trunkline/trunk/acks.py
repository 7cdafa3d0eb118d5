"""Acknowledgements on their way to the origin: the newest per destination, said again when it may have been lost.

A newer generation of a destination replaces whatever an older one said; within one generation and log, positions only grow.
An equal acknowledgement is passed on: it is the repetition that mends a loss further up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trunkline.core.ids import START
from trunkline.trunk.messages import Ack

REPEAT_SECONDS = 5.0


@dataclass
class Acknowledgements:
    site: str
    log_id: str
    _known: dict[str, dict[str, Ack]] = field(default_factory=dict)
    _due: dict[tuple[str, str], None] = field(default_factory=dict)
    _repeat_at: float = 0.0

    def note(self, ack: Ack) -> None:
        if not ack.clients or (ack.origin == self.site and ack.log_id != self.log_id):
            return
        known = self._known.setdefault(ack.origin, {})
        if ack.destination not in known or not _older(ack, known[ack.destination]):
            known[ack.destination] = ack
            self._due[ack.origin, ack.destination] = None

    def say_again(self, origin: str) -> None:
        """The origin is taken from a new parent, which must hear all of it."""
        self._due.update({(origin, destination): None for destination in self._known.get(origin, ())})

    def due(self, now: float) -> list[Ack]:
        if now >= self._repeat_at:
            self._repeat_at = now + REPEAT_SECONDS
            self._due.update({(origin, self.site): None for origin, known in self._known.items() if self.site in known})
        due, self._due = self._due, {}
        return [self._known[origin][destination] for origin, destination in due]


def _older(ack: Ack, known: Ack) -> bool:
    if ack.generation != known.generation:
        return ack.generation < known.generation
    return ack.log_id == known.log_id and any(ack.clients.get(c, START).seq < p.seq for c, p in known.clients.items())
