"""A destination that is too far behind: nobody else waits for it, and nobody sends to it alone."""

from __future__ import annotations

import threading

import pytest
from queue_site import APP, Site

from trunkline.core.errors import Invalid
from trunkline.queues.client import Message, NoRoom, QueueClient


@pytest.fixture
def site(swept_site: Site) -> Site:
    return swept_site


def over_cap(site: Site, *destinations: str, client: str = "app") -> None:
    for destination in destinations:
        site.do(
            "INSERT INTO queues.needs_snapshot (destination, client, over_cap) VALUES (%s, %s, true)", (destination, client)
        )


def payloads(site: Site) -> list[bytes]:
    return site.ask("SELECT payload FROM queues.send_log ORDER BY id")


def test_s36_a_send_to_a_destination_over_the_cap_raises_while_others_go_through(site: Site) -> None:
    over_cap(site, "hub")
    conn = site.connect()
    with pytest.raises(NoRoom) as refused, conn.transaction():
        APP.transmit(conn, b"refused", ["hub"])
    assert "hub: more is unacknowledged than may be" in refused.value.why
    assert refused.value.next_step.startswith("roll back; ")
    with pytest.raises(NoRoom), conn.transaction():
        APP.transmit_many(conn, [b"refused"], ["hub", "hub"])
    with pytest.raises(NoRoom), conn.transaction():
        APP.transmit_messages(conn, [Message(b"refused", ["shop"]), Message(b"refused", ["hub"])])
    APP.transmit(conn, b"to another", ["shop"])
    QueueClient("other").transmit(conn, b"of another", ["hub"])
    conn.commit()
    assert payloads(site) == [b"to another", b"of another"]


def test_h22_one_destination_over_the_cap_stops_no_message_that_also_goes_elsewhere(site: Site) -> None:
    over_cap(site, "hub")
    conn = site.connect()
    APP.transmit(conn, b"both", ["hub", "shop"])
    APP.transmit(conn, b"all", ["*"])
    APP.transmit(conn, b"all and one", ["hub", "*"])
    conn.commit()
    assert payloads(site) == [b"both", b"all", b"all and one"]
    over_cap(site, "shop")
    with pytest.raises(NoRoom, match="hub, shop: more"):
        APP.transmit(conn, b"both", ["shop", "hub"])


def test_h22_it_holds_for_sets_with_a_number_too(site: Site) -> None:
    site.do(
        "INSERT INTO queues.destination_set (digest, sites) SELECT queues.set_digest(s), s FROM (VALUES (ARRAY['hub'])) v(s)"
    )
    over_cap(site, "hub")
    with pytest.raises(NoRoom):
        APP.transmit(site.connect(), b"x", ["hub"])


def test_h22_a_destination_that_only_missed_a_trim_is_sent_to(site: Site) -> None:
    site.do("INSERT INTO queues.needs_snapshot (destination, client, over_cap) VALUES ('hub', 'app', false)")
    site.send(b"x")
    assert payloads(site) == [b"x"]


def test_s36_who_would_rather_wait_waits_before_the_transaction(site: Site) -> None:
    over_cap(site, "hub")
    conn = site.connect()
    began, waited = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        APP.wait_for_room(conn, ["hub"], 60)
        waited.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert began.wait(20)
    assert not waited.wait(0.3)
    site.do("DELETE FROM queues.needs_snapshot")
    assert waited.wait(20)
    waiting.join(20)
    APP.transmit(conn, b"x", ["hub"])
    conn.commit()
    assert payloads(site) == [b"x"]


def test_s36_waiting_ends_with_a_reason(site: Site) -> None:
    over_cap(site, "hub")
    conn = site.connect()
    with pytest.raises(NoRoom, match=r"hub: more is unacknowledged than may be, for 0\.1 s"):
        APP.wait_for_room(conn, ["hub"], 0.1)
    APP.wait_for_room(conn, ["shop"], 0)


def test_h22_nobody_waits_within_a_transaction(site: Site) -> None:
    conn = site.open_transaction(b"x")
    with pytest.raises(Invalid, match="a transaction is open"):
        APP.wait_for_room(conn, ["hub"], 1)
    conn.commit()
    assert payloads(site) == [b"x"]


@pytest.mark.parametrize(("to", "why"), [(["nowhere"], "not a known site"), ([], "no destination")])
def test_waiting_for_nobody_is_refused(site: Site, to: list[str], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        APP.wait_for_room(site.connect(), to, 1)
