"""An application behind a listener, as these tests use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from receiving import QUICK, Receiver

from trunkline.queues.callbacks import Batch
from trunkline.queues.kinds import Kind
from trunkline.queues.listener import Callbacks, Pace, QueueListener
from waiting import eventually


@dataclass
class Application:
    """Takes everything but what it is told to refuse, and remembers what was offered to it."""

    refuses: set[bytes] = field(default_factory=set)
    offered: list[tuple[Kind, list[bytes]]] = field(default_factory=list)
    taken: list[bytes] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    told: list[tuple[Any, ...]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def process(self, batch: Batch) -> bool:
        assert len({m.kind for m in batch}) == 1
        payloads = [m.payload for m in batch]
        self.offered.append((batch[0].kind, payloads))
        if self.refuses & set(payloads):
            return False
        self.taken += payloads
        self.ids += [m.message_id for m in batch]
        return True

    def callbacks(self) -> Callbacks:
        return Callbacks(
            on_new_site=lambda source: self.told.append(("site", source)),
            on_snapshot_start=lambda source, request, forced: self.told.append(("start", source, request, forced)),
            on_snapshot_complete=lambda source, request: self.told.append(("complete", source, request)),
            on_lost=lambda source, first, last: self.told.append(("lost", source, first, last)),
            on_error=self.errors.append,
        )

    def listener(self, site: Receiver, tries: int | None = None, pace: Pace = QUICK, client: str = "app") -> QueueListener:
        return QueueListener(site.dsn, client, "ledger", self.process, callbacks=self.callbacks(), tries=tries, pace=pace)

    def listen(self, site: Receiver, until: Callable[[], object], **options: Any) -> None:
        with self.listener(site, **options):
            eventually(until, why=lambda: (self.offered[-3:], self.errors[-3:]))


def waiting(site: Receiver) -> list[int]:
    """What is left in the queues, for this consumer."""
    return site.ask("SELECT head - coalesce(position, 0) FROM queues.queue LEFT JOIN queues.consumed ON queue = id ORDER BY id")
