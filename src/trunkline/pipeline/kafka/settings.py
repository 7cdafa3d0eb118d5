"""What a query over Kafka is told, and how it travels through Spark's options."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps, loads
from trunkline.db.lease import Grant

CLIENT_PREFIX = "kafka."
ENVELOPE = "envelope"
BUNDLES = "bundles"


@dataclass(frozen=True)
class Subscription:
    """Topics by name, and all whose whole name matches a pattern; Kafka's own topics only by name."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    @classmethod
    def prefix(cls, prefix: str) -> Subscription:
        return cls(pattern=re.escape(prefix) + ".*")

    def wants(self, topic: str) -> bool:
        if topic in self.topics:
            return True
        return self.pattern is not None and not topic.startswith("__") and self._matches(topic) is not None

    @cached_property
    def _matches(self) -> Callable[[str], object]:
        try:
            return re.compile(self.pattern or "").fullmatch
        except re.error as error:
            raise Invalid(f"topic pattern {self.pattern}", str(error), "write a regular expression") from None


@dataclass(frozen=True)
class Settings:
    """`client` are settings of librdkafka, for security and tuning. A broker that says nothing for `patience_seconds` makes
    a batch fail. The limits are per batch; that of bytes works by an estimate of each topic's records. `envelope`: '' for
    records as they are, `bundles` for status messages with their senders (`trunkline.pipeline.arrivals`). `newest`: what tasks
    may conflate of these (`trunkline.pipeline.newest`), or ''."""

    dsn: str
    group: str
    grant: Grant
    tasks: int
    bootstrap: str
    subscription: Subscription
    max_records: int = 200_000
    max_bytes: int = 256 << 20
    patience_seconds: float = 15.0
    client: Mapping[str, str] = field(default_factory=dict)
    envelope: str = ""
    newest: str = ""

    def options(self) -> dict[str, str]:
        return {
            "dsn": self.dsn,
            "group": self.group,
            "lease": self.grant.name,
            "holder": str(self.grant.holder),
            "epoch": str(self.grant.epoch),
            "tasks": str(self.tasks),
            "bootstrap": self.bootstrap,
            "topics": dumps(sorted(self.subscription.topics)).decode(),
            "pattern": self.subscription.pattern or "",
            "max_records": str(self.max_records),
            "max_bytes": str(self.max_bytes),
            "patience_seconds": str(self.patience_seconds),
            ENVELOPE: self.envelope,
            "newest": self.newest,
            **{CLIENT_PREFIX + key: value for key, value in self.client.items()},
        }

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        return cls(
            options["dsn"],
            options["group"],
            Grant(options["lease"], uuid.UUID(options["holder"]), int(options["epoch"])),
            int(options["tasks"]),
            options["bootstrap"],
            Subscription(frozenset(loads(options["topics"], "option topics")), options["pattern"] or None),
            int(options["max_records"]),
            int(options["max_bytes"]),
            float(options["patience_seconds"]),
            client_options(options),
            options.get(ENVELOPE, ""),
            options.get("newest", ""),
        )


def client_options(options: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix(CLIENT_PREFIX): value for key, value in options.items() if key.startswith(CLIENT_PREFIX)}
