"""What operators see of a bridge and may do to it, against a real database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from bridge_hub import Hub

from filled_bridge import FilledBridge, fill
from filled_queues import copy_of
from trunkline.bridge import inspect
from trunkline.bridge.inspect import NoSuchBundle, NoSuchSite
from trunkline.bridge.operating import BridgeOperating, NoBridge
from trunkline.bridge.shipped import SHIPPED
from trunkline.core.errors import Invalid, Retryable

LAST = 2**63 - 1


@pytest.fixture(scope="module")
def seen(make_databases: Callable[..., str]) -> FilledBridge:
    """For tests that change nothing."""
    return fill(make_databases("queues", "bridge"))


@pytest.fixture
def filled(seen: FilledBridge) -> Iterator[FilledBridge]:
    """To be changed."""
    with copy_of(seen.dsn) as dsn:
        yield FilledBridge(dsn)


def over(hub: FilledBridge) -> BridgeOperating:
    return BridgeOperating(lambda: psycopg.connect(hub.dsn), SHIPPED)


def of_type(site: dict[str, Any], type_: str) -> dict[str, Any]:
    (found,) = (part for part in site["types"] if part["type"] == type_)
    return dict(found)


# -- looking


def test_the_summary_counts_sites_and_what_is_not_applied(seen: FilledBridge) -> None:
    found = over(seen).status(None, "", 100)["summary"]
    assert 4 <= found.pop("oldest_seconds") < 600
    assert found == {
        "sites": 3, "active": 2, "silent": 1, "waiting": 1, "waiting_bytes": 2, "parked": 1, "quarantined": 1, "resyncs": 1,
        "running": False, "owner": "",
    }  # fmt: skip


def test_a_summary_says_who_runs_the_bridge(hub: Hub) -> None:
    found = BridgeOperating(lambda: psycopg.connect(hub.dsn), SHIPPED).status(None, "", 1)["summary"]
    assert found["running"] is True


def test_a_type_has_its_version_its_age_and_its_lag(seen: FilledBridge) -> None:
    clusters = of_type(over(seen).site("berlin", None), "clusters")
    assert (clusters["version"], clusters["value"], clusters["waiting"], clusters["next"]) == ("12.5", 5, 0, None)
    assert 120 <= clusters["age_seconds"] < 600
    assert clusters["lag_seconds"] == pytest.approx(clusters["age_seconds"] + 60, abs=1)


def test_what_waits_says_for_what(seen: FilledBridge) -> None:
    waiting = of_type(over(seen).site("paris", None), "compliance")["next"]
    assert 4 <= waiting.pop("waiting_seconds") < 600
    assert waiting == {
        "version": "12.3", "mode": "complete", "parked": True, "held": False, "base": "clusters", "needs": "12.6",
        "has": "12.5",
    }  # fmt: skip


def test_parked_is_what_the_ledger_does_not_meet(filled: FilledBridge) -> None:
    for needs, parked in {
        ("clusters", 12, 6): True, ("clusters", 12, 5): False, ("clusters", 12, 4): False, ("clusters", 0, 6): True,
        ("clusters", 0, 5): False, ("clusters", 11, 99): False, ("clusters", 13, 1): True, ("unheard", 12, 1): True,
        None: False,
    }.items():  # fmt: skip
        filled.do("DELETE FROM bridge.inbox WHERE site = 'berlin'")
        filled.waits("berlin", "compliance", (12, 1), needs)
        assert of_type(over(filled).site("berlin", None), "compliance")["next"]["parked"] is parked, needs
        assert over(filled).status(None, "", 1)["summary"]["parked"] == 1 + parked, needs


def test_of_many_deltas_the_first_is_shown_and_all_are_held_until_the_resync_comes(filled: FilledBridge) -> None:
    for generation in (7, 8, 9):
        filled.waits("berlin", "compliance-delta", (12, generation), mode="delta", key=f"d{generation}")
    filled.wanted("berlin", "complete-compliance", "compliance-delta", "a delta was lost")
    site = over(filled).site("berlin", None)
    delta = of_type(site, "compliance-delta")
    assert (delta["waiting"], delta["next"]["version"], delta["next"]["held"]) == (3, "12.7", True)
    assert [note["kind"] for note in site["notes"]] == ["resync", "waiting"]
    assert over(filled).status(None, "", 1)["summary"]["parked"] == 4
    filled.do("UPDATE bridge.inbox SET restores = true WHERE generation = 7")
    assert of_type(over(filled).site("berlin", None), "compliance-delta")["next"]["held"] is False


def test_notes_are_on_what_somebody_should_look_at_whatever_the_page(seen: FilledBridge) -> None:
    found = over(seen).status(None, "paris", 100)
    assert found["sites"] == []
    assert [(note["site"], note["type"], note["kind"]) for note in found["notes"]] == [
        ("lyon", "", "silent"),
        ("paris", "clusters", "quarantined"),
        ("paris", "clusters", "resync"),
        ("paris", "compliance", "waiting"),
    ]
    assert found["notes"][3]["words"].startswith(
        "compliance 12.3 waits: it needs clusters 12.6 or newer, but 12.5 is applied; it goes on when that comes. "
        "A resync was asked for 2 times, last "
    )


def test_of_a_site_whose_every_message_is_refused_it_is_said_why(filled: FilledBridge) -> None:
    """A wrong header or key from the first message on: nobody has heard of such a site."""
    before = filled.aside("munich", None, None, "bundle: no header ce_mode (next: send headers)", mode=None)
    id = filled.aside("munich", None, None, "bundle: its source 'x' is not its sender 'munich'", mode=None)
    filled.aside("", None, None, "bundle: its source 'x' is not its sender ''", mode=None)
    view = over(filled)
    notes = [note for note in view.status(None, "", 1)["notes"] if note["site"] in ("munich", "")]
    assert [(note["site"], note["type"], note["kind"]) for note in notes] == [
        ("", "", "quarantined"), ("", "", "refused"), ("munich", "", "quarantined"), ("munich", "", "refused"),
    ]  # fmt: skip
    assert "the key of each record is the name of its site" in notes[1]["words"]
    assert notes[2]["words"].startswith(
        "a message that is no bundle (and 1 more) was set aside 3 d ago: bundle: its source 'x'"
    )
    assert notes[2]["words"].endswith(f"see `trunkline bridge quarantine show {id}`")
    found = view.site("munich", None)
    assert (found["state"], [part["quarantined"]["entries"] for part in found["types"]]) == ("refused", [2])
    assert view.site("", None)["state"] == "refused"
    with pytest.raises(NoSuchSite):
        view.resync("munich", "clusters")
    for each in (before, id):
        view.drop(each)
    with pytest.raises(NoSuchSite):
        view.site("munich", None)


def test_many_refusals_of_one_site_leave_room_for_those_of_others(filled: FilledBridge) -> None:
    filled.aside("munich", None, None, "bundle: no header ce_mode", mode=None)
    for _ in range(inspect.MOST_NOTES + 1):
        filled.aside("oslo", None, None, "bundle: no header ce_mode", mode=None)
    assert {"munich", "oslo"} <= {note["site"] for note in over(filled).status(None, "", 1)["notes"]}


def test_there_are_never_more_than_some_notes_of_a_kind(filled: FilledBridge) -> None:
    many(filled, 50, 4)
    notes = over(filled).status(None, "", 1)["notes"]
    assert Counter(note["kind"] for note in notes)["waiting"] == inspect.MOST_NOTES


def test_sites_come_in_pages_by_name(seen: FilledBridge) -> None:
    view = over(seen)
    first = view.status(None, "", 2)
    rest = view.status(None, first["next"], 2)
    assert [[one["site"] for one in page["sites"]] for page in (first, rest)] == [["berlin", "lyon"], ["paris"]]
    assert (first["next"], rest["next"]) == ("lyon", None)


def test_a_look_can_be_of_one_type(seen: FilledBridge) -> None:
    found = over(seen).status("compliance", "", 100)
    assert {part["type"] for one in found["sites"] for part in one["types"]} == {"compliance"}
    assert {note["type"] for note in found["notes"]} == {"compliance"}
    assert "A resync was asked for" in found["notes"][0]["words"]
    with pytest.raises(Invalid, match="it is not declared here"):
        over(seen).status("no-such-type", "", 100)


@pytest.mark.parametrize("name", ["atlantis", "a\x00b", "\ud800"])
def test_a_site_that_was_never_heard_is_not_there(seen: FilledBridge, name: str) -> None:
    view = over(seen)
    for ask in (lambda: view.site(name, None), lambda: view.resync(name, None), lambda: view.forget(name, True)):
        with pytest.raises(NoSuchSite, match="the bridge never heard of it"):
            ask()


def test_offsets_are_those_of_queues_and_where_it_is_read_of_kafka(
    seen: FilledBridge, make_database: Callable[..., str]
) -> None:
    (queue,) = over(seen).offsets()["offsets"]
    assert (queue["transport"], queue["source"], queue["next"]) == ("queues", "LRQ_Recv_status_paris", 10)
    hub = FilledBridge(make_database("queues", "bridge", "pipeline"))
    hub.do("INSERT INTO pipeline.kafka_offset VALUES ('bridge', 'status.paris', 3, 'id', 77)")
    (topic,) = over(hub).offsets()["offsets"]
    assert (topic["transport"], topic["source"], topic["next"]) == ("kafka", "status.paris@3", 77)


def test_types_are_in_the_order_in_which_those_of_a_site_are_applied(seen: FilledBridge) -> None:
    found = over(seen).types()["types"]
    assert [one["priority"] for one in found] == sorted(one["priority"] for one in found)
    (compliance,) = (one for one in found if one["type"] == "compliance")
    assert compliance == {
        "type": "compliance", "priority": 10, "mode": "complete", "depends_on": "clusters", "match": "at_least",
        "tables": ["status.compliance"], "group": "",
    }  # fmt: skip


def test_without_a_bridge_every_look_says_so_and_there_are_no_numbers(make_database: Callable[..., str]) -> None:
    view = over(FilledBridge(make_database("queues")))
    with pytest.raises(NoBridge, match="it has no bridge"):
        view.status(None, "", 1)
    assert view.numbers() == {}


def test_a_database_that_is_away_can_be_asked_again() -> None:
    view = BridgeOperating(lambda: psycopg.connect("host=127.0.0.1 port=1 dbname=x"), SHIPPED)
    with pytest.raises(Retryable):
        view.status(None, "", 1)


# -- quarantine


def test_the_quarantine_is_listed_the_newest_first_and_what_is_dealt_with_only_when_asked(filled: FilledBridge) -> None:
    old = filled.aside("berlin", "clusters", (12, 1), "old", state="cleared")
    new = filled.aside("berlin", None, None, "no header ce_id", mode=None)
    view = over(filled)
    ids = [one["id"] for one in view.quarantine(None, True, LAST, 10)["quarantine"]]
    assert ids == sorted(ids, reverse=True)
    assert old in ids
    assert old not in [one["id"] for one in view.quarantine(None, False, LAST, 10)["quarantine"]]
    assert [one["id"] for one in view.quarantine("berlin", True, LAST, 10)["quarantine"]] == [new, old]
    assert [one["id"] for one in view.quarantine("berlin", True, new, 10)["quarantine"]] == [old]


def test_a_quarantined_bundle_is_shown_with_its_payload_and_what_to_do(filled: FilledBridge) -> None:
    id = filled.aside("berlin", "clusters", (12, 6), "no column name", payload=b'[{"x": 1}]')
    found = over(filled).quarantined(id, 4)
    assert (found["text"], found["cut"], found["bytes"], found["version"]) == ('[{"x', True, 10, "12.6")
    assert found["headers"]["ce_source"] == "berlin"
    assert found["next_steps"][0].endswith(f"trunkline bridge quarantine retry {id}")
    with pytest.raises(NoSuchBundle):
        over(filled).quarantined(id + 1, 0)


def test_a_bundle_goes_back_to_the_workers_or_is_given_up(filled: FilledBridge) -> None:
    view = over(filled)
    again = filled.aside("berlin", "clusters", (12, 6), "it was wrong")
    assert view.retry(again) == {"id": again, "state": "retried"}
    assert filled.do("SELECT incarnation, generation FROM bridge.inbox WHERE site = 'berlin'") == [(12, 6)]
    delta = filled.aside("berlin", "compliance-delta", (12, 7), "it was wrong", mode="delta")
    with pytest.raises(Invalid):
        view.retry(delta)
    assert view.drop(delta) == {"id": delta, "state": "dropped"}
    with pytest.raises(NoSuchBundle):
        view.retry(delta + 1)


# -- resync


def test_a_resync_is_wanted_of_all_that_the_site_sends_and_asked_at_once(filled: FilledBridge) -> None:
    filled.applied("paris", "compliance-delta", (12, 4))
    filled.applied("paris", "events", (12, 4))
    wanted = over(filled).resync("paris", None)
    assert wanted == {"site": "paris", "types": ["clusters", "complete-compliance", "compliance"]}
    rows = filled.do("SELECT type, holds, asked_at IS NULL, asks FROM bridge.resync ORDER BY type")
    assert rows == [("clusters", None, True, 2), ("complete-compliance", None, True, 0), ("compliance", None, True, 0)]


def test_a_resync_of_one_type_asks_a_delta_s_base_and_never_what_is_appended(filled: FilledBridge) -> None:
    view = over(filled)
    assert view.resync("berlin", "compliance-delta")["types"] == ["complete-compliance"]
    with pytest.raises(Invalid, match="has no newest state"):
        view.resync("berlin", "events")
    with pytest.raises(Invalid, match="nothing that could be sent anew"):
        view.resync("lyon", None)
    assert filled.do("SELECT site, type FROM bridge.resync WHERE site <> 'paris'") == [("berlin", "complete-compliance")]


# -- forgetting


OF_SITES = """
SELECT format('%I.%I', c.table_schema, c.table_name) FROM information_schema.columns c
  JOIN pg_class r ON r.oid = format('%I.%I', c.table_schema, c.table_name)::regclass
 WHERE c.table_schema IN ('bridge', 'status', 'fleet') AND c.column_name = 'site' AND r.relkind IN ('r', 'p')
   AND NOT r.relispartition
