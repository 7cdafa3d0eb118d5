"""`trunkline queues` against real databases and a real API: what it prints, what it changes, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main
from click.testing import CliRunner, Result

from filled_queues import QUEUE, copy_of, do, fill, session
from memory_store import MemoryStore, served
from trunkline.cli.main import app
from trunkline.core.config import QueuesConfig
from trunkline.core.errors import Invalid, TrunklineError
from trunkline.queues.deadletters import refuse
from trunkline.queues.operating import Operating
from trunkline.queues.reader import read
from trunkline.queues.sessionstatus import SyncType
from trunkline.queues.statuses import write_statuses

COMMAND = typer.main.get_command(app)


@pytest.fixture(scope="module")
def filled(make_databases: Callable[..., str]) -> str:
    return fill(make_databases("queues"))


@pytest.fixture
def hub(filled: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its database, which the commands find by its variable: for tests that change nothing."""
    monkeypatch.setenv("DATABASE_URL", filled)
    monkeypatch.delenv("TRUNKLINE_API_URL", raising=False)
    return filled


@pytest.fixture
def dsn(hub: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A copy of it, to be changed."""
    with copy_of(hub) as found:
        monkeypatch.setenv("DATABASE_URL", found)
        yield found


def queues(*words: str, answer: str = "") -> Result:
    return CliRunner().invoke(COMMAND, ["queues", *words], input=answer)


def told(*words: str, ends_with: int = 0, answer: str = "") -> list[str]:
    done = queues(*words, answer=answer)
    assert done.exit_code == ends_with, (done.output, done.exception)
    return done.stdout.splitlines()


def document(*words: str, ends_with: int = 0) -> Any:
    return json.loads("\n".join(told(*words, "--json", ends_with=ends_with)))


def error(*words: str) -> TrunklineError:
    done = queues(*words)
    assert isinstance(done.exception, TrunklineError), (done.output, done.exception)
    assert done.stdout == ""
    return done.exception


def provide(dsn: str, *clients: str) -> None:
    for client in clients:
        do(dsn, "INSERT INTO queues.provider (client, owner) VALUES (%s, 'app')", client)


def dead_letter(dsn: str, position: int) -> int:
    with psycopg.connect(dsn) as conn:
        (message,) = read(conn, QUEUE, position - 1, position)
        refuse(conn, "orders", "ledger", message, 3, "no such item")
    return int(do(dsn, "SELECT max(id) FROM queues.dead_letter")[0][0])


# -- looking


def test_ls_shows_the_log_those_who_take_it_and_each_queue_with_its_readers(hub: str) -> None:
    log, columns, paris, _, names, orders = told("ls")
    assert log.startswith("LRQ_Send_LogEntries: entries 1 to 6, ")
    assert columns.split() == ["destination", "client", "acknowledged", "note"]
    assert paris.split() == ["paris", "policy", "3"]
    assert names.split() == ["queue", "head", "waiting", "bytes", "session", "consumers"]
    assert orders.split() == [QUEUE, "4", "2", "612", "B", "log", "ledger", "(2", "behind)"]


def test_ls_says_what_needs_somebody_s_eye(dsn: str) -> None:
    provide(dsn, "policy")
    dead_letter(dsn, 1)
    told("sync", "paris")
    do(dsn, "INSERT INTO queues.needs_snapshot VALUES ('lyon', 'policy', true), ('paris', 'policy', false)")
    do(dsn, "INSERT INTO queues.consumer VALUES ('orders', 'old', now(), now(), now())")
    do(dsn, "UPDATE queues.consumed SET tries = 2")
    shown = "\n".join(told("ls"))
    for words in (
        "lyon         policy  0             too far behind: a snapshot is needed",
        "paris        policy  3             trimmed past it: a snapshot is needed",
        "ledger (2 behind, tried 2 times), old (detached)",
        "the consumer old of orders was idle for too long and is detached; nothing waits for it",
        "snapshot of policy for paris: wanted, 0 records, 0 B, asked 0.",
        "1 dead letters of the consumer ledger of orders: trunkline queues replay orders ledger --list",
    ):
        assert words in shown


def test_a_queue_is_full_at_the_limits_of_the_configuration(hub: str, tmp_path: Path) -> None:
    file = tmp_path / "hub.yaml"
    file.write_text("site: hub\ndatabase: secret://env/DATABASE_URL\nqueues: {queue_entries: 2}\n")
    (queue,) = document("ls", "--config", str(file))["receiving"]
    assert queue["full"] is True
    assert "2 (full)" in "\n".join(told("ls", "--config", str(file)))
    assert document("ls")["receiving"][0]["full"] is False


def test_peek_shows_what_waits_and_takes_nothing(hub: str) -> None:
    for _ in range(2):
        found = document("peek", QUEUE)
        assert [(e["position"], e["seq"], e["kind"], e["message_id"]) for e in found["entries"]] == [
            (3, 13, "log_entry", "paris/13/0"),
            (4, 14, "log_entry", "paris/14/0"),
        ]
    first, second = found["entries"]
    assert (first["text"], first["base64"], first["headers"], first["cut"]) == ('{"order":13}', None, {"kind": "order"}, False)
    assert (second["text"], second["bytes"], second["cut"]) == (None, 600, True)
    assert second["base64"].startswith("AP8A/w")


def test_peek_begins_and_ends_where_it_is_told(hub: str) -> None:
    found = document("peek", QUEUE, "--after", "0", "--limit", "2", "--bytes", "4")
    assert [(e["position"], e["text"], e["cut"]) for e in found["entries"]] == [(1, '{"or', True), (2, '{"or', True)]
    assert told("peek", QUEUE, "--after", "4") == [f"nothing in {QUEUE} after 4"]


def test_peek_into_the_log_shows_the_last_entries_and_for_whom_they_are(hub: str) -> None:
    found = document("peek", "LRQ_Send_LogEntries", "--limit", "2")
    assert [(e["seq"], e["client"], e["destinations"], e["text"]) for e in found["entries"]] == [
        (5, "policy", ["paris"], "policy 4"),
        (6, "news", ["*"], "café"),
    ]
    cut = document("peek", "LRQ_Send_LogEntries", "--limit", "1", "--bytes", "4")["entries"][0]
    assert (cut["text"], cut["cut"], cut["bytes"]) == ("caf", True, 5)  # not half of a letter


def test_an_unknown_queue_is_an_error_that_names_the_known_ones(hub: str) -> None:
    found = error("peek", "LRQ_Recv_orders_rome")
    assert found.what == "queue 'LRQ_Recv_orders_rome'"
    assert found.next_step == f"name one of: LRQ_Send_LogEntries, {QUEUE}"


def test_status_shows_every_session_and_the_age_of_what_is_not_acknowledged(dsn: str) -> None:
    do(dsn, "UPDATE queues.status SET updated_at = now()")
    columns, sink, source = told("status")
    assert columns.split() == [
        "role", "site", "client", "state", "base", "sent", "acknowledged", "applied", "behind", "oldest",
    ]  # fmt: skip
    assert sink.split() == ["sink", "paris", "orders", "log", "–", "5", "3", "3", "0", "–"]
    assert source.split()[:-1] == ["source", "paris", "policy", "in", "log", "entry", "sync", "–", "5", "3", "3", "2"]
    assert source.split()[-1].endswith("s")
    do(dsn, "UPDATE queues.stamp SET stamped_at = now() - interval '90 seconds'")
    found = {one["role"]: one for one in document("status")["sessions"]}
    assert 90 <= found["source"]["unacknowledged_seconds"] < 150
    assert found["sink"]["unacknowledged_seconds"] is None


def test_status_says_why_a_session_stands_still(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        write_statuses(conn, [
            session(type=SyncType.SNAPSHOT, state="IN_SNAPSHOT_SYNC", forced=True, stall="waits for the provider of policy"),
            session(role="sink", client="orders", state="log", stall=f"queue {QUEUE} is full"),
            session(remote="lyon", connection="WAITING_FOR_CONNECTIVITY", stall="no way to site lyon"),
        ])  # fmt: skip
    shown = told("status")
    assert "in snapshot sync (forced)" in "\n".join(shown)
    assert "waiting for connectivity" in "\n".join(shown)
    assert shown[-3:] == [
        f"orders from paris stands still: queue {QUEUE} is full",
        "policy to lyon stands still: no way to site lyon",
        "policy to paris stands still: waits for the provider of policy",
    ]
    assert [one["remote"] for one in document("status", "--site", "lyon")["sessions"]] == ["lyon"]
    assert [one["role"] for one in document("status", "--client", "orders")["sessions"]] == ["sink"]


def test_status_says_when_nobody_leads(dsn: str) -> None:
    do(dsn, "UPDATE queues.status SET updated_at = now() - interval '1 hour'")
    assert told("status")[-1] == "this was written 60.0m ago: no node leads this site now"
    do(dsn, "DELETE FROM queues.status")
    assert told("status") == ["no session: nothing was sent and nothing has come, or no node leads this site yet"]


# -- a snapshot


def test_sync_asks_for_one_forced_snapshot_however_often_it_is_said(dsn: str) -> None:
    provide(dsn, "policy", "news")
    first = document("sync", "lyon", "--client", "policy")["requests"]
    assert [(one["client"], one["destinations"]) for one in first] == [("policy", ["lyon"])]
    assert document("sync", "lyon", "--client", "policy")["requests"] == first
    asked = do(dsn, "SELECT id::text, client, destinations, forced, state FROM queues.request")
    assert asked == [(first[0]["id"], "policy", ["lyon"], True, "wanted")]


def test_sync_without_a_client_is_of_all_that_have_a_provider(dsn: str) -> None:
    provide(dsn, "policy", "news")
    lines = told("sync", "paris")
    assert [line.partition(": request")[0] for line in lines[:-1]] == [
        "asked for a snapshot of news for paris",
        "asked for a snapshot of policy for paris",
    ]


def test_sync_all_is_for_every_site_there_is_a_session_with(dsn: str) -> None:
    provide(dsn, "policy", "news")
    with psycopg.connect(dsn) as conn:
        write_statuses(conn, [session(), session(remote="lyon")])
    found = document("sync", "--all")["requests"]
    assert [(one["client"], one["destinations"]) for one in found] == [("policy", ["lyon", "paris"])]


@pytest.fixture
def provided(hub: str) -> Iterator[str]:
    provide(hub, "policy", "news")
    yield hub
    do(hub, "DELETE FROM queues.provider")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sync",), "it is not said for which site"),
        (("sync", "paris", "--all"), "it is not said for which site"),
        (("sync", "atlantis"), "this site has never heard of it"),
        (("sync", "paris", "--client", "orders"), "no provider is registered that could give it"),
        (("sync", "--all", "--client", "news"), "there is no site that anything was sent to yet"),
    ],
)
def test_a_snapshot_that_cannot_be_asked_for_is_an_error(provided: str, words: tuple[str, ...], why: str) -> None:
    assert error(*words).why == why
    assert document("ls")["requests"] == []


def test_without_a_provider_there_is_none(hub: str) -> None:
    found = error("sync", "--all")
    assert (found.why, found.next_step) == ("no client has a provider", "start the application's SnapshotProvider first")


# -- dead letters


def test_replay_lists_dead_letters_and_gives_them_back(dsn: str) -> None:
    letters = [dead_letter(dsn, position) for position in (1, 2)]
    columns, one, _ = told("replay", "orders", "--list")
    assert columns.split() == ["id", "message", "from", "tries", "refused", "reason"]
    assert one.split()[:4] == [str(letters[0]), "paris/11/0", "paris", "3"]
    assert one.endswith("no such item")
    assert [letter["waits"] for letter in document("replay", "orders", "ledger", "--list")["dead_letters"]] == [False, False]
    (back,) = document("replay", "orders", "ledger", "--id", str(letters[1]))["dead_letters"]
    assert (back["id"], back["waits"]) == (letters[1], True)
    assert told("replay", "orders") == ["2 dead letters of orders go back to their consumer when it next looks"]
    assert all(letter["waits"] for letter in document("replay", "orders", "--list")["dead_letters"])


def test_a_dead_letter_that_is_not_there_is_an_error_and_nothing_is_replayed(dsn: str) -> None:
    letter = dead_letter(dsn, 1)
    assert error("replay", "orders", "ledger", "--id", str(letter), "--id", "99").what == "dead letter 99"
    assert error("replay", "policy").why == "there are none"
    assert [one["waits"] for one in document("replay", "orders", "--list")["dead_letters"]] == [False]


# -- letting go


def test_drop_consumer_lets_go_of_what_waited_for_it(dsn: str) -> None:
    dead_letter(dsn, 1)
    assert document("drop", "consumer", "orders", "ledger", "--yes") == {
        "client": "orders", "consumer": "ledger", "dead_letters": 1,
    }  # fmt: skip
    found = document("ls")
    assert (found["consumers"], found["receiving"][0]["consumers"], found["dead_letters"]) == ([], [], [])
    assert error("drop", "consumer", "orders", "ledger", "--yes").why == "there is none of this name"


def test_drop_provider_cancels_the_snapshots_under_way(dsn: str) -> None:
    provide(dsn, "policy")
    (asked,) = document("sync", "paris")["requests"]
    assert document("drop", "provider", "policy", "--yes") == {"client": "policy", "cancelled": [asked["id"]]}
    found = document("ls")
    assert (found["providers"], found["requests"]) == ([], [])
    assert do(dsn, "SELECT state FROM queues.request") == [("cancelled",)]
    assert error("drop", "provider", "policy", "--yes").why == "there is none"


def test_drop_queue_lets_go_of_a_site_which_then_begins_anew(dsn: str) -> None:
    assert told("drop", "queue", QUEUE, "--yes") == [f"dropped {QUEUE}; 2 entries had not been read by all"]
    assert document("ls")["receiving"] == []
    assert do(dsn, "SELECT FROM queues.session WHERE client = 'orders'") == []
    assert do(dsn, "SELECT FROM queues.consumed") == []
    assert [one["role"] for one in document("status")["sessions"]] == ["source"]
    assert error("drop", "queue", QUEUE, "--yes").next_step == "name one of: none yet: nothing has arrived here"
    assert document("verify")["ok"] is True


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_drop_asks_whether_it_is_meant(dsn: str, answer: str, left: int) -> None:
    done = queues("drop", "queue", QUEUE, answer=answer)
    assert f"drop the queue {QUEUE}, with what waits in it?" in done.output
    assert done.exit_code == left
    assert len(document("ls")["receiving"]) == left


def test_drop_for_programs_must_be_told_that_it_is_meant(hub: str) -> None:
    assert error("drop", "queue", QUEUE, "--json").next_step == "give --yes as well"


# -- who may send, and whether all is well


@pytest.fixture
def role(dsn: str) -> Iterator[str]:
    name = f"app_{psycopg.conninfo.conninfo_to_dict(dsn)['dbname']}"
    do(dsn, f"CREATE ROLE {name}")
    yield name
    do(dsn, f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_grant_lets_a_role_send_under_a_name_and_takes_it_back(dsn: str, role: str) -> None:
    assert told("grant") == ["only owners of the queues may send"]
    (granted,) = document("grant", "policy", role)["grants"]
    assert (granted["client"], granted["role"]) == ("policy", role)
    assert told("grant")[1].split()[:2] == ["policy", role]
    assert document("grant", "policy", role, "--revoke") == {"grants": []}
    assert "has no grant for it" in error("grant", "policy", role, "--revoke").why
    assert error("grant", "policy").next_step == "name both, or neither to see who may send"


def test_verify_ends_with_1_and_says_what_is_wrong(dsn: str) -> None:
    assert told("verify") == ["all is well: 22 rules hold"]
    do(dsn, "UPDATE queues.acknowledged SET seq = 7")
    assert told("verify", ends_with=1) == [
        "acknowledgements lie in the log? no: site paris, client policy: it has 7, and the log ends with 6",
        "1 findings",
    ]
    found = document("verify", ends_with=1)
    assert (found["ok"], found["findings"][0]["what"]) == (False, "site paris, client policy")


# -- whom it asks


def test_a_node_s_api_is_asked_for_the_same(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provide(dsn, "policy")
    by_database = [document(*words) for words in (("ls",), ("peek", QUEUE), ("status",))]
    view = Operating(lambda: psycopg.connect(dsn), QueuesConfig())
    with served(MemoryStore(), views={"queues": view}) as url:
        monkeypatch.delenv("DATABASE_URL")
        monkeypatch.setenv("TRUNKLINE_API_URL", url)
        by_api = [document(*words) for words in (("ls",), ("peek", QUEUE), ("status",))]
        (asked,) = document("sync", "lyon", "--client", "policy")["requests"]
        (of_all,) = document("sync", "--all")["requests"]
        unknown = error("peek", "nothing")
    assert [_timeless(found) for found in by_api] == [_timeless(found) for found in by_database]
    assert (asked["destinations"], of_all["destinations"]) == (["lyon"], ["lyon", "paris"])
    assert (unknown.what, unknown.why) == ("queue 'nothing'", "there is none of this name")


def _timeless(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _timeless(value) for key, value in found.items() if not key.endswith("_seconds")}
    return [_timeless(value) for value in found] if isinstance(found, list) else found


def test_a_database_that_is_not_said_or_is_none_is_an_error(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "it has no queues" in error("ls", "--dsn", hub.replace(hub.partition("dbname=")[2].split()[0], "postgres")).why
    assert "it is not a connection string" in error("ls", "--dsn", "the usual one").why
    assert error("ls", "--dsn", "secret://env/NOT_THERE").what == "database"
    assert error("ls", "--dsn", "host=127.0.0.1 port=1 dbname=x").next_step == "see that it runs, then ask again"
    assert document("ls", "--dsn", "secret://env/DATABASE_URL")["log"]["head"] == 6
    monkeypatch.delenv("DATABASE_URL")
    for words in (("ls",), ("verify",)):
        assert isinstance(error(*words), Invalid)
        assert "give --config site.yaml or --dsn" in error(*words).next_step
