"""Format `trunkline.kafka`, as Spark knows it."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from trunkline.pipeline import arrivals
from trunkline.pipeline.kafka.records import SCHEMA
from trunkline.pipeline.kafka.settings import BUNDLES, ENVELOPE, Settings
from trunkline.pipeline.kafka.sink import KafkaStreamWriter, KafkaWriter, SinkSettings
from trunkline.pipeline.kafka.source import KafkaReader

FORMAT = "trunkline.kafka"


class KafkaFormat(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return arrivals.SCHEMA if self.options.get(ENVELOPE) == BUNDLES else SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return KafkaReader(Settings.of(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return KafkaWriter(SinkSettings.of(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return KafkaStreamWriter(SinkSettings.of(self.options, schema))
