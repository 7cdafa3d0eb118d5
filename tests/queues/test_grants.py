"""Who may send as whom: a role of its own needs a grant, and gets nothing else by it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from queue_site import APP, Site

from trunkline.core.errors import Invalid
from trunkline.queues.client import Message, QueueClient
from trunkline.queues.grants import grant, grants, revoke

OTHER = QueueClient("other")


@pytest.fixture
def role(quiet_site: Site) -> str:
    return quiet_site.make_role()


def sent(site: Site) -> list[tuple[str, bytes]]:
    return site.ask("SELECT client, payload FROM queues.sent_message ORDER BY id, nth")


def allow(site: Site, client: str, role: str) -> None:
    with site.own.transaction():
        grant(site.own, client, role)


def cannot_send(conn: psycopg.Connection[Any], client: QueueClient) -> str:
    with pytest.raises(Invalid) as refused, conn.transaction():
        client.transmit(conn, b"x", ["hub"])
    return str(refused.value)


def test_a_role_with_a_grant_sends_in_every_way(swept_site: Site) -> None:
    site = swept_site
    role = site.make_role()
    allow(site, "app", role)
    conn = site.connect(role=role)
    APP.transmit(conn, b"1", ["hub"], {"k": "v"})
    APP.transmit_many(conn, [b"2", b"3"], ["*"])
    APP.transmit_messages(conn, [Message(b"4", ["hub", "shop"])])
    conn.commit()
    APP.wait_for_room(conn, ["hub"], 0)
    assert sent(site) == [("app", b"1"), ("app", b"2"), ("app", b"3"), ("app", b"4")]
    assert site.ask("SELECT count(*) FROM queues.ticket") == [1]


def test_a_role_without_a_grant_is_told_how_to_get_one(quiet_site: Site, role: str) -> None:
    allow(quiet_site, "app", role)
    message = cannot_send(quiet_site.connect(role=role), OTHER)
    assert f"role {role} may not send as client other" in message
    assert f"trunkline queues grant other {role}" in message
    assert sent(quiet_site) == []


def test_a_role_that_never_had_a_grant_cannot_even_call(quiet_site: Site, role: str) -> None:
    conn = quiet_site.connect(role=role)
    with pytest.raises(InsufficientPrivilege):
        APP.transmit(conn, b"x", ["hub"])


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM queues.send_log", "SELECT * FROM queues.site", "SELECT * FROM queues.ticket",
        "INSERT INTO queues.client_grant (client, role) VALUES ('*', current_user)",
        "INSERT INTO queues.ticket VALUES (1, '1', 0)", "DELETE FROM queues.send_log", "TRUNCATE queues.send_log",
        "UPDATE queues.stamper SET slot = 1", "SELECT nextval('queues.ticket_number')",
        "SELECT queues.append('other', ARRAY['x']::bytea[], ARRAY['hub'], NULL)", "SELECT queues.draw_ticket()",
        "SELECT * FROM queues.receive", "DROP FUNCTION trunkline.transmit", "CREATE TABLE trunkline.x ()",
    ],
)  # fmt: skip
def test_a_grant_gives_nothing_but_sending(quiet_site: Site, role: str, statement: str) -> None:
    allow(quiet_site, "app", role)
    with pytest.raises(InsufficientPrivilege):
        quiet_site.connect(role=role).execute(statement.encode())


def test_objects_of_the_callers_own_are_not_used_in_the_owners_name(quiet_site: Site, role: str) -> None:
    allow(quiet_site, "app", role)
    quiet_site.own.execute(f"CREATE SCHEMA AUTHORIZATION {role}".encode())
    conn = quiet_site.connect(autocommit=True, role=role)
    conn.execute("CREATE FUNCTION pg_has_role(name, name, text) RETURNS boolean LANGUAGE sql RETURN true")
    conn.execute("CREATE FUNCTION pg_has_role(name, oid, text) RETURNS boolean LANGUAGE sql RETURN true")
    conn.execute("CREATE TEMP TABLE client_grant AS SELECT '*' AS client, current_user AS role")
    conn.execute(f"SET search_path = {role}, pg_temp, pg_catalog".encode())
    cannot_send(conn, OTHER)


def test_a_grant_to_a_group_is_its_members(quiet_site: Site, role: str) -> None:
    member = quiet_site.make_role()
    quiet_site.own.execute(f"GRANT {role} TO {member}".encode())
    allow(quiet_site, "app", role)
    conn = quiet_site.connect(role=member)
    APP.transmit(conn, b"x", ["hub"])
    conn.rollback()
    cannot_send(conn, OTHER)


def test_a_grant_of_any_client(quiet_site: Site, role: str) -> None:
    allow(quiet_site, "*", role)
    conn = quiet_site.connect(role=role)
    for client in (APP, OTHER):
        client.transmit(conn, b"x", ["hub"])
    conn.rollback()
    with pytest.raises(psycopg.Error) as refused:
        conn.execute("SELECT trunkline.transmit('*', 'x', ARRAY['hub'])")
    assert refused.value.sqlstate == "TL101"


def test_a_revoked_grant_is_gone_at_once_and_the_others_stay(quiet_site: Site, role: str) -> None:
    for client in ("app", "other", "app"):
        allow(quiet_site, client, role)
    assert [(g.client, g.role) for g in grants(quiet_site.own) if g.role == role] == [("app", role), ("other", role)]
    revoke(quiet_site.own, "app", role)
    assert [(g.client, g.role) for g in grants(quiet_site.own) if g.role == role] == [("other", role)]
    conn = quiet_site.connect(role=role)
    OTHER.transmit(conn, b"x", ["hub"])
    conn.rollback()
    cannot_send(conn, APP)


@pytest.mark.parametrize(
    ("client", "of", "why"),
    [("app", "no such role", "no such role"), ("", "{role}", "a name is"), ("Upper", "{role}", "a name is")],
)
def test_a_grant_that_makes_no_sense_is_refused(quiet_site: Site, role: str, client: str, of: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        allow(quiet_site, client, of.format(role=role))
    assert [g for g in grants(quiet_site.own) if g.role == role] == []


def test_what_was_never_granted_cannot_be_revoked(quiet_site: Site, role: str) -> None:
    with pytest.raises(Invalid, match="has no grant"):
        revoke(quiet_site.own, "app", role)
