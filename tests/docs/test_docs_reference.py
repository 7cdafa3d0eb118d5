"""The parts that are made from the code say what the code says, and the lists written by hand are complete."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import psycopg
import pytest
from docs_pages import DOCS, ROOT, cells
from prometheus_client import CollectorRegistry, generate_latest

from trunkline.api.metrics import HttpNumbers, ViewCollector
from trunkline.api.tracing import SPANS
from trunkline.cli.reference import api, commands, evidence, python, schemas, settings
from trunkline.cli.reference.evidence import Proof
from trunkline.core.config import ProcessConfig
from trunkline.core.environment import variable_of
from trunkline.core.fields import keys, sections
from trunkline.core.health import Check
from trunkline.core.ids import NodeId
from trunkline.core.secret import ConnectionString
from trunkline.node import views
from trunkline.node.sitecore import SiteCore
from trunkline.node.storeview import summary

EXPLANATION = DOCS / "explanation"


# -- configuration


def test_every_key_of_the_configuration_has_its_variable_on_the_page() -> None:
    page = settings.configuration()
    variables = [variable_of((*above, key)) for above, model in sections(ProcessConfig) for key in keys(model)]
    assert [variable for variable in variables if f"`{variable}`" not in page] == []


def test_a_key_is_shown_with_type_default_limits_and_meaning() -> None:
    page = settings.configuration()
    _, _, rest = page.partition("### `link.heartbeat_seconds`")
    assert rest.splitlines()[2:5] == [
        "Silence of four heartbeats closes a link.",
        "",
        "number · default `0.5` · above 0 and at most 60 · `TRUNKLINE_LINK__HEARTBEAT_SECONDS`",
    ]


def test_keys_of_a_list_s_items_are_there_and_have_no_variable() -> None:
    _, _, rest = settings.configuration().partition("### `api.tokens[].sha256`")
    assert rest.splitlines()[4] == "secret · **required**"


def test_no_anchor_is_used_twice() -> None:
    for page in (settings.configuration(), settings.routes(), commands.page()):
        anchors = re.findall(r"\{ #(\S+) \}", page)
        assert [anchor for anchor, times in Counter(anchors).items() if times > 1] == []


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (str, "text"),
        (bool, "true or false"),
        (float | None, "number"),
        (tuple[str, ...], "list of text"),
        (dict[str, ConnectionString], "map of names to secret"),
        (Literal["text", "json"], "`text` or `json`"),
        (ProcessConfig, "section"),
        (Any, "any value"),
    ],
)
def test_types_in_words(annotation: Any, words: str) -> None:
    assert settings.kind(annotation) == words


def test_what_stands_in_angle_brackets_is_no_html() -> None:
    assert "&lt;host>:&lt;port>" in settings.configuration()


# -- commands, API, schemas


def test_every_visible_command_is_on_the_page_with_its_options_and_hidden_ones_are_not() -> None:
    page = commands.page()
    shown = [command for command in commands.commands() if command.path]
    assert [command.name for command in shown if f"`{command.name}`" not in page] == []
    assert {option for command in shown for option in command.options if option not in page} == set()
    assert "demo-application" not in page


def test_every_operation_of_the_api_is_on_the_page() -> None:
    page = api.page()
    operations = [f"`{method.upper()} {path}`" for path, found in api.document()["paths"].items() for method in found]
    assert operations
    assert [operation for operation in operations if operation not in page] == []


def test_the_schemas_are_those_of_a_real_database(make_database: Callable[..., str]) -> None:
    parts = schemas.parts()
    with psycopg.connect(make_database(*(part.name for part in parts))) as conn:
        rows = conn.execute(
            "SELECT table_schema || '.' || table_name, column_name FROM information_schema.columns "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') AND table_name <> 'migration' AND NOT EXISTS ("
            "SELECT FROM pg_class WHERE oid = format('%I.%I', table_schema, table_name)::regclass "
            "AND (relispartition OR relkind = 'v'))"
        ).fetchall()
    assert {(table.name, column) for part in parts for table in part.tables.values() for column in table.columns} == set(rows)


def test_functions_for_applications_are_there_with_their_arguments() -> None:
    found = {function.name: function.arguments for part in schemas.parts() for function in part.functions}
    assert found["trunkline.transmit"] == "client text, payload bytea, destinations text[], headers jsonb DEFAULT NULL"
    assert found["trunkline.transmit_many"].endswith("headers jsonb[] DEFAULT NULL")


# -- guarantees and hazards


def test_tests_are_found_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "tests" / "part").mkdir(parents=True)
    (tmp_path / "tests" / "part" / "test_some.py").write_text(
        "@pytest.mark.soak\ndef test_g1_g4_the_relay_s_log_survives(): ...\n"
        "async def test_h05_nothing_is_lost(): ...\n"
        "def test_good_things_happen(): ...\n"
    )
    assert evidence.proofs(tmp_path) == (
        Proof(("g1", "g4"), "tests/part/test_some.py", "the relay's log survives", soak=True),
        Proof(("h05",), "tests/part/test_some.py", "nothing is lost", soak=False),
    )
    assert evidence.block(tmp_path, "g4").splitlines()[0] == '???+ abstract "1 test in 1 file"'
    assert evidence.block(tmp_path, "g5") == "*No test carries its name yet.*"


@pytest.mark.parametrize(("kind", "page"), [("g", "guarantees.md"), ("h", "hazards.md")])
def test_whatever_has_tests_has_its_paragraph(kind: str, page: str) -> None:
    described = re.findall(rf"^<!-- made: tests ({kind}\d+) -->$", (EXPLANATION / page).read_text(), re.M)
    assert [mark for mark in evidence.marks(ROOT, kind) if mark not in described] == []
    assert described == sorted(set(described), key=lambda mark: int(mark[1:]))


def test_a_hazard_without_tests_is_not_listed() -> None:
    described = re.findall(r"^<!-- made: tests (h\d+) -->$", (EXPLANATION / "hazards.md").read_text(), re.M)
    assert [mark for mark in described if not evidence.proofs_of(ROOT, mark)] == []


# -- lists written by hand


def test_every_dependency_has_its_reason_and_every_reason_its_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(name for group in project["optional-dependencies"].values() for name in group)]
    names = {re.split(r"[\[<>=~! ]", word)[0].lower() for word in wanted}
    assert set(cells(EXPLANATION / "dependencies.md")) == names


def test_every_metric_of_a_node_is_on_the_page_and_no_other() -> None:
    core = SiteCore(NodeId("paris", "node-1"), (), lambda: 0.5)
    endpoint = SimpleNamespace(
        links=dict, violations={"frame": 1}, accept_errors=0, credentials=SimpleNamespace(expires_at=1.0)
    )
    peers: Any = SimpleNamespace(endpoint=endpoint)
    registry = CollectorRegistry()
    HttpNumbers(registry).count("/livez", "GET", 200, 0.1)
    registry.register(SPANS)
    status = views.status(core, peers, Counter({"lyon": 1}), {"tick": 0})
    collected = {
        "status": lambda: status, "topology": dict, "trunk": dict, "queues": dict, "bridge": dict, "routes": dict,
        "store": lambda: {"fleet": summary(core.store.fleet)},
    }  # fmt: skip
    registry.register(ViewCollector(collected, lambda: [Check("database", True, "")]))
    given = set(re.findall(r"^# TYPE (\S+)", generate_latest(registry).decode(), re.M))
    given = {name for name in given if not name.endswith("_created")}
    on_page = {cell for cell in cells(DOCS / "reference" / "metrics.md") if cell.startswith("trunkline_")}
    assert on_page == given


def test_every_counter_of_the_trunk_is_on_the_page_and_no_other() -> None:
    code = "".join(file.read_text() for file in sorted((ROOT / "src" / "trunkline" / "trunk").glob("*.py")))
    counting = re.compile(r"^.*(?:\.count\(|counters\[.*\] \+=|^ +\(Lane\.\w+, (?:True|False)\): ).*$", re.M)
    counted = {word for line in counting.findall(code) for word in re.findall(r'"(\w+)"', line)}
    cells_of_page = cells(DOCS / "reference" / "metrics.md")
    named = {found[1] for cell in cells_of_page if (found := re.fullmatch(r"trunkline_trunk_(\w+)_total", cell))}
    assert named | {cell for cell in cells_of_page if not cell.startswith("trunkline_")} == counted


# -- the library


def test_the_page_of_the_library_shows_signatures_with_what_is_said_about_them() -> None:
    _, _, rest = python.section("send").partition("### AsyncQueueClient\n")
    assert "`from trunkline.queues.client import AsyncQueueClient`" in rest
    assert "AsyncQueueClient(name: str)" in rest
    assert "await transmit_messages(conn: psycopg.AsyncConnection[Any], messages: Sequence[Message]) -> None" in rest


def test_what_the_examples_import_of_queues_and_reporters_is_on_the_page_of_the_library() -> None:
    parts = r"^from (trunkline\.(?:queues|bridge\.reporter\w*|bridge\.types|routes\.plugin)[\w.]*) import ([\w, ]+)$"
    examples = "\n".join(file.read_text() for file in (ROOT / "examples").rglob("*.py"))
    used = {name.strip() for _, names in re.findall(parts, examples, re.M) for name in names.split(",")}
    shown = {name for modules in python.SECTIONS.values() for names in modules.values() for name in names}
    called_otherwise = {"QueueMessage": "Received"}
    assert {called_otherwise.get(name, name) for name in used} - shown == set()


def test_the_page_of_the_library_names_what_is_there() -> None:
    for name in python.SECTIONS:
        assert "### " in python.section(name)
