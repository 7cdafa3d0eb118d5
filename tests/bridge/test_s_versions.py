"""Scenarios of versions, dependencies and stored offsets: an agent's messages on Kafka, up to the fleet's tables.

C, the compliance, comes as clusters-per-policy; CC, the complete compliance, depends on its value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from hub_agent import (
    Message,
    complete_compliance,
    compliance,
    compliance_delta,
    cut,
    event,
    later,
    policy_events,
    sent,
)
from kafka_bridge import KafkaBridge
from kafka_topics import Topics
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

C, CC, DELTA = "clusters-per-policy", "complete-compliance", "compliance-delta"


def states(bridge: KafkaBridge, hub: str = "h1") -> dict[str, str]:
    """By cluster, of policy p1."""
    return dict(bridge.rows("SELECT cluster_name, state::text FROM fleet.compliance WHERE (site, policy_id) = (%s, 'p1')", hub))


def applied(bridge: KafkaBridge, type_: str = C, hub: str = "h1") -> str | None:
    """As the agent says versions: generation and value."""
    found = bridge.rows("SELECT generation, value FROM bridge.ledger WHERE (site, type) = (%s, %s)", hub, type_)
    return f"{found[0][0]}.{found[0][1]}" if found else None


def rows_as_written(bridge: KafkaBridge) -> list[tuple[Any, ...]]:
    """With what changes when a row is written, even with the same values."""
    ledger = "SELECT 'ledger', site, l::text, xmin::text, ctid::text FROM bridge.ledger AS l"
    return sorted(
        bridge.rows(f"SELECT 'row', site, c::text, xmin::text, ctid::text FROM fleet.compliance AS c UNION ALL {ledger}")
    )


class Other:
    """A second hub with rows of the same names: nothing that befalls the first may touch them."""

    def __init__(self, bridge: KafkaBridge) -> None:
        self._bridge = bridge
        bridge.topics.create("h1", "h2")
        bridge.put("h2", compliance("h2", "3.7", compliant=["c1"], nonCompliant=["c2"]))

    def remember(self) -> None:
        self._before = self._now()

    def is_untouched(self) -> bool:
        return self._now() == self._before

    def _now(self) -> list[tuple[Any, ...]]:
        return [row for row in rows_as_written(self._bridge) if row[1] == "h2"]


@pytest.fixture
def other(bridge: KafkaBridge) -> Other:
    return Other(bridge)


def given_applied(bridge: KafkaBridge, other: Other, *messages: Message) -> None:
    bridge.put("h1", *messages)
    bridge.start()
    bridge.until_applied(h1=len(messages), h2=1)
    other.remember()


def test_s02_what_arrives_out_of_order_changes_nothing_and_is_counted_as_stale(bridge: KafkaBridge, other: Other) -> None:
    given_applied(bridge, other, sent(compliance("h1", "3.7", compliant=["c1"]), time=later(5)))
    assert (applied(bridge), states(bridge)) == ("3.7", {"c1": "compliant"})
    before = rows_as_written(bridge)
    bridge.put("h1", sent(compliance("h1", "2.6", nonCompliant=["c1", "c2"]), time=later(0)))
    bridge.until_applied(h1=2, h2=1)
    assert rows_as_written(bridge) == before
    assert bridge.tally("h1") == {"received": 2, "applied": 1, "stale": 1}
    assert bridge.tally("h2") == {"received": 1, "applied": 1}
    assert bridge.rows("SELECT 1 FROM bridge.quarantine") == []


def test_s04_a_restart_with_generation_0_is_accepted_and_a_stray_of_the_old_run_does_not_overwrite_it(
    bridge: KafkaBridge, other: Other
) -> None:
    given_applied(bridge, other, sent(compliance("h1", "500.900", compliant=["old"]), time=later(10)))
    assert (applied(bridge), states(bridge)) == ("500.900", {"old": "compliant"})
    bridge.intake.stop()
    stray = sent(compliance("h1", "501.901", compliant=["stray"]), time=later(3600))  # that agent's clock was ahead
    bridge.put("h1", stray, sent(compliance("h1", "0.1", compliant=["new"]), time=later(20)))
    bridge.intake.start()
    bridge.until_applied(h1=3, h2=1)
    assert (applied(bridge), states(bridge)) == ("0.1", {"new": "compliant"})
    assert bridge.tally("h1") == {"received": 3, "applied": 2, "conflated": 1}
    before = rows_as_written(bridge)
    replay_from(bridge, "h1", 1)
    bridge.until_applied(h1=3, h2=1)
    assert rows_as_written(bridge) == before
    assert bridge.tally("h1") == {"received": 5, "applied": 2, "conflated": 1, "stale": 2}
    bridge.put("h1", sent(compliance("h1", "1.2", compliant=["newer"]), time=later(25)))
    bridge.until_applied(h1=4, h2=1)
    assert (applied(bridge), states(bridge)) == ("1.2", {"newer": "compliant"})
    assert other.is_untouched()


def replay_from(bridge: KafkaBridge, hub: str, offset: int) -> None:
    """As somebody does who sets the stored offset back by hand."""
    bridge.intake.stop()
    with psycopg.connect(bridge.dsn) as conn:
        back = "UPDATE pipeline.kafka_offset SET next_offset = %s WHERE topic = %s"
        conn.execute(back, (offset, bridge.topics.name(hub)))
    assert bridge.offsets()[hub] == offset
    bridge.intake.start()


@pytest.mark.parametrize("by", ["session", "time"])
def test_s05_a_silent_restart_is_known_by_its_session_or_its_time(bridge: KafkaBridge, other: Other, by: str) -> None:
    ended, began = {
        "session": ({"sessionid": "one"}, {"sessionid": "two"}),
        "time": ({"time": later(10)}, {"time": later(11)}),
    }[by]
    given_applied(bridge, other, sent(compliance("h1", "500.900", compliant=["old"]), **ended))
    before = rows_as_written(bridge)
    bridge.put("h1", sent(compliance("h1", "7.1", compliant=["same run"]), **ended))
    bridge.until_applied(h1=2, h2=1)
    assert rows_as_written(bridge) == before
    assert (applied(bridge), bridge.tally("h1")) == ("500.900", {"received": 2, "applied": 1, "stale": 1})
    bridge.put("h1", sent(compliance("h1", "7.1", compliant=["new run"]), **began))
    bridge.until_applied(h1=3, h2=1)
    assert (applied(bridge), states(bridge)) == ("7.1", {"new run": "compliant"})
    assert bridge.tally("h1") == {"received": 3, "applied": 2, "stale": 1}
    bridge.put("h1", sent(compliance("h1", "8.2", nonCompliant=["new run"]), **began))
    bridge.until_applied(h1=4, h2=1)
    assert (applied(bridge), states(bridge)) == ("8.2", {"new run": "non_compliant"})
    assert other.is_untouched()


def test_s08_a_dependency_is_met_by_the_equal_value_whatever_the_generation(bridge: KafkaBridge, other: Other) -> None:
    given_applied(bridge, other, compliance("h1", "0.5", compliant=["c1", "c2"]))
    assert applied(bridge) == "0.5"
    bridge.put("h1", complete_compliance("h1", "0.3", "1.5", nonCompliant=["c2"]))
    bridge.until_applied(h1=2, h2=1)
    assert (applied(bridge), applied(bridge, CC)) == ("0.5", "0.3")
    assert states(bridge) == {"c1": "compliant", "c2": "non_compliant"}
    assert bridge.tally("h1") == {"received": 2, "applied": 2}
    assert other.is_untouched()


def test_s09_a_dependent_is_parked_until_its_base_and_holds_up_nobody(bridge: KafkaBridge, other: Other) -> None:
    given_applied(bridge, other, compliance("h1", "0.5", compliant=["c1", "c2"]))
    before = rows_as_written(bridge)
    bridge.put("h1", complete_compliance("h1", "0.1", "2.6", nonCompliant=["c3"]))
    bridge.until_taken_in(h1=2, h2=1)
    bridge.until(lambda: bridge.workers.sizes()["parked"] == 1)
    bridge.put("h1", policy_events("h1", 0, "e1"), event("h1", "managedhub.heartbeat", "0.0", []))
    bridge.until(lambda: [applied(bridge, "policy-events"), applied(bridge, "heartbeat")] == ["0.1", "0.0"])
    assert bridge.rows("SELECT event_name FROM fleet.policy_event") == [("e1",)]
    assert bridge.rows("SELECT site FROM fleet.heartbeat") == [("h1",)]
    assert bridge.rows("SELECT site, type, dependency_generation FROM bridge.inbox") == [("h1", CC, 6)]
    assert [row for row in rows_as_written(bridge) if row in before] == before
    assert states(bridge) == {"c1": "compliant", "c2": "compliant"}
    bridge.put("h1", compliance("h1", "1.6", compliant=["c1", "c3"]))
    bridge.until_applied(h1=5, h2=1)  # and nothing came after it
    assert (applied(bridge), applied(bridge, CC)) == ("1.6", "0.1")
    assert states(bridge) == {"c1": "compliant", "c3": "non_compliant"}
    assert bridge.tally("h1") == {"received": 5, "applied": 5}
    assert other.is_untouched()


def test_s11_a_dependent_that_names_no_version_goes_to_quarantine_and_the_stream_stays_up(
    bridge: KafkaBridge, other: Other
) -> None:
    without = complete_compliance("h1", "0.1", None, nonCompliant=["c1"])
    given_applied(bridge, other, compliance("h1", "0.5", compliant=["c1", "c2"]), without)
    [(site, payload, reason, queue, position, state)] = bridge.rows(
        "SELECT site, payload, reason, queue, position, state FROM bridge.quarantine"
    )
    assert (site, payload, queue, position, state) == ("h1", without[1], f"{bridge.topics.name('h1')}@0", 1, "open")
    assert "it names no version of clusters-per-policy" in reason
    assert (states(bridge), applied(bridge, CC)) == ({"c1": "compliant", "c2": "compliant"}, None)
    assert bridge.tally("h1") == {"received": 2, "applied": 1, "rejected": 1}
    bridge.put("h1", complete_compliance("h1", "1.2", "1.5", nonCompliant=["c2"]))
    bridge.until_applied(h1=3, h2=1)
    assert (states(bridge), applied(bridge, CC)) == ({"c1": "compliant", "c2": "non_compliant"}, "1.2")
    assert bridge.intake.failure() is None
    assert other.is_untouched()


CANCEL_BEHIND = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"


def test_s18_deltas_of_a_base_that_is_gone_are_discarded_and_those_of_the_new_one_apply(
    bridge: KafkaBridge, other: Other
) -> None:
    base = compliance("h1", "0.1", compliant=["c1", "c2", "c3", "c4"])
    given_applied(bridge, other, base, complete_compliance("h1", "1.4", "1.1", nonCompliant=["c1"]))
    assert applied(bridge, CC) == "1.4"
    with psycopg.connect(bridge.dsn) as somebody:
        somebody.execute("SELECT FROM fleet.compliance WHERE (site, cluster_name) = ('h1', 'c2') FOR UPDATE")
        first, second = [compliance_delta("h1", f"{n}.{n + 1}", "2.4", nonCompliant=[f"c{n + 2}"]) for n in range(2)]
        bridge.put("h1", first, second)  # these wait for row c2
        bridge.until_taken_in(h1=4, h2=1)
        assert bridge.rows("SELECT type, position FROM bridge.inbox ORDER BY position") == [(DELTA, 2), (DELTA, 3)]
        bridge.put("h1", complete_compliance("h1", "2.5", "1.1", pendingCompliance=["c4"]))  # this does not
        end_waiting = partial(bridge.rows, CANCEL_BEHIND, somebody.info.backend_pid)  # as their timeout would
        bridge.until(lambda: [end_waiting(), bridge.offsets(), bridge.waiting()][1:] == [{"h1": 5, "h2": 1}, 0])
    of_the_base = {"c1": "compliant", "c2": "compliant", "c3": "compliant", "c4": "pending"}
    assert (states(bridge), applied(bridge, CC), applied(bridge, DELTA)) == (of_the_base, "2.5", None)
    assert bridge.tally("h1") == {"received": 5, "applied": 3, "discarded": 2}
    before = rows_as_written(bridge)
    bridge.put("h1", compliance_delta("h1", "2.3", "2.4", nonCompliant=["c1"]))
    bridge.until_applied(h1=6, h2=1)
    assert rows_as_written(bridge) == before
    assert bridge.tally("h1") == {"received": 6, "applied": 3, "discarded": 3}
    bridge.put("h1", compliance_delta("h1", "3.4", "3.5", nonCompliant=["c2"], compliant=["c4"]))
    bridge.until_applied(h1=7, h2=1)
    assert states(bridge) == of_the_base | {"c2": "non_compliant", "c4": "compliant"}
    assert applied(bridge, DELTA) == "3.4"
    assert bridge.tally("h1") == {"received": 7, "applied": 4, "discarded": 3}
    assert bridge.rows("SELECT 1 FROM bridge.resync") == []  # nothing was lost
    assert other.is_untouched()


class Readers:
    """All that somebody who looks at the rows of h1 all the time ever sees."""

    def __init__(self, dsn: str) -> None:
        self.seen: set[tuple[int, str]] = set()
        self._dsn, self._stopped = dsn, threading.Event()
        self._looked = 0
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Readers:
        self._thread.start()
        eventually(lambda: self._looked)
        return self

    def __exit__(self, *_: object) -> None:
        looked = self._looked
        eventually(lambda: self._looked >= looked + 2)  # one that began after all of it
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        query = "SELECT count(*), string_agg(DISTINCT state::text, ' ') FROM fleet.compliance WHERE site = 'h1'"
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            while not self._stopped.is_set():
                self.seen.update(conn.execute(query).fetchall())
                self._looked += 1


def of_30_policies(version: str, state: str, bad: str = "c9") -> Message:
    """300 rows; the last of them is of cluster `bad`."""
    names = [f"c{n}" for n in range(9)]
    data = [{"policyId": f"p{n}", f"{state}Clusters": [*names, bad if n == 29 else "c9"]} for n in range(30)]
    return event("h1", "policy.localcompliance", version, data)


def test_s24_one_bad_row_of_300_rolls_the_bundle_back_and_a_newer_one_clears_it(bridge: KafkaBridge, other: Other) -> None:
    with psycopg.connect(bridge.dsn) as conn:
        conn.execute("CREATE SEQUENCE tries")  # it counts what is rolled back, too
        check = "CHECK (cluster_name <> 'bad' OR nextval('tries') = 0)"
        conn.execute(f"ALTER TABLE fleet.compliance ADD CONSTRAINT no_bad_cluster {check}")
    given_applied(bridge, other, of_30_policies("0.1", "compliant"))
    ledger = bridge.rows("SELECT * FROM bridge.ledger ORDER BY site")
    bad = of_30_policies("1.2", "nonCompliant", bad="bad")
    with Readers(bridge.dsn) as readers, capture_logs() as logs:
        bridge.put("h1", bad)
        bridge.until_applied(h1=2, h2=1)
    assert readers.seen == {(300, "compliant")}
    assert bridge.rows("SELECT last_value FROM tries") == [(3,)]
    pauses = [entry["retry_seconds"] for entry in logs if entry["event"] == "apply is tried again"]
    assert len(pauses) == 2
    assert 0.1 <= pauses[0] <= 0.2 <= pauses[1] <= 0.4
    [(type_, payload, reason, queue, position, state)] = bridge.rows(
        "SELECT type, payload, reason, queue, position, state FROM bridge.quarantine WHERE site = 'h1'"
    )
    assert (type_, payload, queue, position, state) == (C, bad[1], f"{bridge.topics.name('h1')}@0", 1, "open")
    assert "no_bad_cluster" in reason
    assert bridge.rows("SELECT * FROM bridge.ledger ORDER BY site") == ledger
    assert bridge.tally("h1") == {"received": 2, "applied": 1, "quarantined": 1}
    with Readers(bridge.dsn) as readers:
        bridge.put("h1", of_30_policies("2.3", "unknownCompliance"))
        bridge.until_applied(h1=3, h2=1)
    assert readers.seen == {(300, "compliant"), (300, "unknown")}
    assert bridge.rows("SELECT state, settled_at IS NOT NULL FROM bridge.quarantine") == [("cleared", True)]
    assert applied(bridge) == "2.3"
    assert bridge.tally("h1") == {"received": 3, "applied": 2, "quarantined": 1}
    assert other.is_untouched()


def held(bridge: KafkaBridge, hub: str) -> list[int]:
    """Offsets of messages that were taken in and wait, in the inbox or as a part of a bundle."""
    where = f"WHERE queue = '{bridge.topics.name(hub)}@0'"
    waiting = f"SELECT position FROM bridge.inbox {where} UNION ALL SELECT position FROM bridge.chunk {where}"
    return sorted(position for (position,) in bridge.rows(waiting))


CUT_OFF = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = 'bridge.counter'::regclass AND NOT granted"


def test_s25_the_stored_offset_passes_only_what_is_applied_or_held(
    make_bridge: Callable[..., KafkaBridge], topics: Topics
) -> None:
    """What waits is kept beside the offset, in its transaction; so the offset stands behind it, and never behind more."""
    topics.create("h1")
    bridge = make_bridge()
    bridge.put(
        "h1",
        event("h1", "managedhub.heartbeat", "0.0", []),
        compliance("h1", "0.1", compliant=["c1", "c2", "c3"]),
        complete_compliance("h1", "0.1", "1.1", nonCompliant=["c1"]),
        policy_events("h1", 0, "e1"),
    )
    bridge.start()
    bridge.until_applied(h1=4)  # 1 to 3 are applied
    base = compliance("h1", "1.9", compliant=["c1", "c2", "c3", "c4"])
    part, rest = cut(base, 20)
    pending = [
        complete_compliance("h1", "1.9", "2.9", nonCompliant=["c2"]),
        compliance_delta("h1", "0.1", "2.9", nonCompliant=["c3"]),
        compliance_delta("h1", "1.2", "2.9", compliant=["c2"]),
        part,
    ]
    with psycopg.connect(bridge.dsn) as paused:
        paused.execute("LOCK TABLE bridge.counter IN EXCLUSIVE MODE")
        bridge.put("h1", *pending)
        eventually(lambda: bridge.rows(CUT_OFF))  # after it had staged and merged all of them
    eventually(lambda: bridge.intake.failure() is not None)
    assert (bridge.offsets(), held(bridge, "h1")) == ({"h1": 4}, [])  # 4 to 7 are nowhere yet
    bridge.intake.stop()
    bridge.intake.start()
    bridge.until_taken_in(h1=8)
    assert held(bridge, "h1") == [4, 5, 6, 7]
    bridge.crash()
    bridge.stop()
    bridge = make_bridge()  # nothing of it is read again, and nothing forgotten
    bridge.start()
    bridge.until(lambda: bridge.workers.sizes()["parked"] == 2)
    assert (bridge.offsets(), held(bridge, "h1")) == ({"h1": 8}, [4, 5, 6, 7])
    assert bridge.tally("h1") == {"received": 8, "applied": 4}
    assert states(bridge) == {"c1": "non_compliant", "c2": "compliant", "c3": "compliant"}
    bridge.put("h1", rest, policy_events("h1", 1, "e2"), policy_events("h1", 2, "e3"))
    bridge.until_applied(h1=11)
    assert held(bridge, "h1") == []
    assert states(bridge) == {"c1": "compliant", "c2": "compliant", "c3": "non_compliant", "c4": "compliant"}
    bridge.put("h1", *[policy_events("h1", n, f"e{n + 1}") for n in range(3, 6)])
    bridge.until_applied(h1=14)  # 11 to 13 are applied
    assert sorted(bridge.rows("SELECT event_name FROM fleet.policy_event")) == [(f"e{n}",) for n in range(1, 7)]
    assert bridge.tally("h1") == {"received": 14, "applied": 13, "joined": 1}


def test_s25_where_nothing_is_applied_yet_the_stored_offset_is_behind_what_is_held(bridge: KafkaBridge, topics: Topics) -> None:
    topics.create("h1")
    bridge.put("h1", *[policy_events("h1", n, f"e{n}") for n in range(10)])
    topics.trim("h1", before=6)
    with psycopg.connect(bridge.dsn) as paused:
        paused.execute("LOCK TABLE bridge.counter IN EXCLUSIVE MODE")
        bridge.intake.start()
        eventually(lambda: bridge.rows(CUT_OFF))
    eventually(lambda: bridge.intake.failure() is not None)
    assert (bridge.offsets(), held(bridge, "h1")) == ({}, [])
    bridge.intake.stop()
    bridge.intake.start()
    bridge.until_taken_in(h1=10)
    assert held(bridge, "h1") == [6, 7, 8, 9]
    assert bridge.rows("SELECT 1 FROM bridge.ledger UNION ALL SELECT 1 FROM fleet.policy_event") == []
    bridge.workers.start()
    bridge.until_applied(h1=10)
    assert sorted(bridge.rows("SELECT event_name FROM fleet.policy_event")) == [(f"e{n}",) for n in range(6, 10)]
    assert bridge.tally("h1") == {"received": 4, "applied": 4}
