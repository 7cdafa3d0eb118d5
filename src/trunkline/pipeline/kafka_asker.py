"""Asks sites for a resync over Kafka: a record of the control topic, whose key is the site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trunkline.bridge.askers import KIND, Request
from trunkline.pipeline.kafka_records import Records

FLUSH_SECONDS = 10.0


class KafkaAsker:
    """`client` are settings of librdkafka."""

    def __init__(self, bootstrap: str, topic: str, client: Mapping[str, str]) -> None:
        self._topic, self._records = topic, Records(bootstrap, client, FLUSH_SECONDS)

    def ask(self, site: str, types: Sequence[str], reason: str, id: str) -> None:
        self._records.send(self._topic, site, Request(site, tuple(types), reason, id).encode(), KIND)

    def flush(self) -> None:
        self._records.flush()

    def close(self) -> None:
        self._records.close()
