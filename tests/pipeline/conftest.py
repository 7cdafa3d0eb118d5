from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet_feed import Feed


@pytest.fixture
def dsn(make_database: Callable[..., str]) -> str:
    return make_database("queues", "bridge")


@pytest.fixture
def feed(dsn: str) -> Feed:
    return Feed(dsn)
