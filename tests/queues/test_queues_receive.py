"""The receiving side in Postgres: what a sink takes, what it holds, and how a snapshot comes in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from receiving import LOG, OTHER_LOG, OTHER_REQUEST, REQUEST, Receiver, arrive, entry, receiving_side, stands

from trunkline.core.errors import Fenced, Invalid, LocalProtocolError
from trunkline.core.ids import START, Position
from trunkline.queues.consumers import advance
from trunkline.queues.kinds import Kind
from trunkline.queues.reader import Received, heads, read
from trunkline.queues.receive import Limits, PostgresSink
from trunkline.trunk.log import LOST, Applied, Entry


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("queues")


@pytest.fixture
def site(database: str) -> Iterator[Receiver]:
    with receiving_side(database) as receiver:
        yield receiver


def rows_of(site: Receiver) -> list[int]:
    return site.ask(
        "SELECT count(*) FROM queues.receive UNION ALL SELECT count(*) FROM queues.queue "
        "UNION ALL SELECT count(*) FROM queues.session"
    )


def passed(site: Receiver, position: int, after: int = 0) -> None:
    """A consumer went on to this position, and the tail followed."""
    with psycopg.connect(site.dsn) as conn:
        advance(conn, "app", "reader", site.queue(), position, after)
    assert site.move_tails() == 1


# -- what is stored


def test_p2_positions_are_dense_per_queue_and_totals_count_its_bytes(site: Receiver) -> None:
    sink = site.sink("app", "policy")
    sink.append("leaf", LOG, [entry(3), entry(5, "policy"), entry(9)], Position(9, 1), ["app", "policy"])
    sink.append("leaf", LOG, [entry(12), entry(13, "policy")], Position(13, 2), ["app", "policy"])
    conn = site.connect()
    assert heads(conn, "app") == {"LRQ_Recv_app_leaf": 3}
    assert heads(conn, "policy") == {"LRQ_Recv_policy_leaf": 2}
    assert heads(conn, "nobody") == {}
    got = list(read(conn, "LRQ_Recv_app_leaf", 1, 3))
    assert got == [
        Received("leaf", 2, Kind.LOG_ENTRY, 9, 0, None, {"n": "9"}, b"9"),
        Received("leaf", 3, Kind.LOG_ENTRY, 12, 0, None, {"n": "12"}, b"12"),
    ]
    assert [m.message_id for m in got] == ["leaf/9/0", "leaf/12/0"]
    assert site.ask("SELECT total FROM queues.receive WHERE queue = %s ORDER BY position", (site.queue(),)) == [1, 2, 4]
    assert site.ask("SELECT received_bytes FROM queues.queue ORDER BY client") == [4, 3]


def test_p2_a_pack_is_received_as_its_messages(site: Receiver) -> None:
    sink = site.sink("app")
    packed = [entry(1), Entry(4, "app", ("hub",), {}, b"twofour", (3, 3, 7)), entry(5)]
    sink.append("leaf", LOG, packed, Position(5, 1), ["app"])
    sink.append("leaf", LOG, packed, Position(5, 1), ["app"])
    got = [(r.position, r.seq, r.payload) for r in read(site.connect(), "LRQ_Recv_app_leaf", 0, 9)]
    assert got == [(1, 1, b"1"), (2, 2, b"two"), (3, 3, b""), (4, 4, b"four"), (5, 5, b"5")]
    assert site.ask("SELECT total FROM queues.receive ORDER BY position") == [1, 4, 4, 8, 9]
    assert site.ask("SELECT (head, received_bytes)::text FROM queues.queue") == ["(5,9)"]


def test_a_read_of_many_pages_is_complete_and_in_order(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 1450)
    conn = site.connect()
    assert [r.position for r in read(conn, "LRQ_Recv_app_leaf", 0, 1450)] == list(range(1, 1451))
    assert [r.position for r in read(conn, "LRQ_Recv_app_leaf", 100, 301)] == list(range(101, 302))
    assert list(read(conn, "LRQ_Recv_app_leaf", 1450, 9999)) == []


def test_a_queue_that_does_not_exist_is_named(site: Receiver) -> None:
    with pytest.raises(Invalid, match="LRQ_Recv_app_nobody"):
        next(read(site.connect(), "LRQ_Recv_app_nobody", 0, 1))


def test_queue_ids_are_not_used_up_by_appends(site: Receiver) -> None:
    sink = site.sink("app")
    for seq in range(1, 20):
        arrive(sink, seq, seq)
    site.sink("app", origin="shop")
    assert site.ask("SELECT id FROM queues.queue ORDER BY id") == [1, 2]


def test_s17_of_an_overlap_only_what_is_new_is_applied(site: Receiver) -> None:
    sink = site.sink("app")
    arrive(sink, 101, 103)
    assert not arrive(sink, 101, 105)
    assert site.ask("SELECT seq FROM queues.receive ORDER BY position") == [101, 102, 103, 104, 105]
    assert stands(sink) == (LOG, {"app": Position(105, 1)}, set())


def test_s28_queues_of_several_sources_are_apart_also_where_names_have_underscores(site: Receiver) -> None:
    origins = {"s": "pol", "t": "pol", "b_c": "a", "c": "a_b"}
    for origin, client in origins.items():
        sink = site.sink(client, origin=origin)
        sink.append(origin, LOG, [entry(1, client, origin.encode())], Position(1, 1), [client])
    names = site.ask("SELECT name FROM queues.queue ORDER BY id")
    assert names == ["LRQ_Recv_pol_s", "LRQ_Recv_pol_t", "LRQ_Recv_a_b__c", "LRQ_Recv_a__b_c"]
    assert [site.payloads(client, origin) for origin, client in origins.items()] == [[b"s"], [b"t"], [b"b_c"], [b"c"]]


# -- the fence and the log


def test_h01_what_an_old_holder_writes_leaves_nothing(site: Receiver) -> None:
    sink = PostgresSink(site.pool(), site.grant)
    site.take_over()
    steps: list[Callable[[], object]] = [
        lambda: sink.append("leaf", LOG, [entry(1)], Position(1, 1), ["app"]),
        lambda: sink.reset("leaf", LOG),
        lambda: sink.lost("leaf", LOG, Position(8, 1), ["app"]),
        lambda: sink.use_log("leaf", "app", LOG, START, (1, 8)),
        lambda: sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(8, 1), False),
    ]
    for step in steps:
        with pytest.raises(Fenced):
            step()
    assert rows_of(site) == [0, 0, 0]
    assert stands(sink) == ("", {}, set())


def test_h01_a_snapshot_stands_still_when_its_holder_is_old(site: Receiver) -> None:
    sink = site.sink()
    sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(8, 1), False)
    site.take_over()
    with pytest.raises(Fenced):
        sink.store_chunk("leaf", "app", REQUEST, 0, [({}, b"s0")])
    with pytest.raises(Fenced):
        sink.finish_snapshot("leaf", "app", REQUEST)
    assert site.stored() == [(Kind.START, b"")]
    assert site.state() == ("snapshot", "first", 0)


def test_h01_append_passes_after_a_renewal(site: Receiver) -> None:
    sink = site.sink("app")
    site.do("UPDATE site.lease SET expires_at = clock_timestamp() + interval '60 s'")
    arrive(sink, 1, 1)
    assert rows_of(site) == [1, 1, 1]


def test_h01_the_new_holder_goes_on_where_the_old_one_committed(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 1)
    sink = PostgresSink(site.pool(), site.take_over())
    assert stands(sink) == (LOG, {"app": Position(1, 1)}, set())
    assert not arrive(sink, 1, 2)
    assert site.payloads() == [b"1", b"2"]


def test_p1_an_entry_whose_client_gets_no_position_is_refused(site: Receiver) -> None:
    sink = PostgresSink(site.pool(), site.grant)
    with pytest.raises(LocalProtocolError, match="policy"):
        sink.append("leaf", LOG, [entry(1), entry(2, "policy")], Position(2, 1), ["app"])
    assert rows_of(site) == [0, 0, 0]


def test_p3_after_a_reset_the_old_log_is_refused_and_sessions_are_negotiated(site: Receiver) -> None:
    sink = site.sink("app")
    arrive(sink, 1, 3)
    sink.reset("leaf", OTHER_LOG)
    assert site.state() == ("new", "reset", 0)
    assert stands(sink) == (OTHER_LOG, {}, {"app"})
    assert sink.use_log("leaf", "app", OTHER_LOG, Position(5, 9))
    sink.applied("leaf")
    with pytest.raises(LocalProtocolError):
        arrive(sink, 4, 4)
    assert site.payloads() == [b"1", b"2", b"3"]


def test_p3_another_log_takes_the_place_of_one_of_which_nothing_was_applied(site: Receiver) -> None:
    sink = PostgresSink(site.pool(), site.grant)
    arrive(sink, 1, 1)
    assert sink.append("leaf", OTHER_LOG, [entry(1)], Position(1, 7), ["app"])
    assert stands(sink) == (OTHER_LOG, {}, {"app"})
    assert sink.use_log("leaf", "app", LOG, START), "nothing of that one was applied either"
    assert stands(sink) == (LOG, {}, set())


def test_p3_a_session_is_not_moved_to_another_log_while_its_neighbours_have_positions(site: Receiver) -> None:
    sink = site.sink("app")
    arrive(sink, 1, 3)
    assert not sink.use_log("leaf", "policy", OTHER_LOG, START)
    assert not sink.begin_snapshot("leaf", "policy", OTHER_LOG, REQUEST, Position(9, 1), False)
    assert stands(sink) == (LOG, {"app": Position(3, 1)}, set())


# -- who is held


def test_h16_a_client_nobody_named_becomes_a_session_to_negotiate_and_is_held(site: Receiver) -> None:
    sink = site.sink("app")
    assert sink.append("leaf", LOG, [entry(1), entry(2, "newcomer")], Position(2, 1), ["app", "newcomer"])
    assert site.state("newcomer") == ("new", "first", 0)
    assert site.payloads() == [b"1"]
    assert site.payloads("newcomer") == []
    assert stands(sink) == (LOG, {"app": Position(2, 1)}, {"newcomer"})
    assert not sink.append("leaf", LOG, [entry(3), entry(4, "newcomer")], Position(4, 1), ["app", "newcomer"])
    assert [(s.client, s.state, s.reason) for s in sink.sessions()] == [("app", "log", ""), ("newcomer", "new", "first")]
    assert site.payloads() == [b"1", b"3"]


def test_h16_only_clients_that_take_entries_are_listed_at_their_start(site: Receiver) -> None:
    sink = site.sink("app")
    sink.append("leaf", LOG, [], Position(1, 1), ["newcomer"])
    assert sink.applied("leaf") == Applied(LOG, {"app": START}, ("newcomer",))


def test_p5_a_client_that_was_held_stays_out_until_the_stream_begins_anew(site: Receiver) -> None:
    sink = site.sink("app")
    assert sink.append("leaf", LOG, [entry(1, "newcomer")], Position(1, 1), ["app", "newcomer"])
    assert sink.use_log("leaf", "newcomer", LOG, START)
    assert sink.append("leaf", LOG, [entry(2, "newcomer")], Position(2, 1), ["app", "newcomer"]), "ask again"
    assert site.payloads("newcomer") == [], "2 without 1 would be a gap"
    assert stands(sink) == (LOG, {"app": Position(2, 1)}, set())
    assert not sink.append("leaf", LOG, [entry(1, "newcomer"), entry(2, "newcomer")], Position(2, 1), ["app", "newcomer"])
    assert site.payloads("newcomer") == [b"1", b"2"]


def test_s36_a_full_queue_stops_acknowledging_and_loses_nothing(site: Receiver) -> None:
    sink = site.sink("app", "policy", limits=Limits(entries=4, bytes=1000))
    site.attach("app", "reader")
    assert not arrive(sink, 1, 3)
    assert arrive(sink, 4, 5), "it is full now, a batch is taken whole"
    assert sink.full() == {("leaf", "app")}
    assert stands(sink) == (LOG, {"app": Position(5, 1)}, {"app"})

    both = [entry(6), entry(7, "policy")]
    assert not sink.append("leaf", LOG, both, Position(7, 1), ["app", "policy"])
    assert sink.applied("leaf").clients == {"app": Position(5, 1), "policy": Position(7, 1)}, "the others go on"

    passed(site, 2)
    assert sink.room() == frozenset(), "half of it must be free"
    passed(site, 3, 2)
    assert sink.room() == {"leaf"}
    assert arrive(sink, 8, 8), "not before the stream begins anew"
    assert site.payloads() == [b"1", b"2", b"3", b"4", b"5"]
    assert stands(sink) == (LOG, {"app": Position(5, 1), "policy": Position(7, 1)}, set())
    assert not arrive(sink, 6, 6), "what was left out comes again"
    assert site.payloads() == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert site.payloads("policy") == [b"7"]


def test_s36_bytes_count_as_entries_do(site: Receiver) -> None:
    sink = site.sink("app", limits=Limits(entries=100, bytes=10))
    assert sink.append("leaf", LOG, [entry(1, payload=bytes(12))], Position(1, 1), ["app"])
    assert stands(sink)[2] == {"app"}
    assert sink.room() == frozenset()


def test_s36_without_a_consumer_a_queue_fills_and_stays_full(site: Receiver) -> None:
    sink = site.sink("app", limits=Limits(entries=2, bytes=1000))
    assert arrive(sink, 1, 2)
    assert site.move_tails() == 0
    assert stands(sink)[2] == {"app"}
    again = PostgresSink(site.pool(), site.grant, Limits(entries=2, bytes=1000))
    assert stands(again)[2] == {"app"}, "a new leader finds it so"


# -- gaps and losses


def test_h20_a_gap_is_negotiated_and_without_a_provider_the_loss_is_on_record_once(site: Receiver) -> None:
    sink = site.sink("app", "policy")
    arrive(sink, 1, 2)
    arrive(sink, 9, 9, "policy")
    sink.lost("leaf", LOG, Position(8, 3), ["app", "policy", "unheard-of"])
    assert site.state() == ("new", "gap", 2), "its position is kept"
    assert site.state("policy") == ("log", "", 9), "it lacks nothing"
    assert site.state("unheard-of") == ("new", "gap", 0)
    assert stands(sink)[2] == {"app", "unheard-of"}
    for _ in range(2):
        assert sink.use_log("leaf", "app", LOG, Position(8, 3), (3, 8))
    assert stands(sink) == (LOG, {"app": Position(8, 3), "policy": Position(9, 1)}, {"unheard-of"})
    assert not arrive(sink, 9, 9)
    assert site.stored() == [
        (Kind.LOG_ENTRY, b"1"), (Kind.LOG_ENTRY, b"2"), (Kind.LOST, b""), (Kind.LOG_ENTRY, b"9"),
    ]  # fmt: skip
    (lost,) = [m for m in read(site.connect(), "LRQ_Recv_app_leaf", 0, 4) if m.kind is Kind.LOST]
    assert (lost.headers, lost.seq) == ({LOST: "3-8"}, 8)


def test_a_late_decision_does_not_move_a_session_that_takes_entries(site: Receiver) -> None:
    sink = site.sink("app")
    arrive(sink, 1, 7)
    assert sink.use_log("leaf", "app", LOG, Position(2, 1), (1, 2))
    assert stands(sink) == (LOG, {"app": Position(7, 1)}, set())
    assert len(site.stored()) == 7


# -- snapshots


def test_a_snapshot_comes_between_start_and_last_and_the_log_goes_on_from_its_base(site: Receiver) -> None:
    sink = site.sink("app")
    arrive(sink, 1, 3)
    assert sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(5, 2), True)
    assert stands(sink) == (LOG, {"app": Position(3, 1)}, {"app"})
    assert not arrive(sink, 4, 6), "log entries wait"
    assert sink.store_chunk("leaf", "app", REQUEST, 0, [({"k": "v"}, b"s0"), ({}, b"s1")])
    assert sink.store_chunk("leaf", "app", REQUEST, 1, [({}, b"s2")])
    assert sink.finish_snapshot("leaf", "app", REQUEST)
    assert stands(sink) == (LOG, {"app": Position(5, 2)}, set())
    assert not arrive(sink, 4, 6)
    kinds = [Kind.LOG_ENTRY] * 3 + [Kind.START] + [Kind.SNAPSHOT] * 3 + [Kind.LAST, Kind.LOG_ENTRY]
    assert site.stored() == list(zip(kinds, [b"1", b"2", b"3", b"", b"s0", b"s1", b"s2", b"", b"6"], strict=True))
    got = list(read(site.connect(), "LRQ_Recv_app_leaf", 3, 8))
    about = {"trunkline-request": REQUEST, "trunkline-forced": "true"}
    assert [m.headers for m in got] == [about, {"k": "v"}, {}, {}, about]
    assert [m.message_id for m in got] == [f"leaf/{REQUEST}/{index}" for index in range(5)]
    assert {m.seq for m in got} == {5}
    (session,) = sink.sessions()
    assert (session.state, session.request, session.base, session.chunk) == ("log", REQUEST, Position(5, 2), 2)
    assert session.completed_at is not None


def test_every_step_of_a_snapshot_counts_once_and_only_for_the_present_request(site: Receiver) -> None:
    sink = site.sink()
    for _ in range(2):
        assert sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(5, 1), False)
    assert not sink.store_chunk("leaf", "app", REQUEST, 1, [({}, b"early")])
    assert not sink.store_chunk("leaf", "app", OTHER_REQUEST, 0, [({}, b"of another")])
    for _ in range(2):
        assert sink.store_chunk("leaf", "app", REQUEST, 0, [({}, b"s0")]), "it is there"
    assert not sink.finish_snapshot("leaf", "app", OTHER_REQUEST)
    for _ in range(2):
        assert sink.finish_snapshot("leaf", "app", REQUEST)
    assert not sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(5, 1), False), "it is over"
    assert not sink.begin_snapshot("leaf", "app", LOG, "no uuid", Position(5, 1), False)
    assert site.stored() == [(Kind.START, b""), (Kind.SNAPSHOT, b"s0"), (Kind.LAST, b"")]


def test_s09_a_superseded_request_neither_adds_nor_ends_anything(site: Receiver) -> None:
    sink = site.sink()
    assert sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(5, 1), False)
    assert sink.store_chunk("leaf", "app", REQUEST, 0, [({}, b"old")])
    assert sink.begin_snapshot("leaf", "app", LOG, OTHER_REQUEST, Position(9, 1), False)
    assert not sink.store_chunk("leaf", "app", REQUEST, 1, [({}, b"late")])
    assert not sink.finish_snapshot("leaf", "app", REQUEST)
    assert sink.store_chunk("leaf", "app", OTHER_REQUEST, 0, [({}, b"new")])
    assert sink.finish_snapshot("leaf", "app", OTHER_REQUEST)
    kinds = [Kind.START, Kind.SNAPSHOT, Kind.START, Kind.SNAPSHOT, Kind.LAST]
    assert site.stored() == list(zip(kinds, [b"", b"old", b"", b"new", b""], strict=True))
    assert site.state() == ("log", "", 9)


def test_s08_an_empty_snapshot_is_start_and_last(site: Receiver) -> None:
    sink = site.sink()
    assert sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(5, 1), False)
    assert sink.finish_snapshot("leaf", "app", REQUEST)
    sink.applied("leaf")
    arrive(sink, 6, 6)
    assert site.stored() == [(Kind.START, b""), (Kind.LAST, b""), (Kind.LOG_ENTRY, b"6")]


def test_p5_a_snapshot_without_any_append_meanwhile_still_begins_the_stream_anew(site: Receiver) -> None:
    """Its base may lie behind what the stream already brought: that has to come again."""
    sink = site.sink("app")
    arrive(sink, 1, 7)
    snapshot_without_reload(sink, base=5)
    assert arrive(sink, 8, 8), "ask again"
    assert stands(sink) == (LOG, {"app": Position(5, 1)}, set())
    arrive(sink, 6, 8)
    assert site.payloads()[-4:] == [b"", b"6", b"7", b"8"]


def snapshot_without_reload(sink: PostgresSink, base: int) -> None:
    assert sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(base, 1), False)
    assert sink.finish_snapshot("leaf", "app", REQUEST)


def test_s36_a_snapshot_waits_for_room_too(site: Receiver) -> None:
    sink = site.sink(limits=Limits(entries=3, bytes=1000))
    assert sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(5, 1), False)
    site.attach("app", "reader")
    assert sink.store_chunk("leaf", "app", REQUEST, 0, [({}, b"s0"), ({}, b"s1")])
    assert not sink.store_chunk("leaf", "app", REQUEST, 1, [({}, b"s2")])
    passed(site, 3)
    assert sink.store_chunk("leaf", "app", REQUEST, 1, [({}, b"s2")])
    assert site.payloads() == [b"", b"s0", b"s1", b"s2"]


def test_a_new_leader_finds_the_snapshot_where_it_stood(site: Receiver) -> None:
    sink = site.sink()
    assert sink.begin_snapshot("leaf", "app", LOG, REQUEST, Position(5, 1), True)
    assert sink.store_chunk("leaf", "app", REQUEST, 0, [({}, b"s0")])
    (session,) = PostgresSink(site.pool(), site.take_over()).sessions()
    assert (session.state, session.request, session.chunk, session.forced) == ("snapshot", REQUEST, 1, True)
    assert (session.base, session.completed_at) == (Position(5, 1), None)