"""


def kept(hub: FilledBridge, site: str) -> dict[str, int]:
    """Rows of the site in every table that has any of sites."""
    tables = [table for (table,) in hub.do(OF_SITES.replace("%", "%%"))]
    found = {table: hub.do(f"SELECT count(*) FROM {table} WHERE site = %s", site)[0][0] for table in tables}
    return {table: rows for table, rows in found.items() if rows}


def test_all_tables_that_have_rows_of_a_site_are_gone_through(filled: FilledBridge) -> None:
    deleted = over(filled).forget("berlin", False)["deleted"]
    assert set(deleted) == {table for (table,) in filled.do(OF_SITES.replace("%", "%%"))}


def test_a_forgotten_site_leaves_nothing_and_nobody_else_loses_anything(filled: FilledBridge) -> None:
    filled.do("UPDATE bridge.inbox SET arrived_at = now() - interval '2 minutes'")
    filled.do("INSERT INTO bridge.run VALUES ('paris', 'clusters', 12, '', 'b1')")
    filled.do(
        "INSERT INTO bridge.chunk VALUES ('paris', 'clusters', 'm', 9, 3, 'abc', '{}', 'q', 1, now() - interval '2 minutes')"
    )
    others, mine = kept(filled, "berlin"), kept(filled, "paris")
    assert set(mine) == {
        "bridge.ledger", "bridge.inbox", "bridge.chunk", "bridge.quarantine", "bridge.run", "bridge.resync", "bridge.site",
        "bridge.counter", "status.cluster",
    }  # fmt: skip
    deleted = over(filled).forget("paris", False)["deleted"]
    assert {table: rows for table, rows in deleted.items() if rows} == mine
    assert kept(filled, "paris") == {}
    assert kept(filled, "berlin") == others
    assert filled.do("SELECT queue FROM status.transport") == [("LRQ_Recv_status_paris",)]


def test_a_site_that_still_sends_is_not_forgotten_unless_somebody_insists(filled: FilledBridge) -> None:
    filled.do("UPDATE bridge.inbox SET arrived_at = now()")
    before = kept(filled, "paris")
    with pytest.raises(Invalid, match="it would be back with the next one"):
        over(filled).forget("paris", False)
    assert kept(filled, "paris") == before
    over(filled).forget("paris", True)
    assert kept(filled, "paris") == {}


def test_a_site_is_forgotten_as_a_whole_or_not_at_all(filled: FilledBridge) -> None:
    before = kept(filled, "berlin")
    filled.do("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE deadlock_detected; END'")
    filled.do("CREATE TRIGGER refuse BEFORE DELETE ON bridge.counter FOR EACH ROW EXECUTE FUNCTION refuse()")
    with pytest.raises(Retryable):
        over(filled).forget("berlin", False)
    assert kept(filled, "berlin") == before


# -- numbers, and what they cost


def many(hub: FilledBridge, sites: int, types: int) -> None:
    hub.do(
        "INSERT INTO bridge.site SELECT 's' || n, 'kafka', now(), now(), CASE WHEN n %% 10 = 0 THEN 'silent' ELSE 'active' END,"
        " now() FROM generate_series(1, %s) n", sites,
    )  # fmt: skip
    hub.do(
        "INSERT INTO bridge.ledger SELECT 's' || n, 't' || t, 1, 5, now(), 5, now() - n * interval '1 second' "
        "FROM generate_series(1, %s) n, generate_series(1, %s) t", sites, types,
    )  # fmt: skip
    hub.do(
        "INSERT INTO bridge.inbox (site, type, key, incarnation, generation, dependency_type, dependency_incarnation, "
        "dependency_generation, headers, data, queue, position) "
        "SELECT 's' || n, 't' || t, '', 1, 6, 't1', 1, 6, '{}', 'x', 'q', 1 "
        "FROM generate_series(1, %s) n, generate_series(2, %s) t", sites, types,
    )  # fmt: skip
    hub.do("INSERT INTO bridge.counter (site, received, applied) SELECT 's' || n, 3, 2 FROM generate_series(1, %s) n", sites)
    hub.do(
        "INSERT INTO bridge.quarantine (site, type, headers, payload, reason, queue, position, state) "
        "SELECT 's' || n, 't1', '{}', 'x', 'r', 'q', 1, CASE WHEN n <= 5 THEN 'open' ELSE 'cleared' END "
        "FROM generate_series(1, %s) n", 5 * sites,
    )  # fmt: skip
    with psycopg.connect(hub.dsn, autocommit=True) as conn:
        conn.execute("VACUUM ANALYZE")


def test_numbers_are_per_site_up_to_a_limit_and_sums_beyond_it(filled: FilledBridge) -> None:
    few = over(filled).numbers()
    assert [(row["site"], row["received"]) for row in few["counters"]] == [("berlin", 9), ("paris", 9)]
    assert [row["site"] for row in sorted(few["staleness"], key=lambda row: row["site"])] == ["berlin", "paris"]
    assert 180 <= few["staleness_max"] < 600
    many(filled, inspect.MOST_SITES_ALONE, 1)
    lots = over(filled).numbers()
    assert [(row["site"], row["received"]) for row in lots["counters"]] == [("*", 18 + 3 * inspect.MOST_SITES_ALONE)]
    assert lots["staleness"] == []
    assert inspect.MOST_SITES_ALONE <= lots["staleness_max"] < inspect.MOST_SITES_ALONE + 60


def test_a_look_at_a_page_of_a_thousand_sites_reads_that_page_and_nothing_else(filled: FilledBridge) -> None:
    many(filled, 1000, 4)
    plans: list[dict[str, Any]] = []
    with psycopg.connect(filled.dsn, cursor_factory=explaining(plans)) as conn:
        found, following = inspect.sites(conn, "s5", 20)
        inspect.quarantine(conn, "s1", False, LAST, 20)
    assert (len(found), following) == (20, found[-1]["site"])
    assert all(len(one["types"]) >= 4 for one in found)
    whole = [node for node in plans if node["Node Type"] == "Seq Scan"]
    assert [node["Relation Name"] for node in whole if node["Relation Name"] not in ("resync", "chunk")] == []
    assert max(node["Actual Rows"] * node["Actual Loops"] for node in plans) <= 500


def explaining(plans: list[dict[str, Any]]) -> type[psycopg.Cursor[Any]]:
    """Cursors that keep the nodes of the plans of all that is asked of them."""

    class Explaining(psycopg.Cursor[Any]):
        def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
            with psycopg.Cursor(self.connection) as cursor:
                (plan,) = cursor.execute(b"EXPLAIN (ANALYZE, FORMAT json) " + query, params).fetchone() or (None,)
            plans.extend(_nodes(plan[0]["Plan"]))
            return super().execute(query, params, **more)

    return Explaining


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", ()):
        yield from _nodes(inner)
