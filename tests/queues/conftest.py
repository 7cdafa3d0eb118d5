from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from queue_site import Site


@pytest.fixture
def site(make_database: Callable[..., str]) -> Iterator[Site]:
    with ExitStack() as stack:
        site = Site(make_database("queues"), stack)
        site.do("INSERT INTO queues.site (name) VALUES ('hub'), ('shop')")
        yield site
