"""Route files: everything wrong with one comes at once, each with its field, its reason and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trunkline.core.errors import Invalid
from trunkline.routes.filters.match import MatchConfig
from trunkline.routes.filters.transform import TransformConfig
from trunkline.routes.model import load_routes, parse_routes

HERE = Path(__file__).parent


def route(**changes: Any) -> dict[str, Any]:
    sender = {"plugin": "queue", "config": {"client": "status", "destinations": ["hub"]}}
    return {"id": "r", "receiver": {"plugin": "http"}, "sender": sender, **changes}


def refusal(*routes: Any) -> str:
    with pytest.raises(Invalid) as refused:
        parse_routes({"routes": list(routes)}, "routes test")
    return refused.value.why


def chain(*filters: Any) -> str:
    return refusal(route(filterChain=list(filters)))


def test_the_demo_route_is_read() -> None:
    (alarm,) = load_routes(HERE / "alarm.yaml")
    assert alarm.id == "alarm-to-hub"
    assert [type(use.config) for use in alarm.filter_chain] == [MatchConfig, TransformConfig]
    assert alarm.sender.config.destinations == ("hub",)


def test_keys_may_be_written_as_in_json_or_as_in_python() -> None:
    passing = {"plugin": "match"}
    (camel,) = parse_routes({"routes": [route(filterChain=[passing])]}, "x")
    (snake,) = parse_routes({"routes": [route(filter_chain=[passing])]}, "x")
    assert camel == snake


def test_an_unknown_key_is_named_with_the_nearest_right_one() -> None:
    assert "routes[0](r).filterchain: there is no such key, the nearest is 'filterChain'" in refusal(route(filterchain=[]))
    assert "[0].config.fromPaht: there is no such key, the nearest is 'fromPath'" in chain(
        {"plugin": "transform", "config": {"transformation": {}, "fromPaht": "."}}
    )
    assert "filterChain[0].match: there is no such key" in chain({"plugin": "match", "match": 1})


def test_an_unknown_plugin_is_named_with_the_nearest_we_have() -> None:
    assert "filterChain[0].plugin: 'transfrom' is not known, write 'transform' (known filters: " in chain(
        {"plugin": "transfrom"}
    )
    assert "sender.plugin: 'postgras' is not known, write 'postgres'" in refusal(route(sender={"plugin": "postgras"}))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"mode": "alow"}, "config.mode: 'alow' is not known, write 'allow' or 'deny'"),
        ({"pattern": "("}, "config.pattern: regex '(': missing )"),
        ({"pattern": {"a": 1}}, "config.pattern: pattern: it is not a text, write a regex, or set matcher: pattern"),
        ({"path": "foo.x"}, "config.path: path 'foo.x': there is no 'foo', begin it with"),
        ({"matcher": "pattern", "pattern": {1: 2}}, "config.pattern: key 1: keys are texts in JSON, put it in quotes"),
        ({"matcher": "pattern", "pattern": {"a": float("nan")}}, "JSON has no such number"),
    ],
)
def test_a_match_that_cannot_work_is_refused(config: Any, reason: str) -> None:
    assert reason in chain({"plugin": "match", "config": config})


def test_every_wrong_template_of_a_tree_is_reported() -> None:
    why = chain({"plugin": "transform", "config": {"transformation": {"a": "{paylod.x}", "b": ["{"]}, "metadata": [1]}})
    assert "a path 'paylod.x': there is no 'paylod'" in why
    assert "b[0] template '{': a lone '{'" in why
    assert "config.metadata: metadata is not a map" in why


def test_all_mistakes_of_a_file_come_at_once(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text("""
routes:
  - id: one
    receiver: {plugin: htp}
    filterChain: [{plugin: mach}, {plugin: transform, config: {transformation: {day: 2020-01-01}}}, {}]
    sender: {plugin: queue, config: {client: No Name, destinations: [], headers: {n: 1}}}
  - {id: "not an id", receiver: {plugin: http}}
  - 7
""")
    with pytest.raises(Invalid) as refused:
        load_routes(file)
    assert str(file) in refused.value.what
    for place in (
        "routes[0](one).receiver.plugin: 'htp' is not known, write 'http'",
        "routes[0](one).filterChain[0].plugin: 'mach' is not known, write 'match'",
        "routes[0](one).filterChain[1].config.transformation: value 2020-01-01: a date is not JSON, put it in quotes",
        "routes[0](one).filterChain[2].plugin: it is missing",
        "routes[0](one).sender.config.client: client 'No Name'",
        "routes[0](one).sender.config.destinations: ",
        "routes[0](one).sender.config.headers.n: ",
        "routes[1](not an id).id: ",
        "routes[1](not an id).sender: it is missing",
        "routes[2]: ",
    ):
        assert place in refused.value.why


def test_a_destination_is_a_site_all_sites_or_a_template() -> None:
    def to(*sites: str) -> dict[str, Any]:
        return route(sender={"plugin": "queue", "config": {"client": "c", "destinations": list(sites)}})

    (good,) = parse_routes({"routes": [to("hub", "*", "{payload.to}")]}, "x")
    assert good.sender.config.destinations == ("hub", "*", "{payload.to}")
    assert "sender.config.destinations[0]: site 'No Site'" in refusal(to("No Site"))


def test_two_routes_with_one_id_are_refused() -> None:
    assert "more than one route has the id r" in refusal(route(), route())


@pytest.mark.parametrize("text", ["", "routes: {}", "a: [", "routes: &r [*r]", "\0", "- 1"])
def test_a_file_that_is_no_list_of_routes_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(text)
    with pytest.raises(Invalid):
        load_routes(file)


def test_a_pattern_that_contains_itself_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text("""
routes:
  - id: loop
    receiver: {plugin: http}
    filterChain: [{plugin: match, config: {matcher: pattern, pattern: &p {again: *p}}}]
    sender: {plugin: queue, config: {client: c, destinations: [hub]}}
""")
    with pytest.raises(Invalid, match="nested deeper"):
        load_routes(file)


def test_a_missing_or_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="No such file"):
        load_routes(tmp_path / "gone.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(Invalid, match="not YAML"):
        load_routes(tmp_path / "bytes.yaml")
