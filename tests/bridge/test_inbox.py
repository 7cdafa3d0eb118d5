"""The intake transaction: all of a batch or nothing of it, and offsets only together with what they passed."""

from __future__ import annotations

import threading

import psycopg
import pytest
from bridge_hub import GROUP, Hub, auto, clusters, compliance, event, events
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from trunkline.bridge.inbox import Arrived, Rejected, newest, restores
from trunkline.bridge.plan import Plan, commit_plan, open_plan, read_offsets
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.types import LONGEST_ID, Match
from trunkline.core.bundle import Bundle, Mode, Version
from trunkline.core.errors import Fenced, Invalid, Terminal

QUEUE = "LRQ_Recv_status_a"


def refused(position: int = 1) -> Rejected:
    return Rejected("a", {"ce_id": "x"}, b"junk", "no header ce_type", QUEUE, position)


def test_a_newer_complete_bundle_replaces_an_older_one_and_never_the_other_way(hub: Hub) -> None:
    hub.take_in(clusters("a", 2))
    hub.take_in(clusters("a", 1), clusters("b", 7))
    assert hub.inbox() == [("a", "clusters", 2), ("b", "clusters", 7)]
    hub.take_in(clusters("a", 3))
    assert hub.inbox() == [("a", "clusters", 3), ("b", "clusters", 7)]


def test_a_batch_may_hold_several_versions_of_one_bundle(hub: Hub) -> None:
    hub.take_in(clusters("a", 2), clusters("a", 5), clusters("a", 3))
    assert hub.inbox() == [("a", "clusters", 5)]
    assert hub.counters("a") == {
        "received": 3, "conflated": 2, "rejected": 0, "stale": 0, "applied": 0, "quarantined": 0,
    }  # fmt: skip


def test_append_bundles_are_never_conflated_and_a_repeated_id_is_one_bundle(hub: Hub) -> None:
    first, second = events("a", 1, event(1)), events("a", 2, event(2))
    hub.take_in(first, second, first)
    hub.take_in(second)
    assert hub.inbox() == [("a", "events", 1), ("a", "events", 2)]
    assert hub.counters("a")["conflated"] == 2


def test_rejected_messages_are_quarantined_with_payload_position_and_reason(hub: Hub) -> None:
    hub.take_in(rejected=[refused()])
    found = hub.rows("SELECT site, headers, payload, reason, queue, position FROM bridge.quarantine")
    assert found == [("a", {"ce_id": "x"}, b"junk", "no header ce_type", QUEUE, 1)]
    assert hub.counters("a")["rejected"] == 1
    assert read_offsets(hub.conn, GROUP) == {QUEUE: 2}


def test_what_postgres_cannot_keep_of_a_rejected_message_does_not_stop_the_others(hub: Hub) -> None:
    odd = Rejected("a", {"ce_id": "x\x00y", "\x00": ""}, b"\x00", "mode 'a\x00' is unknown", QUEUE, 1)
    hub.take_in(rejected=[odd])
    found = hub.rows("SELECT headers, payload, reason FROM bridge.quarantine")
    assert found == [({"ce_id": "x\\x00y", "\\x00": ""}, b"\x00", "mode 'a\\x00' is unknown")]


def test_taking_in_closes_the_plan_and_stores_its_end(hub: Hub) -> None:
    plan = hub.take_in(clusters("a", 1), clusters("b", 1))
    assert open_plan(hub.conn, GROUP) is None
    assert read_offsets(hub.conn, GROUP) == plan.end == {QUEUE: 2, "LRQ_Recv_status_b": 2}
    [(payload,)] = hub.rows("SELECT payload FROM status.transport WHERE queue = %s", QUEUE)
    assert payload == {"next": 2}


@pytest.mark.parametrize("stored", [1, 3], ids=["behind", "ahead"])
def test_h28_a_batch_that_does_not_begin_at_the_stored_offsets_raises_and_leaves_nothing(hub: Hub, stored: int) -> None:
    hub.take_in(clusters("a", 1))
    plan, arrived = hub.plan([clusters("a", 2)])
    hub.conn.execute("UPDATE status.transport SET payload = %s", (Jsonb({"next": stored}),))
    hub.conn.commit()
    with pytest.raises(Terminal, match="offsets stand at"):
        hub.write(plan, arrived)
    assert hub.inbox() == [("a", "clusters", 1)]
    assert read_offsets(hub.conn, GROUP) == {QUEUE: stored}


def test_h28_a_batch_of_a_queue_that_the_offsets_do_not_name_begins_at_the_first_position(hub: Hub) -> None:
    bundle = clusters("a", 1)
    commit_plan(hub.conn, hub.grant, GROUP, {QUEUE: 5}, {QUEUE: 6})
    with pytest.raises(Terminal):
        hub.write(Plan({QUEUE: 5}, {QUEUE: 6}), [Arrived(bundle, QUEUE, 5)])
    assert hub.inbox() == []


