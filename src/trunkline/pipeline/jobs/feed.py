"""What a receiver group reads, whatever that is: the words between a job and the source of its events.

A feed is asked in three places: by the process that plans (`next`), by tasks (`read`), and by the driver in the transaction
that ends a batch (`move`). Between them only the plan's body travels, as JSON.

W1  `next` names exact bounds of what is there now; whoever reads them reads the same, always and everywhere.
W2  Where a group stands is known to Postgres alone. `move` goes on from where the plan begins, and raises if that is not
    where the group stands (H28).
W3  An event's id is its place in the source: the same whenever it is read again. So are the ids of its messages.
W4  The order of a source's own partitions is kept: each is read by one task, in its order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Protocol

import psycopg

from trunkline.pipeline.jobs.receivers import Receiver, Receivers
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.routes.event import Event
from trunkline.routes.groups import Group
from trunkline.routes.placement import INGEST, is_placed
from trunkline.routes.plugin import ReceiverPlugin

Connection = psycopg.Connection[Any]
Piece = Any
"""What one task reads; it is pickled."""
Read = tuple[Receiver, list[Event]]


class Feed(Protocol):
    """Made by `feed_of` in each process that needs it."""

    stuck: str
    """Why some of what it should read stands still, as of the last `next`; the rest is read."""

    def next(self, conn: Connection, receivers: Receivers, open_body: Any | None) -> tuple[Any | None, int]:
        """What the next batch reads: a body, none if there is nothing; and how many events wait behind it. `open_body`: of the
        plan that is open, which is given back as it is if it can still be read. In a transaction, which the caller ends:
        what it writes down (where a new receiver begins) is kept with the plan."""

    def partition(self, source: str) -> str:
        """Of the event with this id: events of different ones may be read in another order the next time."""

    def rows(self, body: Any) -> int:
        """About how many events it names."""

    def pieces(self, body: Any, tasks: int) -> Sequence[Piece]:
        """At most so many, of about the same size."""

    def read(self, piece: Piece, receivers: Receivers) -> Iterator[Read]:
        """In a task. Some thousand events at a time; all of the piece, or it raises."""

    def move(self, conn: Connection, body: Any) -> None:
        """In the driver: past all that the body names. The caller commits, fenced."""

    def check(self, body: Any, receivers: Receivers) -> None:
        """In the driver, after the batch was read and before it is committed: raises if what was read was not what was
        planned."""

    def close(self) -> None: ...


_FEEDS = {
    "kafka": "trunkline.pipeline.jobs.feeds.kafka:KafkaFeed",
    "queue": "trunkline.pipeline.jobs.feeds.queue:QueueFeed",
    "files": "trunkline.pipeline.jobs.feeds.files:FilesFeed",
    "ingest": "trunkline.pipeline.jobs.feeds.ingest:IngestFeed",
}
"""By the plugin of the group."""
RUNS = tuple(_FEEDS)


def group_of(plugin: ReceiverPlugin[Any], config: Any) -> Group | None:
    """The group that a pipeline reads such a receiver in; none: it is left to nodes."""
    if is_placed(config):
        return INGEST
    return Group(plugin.name, plugin.cluster(config)) if plugin.name in _FEEDS else None


def feed_of(settings: JobSettings) -> Feed:
    module, _, name = _FEEDS[settings.of.plugin].partition(":")
    feed: Feed = getattr(import_module(module), name)(settings)
    return feed
