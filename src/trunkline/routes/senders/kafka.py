from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BeforeValidator, Field

from trunkline.core.errors import Invalid
from trunkline.core.scalars import Whole
from trunkline.routes.clusters import KafkaCluster
from trunkline.routes.ends import Bulk, Place, Sending
from trunkline.routes.event import Event
from trunkline.routes.fields import EventPath, RouteModel, Template
from trunkline.routes.paths import compile_tree, event_path, reader
from trunkline.routes.plugin import Around, Runs, SenderPlugin
from trunkline.routes.senders.extras import needs
from trunkline.routes.senders.prepared import json_of, text_of


def _lower(word: object) -> object:
    return (word.lower() or "none") if isinstance(word, str) else word


Compression = Annotated[Literal["none", "zstd", "snappy", "gzip", "lz4"], BeforeValidator(_lower)]


class MetricLabel(RouteModel):
    """A label of the sender's metrics that is taken from the event."""

    label: str = Field(min_length=1, examples=["kind"], description="the label's name")
    path: EventPath = Field(examples=["payload.kind"], description="where its value is in the event")


class KafkaSenderConfig(KafkaCluster):
    """A record of a topic for each event: the payload as JSON. It is sent when all replicas in sync have it; the header
    `trunkline-id` stays the same when it is sent again. Records of one partition stay in their order."""

    key: Template | None = Field(default=None, examples=["{payload.id}"], description="the record's key; none: no key")
    partition: Whole = Field(default=-1, ge=-1, description="the partition; -1: by the key")
    partition_path: EventPath | None = Field(
        default=None,
        examples=["metadata.kafka.partition"],
        description="where the event has the partition's number, taken modulo the number of partitions",
    )
    sender_pool_size: Whole = Field(default=1, ge=1, le=100, description="how many producers share the work")
    compression_method: Compression = Field(default="none", description="how records are compressed, in any case of letters")
    compression_level: Whole | None = Field(default=None, ge=-1, le=22, description="none: the method's own default")
    dynamic_metric_label: tuple[MetricLabel, ...] = Field(default=(), description="labels that come from the event")


class Record(msgspec.Struct, frozen=True):
    """`value`: JSON. `partition`: none: by the key. `modulo`: it is taken modulo the number of partitions."""

    value: str
    key: str | None = None
    partition: int | None = None
    modulo: bool = False


def compile_record(config: KafkaSenderConfig, around: Around) -> Callable[[Event], Record]:
    key_of = None if config.key is None else compile_tree(config.key, around.constants)
    partition_of = None if config.partition_path is None else reader(event_path(config.partition_path))
    fixed = None if config.partition < 0 else config.partition
    what = f"record for {config.topic}"

    def send(event: Event) -> Record:
        value, key = json_of(what, event.payload), None if key_of is None else key_of(event)
        named = None if partition_of is None else _number(what, partition_of(event))
        return Record(value, None if key is None else text_of(what, key), fixed if named is None else named, named is not None)

    return send


def _number(what: str, value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise Invalid(what, "the partition that it names is not a whole number", "send an event with a number, or without one")


async def _open(config: KafkaSenderConfig, place: Place) -> Sending:
    needs("confluent_kafka", "the sender kafka")
    from trunkline.routes.senders.kafka_sending import KafkaSending

    return KafkaSending(config)


def _bulk(config: KafkaSenderConfig, place: Place) -> Bulk:
    needs("confluent_kafka", "the sender kafka")
    from trunkline.routes.senders.kafka_bulk import KafkaBulk

    return KafkaBulk(config)


KAFKA = SenderPlugin("kafka", KafkaSenderConfig, Runs.BOTH, compile_record, Record, _open, spread=True, bulk=_bulk)
