"""`trunkline routes top` against a real API over routes that run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import httpx
import psycopg
import pytest
import typer.main
from click.testing import CliRunner
from rich.console import Console

from served_routes import ServedRoutes, served_routes
from trunkline.cli.main import app
from trunkline.cli.routes.rates import LOOKS, Rates, duration
from trunkline.cli.routes.toplive import table
from trunkline.routes.counted import CountRow, GroupRow, write_counts, write_groups
from trunkline.routes.keys import HOUSE, RouteKey

COMMAND = typer.main.get_command(app)
HOUSE_ADDRESS = f"/v1/orgs/{HOUSE.org}/applications/{HOUSE.app}/routes"


class Site:
    def __init__(self, dsn: str, served: ServedRoutes) -> None:
        self.dsn, self.served = dsn, served

    def put(self, id: str) -> None:
        body = {"userId": "me", "name": id, "receiver": {"plugin": "nop", "name": id}, "sender": {"plugin": "nop"}}
        answer = httpx.put(f"{self.served.url}{HOUSE_ADDRESS}/{id}", json=body)
        assert answer.is_success, answer.text

    def on_spark(self, id: str, received: int) -> None:
        row = CountRow(RouteKey(HOUSE, id), "kafka", "queue", (received, 4, 1, 2, 0, 0, 0), 0.25)
        with psycopg.connect(self.dsn) as conn:
            write_counts(conn, "p1", [row])
            write_groups(conn, "p1", [GroupRow("routes:kafka:b", True, received, 1, 0.5, 3, "")])


@pytest.fixture
def site(make_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    dsn = make_database("queues", "routes")
    with served_routes(dsn=dsn) as served:
        monkeypatch.setenv("TRUNKLINE_API_URL", served.url)
        yield Site(dsn, served)


def told(*words: str) -> str:
    done = CliRunner().invoke(COMMAND, ["routes", "top", "--every", "0.1", *words])
    if isinstance(done.exception, Exception):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_one_table_has_both_runners(site: Site) -> None:
    site.put("here")
    site.put("there")
    site.on_spark("there", 1_234)
    lines = told("--once").splitlines()
    assert lines[0].split() == [
        "route", "runner", "in/s", "in", "matched", "out", "dropped", "failed", "dead", "kept", "latency",
    ]  # fmt: skip
    assert lines[1].split() == ["there", "spark", "0.0", "1,234", "4", "2", "1", "0", "0", "0", "125", "ms"]
    assert lines[2].split()[:4] == ["here", "node", "0.0", "0"]
    assert lines[-1].split()[:2] == ["routes:kafka:b", "–"]
    assert "no pipeline runs it" in lines[-1]


def test_one_document_has_the_numbers_and_the_rates(site: Site) -> None:
    site.put("there")
    site.on_spark("there", 10)
    found = json.loads(told("--json"))
    [route] = found["routes"]
    assert (route["id"], route["runner"], route["received"], route["per_second"]) == ("there", "spark", 10, 0.0)
    assert (found["groups"][0]["events"], found["groups"][0]["batch"]) == (10, 0.5)


def test_without_routes_it_says_so(site: Site) -> None:
    assert told("--once") == "no routes\n"


# -- rates


def look(at: float, **received: int) -> dict[str, Any]:
    numbers = dict.fromkeys(("matched", "dropped", "sent", "kept", "dead", "failed"), 0)
    tenant = {"orgId": HOUSE.org, "appId": HOUSE.app}
    routes = [
        {"id": id, "tenant": tenant, "runner": "spark", "received": came, "seconds": 0.0, **numbers}
        for id, came in received.items()
    ]
    return {"instance": "i", "at": at, "routes": routes, "groups": []}


def rates(*looks: dict[str, Any]) -> dict[str, float]:
    found = Rates()
    for one in looks:
        found.take(one)
    return {one["id"]: one["per_second"] for one in found.routes()}


def test_the_busiest_come_first_and_not_those_that_were_busy_once() -> None:
    assert list(rates(look(0, old=1000, new=0), look(2, old=1002, new=20)).items()) == [("new", 10.0), ("old", 1.0)]


def test_a_rate_is_of_the_last_looks_only() -> None:
    steps = count(0)
    assert rates(look(0, r=0), *(look(next(steps) + 1.0, r=100) for _ in range(LOOKS))) == {"r": 0.0}


def test_a_route_that_began_anew_has_no_rate_below_zero() -> None:
    assert rates(look(0, r=100), look(1, r=10)) == {"r": 10.0}


def test_one_look_has_no_rates() -> None:
    assert rates(look(0, r=100)) == {"r": 0.0}


@pytest.mark.parametrize(("seconds", "words"), [(None, "–"), (0.0123, "12 ms"), (9.5, "9,500 ms"), (75.0, "75.0 s")])
def test_durations_are_short(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_the_live_table_shows_as_many_as_there_is_room_for() -> None:
    found = Rates()
    found.take(look(0, **{f"r{n}": n for n in range(50)}))
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(table(found, 12))
    lines = console.export_text().splitlines()
    assert "50 routes" in lines[0]
    assert len(lines) == 2 + 7
