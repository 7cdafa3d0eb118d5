"""A look at the queues finds what breaks their rules, and nothing where all is well."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from filled_queues import LOG_ID, fill
from trunkline.queues.verify import RULES, look, verify

REQUEST = (
    "INSERT INTO queues.request (id, client, destinations, reason, state, base, chunks) "
    "VALUES ('{id}', 'policy', '{{paris}}', 'first', {rest})"
)
ID = "00000000-0000-0000-0000-000000000001"


@pytest.fixture(scope="module")
def dsn(make_databases: Callable[..., str]) -> str:
    return fill(make_databases("queues"))


def found(dsn: str, *breaches: str) -> list[tuple[str, str, str]]:
    """After these, which are taken back."""
    with psycopg.connect(dsn) as conn:
        for breach in breaches:
            conn.execute(breach.encode())
        findings = [(finding.rule, finding.what, finding.why) for finding in look(conn)]
        conn.rollback()
    return findings


def test_where_all_is_well_nothing_is_found(dsn: str) -> None:
    assert found(dsn) == []
    with psycopg.connect(dsn) as conn:
        assert verify(conn) == []


BREAKS = {
    "the log is dense": "INSERT INTO queues.stamp SELECT 9, 9, mark, '{}', slots, '{1}', '{1}', '{}', '{}', '{}', '{}', '{}', "
    "cursor, holes, hole_bounds FROM queues.stamp LIMIT 1",
    "the log begins after what was trimmed": "UPDATE queues.stamp SET first_seq = 2",
    "a round counts what it has": "UPDATE queues.stamp SET counts[1] = 2",
    "every stamped transaction has its rows": "DELETE FROM queues.send_log WHERE payload = 'policy 3'",
    "a transaction is stamped once": "UPDATE queues.stamp SET xids[2] = xids[1]",
    "no ticket is passed over": "WITH sent AS (INSERT INTO queues.send_log (slot, first, client, destination_set, payload) "
    "VALUES (0, false, 'policy', 1, 'x') RETURNING xid) INSERT INTO queues.ticket SELECT -1, xid, 0 FROM sent",
    "what was trimmed lies in the log": "UPDATE queues.stamper SET lowest = 7",
    "a set of destinations is kept once": "INSERT INTO queues.destination_set (digest, sites) VALUES ('x', '{paris}')",
    "a set of destinations is sorted and has each once": "INSERT INTO queues.destination_set (digest, sites) "
    "VALUES ('x', '{b,a}')",
    "every set that is named exists": "DELETE FROM queues.destination_set WHERE sites = '{paris}'",
    "acknowledgements lie in the log": "UPDATE queues.acknowledged SET seq = 7",
    "open requests are kept their entries": "UPDATE queues.stamper SET lowest = 4; "
    + REQUEST.format(id=ID, rest="'ready', 3, 0"),
    "a snapshot's chunks are dense": REQUEST.format(id=ID, rest="'providing', 6, 2")
    + f"; INSERT INTO queues.send_snapshot VALUES ('{ID}', 1, 1, ''), ('{ID}', 2, 1, '')",
    "positions are dense": "DELETE FROM queues.receive WHERE position = 3",
    "no position is there twice": "INSERT INTO queues.receive SELECT * FROM queues.receive WHERE position = 4",
    "heads, tails and bytes are in order": "UPDATE queues.queue SET passed_bytes = received_bytes + 1",
    "bytes are counted": "UPDATE queues.queue SET received_bytes = received_bytes + 1",
    "every record is of a known kind": "UPDATE queues.receive SET type = 9 WHERE position = 4",
    "no consumer is ahead of its queue": "UPDATE queues.consumed SET position = 5",
    "nothing is gone that a consumer still needs": "UPDATE queues.consumed SET position = 1",
    "the sessions of an origin are of one log": "INSERT INTO queues.session (origin, client, log_id, seq, mark) "
    "VALUES ('paris', 'other', 'another', 0, 0)",
    "a session has what its state needs": "UPDATE queues.session SET state = 'snapshot'",
}


def test_every_rule_has_its_breach_here() -> None:
    assert set(BREAKS) == set(RULES)


@pytest.mark.parametrize("rule", BREAKS)
def test_a_breach_is_found_and_named(dsn: str, rule: str) -> None:
    assert rule in [broken for broken, _, _ in found(dsn, BREAKS[rule])]


def test_what_is_found_says_which_thing_and_why(dsn: str) -> None:
    assert found(dsn, "UPDATE queues.acknowledged SET seq = 7") == [
        ("acknowledgements lie in the log", "site paris, client policy", "it has 7, and the log ends with 6")
    ]
    ((rule, what, why),) = found(dsn, "INSERT INTO queues.session VALUES ('paris', 'b', 'another', 0, 0)")
    assert (rule, what) == ("the sessions of an origin are of one log", "origin paris")
    assert LOG_ID in why
    assert "another" in why


def test_a_look_changes_nothing(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        verify(conn)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            conn.execute("DELETE FROM queues.acknowledged")
