"""How a producer of the Kafka sender is set up."""

from __future__ import annotations

from typing import Any

from trunkline.routes.clusters import KafkaCluster
from trunkline.routes.senders.kafka import KafkaSenderConfig

MESSAGE_ID = "trunkline-id"
"""The header with the message's id: the same whenever it is sent again."""

_OURS = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 20,
    "partitioner": "murmur2_random",  # as the clients in Java do
    "queue.buffering.max.kbytes": 64 << 10,
    "reconnect.backoff.max.ms": 1000,  # a broker that comes back is to be found soon
    "log_level": 0,
}


def producer_settings(config: KafkaSenderConfig, seconds: float) -> dict[str, Any]:
    compression: dict[str, Any] = {"compression.type": config.compression_method}
    if config.compression_level is not None:
        compression["compression.level"] = config.compression_level
    return {**_OURS, **cluster_settings(config), **compression, "message.timeout.ms": round(1000 * seconds)}


def cluster_settings(cluster: KafkaCluster) -> dict[str, Any]:
    login, tls = bool(cluster.username.reveal()), cluster.tls_enable
    given: dict[str, Any] = {"bootstrap.servers": cluster.brokers.reveal()}
    if login:
        given |= {"sasl.mechanism": "PLAIN", "sasl.username": cluster.username.reveal()}
        given["sasl.password"] = cluster.password.reveal() if cluster.password else ""
    pems = {
        "ssl.ca.pem": cluster.ca_cert.reveal(),
        "ssl.certificate.pem": cluster.access_cert.reveal(),
        "ssl.key.pem": cluster.access_key.reveal() if cluster.access_key else "",
    }
    found = {name: pem for name, pem in pems.items() if pem}
    wire = "SSL" if tls or found else "PLAINTEXT"
    return given | found | {"security.protocol": f"SASL_{wire}" if login else wire}
