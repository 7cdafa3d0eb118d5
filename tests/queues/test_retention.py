"""How long the log is kept, and for whom: K1 to K6 of `retention.py` on a real database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from queue_site import APP, Site

from trunkline.core.errors import Fenced
from trunkline.core.ids import Position
from trunkline.db.lease import Grant
from trunkline.queues.acks import acknowledge, acknowledge_base
from trunkline.queues.inspect import SEND_LOG, entries
from trunkline.queues.log import PostgresLog
from trunkline.queues.requests import delivered, read_chunk
from trunkline.queues.retention import Keep, Retention, Trimmed
from trunkline.queues.snapshots import StoredChunk
from trunkline.queues.stamper import Stamper
from trunkline.trunk.log import Applied
from trunkline.trunk.wants import open_subscription

# A slot with any row in it is large already: every step leaves it.
LONG = Keep(hours=1000.0, bytes=16 * 16_384, unacknowledged=1000)
NOTHING = Keep(hours=1e-9, bytes=16 * 16_384, unacknowledged=1000)


@dataclass
class Kept:
    """A site's log under retention; sites hub and shop, both silent at first."""

    site: Site
    grant: Grant
    stamper: Stamper
    log: PostgresLog
    conn: psycopg.Connection[Any]

    def send(self, count: int, *to: str) -> Position:
        """One transaction and one round."""
        with psycopg.connect(self.site.dsn) as conn:
            APP.transmit_many(conn, [b"x"] * count, to)
        return self.stamper.round().head

    def step(self, keep: Keep = LONG) -> Trimmed:
        with self.log.backlog() as backlog:
            return Retention(keep, own="me").step(self.conn, self.grant, backlog)

    def acknowledge(self, destination: str, position: Position, generation: int = 1) -> None:
        acknowledge(self.conn, destination, "app", generation, position)
        self.conn.commit()

    def gaps(self, destination: str, at: Position) -> dict[str, tuple[str, ...]]:
        return open_subscription(self.log, {destination: Applied(self.log.log_id, {"app": at})}).gaps

    def marked(self) -> list[Any]:
        return self.site.ask("SELECT destination, over_cap FROM queues.needs_snapshot ORDER BY 1")

    def rows(self) -> int:
        (count,) = self.site.ask("SELECT count(*) FROM queues.sent_message")
        return int(count)

    def shown(self) -> list[Any]:
        """Of the log, to whoever looks."""
        with psycopg.connect(self.site.dsn) as conn:
            shown: list[Any] = entries(conn, SEND_LOG, 0, 1000, 10)["entries"]
            return shown

    def payload_seqs(self, after: int, site: str) -> list[int]:
        return [m.seq for e in self.log.read(after, 1000, {site}).entries for m in e.apart()]


@pytest.fixture
def kept(site: Site) -> Kept:
    site.do("INSERT INTO queues.site (name) VALUES ('me')")
    grant = site.acquire(600)
    return Kept(site, grant, site.stamper(grant), PostgresLog(site.pool()), site.connect())


def test_what_everybody_acknowledged_goes_with_its_slot_and_the_log_goes_on(kept: Kept) -> None:
    first = kept.send(3, "hub", "shop")
    assert kept.step() == Trimmed(0, 1, (), (), ()), "writers got a fresh slot; nobody has acknowledged"
    kept.acknowledge("hub", first)
    assert kept.step().emptied == ()
    kept.acknowledge("shop", first)
    second = kept.send(2, "hub")
    assert kept.step() == Trimmed(3, 2, (0,), (), ())
    assert (kept.log.lowest(), kept.log.head(), kept.rows()) == (first, second, 2)
    assert kept.payload_seqs(3, "hub") == [4, 5]
    assert kept.site.ask("SELECT first_seq FROM queues.stamp") == [4]
    assert [kept.log.mark_at(seq) for seq in (0, 1, 3, 4)] == [0, None, first.mark, second.mark]


