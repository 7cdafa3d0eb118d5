"""Records to Kafka from a plain process: without Spark, at least once, in order."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from trunkline.core.errors import Retryable
from trunkline.pipeline.kafka.clients import configuration

_POLL_SECONDS = 0.05
_CLOSE_SECONDS = 1.0


class Records:
    """After `flush` every record was acknowledged by all in-sync replicas, or it raises `Retryable`."""

    def __init__(self, bootstrap: str, client: Mapping[str, str], seconds: float = 30.0, linger_ms: int = 5) -> None:
        own = {
            "acks": "all", "enable.idempotence": True, "linger.ms": linger_ms, "message.timeout.ms": int(seconds * 1000),
            "delivery.report.only.error": True, "queue.buffering.max.kbytes": 64 << 10,
        }  # fmt: skip
        self._bootstrap, self._seconds, self._failure = bootstrap, seconds, ""
        self._producer = Producer({**configuration(bootstrap, own, client), "on_delivery": self._undelivered})

    def send(self, topic: str, key: str, value: bytes, headers: Mapping[str, str]) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, headers=list(headers.items()))
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(_POLL_SECONDS)
                self._require_delivery()
            except KafkaException as error:
                raise self._not_sent(str(error)) from None

    def flush(self) -> None:
        left = self._producer.flush(self._seconds + 1)
        self._require_delivery()
        if left:
            raise self._not_sent(f"{left} records were not taken within {self._seconds:g} s")

    def close(self) -> None:
        """What was not flushed is given up."""
        self._producer.purge()
        self._producer.flush(_CLOSE_SECONDS)

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = f"a record for {message.topic()} was not delivered: {error.str()}"

    def _require_delivery(self) -> None:
        failure, self._failure = self._failure, ""
        if failure:
            raise self._not_sent(failure)

    def _not_sent(self, why: str) -> Retryable:
        return Retryable(f"Kafka at {self._bootstrap}", why, "see that its brokers are there, and send again")
