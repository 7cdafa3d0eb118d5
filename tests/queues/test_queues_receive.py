"""The receiving side in Postgres: fence, queues, acknowledgements, consumers' reads."""

from __future__ import annotations

import pytest
from queue_site import Site

from trunkline.core.errors import Fenced, Invalid, LocalProtocolError
from trunkline.core.ids import Position
from trunkline.queues.acks import acknowledge, acknowledged
from trunkline.queues.reader import Received, heads, read
from trunkline.queues.receive import PostgresSink
from trunkline.trunk.log import NOTHING_APPLIED, Entry

LOG = "5f0c1f0e-0000-4000-8000-000000000001"
OTHER_LOG = "5f0c1f0e-0000-4000-8000-000000000002"


def entry(seq: int, client: str = "app") -> Entry:
    return Entry(seq, client, ("hub",), {"n": str(seq)}, b"%d" % seq)


def rows_of(site: Site) -> list[int]:
    return site.ask(
        "SELECT count(*) FROM queues.receive UNION ALL SELECT count(*) FROM queues.queue "
        "UNION ALL SELECT count(*) FROM queues.session"
    )


def test_p2_positions_are_dense_per_queue(site: Site) -> None:
    sink = PostgresSink(site.pool(), site.acquire())
    sink.append("leaf", LOG, [entry(3), entry(5, "policy"), entry(9)], Position(9, 1), ["app", "policy"])
    sink.append("leaf", LOG, [entry(12), entry(13, "policy")], Position(13, 2), ["app", "policy"])
    conn = site.connect()
    assert heads(conn, "app") == {"LRQ_Recv_app_leaf": 3}
    assert heads(conn, "policy") == {"LRQ_Recv_policy_leaf": 2}
    assert heads(conn, "nobody") == {}
    got = list(read(conn, "LRQ_Recv_app_leaf", 1, 3))
    assert got == [Received("leaf", 2, 9, {"n": "9"}, b"9"), Received("leaf", 3, 12, {"n": "12"}, b"12")]


def test_a_read_of_many_pages_is_complete_and_in_order(site: Site) -> None:
    sink = PostgresSink(site.pool(), site.acquire())
    sink.append("leaf", LOG, [entry(seq) for seq in range(1, 451)], Position(450, 1), ["app"])
    conn = site.connect()
    assert [r.position for r in read(conn, "LRQ_Recv_app_leaf", 0, 450)] == list(range(1, 451))
    assert [r.position for r in read(conn, "LRQ_Recv_app_leaf", 100, 301)] == list(range(101, 302))
    assert list(read(conn, "LRQ_Recv_app_leaf", 450, 999)) == []


def test_a_queue_that_does_not_exist_is_named(site: Site) -> None:
    with pytest.raises(Invalid, match="LRQ_Recv_app_nobody"):
        next(read(site.connect(), "LRQ_Recv_app_nobody", 0, 1))


def test_queue_ids_are_not_used_up_by_appends(site: Site) -> None:
    sink = PostgresSink(site.pool(), site.acquire())
    for seq in range(1, 20):
        sink.append("leaf", LOG, [entry(seq)], Position(seq, 1), ["app"])
    sink.append("shop", LOG, [entry(1)], Position(1, 1), ["app"])
    assert site.ask("SELECT id FROM queues.queue ORDER BY id") == [1, 2]


def test_h01_append_and_reset_of_an_old_holder_leave_nothing(site: Site) -> None:
    sink = PostgresSink(site.pool(), site.acquire())
    site.take_over()
    with pytest.raises(Fenced):
        sink.append("leaf", LOG, [entry(1)], Position(1, 1), ["app"])
    assert rows_of(site) == [0, 0, 0]
    with pytest.raises(Fenced):
        sink.reset("leaf", LOG)
    assert sink.applied("leaf") == NOTHING_APPLIED


def test_h01_append_passes_after_a_renewal(site: Site) -> None:
    sink = PostgresSink(site.pool(), site.acquire(30))
    site.do("UPDATE site.lease SET expires_at = clock_timestamp() + interval '60 s'")
    sink.append("leaf", LOG, [entry(1)], Position(1, 1), ["app"])
    assert rows_of(site) == [1, 1, 1]


def test_h01_the_new_holder_goes_on_where_the_old_one_committed(site: Site) -> None:
    PostgresSink(site.pool(), site.acquire()).append("leaf", LOG, [entry(1)], Position(1, 1), ["app"])
    sink = PostgresSink(site.pool(), site.take_over())
    sink.append("leaf", LOG, [entry(1), entry(2)], Position(2, 1), ["app"])
    assert site.ask("SELECT seq FROM queues.receive ORDER BY position") == [1, 2]


def test_p1_an_entry_whose_client_gets_no_position_is_refused(site: Site) -> None:
    sink = PostgresSink(site.pool(), site.acquire())
    with pytest.raises(LocalProtocolError, match="policy"):
        sink.append("leaf", LOG, [entry(1), entry(2, "policy")], Position(2, 1), ["app"])
    assert rows_of(site) == [0, 0, 0]


def test_p3_after_a_reset_the_old_log_is_refused(site: Site) -> None:
    sink = PostgresSink(site.pool(), site.acquire())
    sink.append("leaf", LOG, [entry(1)], Position(1, 1), ["app"])
    sink.reset("leaf", OTHER_LOG)
    with pytest.raises(LocalProtocolError):
        sink.append("leaf", LOG, [entry(2)], Position(2, 1), ["app"])
    assert site.ask("SELECT seq FROM queues.receive") == [1]


OLD, SAME, NEWER = 4, 5, 6
ACKS = [
    (SAME, 11, 11),
    (SAME, 9, 10),
    (NEWER, 3, 3),
    (NEWER, 30, 30),
    (OLD, 99, 10),
]


@pytest.mark.parametrize(("generation", "seq", "kept"), ACKS)
def test_h12_a_newer_generation_replaces_and_within_one_only_larger_counts(
    site: Site, generation: int, seq: int, kept: int
) -> None:
    conn = site.connect()
    acknowledge(conn, "hub", "app", SAME, Position(10, 1))
    acknowledge(conn, "hub", "app", generation, Position(seq, 2))
    conn.commit()
    assert acknowledged(conn) == {("hub", "app"): Position(kept, 1 if kept == 10 else 2)}


def test_h12_destinations_and_clients_acknowledge_apart(site: Site) -> None:
    conn = site.connect()
    acknowledge(conn, "hub", "app", 1, Position(3, 7))
    acknowledge(conn, "hub", "policy", 1, Position(1, 7))
    acknowledge(conn, "shop", "app", 9, Position(2, 7))
    expected = {("hub", "app"): Position(3, 7), ("hub", "policy"): Position(1, 7), ("shop", "app"): Position(2, 7)}
    assert acknowledged(conn) == expected
