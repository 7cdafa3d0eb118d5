"""Requests for a resync as they travel, and over the trunk's queues."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.bridge.askers import KIND, QueueAsker, Request, parse_request
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads
from trunkline.queues.registry import remember_site

_SENT = """
SELECT l.client, coalesce(l.destinations, s.sites), l.headers, l.payload
  FROM queues.send_log l LEFT JOIN queues.destination_set s ON s.id = l.destination_set ORDER BY l.id
"""


@given(st.builds(Request, st.text(), st.lists(st.text()).map(tuple), st.text(), st.text()))
def test_a_request_is_read_as_it_was_written(request: Request) -> None:
    assert parse_request(KIND, request.encode()) == request


def test_what_is_no_request_is_told_apart_from_what_is_a_bad_one() -> None:
    assert parse_request({"kind": "order"}, b"{}") is None
    assert parse_request({}, b"{") is None
    for payload in (b"{", b"[]", b'{"types": []}', b'{"site": "a", "types": "clusters"}'):
        with pytest.raises(Invalid, match="resync request"):
            parse_request(KIND, payload)


def test_requests_are_messages_to_their_sites_on_the_control_client_and_one_unknown_site_costs_only_itself(
    make_database: Callable[..., str],
) -> None:
    dsn = make_database("queues", "bridge")
    with psycopg.connect(dsn) as conn:
        for site in ("a", "b"):
            remember_site(conn, site)
    with closing(QueueAsker(dsn, "status")) as asker:
        asker.ask("a", ["clusters", "compliance"], "why", "1")
        asker.ask("nobody", ["clusters"], "why", "2")
        asker.ask("b", ["clusters"], "why", "3")
        asker.flush()
    with psycopg.connect(dsn) as conn:
        first, second = conn.execute(_SENT).fetchall()
    assert first[:3] == ("status-control", ["a"], {"kind": "resync"})
    assert loads(first[3]) == {"site": "a", "types": ["clusters", "compliance"], "reason": "why", "id": "1"}
    assert second[1] == ["b"]


def test_an_asker_whose_connection_is_gone_raises_and_makes_a_new_one(make_database: Callable[..., str]) -> None:
    dsn = make_database("queues", "bridge")
    with psycopg.connect(dsn, autocommit=True) as conn, closing(QueueAsker(dsn, "status")) as asker:
        remember_site(conn, "a")
        asker.ask("a", [], "", "1")
        asker.flush()
        conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'trunkline-asker'")
        with pytest.raises(psycopg.OperationalError):
            asker.ask("a", [], "", "2")
        asker.ask("a", [], "", "3")
        asker.flush()
        assert [loads(row[3])["id"] for row in conn.execute(_SENT)] == ["1", "3"]
