from __future__ import annotations

from typing import Literal

from pydantic import Field

from trunkline.core.scalars import Number, Whole
from trunkline.routes.clusters import KafkaCluster, kafka_cluster
from trunkline.routes.plugin import ReceiverPlugin, Runs


class KafkaReceiverConfig(KafkaCluster):
    """Records of a topic, each a JSON value. An offset is done when all that became of its record is. What is not JSON comes as
    a text, with `metadata.kafka.text` true; a record without a value comes as null.

    A pipeline of the site reads all topics of one cluster together, and keeps its offsets in the site's database: no consumer
    group of the cluster is used."""

    group_id: str = Field(default="", max_length=249, description="taken from EARS, without effect")
    start_at: Literal["latest", "earliest"] = Field(
        default="latest", description="where a topic that no route has read yet begins; one that is not there yet: at its first"
    )
    consume_by_partitions: bool = Field(default=False, description="taken from EARS, without effect: partitions are read apart")
    commit_interval: Number = Field(default=1.0, gt=0, le=3_600, description="taken from EARS, without effect")
    channel_buffer_size: Whole = Field(default=0, ge=0, le=1_000_000, description="taken from EARS, without effect")
    trace_payload_on_nack: bool = Field(default=False, description="whether a failed event's trace holds its payload")


KAFKA = ReceiverPlugin("kafka", KafkaReceiverConfig, Runs.SPARK, cluster=kafka_cluster)
