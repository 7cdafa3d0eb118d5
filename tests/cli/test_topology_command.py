"""`trunkline topology` against real APIs: what it prints, whom it asks, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import typer.main
from click.testing import CliRunner, Result

from memory_paths import MemoryPaths
from memory_store import MemoryStore, served
from trunkline.api.tokens import hash_of
from trunkline.cli.kv.client import Refusal
from trunkline.cli.main import app
from trunkline.cli.topology import Table, age, remarks, sentences, table_of
from trunkline.core.config import TokenConfig
from trunkline.core.errors import Invalid, TrunklineError
from trunkline.core.secret import Secret
from trunkline.node.sitecore import NODE_RECORDS, NodeRecord

COMMAND = typer.main.get_command(app)
Serve = Callable[..., str]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def serve(store: MemoryStore) -> Iterator[Serve]:
    """Starts the API of a node, whose record then is in the store."""
    with ExitStack() as stack:

        def begin(paths: MemoryPaths, node: str = "node-1", **api: Any) -> str:
            url = stack.enter_context(served(store, views=paths.views(), **api))
            record(store, f"{paths.site}/{node}", url.removeprefix("http://"))
            return url

        yield begin


@pytest.fixture
def url(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the leader of paris."""
    url = serve(MemoryPaths("paris"))
    monkeypatch.setenv("TRUNKLINE_API_URL", url)
    return url


def record(store: MemoryStore, name: str, api: str) -> None:
    store.write(f"node:{name}", NODE_RECORDS.encode(NodeRecord((), 1, api=api)), originator=name)


def topology(*words: str) -> Result:
    return CliRunner().invoke(COMMAND, ["topology", *words])


def told(*words: str, ends_with: int = 0) -> str:
    done = topology(*words)
    assert done.exit_code == ends_with, (done.output, done.exception)
    return done.stdout


def document(*words: str, ends_with: int = 0) -> Any:
    return json.loads(told(*words, "--json", ends_with=ends_with))


def error(*words: str) -> TrunklineError:
    done = topology(*words)
    assert isinstance(done.exception, TrunklineError), (done.output, done.exception)
    assert done.stdout == ""
    return done.exception


# -- table


@pytest.mark.usefixtures("url")
class TestTable:
    def test_it_has_every_published_row_and_says_who_has_none(self) -> None:
        assert told("table") == (
            "Subscriber  Source  Via    Depth  Cost  Flags\n"
            "hub         lyon    lyon   1      2\n"
            "hub         paris   paris  1      1\n"
            "hub         rome    paris  2      2\n"
            "lyon        hub     hub    1      2\n"
            "lyon        paris   hub    2      3\n"
            "lyon        rome    hub    3      4     stale\n"
            "paris       hub     hub    1      1\n"
            "paris       lyon    hub    2      3\n"
            "paris       rome    rome   1      1\n"
            "\n"
            "rome published no rows, and none can be had: the store does not say where the API of its nodes is\n"
        )

    def test_the_nodes_of_a_site_that_published_none_are_asked(self, serve: Serve) -> None:
        serve(MemoryPaths("rome", leads=False))
        serve(MemoryPaths("rome"), "node-2")
        found = document("table")
        assert [(row["source"], row["via"], row["depth"]) for row in found["rows"] if row["subscriber"] == "rome"] == [
            ("hub", "paris", 2),
            ("lyon", "paris", 3),
            ("paris", "paris", 1),
        ]
        assert (found["sites"], found["asked"], found["missing"]) == (["hub", "lyon", "paris", "rome"], ["rome"], {})
        assert told("table").endswith("\n\npublished no rows; a node of theirs was asked: rome\n")

    def test_a_site_whose_nodes_do_not_lead_or_do_not_answer_is_missing(self, serve: Serve, store: MemoryStore) -> None:
        serve(MemoryPaths("rome", leads=False))
        assert document("table")["missing"] == {"rome": "none of its nodes leads"}
        record(store, "rome/node-2", "127.0.0.1:9")
        assert "API at http://127.0.0.1:9: it cannot be reached" in document("table")["missing"]["rome"]

    def test_subscribers_and_sources_narrow_it_and_only_those_are_asked(self) -> None:
        found = document("table", "--subscriber", "lyon", "--subscriber", "hub", "--source", "paris")
        assert [(row["subscriber"], row["source"]) for row in found["rows"]] == [("hub", "paris"), ("lyon", "paris")]
        assert (found["sites"], found["missing"]) == (["hub", "lyon"], {})

    @pytest.mark.parametrize("option", ["--subscriber", "--source"])
    def test_a_site_that_nobody_knows_is_a_mistake(self, option: str) -> None:
        found = error("table", option, "atlantis")
        assert isinstance(found, Invalid)
        assert found.next_step == "name one of: hub, lyon, paris, rome"


