"""A site that follows another takes its records and gives it none, over real links and databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodesinprocess import Nodes
from sitefleet import batch

from waiting import eventually


@pytest.fixture
def nodes(tmp_path: Path, make_database: Callable[..., str]) -> Iterator[Nodes]:
    """The reader follows the source; nobody else names anybody."""
    nodes = Nodes(tmp_path)
    nodes.plan.add("source", ["n1"], make_database())
    nodes.plan.add("reader", ["n1"], make_database(), follows=["source"])
    try:
        nodes.start()
        nodes.wait_ready()
        yield nodes
    finally:
        nodes.close()


def heard(nodes: Nodes, site: str) -> set[str]:
    rows: set[str] = nodes.on_loop(lambda: set(nodes.at[f"{site}/n1"]._core.topology.rows))
    return rows


def test_records_go_one_way_only(nodes: Nodes) -> None:
    eventually(lambda: heard(nodes, "reader") == {"source"})
    nodes.plan.transmit("reader", batch("never", 3), "source")
    nodes.plan.transmit("source", batch("news", 30), "reader")
    eventually(lambda: nodes.plan.received("reader", "source") == batch("news", 30))
    assert heard(nodes, "source") == set()
    assert nodes.plan.received("source", "reader") == []
    rows = nodes.on_loop(lambda: nodes.at["source/n1"]._core.links())
    assert {site: row.hears for site, row in rows.items()} == {"source": (), "reader": ("source",)}


def test_a_followed_site_is_as_wanted_as_a_linked_one(nodes: Nodes) -> None:
    def links() -> str:
        return nodes.checks("reader/n1")["links"][1]

    eventually(lambda: links() == "1 up; connected: source", why=links)
    nodes.stop("source/n1")
    eventually(lambda: links() == "0 up; not connected: source", why=links)
