"""Plugins by name (R1 to R3): ours, those of installed packages, and what is said of those that are not there."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from running_filters import applied
from trunkline.core.errors import Invalid
from trunkline.routes.compile import compile_route
from trunkline.routes.event import Event
from trunkline.routes.fields import RouteModel
from trunkline.routes.model import RouteReader, read_route
from trunkline.routes.plugin import Around, FilterPlugin
from trunkline.routes.registry import GROUP, OURS, Kind, Registry, registry
from written_routes import written

DOUBLE = '''
from trunkline.routes.fields import RouteModel
from trunkline.routes.plugin import FilterPlugin, ReceiverPlugin, Runs

class DoubleConfig(RouteModel):
    """Every event twice."""
    times: int = 2

def compile_double(config, around):
    return lambda batch, faults: [event for event in batch for _ in range(config.times)]

DOUBLE = FilterPlugin("double", DoubleConfig, compile_double)
BEEPER = ReceiverPlugin("beeper", DoubleConfig, Runs.LOCAL)
BOTH = [DOUBLE, BEEPER]
PASS = FilterPlugin("pass", DoubleConfig, compile_double)
NO_MODEL = FilterPlugin("odd", dict, compile_double)
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs a package of one module, as pip would leave it."""

    def install(package: str, code: str, entries: str) -> None:
        (tmp_path / f"{package}.py").write_text(code)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}\n")

    monkeypatch.syspath_prepend(str(tmp_path))
    return install


def found() -> Registry:
    return Registry(OURS, entry_points(group=GROUP))


def test_ours_are_there() -> None:
    assert registry().names(Kind.RECEIVER) == ["debug", "files", "http", "kafka", "nop", "queue", "redis"]
    assert registry().names(Kind.SENDER) == ["debug", "files", "http", "kafka", "nop", "postgres", "queue", "redis"]
    assert {"match", "transform", "pass", "block", "split", "hash"} <= set(registry().names(Kind.FILTER))
    assert registry().package(Kind.SENDER, "queue") == ""


@pytest.mark.parametrize("plugin", OURS, ids=lambda plugin: f"{type(plugin).__name__} {plugin.name}")
def test_every_plugin_of_ours_is_documented(plugin: Any) -> None:
    assert plugin.config.__doc__
    fields = plugin.config.model_fields.items()
    assert [name for name, field in fields if not field.description and not hasattr(field.annotation, "model_fields")] == []


def test_r1_an_installed_package_s_plugins_can_be_used_in_routes(installed: Any) -> None:
    installed("doubling", DOUBLE, "both = doubling:BOTH")
    plugins = found()
    assert plugins.failures == []
    assert plugins.package(Kind.FILTER, "double") == "doubling"
    raw = written(receiver={"plugin": "beeper"}, filterChain=[{"plugin": "double", "config": {"times": 3}}])
    (read,) = read_route(raw, RouteReader(plugins)).routes
    route = compile_route(read.route, plugins=plugins)
    assert applied(route.chain.steps[0].filter, [Event("x")]) == [Event("x")] * 3
    (mistake,) = read_route(written(filterChain=[{"plugin": "double", "config": {"time": 3}}]), RouteReader(plugins)).mistakes
    assert "the nearest is 'times'" in mistake.reason


def test_r2_what_a_package_does_wrong_is_reported_and_harms_nobody_else(installed: Any) -> None:
    installed("doubling", DOUBLE, "one = doubling:DOUBLE")
    installed("broken", "import nobody_has_this", "it = broken:IT")
    installed("leaving", "raise SystemExit(3)", "it = leaving:IT")
    installed("strange", DOUBLE, "gone = strange:GONE\nnumber = strange:__file__\nodd = strange:NO_MODEL")
    plugins = found()
    assert plugins.filter("double") is not None
    assert plugins.names(Kind.SENDER) == registry().names(Kind.SENDER)
    reported = {(failure.package, failure.entry): str(failure) for failure in plugins.failures}
    assert "No module named 'nobody_has_this'" in reported["broken", "it"]
    assert "SystemExit: 3" in reported["leaving", "it"]
    assert "AttributeError" in reported["strange", "gone"]
    assert "not a FilterPlugin, ReceiverPlugin or SenderPlugin" in reported["strange", "number"]
    assert "the config of filter 'odd' is not a pydantic model" in reported["strange", "odd"]
    assert len(reported) == 5


def test_r3_nobody_takes_a_name_that_is_taken(installed: Any) -> None:
    installed("aaa", DOUBLE, "mine = aaa:PASS\ntwo = aaa:DOUBLE")
    installed("bbb", DOUBLE, "two = bbb:DOUBLE")
    plugins = found()
    assert plugins.filter("pass") is registry().filter("pass")
    assert plugins.package(Kind.FILTER, "double") == "aaa"
    assert [str(failure) for failure in plugins.failures] == [
        "mine of aaa: there is a filter 'pass' already, from trunkline",
        "two of bbb: there is a filter 'double' already, from aaa",
    ]


@pytest.mark.parametrize(
    ("kind", "name", "instead"),
    [
        (Kind.RECEIVER, "sqs", "queue"),
        (Kind.SENDER, "sqs", "queue"),
        (Kind.RECEIVER, "kinesis", "kafka"),
        (Kind.SENDER, "kinesis", "kafka"),
        (Kind.RECEIVER, "s3", "files"),
        (Kind.SENDER, "s3", "files"),
        (Kind.SENDER, "gears", "kafka"),
        (Kind.RECEIVER, "discord", "http"),
        (Kind.SENDER, "discord", "http"),
        (Kind.RECEIVER, "syslog", "http"),
        (Kind.RECEIVER, "kafak", "kafka"),
        (Kind.FILTER, "tranform", "transform"),
    ],
)
def test_what_is_not_there_is_named_with_what_does_its_job(kind: Kind, name: str, instead: str) -> None:
    reason, next_step = registry().unknown(kind, name)
    assert reason == f"{name!r} is not known, write {instead!r}"
    assert next_step


@pytest.mark.parametrize("name", ["ws", "sample"])
def test_filters_of_ears_that_are_not_there_have_an_answer(name: str) -> None:
    reason, next_step = registry().unknown(Kind.FILTER, name)
    assert reason.startswith(f"{name!r} is not known, write ")
    assert next_step


def test_a_filter_s_constructor_may_refuse() -> None:
    class Config(RouteModel):
        """Never right."""

    def refuse(config: Config, around: Around) -> Any:
        raise Invalid("engine", "it is out of order", "wait")

    plugins = Registry([*OURS, FilterPlugin("never", Config, refuse)])
    (read,) = read_route(written(filterChain=[{"plugin": "never"}]), RouteReader(plugins)).routes
    with pytest.raises(Invalid, match=r"filterChain\[0\].config: engine: it is out of order \(wait\)"):
        compile_route(read.route, plugins=plugins)