def test_cost_and_flags_are_columns_only_where_there_are_some() -> None:
    row = {"subscriber": "a", "source": "b", "via": "b", "depth": 1, "cost": 1, "flags": []}
    assert table_of([row], grouped=False) == (("Subscriber", "Source", "Via", "Depth"), [("a", "b", "b", "1")])
    assert table_of([{**row, "flags": ["all", "stale"]}], False)[1] == [("a", "b", "b", "1", "all, stale")]
    assert table_of([{**row, "cost": 7}], False)[1] == [("a", "b", "b", "1", "7")]


def test_at_a_terminal_a_subscriber_is_named_once() -> None:
    row = {"subscriber": "a", "source": "b", "via": "b", "depth": 1, "cost": 1, "flags": []}
    _, lines = table_of([row, {**row, "source": "c"}, {**row, "subscriber": "b", "source": "a", "via": "a"}], grouped=True)
    assert [line[0] for line in lines] == ["a", "", "b"]


def test_a_site_that_takes_from_nobody_is_named() -> None:
    assert remarks(Table(rows=[], sites=["a"])) == ["", "no row of: a"]


# -- paths


@pytest.mark.usefixtures("url")
class TestPaths:
    def test_they_are_those_of_the_asked_node_with_cost_and_age(self) -> None:
        assert told("paths") == (
            "source  path                cost  age\n"
            "hub     paris → hub         1     3.2m\n"
            "rome    paris → rome        1     3.2m\n"
            "lyon    paris → hub → lyon  3     3.2m\n"
        )
        assert document("paths")["paths"][2]["path"] == ["paris", "hub", "lyon"]

    def test_of_another_site_its_own_leader_is_asked(self, serve: Serve) -> None:
        serve(MemoryPaths("rome"))
        assert "lyon    rome → paris → hub → lyon  4     3.2m\n" in told("paths", "rome")

    def test_if_that_does_not_answer_they_are_as_published_and_their_age_is_not_known(self) -> None:
        assert told("paths", "lyon") == (
            "source  path                       cost  age  flags\n"
            "hub     lyon → hub                 2     –\n"
            "paris   lyon → hub → paris         3     –\n"
            "rome    lyon → hub → paris → rome  4     –    stale\n"
        )

    def test_a_site_that_nobody_knows_is_a_mistake(self) -> None:
        assert error("paths", "atlantis").what == "site 'atlantis'"


def test_a_node_that_does_not_lead_names_its_leader(serve: Serve) -> None:
    follower = serve(MemoryPaths("paris", leads=False))
    serve(MemoryPaths("paris"), "node-2")
    assert [path["since_seconds"] for path in document("paths", "--url", follower)["paths"]] == [192.4] * 3
    assert document("why", "lyon", "--url", follower)["row"]["via"] == "hub"


def test_a_site_without_a_leader_shows_what_was_published(serve: Serve) -> None:
    follower = serve(MemoryPaths("paris", leads=False))
    done = topology("paths", "--url", follower)
    assert done.stderr == f"no node of paris says that it leads; this is what {follower} has\n"
    assert [line.split()[-1] for line in done.stdout.splitlines()[1:]] == ["–"] * 3


# -- why