def test_h29_a_batch_whose_plan_is_not_the_open_one_raises(hub: Hub) -> None:
    plan, arrived = hub.plan([clusters("a", 1)])
    commit_plan(hub.conn, hub.grant, GROUP, plan.start, {QUEUE: 3})
    with pytest.raises(Terminal, match="not the open one"):
        hub.write(plan, arrived)
    assert hub.inbox() == []
    assert read_offsets(hub.conn, GROUP) == {}


def test_h01_intake_of_a_past_holder_leaves_nothing(hub: Hub) -> None:
    plan, arrived = hub.plan([clusters("a", 1)])
    hub.take_over()
    with pytest.raises(Fenced):
        hub.write(plan, arrived, [refused(2)])
    assert hub.inbox() == []
    assert hub.rows("SELECT 1 FROM bridge.quarantine") == []
    assert read_offsets(hub.conn, GROUP) == {}
    assert open_plan(hub.conn, GROUP) == Plan(plan.start, plan.end, hub.grant.epoch)


def test_h35_intake_that_deadlocks_with_a_worker_is_tried_again(hub: Hub) -> None:
    """A transaction locks b, then wants a; intake holds a and wants b. Whoever Postgres chooses, intake gets through."""
    hub.take_in(clusters("a", 1), clusters("b", 1))
    plan, arrived = hub.plan([clusters("a", 2), clusters("b", 2)])
    other = hub.connect()
    hub.conn.execute("SET deadlock_timeout = '2s'")  # it looks once: the other must be waiting by then
    hub.conn.commit()
    other.execute("SET deadlock_timeout = '60s'")
    other.execute("UPDATE bridge.inbox SET position = position WHERE site = 'b'")
    intake = threading.Thread(target=hub.write, args=(plan, arrived))
    intake.start()
    _until_blocked(hub, hub.conn)
    other.execute("UPDATE bridge.inbox SET position = position WHERE site = 'a'")
    other.commit()
    intake.join(30)
    assert hub.inbox() == [("a", "clusters", 2), ("b", "clusters", 2)]


def _until_blocked(hub: Hub, conn: psycopg.Connection[object]) -> None:
    watcher = hub.connect()
    watcher.autocommit = True
    for _ in range(30_000):
        [(blocked,)] = watcher.execute("SELECT pg_blocking_pids(%s) <> '{}'", (conn.info.backend_pid,)).fetchall()
        if blocked:
            return
    pytest.fail("the connection was never blocked")


STEPS = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["clusters", "events", "junk"]), st.integers(1, 5)), max_size=4),
    max_size=5,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=STEPS)
def test_g7_an_offset_never_passes_a_bundle_that_is_nowhere(hub: Hub, batches: list[list[tuple[str, str, int]]]) -> None:
    """After every batch each message passed is in quarantine, or it or a newer one of its kind waits in the inbox."""
    hub.conn.execute("TRUNCATE bridge.inbox, bridge.quarantine, bridge.counter, status.transport, bridge.plan")
    hub.conn.commit()
    passed: list[tuple[str, str, int]] = []
    for batch in batches:
        good = [clusters(s, n) if t == "clusters" else events(s, n) for s, t, n in batch if t != "junk"]
        positions = {s: sum(1 for b in good if b.source == s) for s in "ab"}
        start = read_offsets(hub.conn, GROUP)
        bad = [
            Rejected(s, {}, b"", "junk", f"LRQ_Recv_status_{s}", start.get(f"LRQ_Recv_status_{s}", 1) + positions[s] + i)
            for s in "ab"
            for i in range(sum(1 for m in batch if m[0] == s and m[1] == "junk"))
        ]
        hub.take_in(*good, rejected=bad)
        passed += batch
    offsets = read_offsets(hub.conn, GROUP)
    for site in "ab":
        mine = [m for m in passed if m[0] == site]
        assert offsets.get(f"LRQ_Recv_status_{site}", 1) == len(mine) + 1
        waiting = [generation for s, t, generation in hub.inbox() if s == site and t == "clusters"]
        assert waiting == ([max(n for _, t, n in mine if t == "clusters")] if any(m[1] == "clusters" for m in mine) else [])
        assert sum(1 for s, t, _ in hub.inbox() if (s, t) == (site, "events")) == sum(1 for m in mine if m[1] == "events")
        [(junk,)] = hub.rows("SELECT count(*) FROM bridge.quarantine WHERE site = %s", site)
        assert junk == sum(1 for m in mine if m[1] == "junk")


def test_a_bundle_keeps_its_dependency_and_headers_in_the_inbox(hub: Hub) -> None:
    bundle = compliance("a", 4, 3)
    hub.take_in(bundle)
    found = hub.rows(
        "SELECT dependency_type, dependency_incarnation, dependency_generation, headers, data, queue, position"
        " FROM bridge.inbox"
    )
    assert found == [("clusters", 1, 3, bundle.headers(), bundle.data, QUEUE, 1)]


def hybrid(generation: int, data: object, id_: str = "") -> Bundle:
    return auto("a", "managed-clusters", Mode.HYBRID, generation, generation, data, id_=id_)


