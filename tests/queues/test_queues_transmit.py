"""Sending: part of the application's own transaction, one ticket per transaction, clear refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from queue_site import APP, Site

from trunkline.core.errors import Invalid
from trunkline.queues.client import QueueClient
from trunkline.queues.registry import known_sites, remember_site

Conn = psycopg.Connection[Any]
MIB = 1 << 20


def tickets(site: Site) -> int:
    return len(site.ask("SELECT ticket FROM queues.ticket"))


def test_a_message_is_sent_when_the_transaction_commits_and_not_when_it_rolls_back(site: Site) -> None:
    conn = site.connect()
    APP.transmit(conn, b"no", ["hub"])
    conn.rollback()
    APP.transmit(conn, b"yes", ["hub", "shop"], {"k": "v"})
    conn.commit()
    rows = site.ask("SELECT client, payload, destinations, headers, first FROM queues.send_log")
    assert rows == [("app", b"yes", ["hub", "shop"], {"k": "v"}, True)]
    assert tickets(site) == 1


def test_transmit_many_keeps_order_and_pairs_headers(site: Site) -> None:
    conn = site.connect()
    payloads = [f"{n}".encode() for n in range(500)]
    APP.transmit_many(conn, payloads, ["*"], [{"n": str(n)} for n in range(500)])
    conn.commit()
    rows = site.ask("SELECT payload, headers ->> 'n', first FROM queues.send_log ORDER BY id")
    assert [row[0] for row in rows] == payloads
    assert [row[1] for row in rows] == [p.decode() for p in payloads]
    assert [row[2] for row in rows] == [True] + [False] * 499
    assert tickets(site) == 1


def test_transmit_many_of_nothing_is_nothing(site: Site) -> None:
    conn = site.connect()
    APP.transmit_many(conn, [], ["hub"])
    APP.transmit(conn, b"x", ["hub"])
    conn.commit()
    assert site.ask("SELECT first FROM queues.send_log") == [True]


def test_plain_sql_takes_part(site: Site) -> None:
    site.do("SELECT trunkline.transmit('app', 'text'::bytea, ARRAY['hub'])")
    site.do("SELECT trunkline.transmit_many('app', ARRAY['a', 'b']::bytea[], ARRAY['hub'])")
    assert site.ask("SELECT payload FROM queues.send_log ORDER BY id") == [b"text", b"a", b"b"]
    assert site.ask("SELECT DISTINCT headers::text FROM queues.send_log") == ["{}"]


def _undone_first(conn: Conn) -> None:
    conn.execute("SAVEPOINT s")
    APP.transmit(conn, b"undone", ["hub"])
    conn.execute("ROLLBACK TO s")
    APP.transmit(conn, b"kept", ["hub"])


def _undone_second(conn: Conn) -> None:
    APP.transmit(conn, b"kept", ["hub"])
    conn.execute("SAVEPOINT s")
    APP.transmit(conn, b"undone", ["hub"])
    conn.execute("ROLLBACK TO s")


def _released_then_undone(conn: Conn) -> None:
    conn.execute("SAVEPOINT outer_one")
    conn.execute("SAVEPOINT inner_one")
    APP.transmit(conn, b"undone", ["hub"])
    conn.execute("RELEASE inner_one")
    conn.execute("ROLLBACK TO outer_one")
    APP.transmit(conn, b"kept", ["hub"])


def _refused_then_kept(conn: Conn) -> None:
    conn.execute("SAVEPOINT s")
    with pytest.raises(Invalid):
        APP.transmit(conn, b"undone", ["nowhere"])
    conn.execute("ROLLBACK TO s")
    APP.transmit(conn, b"kept", ["hub"])


def _ticket_drawn_and_undone(conn: Conn) -> None:
    conn.execute("SAVEPOINT s")
    APP.transmit(conn, b"undone", ["hub"])
    conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
    conn.execute("ROLLBACK TO s")
    APP.transmit(conn, b"kept", ["hub"])


def _settings_forgotten(conn: Conn) -> None:
    conn.execute("SAVEPOINT s")
    APP.transmit(conn, b"undone", ["hub"])
    conn.execute("ROLLBACK TO s")
    APP.transmit(conn, b"kept", ["hub"])
    conn.execute("RESET ALL")


def _loading(conn: Conn) -> None:
    conn.execute("SET LOCAL session_replication_role = replica")
    APP.transmit(conn, b"kept", ["hub"])


@pytest.mark.parametrize(
    "transaction",
    [
        _undone_first, _undone_second, _released_then_undone, _refused_then_kept, _ticket_drawn_and_undone,
        _settings_forgotten, _loading,
    ],
)  # fmt: skip
def test_h05_what_survives_a_transaction_has_exactly_one_ticket(site: Site, transaction: Callable[[Conn], None]) -> None:
    conn = site.connect()
    transaction(conn)
    conn.commit()
    assert site.ask("SELECT payload, first FROM queues.send_log") == [(b"kept", True)]
    assert tickets(site) == 1


def test_h05_a_transaction_that_forgot_its_first_row_still_has_one_ticket(site: Site) -> None:
    conn = site.connect()
    APP.transmit(conn, b"a", ["hub"])
    conn.execute("RESET ALL")
    APP.transmit(conn, b"b", ["hub"])
    conn.commit()
    assert tickets(site) == 1


def test_h05_a_transaction_of_which_nothing_survives_has_no_ticket(site: Site) -> None:
    conn = site.connect()
    conn.execute("SAVEPOINT s")
    APP.transmit(conn, b"undone", ["hub"])
    conn.execute("ROLLBACK TO s")
    conn.commit()
    assert tickets(site) == 0


def test_h05_the_next_transaction_of_a_session_begins_anew(site: Site) -> None:
    conn = site.connect()
    for payload in (b"a", b"b"):
        APP.transmit(conn, payload, ["hub"])
        conn.commit()
    assert site.ask("SELECT first FROM queues.send_log") == [True, True]
    assert tickets(site) == 2


def test_h08_an_open_transaction_blocks_no_other_with_the_same_destinations(site: Site) -> None:
    one, other = site.connect(), site.connect()
    for conn in (one, other):
        conn.execute("SET lock_timeout = '2s'")
    APP.transmit(one, b"1", ["hub", "shop"])
    APP.transmit(other, b"2", ["shop", "hub"])
    APP.transmit(other, b"3", ["hub", "shop"])
    other.commit()
    APP.transmit(one, b"4", ["shop", "hub"])
    one.commit()
    assert len(site.ask("SELECT payload FROM queues.send_log")) == 4


def test_h09_no_function_of_the_send_queue_notifies(site: Site) -> None:
    sources = site.ask("SELECT prosrc FROM pg_proc WHERE pronamespace IN ('queues'::regnamespace, 'trunkline'::regnamespace)")
    assert len(sources) >= 4
    assert not [source for source in sources if re.search(r"\bnotify\b", source, re.IGNORECASE)]


def _send(payload: bytes, to: list[str], headers: dict[str, str] | None = None) -> Callable[[Conn], None]:
    return lambda conn: APP.transmit(conn, payload, to, headers)


def _send_many(payloads: list[bytes], headers: list[dict[str, str]] | None = None) -> Callable[[Conn], None]:
    return lambda conn: APP.transmit_many(conn, payloads, ["hub"], headers)


def _one_too_many_in_pieces(conn: Conn) -> None:
    for _ in range(10):
        APP.transmit_many(conn, [b"x"] * 100, ["hub"])
    APP.transmit(conn, b"x", ["hub"])


def _four_mib_in_pieces(conn: Conn) -> None:
    for _ in range(4):
        APP.transmit(conn, bytes(MIB), ["hub"])


REFUSALS: dict[str, tuple[str, Callable[[Conn], None]]] = {
    "no destination": ("no destination", _send(b"x", [])),
    "unknown destination": ("'nowhere' is not a known site", _send(b"x", ["hub", "nowhere"])),
    "large payload": ("over 1 MiB", _send(bytes(MIB + 1), ["hub"])),
    "large payload among many": ("over 1 MiB", _send_many([b"x", bytes(MIB + 1)])),
    "large headers": ("over 16 KiB", _send(b"x", ["hub"], {"k": "v" * 20_000})),
    "headers that are not strings": ("not an object of strings", _send(b"x", ["hub"], {"k": 1})),  # type: ignore[dict-item]
    "headers without payload": ("2 headers for 1 payloads", _send_many([b"x"], [{}, {}])),
    "nul in headers": ("unsupported Unicode escape", _send(b"x", ["hub"], {"k": "\0"})),
    "too many at once": ("1001 entries", _send_many([b"x"] * 1001)),
    "too many in pieces": ("1001 entries", _one_too_many_in_pieces),
    "too many bytes": ("over 4 MiB", _four_mib_in_pieces),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_h10_refused_before_commit_with_reason_and_next_step(site: Site, name: str) -> None:
    why, call = REFUSALS[name]
    conn = site.connect()
    with pytest.raises(Invalid) as refused:
        call(conn)
    assert why in refused.value.why
    assert refused.value.next_step.startswith("roll back; ")
    conn.rollback()
    assert site.ask("SELECT id FROM queues.send_log") == []


@pytest.mark.parametrize("client", ["", "Upper", None])
def test_h10_plain_sql_is_refused_a_client_without_a_name(site: Site, client: str | None) -> None:
    with pytest.raises(psycopg.Error) as refused:
        site.do("SELECT trunkline.transmit(%s, 'x', ARRAY['hub'])", (client,))
    assert refused.value.sqlstate == "TL101"


def test_h10_a_client_object_has_a_name(site: Site) -> None:
    with pytest.raises(Invalid):
        QueueClient("")


def test_h10_the_bound_counts_only_what_survives_and_begins_anew_with_each_transaction(site: Site) -> None:
    conn = site.connect()
    for _ in range(2):
        APP.transmit_many(conn, [b"x"] * 999, ["hub"])
        conn.execute("SAVEPOINT s")
        APP.transmit(conn, b"undone", ["hub"])
        conn.execute("ROLLBACK TO s")
        APP.transmit(conn, b"the thousandth", ["hub"])
        conn.commit()
    assert site.ask("SELECT count(*) FROM queues.send_log") == [2000]


def test_an_error_that_is_no_refusal_stays_what_it_is(site: Site) -> None:
    conn = site.connect()
    conn.execute("SET TRANSACTION READ ONLY")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        APP.transmit(conn, b"x", ["hub"])


def test_a_site_once_seen_stays_known(site: Site) -> None:
    conn = site.connect()
    remember_site(conn, "plant-7")
    remember_site(conn, "plant-7")
    conn.commit()
    assert known_sites(conn) == {"hub", "shop", "plant-7"}
    APP.transmit(conn, b"x", ["plant-7"])
    with pytest.raises(Invalid):
        remember_site(conn, "*")
