"""`trunkline bridge` against real databases and a real API: what it prints, what it changes, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main
from click.testing import CliRunner, Result

from filled_bridge import FilledBridge, fill
from filled_queues import copy_of
from memory_store import MemoryStore, served
from trunkline.bridge.operating import BridgeOperating
from trunkline.bridge.shipped import SHIPPED
from trunkline.cli.main import app
from trunkline.core.errors import TrunklineError

COMMAND = typer.main.get_command(app)


@pytest.fixture(scope="module")
def filled(make_databases: Callable[..., str]) -> FilledBridge:
    return fill(make_databases("queues", "bridge"))


@pytest.fixture
def hub(filled: FilledBridge, monkeypatch: pytest.MonkeyPatch) -> FilledBridge:
    """Its database, which the commands find by its variable: for tests that change nothing."""
    monkeypatch.setenv("DATABASE_URL", filled.dsn)
    monkeypatch.delenv("TRUNKLINE_API_URL", raising=False)
    return filled


@pytest.fixture
def copy(hub: FilledBridge, monkeypatch: pytest.MonkeyPatch) -> Iterator[FilledBridge]:
    """To be changed."""
    with copy_of(hub.dsn) as found:
        monkeypatch.setenv("DATABASE_URL", found)
        yield FilledBridge(found)


def bridge(*words: str, answer: str = "") -> Result:
    return CliRunner().invoke(COMMAND, ["bridge", *words], input=answer)


def told(*words: str, ends_with: int = 0, answer: str = "") -> list[str]:
    done = bridge(*words, answer=answer)
    assert done.exit_code == ends_with, (done.output, done.exception)
    return done.stdout.splitlines()


def document(*words: str) -> Any:
    return json.loads("\n".join(told(*words, "--json")))


def error(*words: str) -> TrunklineError:
    done = bridge(*words)
    assert isinstance(done.exception, TrunklineError), (done.output, done.exception)
    assert done.stdout == ""
    return done.exception


# -- looking


def test_status_begins_with_a_summary_then_says_what_is_the_matter_then_shows_each_type(hub: FilledBridge) -> None:
    summary, _, silent, aside, wish, waits, _, columns, *rows = told("status")
    assert summary == (
        "3 sites: 2 active, 1 silent; 1 bundles wait (1 for something), 1 in quarantine, 1 resyncs wanted; no bridge runs now"
    )
    assert silent.startswith("lyon: nothing was heard since ")
    assert silent.endswith("(2 h ago): it is silent, and its rows are hidden, not deleted; they come back with its next bundle")
    assert aside.startswith(
        "paris: clusters 12.4 was set aside 3 d ago: data of clusters: it is not a list of rows. 12.5 stays "
    )
    assert wish.startswith("paris: all of clusters is wanted anew since ")
    assert waits.startswith("paris: compliance 12.3 waits: it needs clusters 12.6 or newer, but 12.5 is applied; ")
    assert columns.split() == ["site", "type", "version", "age", "lag", "waiting", "note"]
    shown = [(row.split()[:3], row.split("  ")[-1].strip()) for row in rows]
    assert shown[0][0] == ["berlin", "clusters", "12.5"]
    assert shown[1] == (["paris", "clusters", "12.5"], "quarantined: 1, resync wanted")
    assert shown[2] == (["paris", "compliance", "–"], "parked")


def test_status_of_one_site_has_its_counters_and_only_its_notes(hub: FilledBridge) -> None:
    lines = told("status", "berlin")
    assert lines[0].startswith("berlin: active, last heard ")
    assert not any("waits:" in line for line in lines)
    assert lines[-1] == "bundles: received 9, applied 8; rows received 90, written 7"
    assert document("status", "paris", "--type", "compliance")["types"][0]["type"] == "compliance"


def test_of_a_site_whose_every_message_is_refused_the_reason_is_told(copy: FilledBridge) -> None:
    copy.aside("munich", None, None, "bundle: its source 'muc' is not its sender 'munich' (next: send as yourself)", mode=None)
    copy.aside("", None, None, "bundle: no header ce_mode", mode=None)
    lines = told("status")
    why = "munich: a message that is no bundle was set aside 3 d ago: bundle: its source 'muc' is not its sender 'munich'"
    assert any(line.startswith(why) for line in lines)
    assert any(line.startswith("a sender without a name: messages came of which there is no telling whose") for line in lines)
    first, _, all_of_it, found, *_ = told("status", "munich")
    assert first == "munich: all of it was refused, last 3 d ago"
    assert found.startswith(why)
    assert all_of_it.startswith("munich: no bundle of it was ever taken in: all that came since 3 d was refused. Compare ")


def test_a_long_list_of_sites_says_how_to_go_on(hub: FilledBridge) -> None:
    assert told("status", "--limit", "1")[-1] == "more sites: trunkline bridge status --after berlin"
    assert [one["site"] for one in document("status", "--after", "berlin")["sites"]] == ["lyon", "paris"]


def test_offsets_say_where_each_source_is_read_on(hub: FilledBridge) -> None:
    columns, row = told("status", "--offsets")
    assert columns.split() == ["transport", "group", "from", "next", "age"]
    assert row.split()[:4] == ["queues", "bridge", "LRQ_Recv_status_paris", "10"]


def test_watching_looks_again_and_ends_when_its_time_is_over(hub: FilledBridge) -> None:
    looks = told("status", "berlin", "--watch", "--every", "0.05s", "--duration", "0.09s", "--json")
    assert [json.loads(line)["site"] for line in looks] == ["berlin"] * 2
    shown = told("status", "--watch", "--every", "0.05s", "--duration", "0.09s")
    assert sum(line.startswith("3 sites:") for line in shown) == 2


def test_types_are_shown_with_what_they_depend_on(hub: FilledBridge) -> None:
    lines = told("types")
    assert lines[0].split() == ["type", "priority", "mode", "depends", "on", "tables", "group"]
    (compliance,) = (line.split() for line in lines if line.startswith("compliance "))
    assert compliance[1:] == ["10", "complete", "at", "least", "its", "version", "of", "clusters", "status.compliance", "–"]


def test_whose_bridge_must_be_said(monkeypatch: pytest.MonkeyPatch, hub: FilledBridge) -> None:
    monkeypatch.delenv("DATABASE_URL")
    assert error("status").why == "it is not said which one's bridge"


def test_a_database_without_a_bridge_is_told_with_the_next_step(hub: FilledBridge, make_database: Callable[..., str]) -> None:
    found = error("status", "--dsn", make_database("queues"))
    assert found.why.startswith("it has no bridge")
    assert "trunkline bridge run --config hub.yaml" in found.next_step


def test_a_site_nobody_heard_of_is_an_error(hub: FilledBridge) -> None:
    assert error("status", "atlantis").why == "the bridge never heard of it"


# -- quarantine


def test_the_quarantine_is_listed_shown_and_dealt_with(copy: FilledBridge) -> None:
    _, row = told("quarantine", "ls")
    assert row.split()[:5] == ["1", "paris", "clusters", "12.4", "open"]
    shown = told("quarantine", "show", "1")
    assert shown[0].startswith("1: clusters 12.4 of paris, open, set aside ")
    assert "reason: data of clusters: it is not a list of rows" in shown
    assert "from: LRQ_Recv_status_paris at 9" in shown
    assert "payload (2 B): {}" in shown
    assert shown[-1] == "next: give it up: trunkline bridge quarantine drop 1"
    assert error("quarantine", "retry", "1").next_step
    assert told("quarantine", "drop", "1", answer="y\n")[-1].endswith("bundle 1 is given up")
    assert told("quarantine", "ls") == ["nothing is in quarantine"]
    assert document("quarantine", "ls", "--all")["quarantine"][0]["state"] == "dropped"


def test_a_bundle_that_is_newer_than_what_is_applied_is_tried_again(copy: FilledBridge) -> None:
    id = copy.aside("berlin", "clusters", (12, 9), "it was wrong")
    assert told("quarantine", "retry", str(id)) == [f"bundle {id} goes back to the database workers"]
    assert copy.do("SELECT generation FROM bridge.inbox WHERE site = 'berlin'") == [(9,)]
    assert error("quarantine", "show", "99").why == "there is none of this number"


def test_giving_up_must_be_meant(copy: FilledBridge) -> None:
    assert told("quarantine", "drop", "1", ends_with=1, answer="n\n")
    assert error("quarantine", "drop", "1", "--json").next_step == "give --yes as well"
    assert copy.do("SELECT state FROM bridge.quarantine") == [("open",)]


# -- resync and forgetting


def test_a_resync_is_asked_for(copy: FilledBridge) -> None:
    assert told("resync", "berlin") == [
        "berlin is asked for all of clusters",
        "see how it goes: trunkline bridge status berlin",
    ]
    assert copy.do("SELECT type, reason FROM bridge.resync WHERE site = 'berlin'") == [("clusters", "an operator asked for it")]
    assert document("resync", "paris", "--type", "compliance") == {"site": "paris", "types": ["compliance"]}


def test_a_site_is_forgotten_when_it_is_meant_and_sends_no_more(copy: FilledBridge) -> None:
    copy.do("UPDATE bridge.inbox SET arrived_at = now()")
    assert told("forget", "berlin", ends_with=1, answer="n\n")
    assert "give --force" in error("forget", "paris", "--yes").next_step
    first, *rows = told("forget", "berlin", "--yes")
    assert first == "forgot berlin; rows that are gone:"
    assert [row.strip() for row in rows] == ["bridge.ledger: 1", "status.cluster: 1", "bridge.site: 1", "bridge.counter: 1"]
    assert document("forget", "paris", "--yes", "--force")["deleted"]["bridge.inbox"] == 1
    assert [one["site"] for one in document("status")["sites"]] == ["lyon"]


# -- over the API


def test_a_node_s_api_is_asked_for_the_same(copy: FilledBridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL")
    view = BridgeOperating(lambda: psycopg.connect(copy.dsn), SHIPPED)
    with served(MemoryStore(), views={"bridge": view}) as url:
        at = ("--url", url)
        assert told("status", *at)[0].startswith("3 sites: 2 active")
        assert document("status", "paris", *at)["site"] == "paris"
        assert told("status", "--offsets", *at)[1].split()[0] == "queues"
        assert document("types", *at) == view.types()
        assert document("quarantine", "ls", *at)["quarantine"][0]["id"] == 1
        assert document("quarantine", "show", "1", *at)["text"] == "{}"
        assert document("quarantine", "drop", "1", "--yes", *at) == {"id": 1, "state": "dropped"}
        assert document("resync", "berlin", *at)["types"] == ["clusters"]
        assert document("forget", "berlin", "--yes", *at)["deleted"]["bridge.site"] == 1
        assert error("status", "atlantis", *at).why == "the bridge never heard of it"
        newer = copy.aside("paris", "clusters", (12, 9), "it was wrong")
        assert document("quarantine", "retry", str(newer), *at) == {"id": newer, "state": "retried"}


def test_running_needs_a_bridge_in_the_configuration(tmp_path: Path, hub: FilledBridge) -> None:
    file = tmp_path / "site.yaml"
    file.write_text("site: paris\ndatabase: secret://env/DATABASE_URL\n")
    assert error("run", "--config", str(file)).why == "site paris has no bridge to run"
