"""Routes from a folder, as people work with them: applied, changed while events flow, and what failed is tried again. The API,
the table and the runner are real, over a real database."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import typer.main
from click.testing import CliRunner, Result

from served_routes import ServedRoutes, served_routes
from trunkline.cli.main import app
from trunkline.core.errors import Invalid
from trunkline.queues.registry import remember_site
from waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "examples" / "routes"
COMMAND = typer.main.get_command(app)
EVENTS = "/v1/orgs/trunkline/applications/trunkline/event"


@pytest.fixture
def dsn(make_database: Callable[..., str]) -> str:
    found = make_database("queues", "routes")
    with psycopg.connect(found) as conn:
        remember_site(conn, "hub")
    return found


@pytest.fixture
def site(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedRoutes]:
    with served_routes(dsn=dsn) as site:
        monkeypatch.setenv("TRUNKLINE_API_URL", site.url)
        yield site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES, tmp_path / "routes"))


def trunkline(*words: str | Path, given: bytes | None = None) -> Result:
    done = CliRunner().invoke(COMMAND, [*map(str, words)], input=given)
    if isinstance(done.exception, Exception) and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def told(*words: str | Path, ends_with: int = 0) -> str:
    done = trunkline(*words)
    assert done.exit_code == ends_with, done.output
    return done.stdout


def letters(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(told("deadletters", "ls", *words, "--json"))["letters"]
    return found


def post(site: ServedRoutes, path: str, payload: Any) -> dict[str, str]:
    """What became of it, by route."""
    answer = httpx.post(f"{site.url}{EVENTS}/{path}", json=payload, timeout=30)
    assert answer.status_code == 200, answer.text
    return {one["id"]: one["outcome"] for one in answer.json()["item"]["routes"]}


def sent(dsn: str, client: str) -> list[Any]:
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("SELECT payload FROM queues.send_log WHERE client = %s ORDER BY id", (client,)).fetchall()
    return [json.loads(payload) for (payload,) in rows]


def test_a_folder_is_applied_changed_while_events_flow_and_removed(site: ServedRoutes, folder: Path, dsn: str) -> None:
    assert told("routes", "apply", folder).endswith("10 to add\nlive on 1 of 1 instances\n")
    stop, outcomes = threading.Event(), list[dict[str, str]]()

    def flow() -> None:
        while not stop.is_set():
            outcomes.append(post(site, "alarms", {"kind": "alarm", "id": "a", "level": 3, "subject": "test-x"}))

    posting = threading.Thread(target=flow)
    posting.start()
    try:
        eventually(lambda: len(outcomes) > 3)
        assert sent(dsn, "alarms") == []
        file = folder / "alarms.yaml"
        file.write_text(file.read_text().replace("^test-", "^drill-"))
        assert told("routes", "apply", folder).endswith("1 to change, 9 unchanged\nlive on 1 of 1 instances\n")
        eventually(lambda: outcomes[-1] == {"alarms-to-hub": "sent"})
    finally:
        stop.set()
        posting.join()
    changed = outcomes.index({"alarms-to-hub": "sent"})
    assert all(one == {} for one in outcomes[:changed])
    assert all(one == {"alarms-to-hub": "sent"} for one in outcomes[changed:])
    assert sent(dsn, "alarms") == [{"id": "a", "level": 3, "text": "test-x at lyon"}] * (len(outcomes) - changed)
    assert told("routes", "rm", "alarms-to-hub", "--yes").endswith("gone from 1 of 1 instances\n")
    assert httpx.post(f"{site.url}{EVENTS}/alarms", json={}).status_code == 404


def test_dead_letters_are_looked_at_tried_again_with_a_mended_route_and_dropped(
    site: ServedRoutes, folder: Path, dsn: str
) -> None:
    told("routes", "apply", folder)
    assert told("deadletters", "ls") == "no dead letters\n"
    for n in range(3):
        assert post(site, "orders", {"id": f"o{n}", "lines": []})["orders-to-books"] == "dead_letter"
    rows = told("deadletters", "ls", "--route", "orders-to-books").splitlines()
    assert rows[0].split()[:2] == ["id", "route"]
    assert len(rows) == 4
    assert "filterChain[0] validate" in rows[1]
    first, second, third = (one["id"] for one in letters())
    assert json.loads(told("deadletters", "show", str(first), "--json"))["content"]["payload"] == {"id": "o0", "lines": []}
    assert "    id: o0\n" in told("deadletters", "show", str(first))
    assert "and more: these are the oldest 2" in told("deadletters", "ls", "--limit", "2")
    assert told("deadletters", "drop", str(first), "--yes") == "dropped: 1 of 1\n"
    file = folder / "orders.yaml"
    file.write_text(file.read_text().replace(", minItems: 1", ""))
    assert told("routes", "test", folder, "--only", "waits", ends_with=1).endswith("0 of 1 cases hold\n")
    told("routes", "apply", folder)
    assert told("deadletters", "replay", "--route", "orders-to-books") == "tried again: 2 of 2\n"
    eventually(lambda: sorted(one["id"] for one in sent(dsn, "books")) == ["o1", "o2"])
    assert letters("--all") == []
    assert told("deadletters", "replay", str(second), ends_with=1) == f"tried again: 0 of 1\nthere is no dead letter {second}\n"
    assert trunkline("deadletters", "show", str(third)).exit_code == 1


@pytest.mark.usefixtures("site")
def test_nobody_drops_all_letters_by_mistake() -> None:
    for words in (("drop",), ("replay",), ("drop", "7", "--route", "r", "--yes")):
        with pytest.raises(Invalid, match="it is not said which"):
            trunkline("deadletters", *words)
    assert trunkline("deadletters", "drop", "7", given=b"n\n").exit_code == 1
    with pytest.raises(Invalid, match="give --yes"):
        trunkline("deadletters", "drop", "7", "--json")