@pytest.mark.usefixtures("url")
class TestWhy:
    def test_it_says_the_choice_the_reason_since_when_and_the_candidates(self) -> None:
        assert told("why", "lyon") == (
            "paris takes lyon's records from hub: hub is the nearest way.\n"
            "It has been so for 3.2m: the path before was lost. The path is paris → hub → lyon.\n"
            "\n"
            "   via   link  depth  cost  path        told path   has   note\n"
            "*  hub   up    2      3     hub → lyon  reaches it  4711  the nearest\n"
            "   rome  up    –      –     –           does not    –     no way that does not pass here\n"
        )
        assert [one["via"] for one in document("why", "lyon")["candidates"]] == ["hub", "rome"]

    @pytest.mark.parametrize("site", ["atlantis", "..", "a/b", "ключ"])
    def test_a_site_that_nobody_knows_is_an_error_that_names_the_known_ones(self, site: str) -> None:
        found = error("why", site)
        assert (found.what, found.why) == (f"site {site!r}", "nobody told of it here")
        assert found.next_step.endswith(": hub, lyon, rome")

    def test_the_node_s_own_site_is_one_too(self) -> None:
        assert "which takes its own records from nobody" in error("why", "paris").why


def test_from_nobody_is_the_answer_no(serve: Serve) -> None:
    alone = serve(MemoryPaths("paris", leads=False))
    assert told("why", "lyon", "--url", alone, ends_with=1) == "paris takes lyon's records from nobody: no link is up.\n"
    assert document("why", "lyon", "--url", alone, ends_with=1)["row"] is None


def test_text_of_a_node_is_harmless_at_a_terminal() -> None:
    why = {"source": "b", "row": None, "reason": "it\x1b[31m is.", "since_seconds": None, "manner": None}
    assert sentences("a", why) == ["a takes b's records from nobody: it\\x1b[31m is."]


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "–"), (0.0, "0.0s"), (61.0, "61.0s"), (7200.0, "2.0h"), (864000.0, "10.0d")]
)
def test_ages(seconds: float | None, words: str) -> None:
    assert age(seconds) == words


# -- the node, the token, the shell


def test_no_node_named_and_none_there_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUNKLINE_API_URL", raising=False)
    for words in (["table"], ["paths"], ["why", "lyon"]):
        assert "TRUNKLINE_API_URL" in error(*words).next_step
        assert "cannot be reached" in error(*words, "--url", "127.0.0.1:9").why


def test_the_token_is_shown_to_every_node_that_is_asked(serve: Serve, tmp_path: Path) -> None:
    tokens = (TokenConfig(name="ops", sha256=Secret(hash_of(b"tl_ops"))),)
    url = serve(MemoryPaths("paris", leads=False), tokens=tokens)
    serve(MemoryPaths("paris"), "node-2", tokens=tokens)
    (tmp_path / "token").write_text("tl_ops\n")
    refused = error("paths", "--url", url)
    assert isinstance(refused, Refusal)
    assert refused.slug == "unauthenticated"
    assert len(document("paths", "--url", url, "--token", f"@{tmp_path / 'token'}")["paths"]) == 3


@pytest.mark.parametrize(("typed", "sites"), [("", ["hub", "lyon", "paris", "rome"]), ("l", ["lyon"]), ("x", [])])
def test_names_of_sites_are_completed_by_the_node(url: str, typed: str, sites: list[str]) -> None:
    assert completions(url, typed) == sites


def test_without_a_node_nothing_is_completed_and_nothing_is_said() -> None:
    assert completions("http://127.0.0.1:9", "") == []


def completions(url: str, typed: str) -> list[str]:
    asked = {"_TRUNKLINE_COMPLETE": "complete_bash", "COMP_WORDS": f"trunkline topology why {typed}", "COMP_CWORD": "3"}
    trunkline = Path(sys.executable).with_name("trunkline")
    environ = {**os.environ, **asked, "TRUNKLINE_API_URL": url}
    done = subprocess.run([trunkline], env=environ, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()