def test_i3_ordered_bundles_are_all_kept_in_the_order_they_stood(hub: Hub) -> None:
    """However the batch lists them, and whatever their ids and versions say."""
    sent = [hybrid(n, {"create": []}, id_=f"{name}") for n, name in [(3, "z"), (3, "b"), (4, "m"), (9, "a")]]
    plan, arrived = hub.plan([*sent, hybrid(4, {}, id_="m")])
    hub.write(plan, arrived[::-1])
    assert hub.rows("SELECT key, mode, generation FROM bridge.inbox ORDER BY arrival") == [
        ("z", "hybrid", 3), ("b", "hybrid", 3), ("m", "hybrid", 4), ("a", "hybrid", 9),
    ]  # fmt: skip
    hub.take_in(hybrid(10, {}, id_="0"))
    assert hub.rows("SELECT key FROM bridge.inbox ORDER BY arrival")[-1] == ("0",)
    assert hub.counters("a")["conflated"] == 1


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"create": [{"name": "resync"}]}, False),
        ({"resync": None, "resync_metadata": None}, False),
        ({"resync": [{}]}, True),
        ({"resync_metadata": []}, True),
        ([{"resync": [{}]}], False),
        (b'{"resync": [', False),
    ],
)
def test_h37_a_hybrid_bundle_that_begins_a_resync_restores(data: object, expected: bool) -> None:
    assert restores(hybrid(1, data)) is expected


def test_h37_only_hybrid_bundles_restore() -> None:
    assert not restores(auto("a", "clusters", Mode.COMPLETE, 1, 1, {"resync": [{}]}))


def test_the_units_are_told_what_a_scan_would_find(hub: Hub) -> None:
    hub.take_in(clusters("a", 5), hybrid(1, {"resync": [{}]}, id_="h"), events("a", 1), compliance("b", 2, 4))
    told = sorted((w.site, w.type, w.key, w.version, w.mode, w.arrival, w.restores, w.since) for w in hub.noticed)
    rows = hub.rows(
        "SELECT site, type, key, incarnation, generation, mode, arrival, restores, extract(epoch FROM arrived_at)::float8"
        " FROM bridge.inbox ORDER BY site, type, key"
    )
    assert told == [(s, t, k, Version(i, g), m, n, r, at) for s, t, k, i, g, m, n, r, at in rows]
    needs = {w.type: (w.dependency, w.base, w.match, w.priority) for w in hub.noticed}
    assert needs["compliance"] == (Version(1, 4), "clusters", Match.AT_LEAST, 10)
    assert needs["clusters"] == (None, None, Match.AT_LEAST, 0)


def test_the_units_are_not_told_of_what_did_not_come_to_wait(hub: Hub) -> None:
    first = events("a", 1)
    hub.take_in(clusters("a", 5), first)
    hub.take_in(clusters("a", 4), first, clusters("a", 5))
    assert hub.noticed == []
    hub.take_in(clusters("a", 6), clusters("a", 7))
    assert [w.version for w in hub.noticed] == [Version(1, 7)]


ARRIVALS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["clusters", "events", "managed-clusters"]), st.integers(0, 3),
              st.integers(0, 3), st.integers(0, 5)),
    max_size=20,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(sent=ARRIVALS)
def test_i3_a_batch_folds_to_what_taking_its_messages_in_one_by_one_leaves(sent: list[tuple[str, str, int, int, int]]) -> None:
    """The model: one message after the other; a newer complete one replaces, an id that waits is a duplicate."""
    arrived = []
    for position, (site, type_, incarnation, generation, number) in enumerate(sent):
        bundle = Bundle(id=f"i{number}", source=site, type=type_, time="", mode=SHIPPED[type_].mode,
                        version=Version(incarnation, generation))  # fmt: skip
        arrived.append(Arrived(bundle, f"q{site}", position))
    model: dict[tuple[str, str, str], Arrived] = {}
    for one in arrived:
        key = "" if one.bundle.mode is Mode.COMPLETE else one.bundle.id
        before = model.get((one.bundle.source, one.bundle.type, key))
        if before is None or (key == "" and before.bundle.version < one.bundle.version):
            model[one.bundle.source, one.bundle.type, key] = one
    folded = newest(SHIPPED, arrived)
    assert folded == model
    places = [(one.queue, one.position) for one in folded.values()]
    assert places == sorted(places)


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.HYBRID])
def test_the_longest_id_that_is_accepted_can_be_kept_and_a_longer_one_is_refused(hub: Hub, mode: Mode) -> None:
    """One that no index takes would stop the batch of all sites."""
    type_ = {Mode.APPEND: "events", Mode.HYBRID: "policies"}[mode]
    longest, longer = ("".join(chr(0x4E00 + n) for n in range(length)) for length in (LONGEST_ID // 3, LONGEST_ID // 3 + 1))
    hub.take_in(SHIPPED.accept(auto("a", type_, mode, 0, 0, [], id_=longest)))
    assert hub.rows("SELECT key FROM bridge.inbox") == [(longest,)]
    with pytest.raises(Invalid, match="its id has more than 512 bytes"):
        SHIPPED.accept(auto("a", type_, mode, 0, 0, [], id_=longer))
