"""Sending: part of the application's own transaction, one ticket per transaction, clear refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis.strategies import binary, characters, dictionaries, text
from queue_site import APP, Site

from trunkline.core.errors import Invalid
from trunkline.queues.client import AsyncQueueClient, Message, QueueClient
from trunkline.queues.registry import known_sites, remember_site

Conn = psycopg.Connection[Any]
MIB = 1 << 20
_printable = text(characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@pytest.fixture
def site(swept_site: Site) -> Site:
    return swept_site


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
    assert site.ask("SELECT DISTINCT headers FROM queues.send_log") == [None]


def test_arrays_of_any_form_are_lists(site: Site) -> None:
    site.do("SELECT trunkline.transmit_many('app', '[5:5]={a}'::bytea[], '[3:4]={shop,hub}')")
    site.do("SELECT trunkline.transmit_many('app', '{{b,c}}'::bytea[], '{{hub}}')")
    rows = site.ask("SELECT payload, destinations FROM queues.send_log ORDER BY id")
    assert rows == [(b"a", ["hub", "shop"]), (b"b", ["hub"]), (b"c", ["hub"])]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_whatever_holds_bytes_is_a_payload(site: Site, kind: Callable[[bytes], bytes]) -> None:
    conn = site.connect()
    APP.transmit(conn, kind(b"one"), ["hub"])
    APP.transmit_many(conn, [kind(b"many")], ["hub"])
    conn.commit()
    assert site.ask("SELECT payload FROM queues.send_log ORDER BY id") == [b"one", b"many"]


def test_messages_with_destinations_of_their_own_keep_their_order(site: Site) -> None:
    conn = site.connect()
    APP.transmit_messages(
        conn,
        [Message(b"1", ["hub"], {"k": "v"}), Message(b"2", ["shop", "hub"]), Message(b"3", ["hub"]), Message(b"4", ["*"])],
    )
    APP.transmit_messages(conn, [])
    conn.commit()
    rows = site.ask("SELECT payload, destinations, headers, first FROM queues.send_log ORDER BY id")
    assert rows == [
        (b"1", ["hub"], {"k": "v"}, True), (b"2", ["hub", "shop"], None, False),
        (b"3", ["hub"], None, False), (b"4", ["*"], None, False),
    ]  # fmt: skip
    assert tickets(site) == 1


def test_headers_may_be_absent_for_some(site: Site) -> None:
    headers = """ARRAY[NULL, '{}', '{"k": "v"}']::jsonb[]"""
    site.do(f"SELECT trunkline.transmit_many('app', ARRAY['a', 'b', 'c']::bytea[], ARRAY['hub'], {headers})")
    assert site.ask("SELECT headers FROM queues.send_log ORDER BY id") == [None, None, {"k": "v"}]


def test_all_rows_of_a_transaction_are_in_one_slot_and_the_next_one_goes_into_the_present_slot(site: Site) -> None:
    conn = site.connect()
    APP.transmit(conn, b"1", ["hub"])
    site.do("UPDATE queues.stamper SET slot = 5")
    APP.transmit_many(conn, [b"2", b"3"], ["hub"])
    APP.transmit_messages(conn, [Message(b"4", ["hub"])])
    conn.commit()
    APP.transmit(conn, b"5", ["hub"])
    conn.commit()
    rows = site.ask("SELECT payload, slot FROM queues.sent_message ORDER BY id, nth")
    assert rows == [(b"1", 0), (b"2", 0), (b"3", 0), (b"4", 0), (b"5", 5)]
    assert site.ask("SELECT slot FROM queues.ticket ORDER BY ticket") == [0, 5]


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


def test_h10_a_transaction_that_forgot_what_it_sent_is_counted_when_it_commits(site: Site) -> None:
    conn = site.connect()
    for messages in (500, 500, 500):
        APP.transmit_many(conn, [b"x"] * messages, ["hub"])
        conn.execute("RESET ALL")
    with pytest.raises(psycopg.Error, match="1500 entries in one transaction are over 1000") as refused:
        conn.commit()
    assert refused.value.sqlstate == "TL105"
    assert site.ask("SELECT id FROM queues.send_log") == []


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


def test_h08_a_set_travels_inline_until_it_has_a_number_whatever_the_order_of_its_names(site: Site) -> None:
    conn = site.connect()
    APP.transmit(conn, b"inline", ["shop", "hub", "shop"])
    conn.commit()
    site.do(
        "INSERT INTO queues.destination_set (digest, sites) "
        "SELECT queues.set_digest(destinations), destinations FROM queues.send_log"
    )
    APP.transmit(conn, b"one", ["shop", "hub"])
    APP.transmit_many(conn, [b"many"], ["hub", "hub", "shop"])
    APP.transmit_messages(conn, [Message(b"each", ["hub", "shop"])])
    conn.commit()
    (number,) = site.ask("SELECT id FROM queues.destination_set")
    rows = site.ask("SELECT payload, destination_set, destinations FROM queues.send_log ORDER BY id")
    assert rows == [
        (b"inline", None, ["hub", "shop"]),
        (b"one", number, None),
        (b"many", number, None),
        (b"each", number, None),
    ]


def test_h08_names_that_look_like_a_set_are_not_taken_for_it(quiet_site: Site) -> None:
    with quiet_site.own.transaction(force_rollback=True):
        quiet_site.own.execute(
            "INSERT INTO queues.destination_set (digest, sites) "
            "SELECT queues.set_digest(s), s FROM (VALUES (ARRAY['hub', 'shop'])) AS v(s)"
        )
        for looks in (["hub,shop"], ["{hub,shop}"], ["hub shop"], ['hub","shop']):
            with pytest.raises(Invalid, match="not a known site"), quiet_site.own.transaction():
                APP.transmit(quiet_site.own, b"x", looks)


def test_h09_two_open_transactions_hold_no_lock_that_a_third_would_wait_for(site: Site) -> None:
    open_ones = [site.drawn(b"1", b"2"), site.drawn(b"3")]
    pids = [conn.info.backend_pid for conn in open_ones]
    held = site.ask(
        "SELECT DISTINCT locktype, mode FROM pg_locks l WHERE pid = ANY(%s) AND granted "
        "AND (locktype <> 'relation' OR relation::regclass::text ~ '^(queues|trunkline)[.]')",
        (pids,),
    )
    assert set(held) <= {
        ("relation", "AccessShareLock"), ("relation", "RowExclusiveLock"),  # neither excludes the other, nor itself
        ("transactionid", "ExclusiveLock"), ("virtualxid", "ExclusiveLock"),  # each transaction's own
    }  # fmt: skip
    assert ("relation", "RowExclusiveLock") in held
    assert site.ask("SELECT count(*) FROM pg_locks WHERE NOT granted") == [0]
    third = site.connect()
    third.execute("SET lock_timeout = '2s'")
    APP.transmit(third, b"4", ["hub"])
    third.commit()
    for conn in reversed(open_ones):
        conn.commit()
    assert len(site.ask("SELECT payload FROM queues.send_log")) == 4


def test_h09_a_transaction_writes_its_rows_and_its_ticket_and_nothing_else(site: Site) -> None:
    conn = site.drawn(b"1", b"2")
    written = conn.execute(
        "SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_xact_user_tables "
        "WHERE n_tup_ins + n_tup_upd + n_tup_del > 0"
    ).fetchall()
    assert sorted(written) == [("send_log_0", 2, 0, 0), ("ticket", 1, 0, 0)]


def test_h09_no_function_of_the_send_queue_notifies(quiet_site: Site) -> None:
    sources = quiet_site.ask(
        "SELECT prosrc FROM pg_proc WHERE pronamespace IN ('queues'::regnamespace, 'trunkline'::regnamespace)"
    )
    assert len(sources) >= 4
    assert not [source for source in sources if re.search(r"\bnotify\b", source, re.IGNORECASE)]


def test_h09_serializable_transactions_do_not_fail_for_each_others_messages(site: Site) -> None:
    one, other = site.connect(), site.connect()
    for conn in (one, other):
        conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    for n in range(3):
        for conn in (one, other):
            APP.transmit(conn, b"%d" % n, ["hub", "shop"])
    one.commit()
    other.commit()
    assert tickets(site) == 2


def _send(payload: bytes, to: list[str], headers: dict[str, str] | None = None) -> Callable[[Conn], None]:
    return lambda conn: APP.transmit(conn, payload, to, headers)


def _send_many(payloads: list[bytes], headers: list[dict[str, str]] | None = None) -> Callable[[Conn], None]:
    return lambda conn: APP.transmit_many(conn, payloads, ["hub"], headers)


def _send_each(*messages: Message) -> Callable[[Conn], None]:
    return lambda conn: APP.transmit_messages(conn, messages)


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
    "one name for a list": ("one name and no list", _send(b"x", "hub")),  # type: ignore[arg-type]
    "text for a payload": ("of type str, not bytes", _send("x", ["hub"])),  # type: ignore[arg-type]
    "text among payloads": ("of type str, not bytes", _send_many([b"x", "y"])),  # type: ignore[list-item]
    "no payload": ("of type NoneType, not bytes", _send(None, ["hub"])),  # type: ignore[arg-type]
    "a destination that is none": ("'NULL' is not a known site", _send(b"x", ["hub", None])),  # type: ignore[list-item]
    "no destination of one": ("no destination", _send_each(Message(b"x", ["hub"]), Message(b"y", []))),
    "unknown destination of one": ("'nowhere' is not", _send_each(Message(b"x", ["hub"]), Message(b"y", ["nowhere"]))),
    "large payload of one": ("over 1 MiB", _send_each(Message(b"x", ["hub"]), Message(bytes(MIB + 1), ["hub"]))),
    "too many messages": ("1001 entries", _send_each(*[Message(b"x", ["hub"])] * 1001)),
}
SQL_REFUSALS: dict[str, tuple[str, str]] = {
    "no name": ("TL101", "transmit('', 'x', ARRAY['hub'])"),
    "a name with capitals": ("TL101", "transmit('Upper', 'x', ARRAY['hub'])"),
    "a name of two lines": ("TL101", "transmit(E'a\\nb', 'x', ARRAY['hub'])"),
    "a name that is NULL": ("TL101", "transmit(NULL, 'x', ARRAY['hub'])"),
    "no destination": ("TL102", "transmit('app', 'x', '{}')"),
    "destinations that are NULL": ("TL102", "transmit('app', 'x', NULL)"),
    "a destination that is NULL": ("TL103", "transmit('app', 'x', ARRAY[NULL])"),
    "a NULL among destinations": ("TL103", "transmit('app', 'x', ARRAY['hub', NULL])"),
    "a payload that is NULL": ("TL108", "transmit('app', NULL, ARRAY['hub'])"),
    "a NULL among payloads": ("TL108", "transmit_many('app', ARRAY['x', NULL]::bytea[], ARRAY['hub'])"),
    "headers that are a list": ("TL107", "transmit('app', 'x', ARRAY['hub'], '[]')"),
    "headers that are null": ("TL107", "transmit('app', 'x', ARRAY['hub'], 'null')"),
    "headers with a number": ("TL107", """transmit('app', 'x', ARRAY['hub'], '{"k": 1}')"""),
    "too few lists": ("TL102", """transmit_messages('app', ARRAY['x', 'y']::bytea[], '[["hub"]]')"""),
    "lists that are no list": ("TL102", """transmit_messages('app', ARRAY['x']::bytea[], '{"hub": 1}')"""),
    "lists that are NULL": ("TL102", "transmit_messages('app', ARRAY['x']::bytea[], NULL)"),
    "a list that is a name": ("TL102", """transmit_messages('app', ARRAY['x']::bytea[], '["hub"]')"""),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_h10_refused_before_commit_with_reason_and_next_step(quiet_site: Site, name: str) -> None:
    why, call = REFUSALS[name]
    conn = quiet_site.connect()
    with pytest.raises(Invalid) as refused:
        call(conn)
    assert why in refused.value.why
    assert refused.value.next_step
    conn.rollback()
    assert quiet_site.ask("SELECT id FROM queues.send_log") == []


def test_h10_what_the_database_refuses_is_to_be_rolled_back_first(quiet_site: Site) -> None:
    with pytest.raises(Invalid) as refused:
        APP.transmit(quiet_site.connect(), b"x", ["nowhere"])
    assert refused.value.next_step == (
        "roll back; correct its name, or wait until this site has heard of it (table queues.site)"
    )


def test_h10_plain_sql_is_refused_with_a_code_and_a_next_step(quiet_site: Site) -> None:
    conn = quiet_site.connect(autocommit=True)
    for name, (code, call) in SQL_REFUSALS.items():
        with pytest.raises(psycopg.Error) as refused:
            conn.execute(f"SELECT trunkline.{call}".encode())
        assert (name, refused.value.sqlstate) == (name, code)
        assert refused.value.diag.message_hint
    assert quiet_site.ask("SELECT id FROM queues.send_log") == []


@pytest.mark.parametrize("name", ["", "Upper", "a b", "-a", "a\n", "é", "a" * 64])
@pytest.mark.parametrize("kind", [QueueClient, AsyncQueueClient])
def test_h10_a_client_object_has_a_name(kind: type[QueueClient | AsyncQueueClient], name: str) -> None:
    with pytest.raises(Invalid):
        kind(name)


@settings(max_examples=60)
@given(name=text(max_size=70).filter(lambda name: name not in ("hub", "shop", "*")))
def test_h10_a_destination_of_any_characters_is_refused_and_harms_nothing(quiet_site: Site, name: str) -> None:
    with quiet_site.own.transaction(force_rollback=True), pytest.raises(Invalid):
        APP.transmit(quiet_site.own, b"x", ["hub", name])
    assert quiet_site.own.execute("SELECT count(*) FROM queues.send_log").fetchone() == (0,)


@settings(max_examples=30)
@given(payload=binary(max_size=300), headers=dictionaries(_printable, _printable, max_size=5))
def test_any_payload_and_any_headers_arrive_as_they_were(quiet_site: Site, payload: bytes, headers: dict[str, str]) -> None:
    with quiet_site.own.transaction(force_rollback=True):
        APP.transmit_messages(quiet_site.own, [Message(payload, ["hub"], headers)])
        APP.transmit(quiet_site.own, payload, ["hub"], headers)
        APP.transmit_many(quiet_site.own, [payload], ["hub"], [headers])
        rows = quiet_site.own.execute("SELECT payload, coalesce(headers, '{}') FROM queues.send_log").fetchall()
    assert rows == [(payload, headers)] * 3


def test_h10_the_bound_counts_only_what_survives_and_begins_anew_with_each_transaction(site: Site) -> None:
    conn = site.connect()
    for _ in range(2):
        APP.transmit_many(conn, [b"x"] * 999, ["hub"])
        conn.execute("SAVEPOINT s")
        APP.transmit(conn, b"undone", ["hub"])
        conn.execute("ROLLBACK TO s")
        APP.transmit(conn, b"the thousandth", ["hub"])
        conn.commit()
    assert site.ask("SELECT count(*) FROM queues.sent_message") == [2000]


def test_an_error_that_is_no_refusal_stays_what_it_is(quiet_site: Site) -> None:
    conn = quiet_site.connect()
    conn.execute("SET TRANSACTION READ ONLY")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        APP.transmit(conn, b"x", ["hub"])


def test_a_site_once_seen_stays_known(site: Site) -> None:
    conn = site.connect()
    remember_site(conn, "plant-7")
    remember_site(conn, "plant-7")
    remember_site(conn, "plant_8")
    conn.commit()
    assert known_sites(conn) == {"hub", "shop", "plant-7", "plant_8"}
    APP.transmit(conn, b"x", ["plant-7", "plant_8"])
    with pytest.raises(Invalid):
        remember_site(conn, "*")
