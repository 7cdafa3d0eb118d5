from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from queue_site import Site

_KNOWN = "INSERT INTO queues.site (name) VALUES ('hub'), ('shop')"


@pytest.fixture
def site(make_database: Callable[..., str]) -> Iterator[Site]:
    with ExitStack() as stack:
        site = Site(make_database("queues"), stack)
        site.do(_KNOWN)
        yield site


@pytest.fixture(scope="module")
def quiet_site(make_databases: Callable[..., str]) -> Iterator[Site]:
    """One for a whole module, for tests that leave nothing behind in it."""
    with ExitStack() as stack:
        site = Site(make_databases("queues"), stack)
        site.do(_KNOWN)
        yield site


_SENT = ("send_log", "ticket", "destination_set", "needs_snapshot")


@pytest.fixture
def swept_site(quiet_site: Site) -> Iterator[Site]:
    """The module's, without what the test sent; for tests that never stamp."""
    with ExitStack() as stack:
        yield Site(quiet_site.dsn, stack)
    quiet_site.do("; ".join(f"DELETE FROM queues.{table}" for table in _SENT))
    quiet_site.do("UPDATE queues.stamper SET slot = 0")
    quiet_site.do("DELETE FROM queues.site WHERE name NOT IN ('hub', 'shop')")
