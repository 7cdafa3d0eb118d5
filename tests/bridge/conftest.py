from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from bridge_hub import Hub

from kafka_bridge import KafkaBridge
from kafka_topics import Topics
from trunkline.cli.dev.kafka import KafkaBroker
from trunkline.pipeline.session import Spark

_numbers = itertools.count(1)


@pytest.fixture
def hub(make_database: Callable[..., str]) -> Iterator[Hub]:
    with ExitStack() as stack:
        yield Hub(make_database("queues", "bridge"), stack)


@pytest.fixture
def topics(kafka: KafkaBroker) -> Iterator[Topics]:
    topics = Topics(kafka.bootstrap, f"status{next(_numbers)}")
    yield topics
    topics.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make_bridge(
    spark: Spark, topics: Topics, make_database: Callable[..., str], tmp_path: Path, stack: ExitStack
) -> Callable[..., KafkaBridge]:
    """Each is the next holder of the lease on one database, and has it alone once the one before was stopped."""
    dsn = make_database("queues", "bridge", "pipeline")
    return lambda **config: KafkaBridge(spark, dsn, topics, tmp_path, stack, **config)


@pytest.fixture
def bridge(make_bridge: Callable[..., KafkaBridge]) -> KafkaBridge:
    return make_bridge()
