"""Variables override the file; a variable nobody knows is a mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trunkline.core.config import ProcessConfig, load_config
from trunkline.core.environment import OTHERS, overrides
from trunkline.core.mistakes import Mistakes

ROOT = Path(__file__).parents[2]
FILE = "site: leaf\ndatabase: dbname=x\nlink: {listen: '127.0.0.1:1', heartbeat_seconds: 2}\n"


def load(folder: Path, **environ: str) -> ProcessConfig:
    file = folder / "node.yaml"
    file.write_text(FILE)
    return load_config(file, environ)


def mistakes(folder: Path, **environ: str) -> list[str]:
    with pytest.raises(Mistakes) as refused:
        load(folder, **environ)
    return [str(mistake) for mistake in refused.value.mistakes]


def test_a_variable_overrides_a_key_and_leaves_its_neighbours(tmp_path: Path) -> None:
    config = load(tmp_path, TRUNKLINE_SITE="hub", TRUNKLINE_LINK__LISTEN="127.0.0.1:2", TRUNKLINE_BRIDGE__WORKERS="7")
    assert (config.site, config.link.listen, config.link.heartbeat_seconds) == ("hub", "127.0.0.1:2", 2)
    assert config.bridge is not None
    assert config.bridge.workers == 7


def test_a_text_is_taken_as_it_is(tmp_path: Path) -> None:
    config = load(tmp_path, TRUNKLINE_NODE="on", TRUNKLINE_DATABASE="dbname=x password='#: *'")
    assert (config.node, config.database.reveal()) == ("on", "dbname=x password='#: *'")


def test_lists_maps_and_sections_are_yaml(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        TRUNKLINE_LINK__ADVERTISE="['a:1', 'b:2']",
        TRUNKLINE_OTLP="{endpoint: 'http://h', headers: {a: secret://env/A}}",
        TRUNKLINE_OTLP__SAMPLE="0.5",
        A="b",
    )
    assert config.link.advertise == ("a:1", "b:2")
    assert config.otlp is not None
    assert (config.otlp.sample, config.otlp.headers["a"].reveal()) == (0.5, "b")


def test_a_variable_may_refer_to_a_secret(tmp_path: Path) -> None:
    assert load(tmp_path, TRUNKLINE_DATABASE="secret://env/DB", DB="dbname=y").database.reveal() == "dbname=y"


def test_a_mistake_in_a_variable_names_the_variable(tmp_path: Path) -> None:
    assert mistakes(
        tmp_path,
        TRUNKLINE_LINK__HEARTBEAT_SECONDS="61",
        TRUNKLINE_LINK__SEEDS="[",
        TRUNKLINE_BRIDGE="7",
        TRUNKLINE_API__LISTEN="0.0.0.0:1",
    ) == [
        "TRUNKLINE_API__LISTEN: api.listen: without tokens everybody who reaches this address could use the API"
        " (add api.tokens, which `trunkline token new` makes, or listen on 127.0.0.1)",
        "TRUNKLINE_BRIDGE: bridge: a section is wanted, found 7 (write its keys below it: client, kafka, types, workers,"
        " trigger_seconds, linger_seconds, statement_seconds, silent_seconds, chunk_seconds, resync_seconds, waiting_deltas,"
        " keep_months, quarantine_days, quarantine_bundles, waiting_rows)",
        "TRUNKLINE_LINK__HEARTBEAT_SECONDS: link.heartbeat_seconds: it must be above 0 and at most 60, found 61 (such as 0.5)",
        "TRUNKLINE_LINK__SEEDS: link.seeds: it is not YAML: while parsing a flow node, expected the node content,"
        " but found '<stream end>'",
    ]


def test_an_unknown_variable_is_a_mistake_with_the_nearest_right_one(tmp_path: Path) -> None:
    (line,) = mistakes(tmp_path, TRUNKLINE_LINK_LISTEN="a:1")
    assert line.startswith("TRUNKLINE_LINK_LISTEN: there is no setting of this name, the nearest is TRUNKLINE_LINK__LISTEN")


def test_an_empty_variable_overrides_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, TRUNKLINE_SITE="", TRUNKLINE_TYPO="").site == "leaf"


@pytest.mark.parametrize(
    "variable",
    ["TRUNKLINE_SERVICE_HOST", "TRUNKLINE_PORT", "TRUNKLINE_HUB_SERVICE_PORT_API", "TRUNKLINE_PORT_7400_TCP_ADDR"],
)
def test_variables_that_kubernetes_makes_of_a_service_are_left_alone(tmp_path: Path, variable: str) -> None:
    assert load(tmp_path, **{variable: "tcp://10.0.0.1:7400"}).site == "leaf"


def test_every_variable_that_the_code_uses_for_other_things_is_known() -> None:
    sources = [file for folder in ("src", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    assert sources
    used = {name for file in sources for name in re.findall(r'"(TRUNKLINE_[A-Z_]+)"', file.read_text())}
    unknown = overrides(dict.fromkeys(used | OTHERS, "x"), ProcessConfig)[1]
    assert [mistake.source for mistake in unknown if "no setting" in mistake.reason] == []