def test_the_last_stamp_stays_and_with_it_where_the_stamper_stands(kept: Kept) -> None:
    head = kept.send(2, "hub")
    kept.acknowledge("hub", head)
    kept.step()
    assert kept.step().lowest == 2
    assert (kept.log.lowest(), kept.log.head(), kept.rows()) == (head, head, 0)
    assert kept.log.read(2, 10, {"hub"}).entries == ()
    another = kept.site.stamper(kept.site.take_over())
    kept.site.send(b"3")
    assert another.round().head.seq == 3
    assert kept.payload_seqs(2, "hub") == [3]


def test_a_slot_stays_while_it_is_small_and_young(kept: Kept) -> None:
    kept.acknowledge("hub", kept.send(3, "hub"))
    roomy = Keep(hours=1000.0, bytes=1 << 30, unacknowledged=1000)
    assert [kept.step(roomy) for _ in range(2)] == [Trimmed(0, 0, (), (), ())] * 2
    old = Keep(hours=1e-9, bytes=1 << 30, unacknowledged=1000)
    assert kept.step(old).slot == 1


def test_h07_rows_of_a_transaction_that_was_open_for_long_are_not_trimmed(kept: Kept) -> None:
    slow = kept.site.open_transaction(b"slow")
    head = kept.send(2, "hub")
    kept.step()
    kept.acknowledge("hub", head)
    assert kept.step(NOTHING).emptied == (), "somebody still writes there"
    slow.commit()
    assert kept.step(NOTHING).emptied == (), "and what was written is not stamped"
    late = kept.stamper.round().head
    assert (late.seq, kept.payload_seqs(2, "hub")) == (3, [3])
    assert kept.step().emptied == (), "stamped, but not acknowledged"
    kept.acknowledge("hub", late)
    assert kept.step().emptied == (0,)


def test_h07_a_hole_keeps_its_slot(kept: Kept) -> None:
    drawn = kept.site.drawn(b"drawn")
    head = kept.send(1, "hub")
    kept.step()
    kept.acknowledge("hub", head)
    drawn.commit()
    assert kept.site.holes() == [1]
    assert kept.step(NOTHING).emptied == ()
    kept.stamper.round()
    assert kept.payload_seqs(1, "hub") == [2]


def test_a_slot_that_holds_only_what_failed_is_emptied_too(kept: Kept) -> None:
    failed = kept.site.open_transaction(b"x" * 100)
    failed.rollback()
    assert kept.step().slot == 1
    assert kept.step().emptied == (0,)


def test_h07_a_round_that_nobody_has_counted_yet_keeps_its_slot(kept: Kept) -> None:
    slow = kept.site.open_transaction(b"slow")
    kept.acknowledge("hub", kept.send(1, "hub"))
    kept.step()
    with kept.log.backlog() as backlog:
        slow.commit()
        kept.stamper.round()
        assert Retention(NOTHING).step(kept.conn, kept.grant, backlog).emptied == ()
    assert kept.payload_seqs(1, "hub") == [2]


def test_h17_an_entry_for_all_is_kept_until_every_other_site_has_it(kept: Kept) -> None:
    head = kept.send(1, "*")
    kept.step()
    kept.acknowledge("hub", head)
    assert kept.step().emptied == ()
    kept.acknowledge("shop", head)
    assert kept.step().emptied == (0,), "this site itself is not waited for"
    assert dict(kept.log.trimmed_for("hub")) == dict(kept.log.trimmed_for("any")) == {"app": 1}


def test_h18_nothing_after_the_base_of_a_snapshot_under_way_goes_whatever_its_age(kept: Kept) -> None:
    kept.send(2, "hub")
    (request,) = kept.site.ask(
        "INSERT INTO queues.request (client, destinations, reason) VALUES ('app', '{hub}', 'first') RETURNING id"
    )
    exported = kept.stamper.export([request])
    kept.step()
    kept.send(1, "hub")
    assert kept.step(NOTHING).emptied == (0,), "up to the base it is in the snapshot"
    kept.send(1, "hub")
    for _ in range(3):
        assert kept.step(NOTHING).lowest == exported.base.seq == 2
    assert kept.payload_seqs(2, "hub") == [3, 4]
    acknowledge_base(kept.conn, "hub", "app", exported.base)
    kept.conn.execute("UPDATE queues.request SET state = 'done'")
    kept.conn.commit()
    assert kept.step().lowest == 2, "and from then on they are kept because they are not acknowledged"
    assert kept.gaps("hub", exported.base) == {}
    exported.close()


