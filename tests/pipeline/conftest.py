from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fleet_feed import Feed

from trunkline.pipeline.session import Spark, open_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """One driver per run: a JVM takes seconds to start."""
    spark = open_session(tmp_path_factory.mktemp("spark"), "tests", fast_start=True)
    yield spark
    spark.stop()


@pytest.fixture
def dsn(make_database: Callable[..., str]) -> str:
    return make_database("queues", "bridge")


@pytest.fixture
def feed(dsn: str) -> Feed:
    return Feed(dsn)