def test_s13_a_trimmed_entry_that_a_destination_lacks_is_a_gap_and_needs_a_snapshot(kept: Kept) -> None:
    at_200 = kept.send(200, "hub", "shop")
    for destination in ("hub", "shop"):
        kept.acknowledge(destination, at_200)
    kept.send(29, "shop")
    kept.send(1, "hub")
    kept.send(20, "shop")
    kept.step()
    kept.send(10, "shop")
    done = kept.step(NOTHING)
    assert (done.lowest, kept.log.head().seq) == (250, 260)
    assert kept.marked() == [("hub", False), ("shop", False)]
    assert kept.gaps("hub", at_200) == {"hub": ("app",)}
    assert dict(kept.log.trimmed_for("hub")) == {"app": 230}

    base = kept.log.head()
    acknowledge_base(kept.conn, "hub", "app", base)
    kept.conn.commit()
    assert kept.marked() == [("shop", False)]
    kept.send(1, "hub")
    assert kept.gaps("hub", base) == {}
    assert kept.payload_seqs(base.seq, "hub") == [261]


def test_s14_a_quiet_destination_resumes_below_what_was_trimmed_without_a_snapshot(kept: Kept) -> None:
    at_200 = kept.send(200, "hub", "shop")
    kept.acknowledge("hub", at_200)
    kept.acknowledge("shop", kept.send(50, "shop"))
    kept.step()
    kept.send(10, "shop")
    assert (kept.step().lowest, kept.log.head().seq) == (250, 260)
    assert dict(kept.log.last_for("hub")) == {"app": 200}
    assert kept.marked() == []
    assert kept.gaps("hub", at_200) == {}
    kept.send(1, "hub")
    assert dict(kept.log.last_for("hub")) == {"app": 261}
    assert kept.gaps("hub", at_200) == {}, "also when something new came meanwhile"
    opened = open_subscription(kept.log, {"hub": Applied(kept.log.log_id, {"app": at_200})})
    assert opened.start.seq == 250
    assert kept.payload_seqs(opened.start.seq, "hub") == [261]


def test_h22_over_the_cap_a_destination_is_no_longer_waited_for_and_the_others_go_on(kept: Kept) -> None:
    few = Keep(LONG.hours, LONG.bytes, unacknowledged=5)
    head = kept.send(5, "hub", "shop")
    kept.acknowledge("shop", head)
    assert kept.step(few).marked == ()
    head = kept.send(1, "*")
    kept.acknowledge("shop", head)
    assert kept.step(few).marked == (("hub", "app"),)
    assert kept.marked() == [("hub", True)]
    assert kept.step(few).lowest == 6
    assert kept.gaps("hub", Position(0, 0)) == {"hub": ("app",)}
    acknowledge_base(kept.conn, "hub", "app", head)
    kept.conn.commit()
    assert (kept.marked(), kept.step(few).marked) == ([], ())


def test_h22_one_that_catches_up_by_itself_is_waited_for_again_when_well_within_the_cap(kept: Kept) -> None:
    few = Keep(LONG.hours, 1 << 40, unacknowledged=4)
    positions = [kept.send(1, "hub") for _ in range(6)]
    assert kept.step(few).marked == (("hub", "app"),)
    kept.acknowledge("hub", positions[1])
    assert kept.step(few).cleared == (), "at the cap it would be over it again at once"
    kept.acknowledge("hub", positions[3])
    assert kept.step(few).cleared == (("hub", "app"),)
    assert kept.marked() == []


def test_h22_what_a_trim_left_behind_stays_marked_until_the_snapshot_is_there(kept: Kept) -> None:
    kept.send(1, "hub")
    kept.step()
    assert kept.step(NOTHING).marked == (("hub", "app"),)
    assert kept.step(NOTHING).cleared == ()
    kept.acknowledge("hub", Position(0, 0), generation=2)
    assert kept.step(NOTHING).cleared == ()


def test_the_oldest_go_when_all_takes_more_room_than_it_may(kept: Kept) -> None:
    small = Keep(hours=1000.0, bytes=200_000, unacknowledged=1000)
    steps = []
    for _ in range(12):
        kept.send(30, "hub")
        steps.append(kept.step(small))
    (room,) = kept.site.ask(
        "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'queues.send_log'::regclass"
    )
    assert room < small.bytes + 16 * 16_384 + 100_000  # a blank slot has its two empty indexes
    emptied = [slot for done in steps for slot in done.emptied]
    assert emptied == list(range(len(emptied)))
    assert 0 < steps[-1].lowest < 360
    assert kept.marked() == [("hub", False)]
    assert kept.payload_seqs(steps[-1].lowest, "hub")[0] == steps[-1].lowest + 1


def test_the_ring_goes_round_and_a_full_one_keeps_the_present_slot(kept: Kept) -> None:
    roomy = Keep(hours=1000.0, bytes=16 * 16_384, unacknowledged=10**6)
    slow = [kept.site.open_transaction(b"x")]
    slots = [kept.step(roomy).slot]
    while len(slots) < 20:
        slow.append(kept.site.open_transaction(b"x"))
        slots.append(kept.step(roomy).slot)
    assert slots[:15] == list(range(1, 16))
    assert set(slots[15:]) == {15}
    for conn in slow:
        conn.rollback()
    kept.step(roomy)
    assert kept.step(roomy).slot == 0


def test_h01_trimming_is_fenced(kept: Kept) -> None:
    kept.acknowledge("hub", kept.send(2, "hub"))
    kept.step()
    kept.site.take_over()
    with pytest.raises(Fenced):
        kept.step()
    assert (kept.rows(), kept.log.lowest().seq) == (2, 0)


def test_l5_a_read_that_a_trim_overtook_gives_nothing_it_cannot_vouch_for(kept: Kept) -> None:
    kept.send(2, "hub")
    kept.acknowledge("shop", kept.send(2, "shop"))
    kept.step()
    kept.step(NOTHING)
    kept.send(1, "hub")
    kept.send(1, "shop")
    assert kept.log.lowest().seq == 4
    lost = kept.log.read(0, 10, {"hub"})
    assert (lost.entries, lost.upto.seq) == ((), 0), "entry 1 was for it and is gone"
    assert [e.seq for e in kept.log.read(2, 10, {"hub"}).entries] == [5], "what went after 2 was for others"


def test_s26_after_a_trim_the_send_queues_read_as_empty_and_the_receive_queues_keep_theirs(kept: Kept) -> None:
    kept.site.do("INSERT INTO queues.receive SELECT 0, 1, n, 1, n, 0, n, NULL, NULL, 'x' FROM generate_series(1, 100) AS n")
    request = uuid4()
    kept.site.do(
        "INSERT INTO queues.request (id, client, destinations, reason, state, base, base_mark, chunks) "
        "VALUES (%s, 'app', '{hub}', 'first', 'complete', 0, 0, 100)", (request,)
    )  # fmt: skip
    kept.site.do("INSERT INTO queues.send_snapshot SELECT %s, n, 1, 'x' FROM generate_series(0, 99) AS n", (request,))
    kept.acknowledge("hub", kept.send(100, "hub"))
    assert (kept.rows(), len(kept.shown())) == (100, 100)
    assert read_chunk(kept.conn, request, 99).body == b"x"
    delivered(kept.conn, request, "hub")
    kept.conn.commit()
    kept.step()
    kept.step()
    assert (kept.rows(), kept.site.ask("SELECT count(*) FROM queues.send_snapshot")) == (0, [0])
    assert [kept.log.read(after, 1000, {"hub"}).entries for after in (0, 50, 100)] == [(), (), ()]
    assert (kept.shown(), kept.site.ask("SELECT * FROM queues.send_log_tags")) == ([], [])
    assert [read_chunk(kept.conn, request, n) for n in (0, 99, 100)] == [StoredChunk(None)] * 3
    assert kept.gaps("hub", kept.log.head()) == {}
    assert kept.site.ask("SELECT count(*) FROM queues.receive") == [100]
