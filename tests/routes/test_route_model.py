"""The whole route, as EARS has it: what is read, what is warned of, what is refused, and what routes have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trunkline.core.document import Document
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps
from trunkline.core.layers import Layers, Loose
from trunkline.routes.chain import ErrorPolicy
from trunkline.routes.filters.match import MatchConfig
from trunkline.routes.keys import HOUSE, RouteKey, Tenant
from trunkline.routes.model import ReadRoute, RouteReader, load_routes, parse_routes, read_route, read_routes
from trunkline.routes.route import DeliveryMode, notes_of
from written_routes import EARS, written

MYAPP = Tenant("myorg", "myapp")


def one(raw: Any, **reader: Any) -> ReadRoute:
    reading = read_route(raw, RouteReader(**reader))
    assert reading.mistakes == ()
    return reading.routes[0]


def said(raw: Any, **reader: Any) -> str:
    reading = read_route(raw, RouteReader(**reader))
    assert reading.routes == ()
    return "\n".join(map(str, reading.mistakes))


# -- all that EARS has


def test_every_field_of_ears_is_read() -> None:
    read = one(EARS)
    route = read.route
    assert read.key == RouteKey(MYAPP, "acct-feed-1")
    assert (route.user_id, route.region, route.inactive, route.name) == ("boris", "us-west-2", True, "accountFeed")
    assert (route.status, route.route_type, route.desc) == ("stopped", "trigger", "accounts for everybody")
    assert (route.origin, route.debug, route.created, route.modified) == ("flow-17", True, 1_700_000_000, 1_700_000_001)
    assert route.delivery_mode is DeliveryMode.AT_LEAST_ONCE
    assert [(use.plugin, use.name) for use in route.filter_chain] == [("match", "m1"), ("decode", "d1"), ("transform", "t1")]
    assert isinstance(route.filter_chain[0].config, MatchConfig)
    assert (route.receiver.config.topic, route.sender.config.topic) == ("in", "acct")


def test_what_ears_writes_for_nothing_is_nothing() -> None:
    blank = dict.fromkeys(("id", "name", "region", "routeType", "desc", "origin", "deliveryMode", "userId"), "")
    empty = written(**blank, filterChain=None, receiver={"plugin": "nop", "name": "", "config": None, "fragmentName": ""})
    assert one(empty).hash == one(written()).hash


def test_the_same_route_in_yaml_and_in_the_manner_of_python() -> None:
    yaml = """
id: r
user_id: ada
delivery_mode: fire_and_forget
receiver: {plugin: debug, config: {interval_ms: 10}}
filter_chain: [{plugin: pass, on_error: drop}]
sender: {plugin: nop}
"""
    json = written(
        userId="ada",
        deliveryMode="fire_and_forget",
        receiver={"plugin": "debug", "config": {"intervalMs": 10}},
        filterChain=[{"plugin": "pass", "onError": "drop"}],
    )
    (snake,) = read_routes(Layers(Document(yaml, "r.yaml"))).routes
    (camel,) = read_routes(Layers(Document(dumps(json).decode(), "r.json"))).routes
    assert snake.route == camel.route
    assert snake.hash == camel.hash
    assert snake.route.filter_chain[0].on_error is ErrorPolicy.DROP


@pytest.mark.parametrize(
    ("mode", "meant"),
    [
        ("at_least_once", "at_least_once"),
        ("fire_and_forget", "fire_and_forget"),
        ("effectively_once", "effectively_once"),
        ("exactly_once", "effectively_once"),
    ],
)
def test_delivery_modes(mode: str, meant: str) -> None:
    assert one(written(deliveryMode=mode)).route.delivery_mode == meant


def test_a_route_without_tenant_is_the_house_s() -> None:
    assert one(written()).key == RouteKey(HOUSE, "r")


def test_the_caller_s_tenant_counts_whatever_was_written() -> None:
    (read,) = read_route(EARS, RouteReader(), Tenant("other", "one")).routes
    assert read.key == RouteKey(Tenant("other", "one"), "acct-feed-1")
    assert read.hash != one(EARS).hash


def test_a_route_without_id_has_its_hash_as_id() -> None:
    raw = written()
    del raw["id"]
    read = one(raw)
    assert read.key.id == read.route.id == read.hash
    assert len(read.hash) == 32
    assert read.hash == one(written(id="other")).hash


# -- what is stored


def test_body_and_notes_are_what_was_written_and_read_as_the_same_route_again() -> None:
    read = one(EARS)
    assert read.configuration.body == {
        key: EARS[key] for key in ("userId", "name", "region", "inactive", "deliveryMode", "receiver", "filterChain", "sender")
    }
    assert notes_of(read.notes) == {key: EARS[key] for key in ("routeType", "desc", "origin", "debug")}
    (again,) = read_route({**read.configuration.body, **notes_of(read.notes), "id": read.key.id}, RouteReader(), MYAPP).routes
    assert (again.key, again.hash, again.configuration.body) == (read.key, read.hash, read.configuration.body)


def test_routes_that_do_the_same_share_one_configuration() -> None:
    raws = [written(id=f"r{n}", desc=f"number {n}", userId=f"u{n % 10}") for n in range(1000)]
    reading = read_routes(Loose({"routes": raws}))
    assert [read.route.desc for read in reading.routes] == [f"number {n}" for n in range(1000)]
    assert [read.key.id for read in reading.routes] == [f"r{n}" for n in range(1000)]
    assert len({id(read.configuration) for read in reading.routes}) == 10
    assert [read.route.user_id for read in reading.routes] == [f"u{n % 10}" for n in range(1000)]


@pytest.mark.parametrize("other", [True, 1.5, "1", None, [1], {"a": 1}])
def test_a_remembered_configuration_is_never_taken_for_another(other: Any) -> None:
    def holding(value: Any) -> dict[str, Any]:
        return written(receiver={"plugin": "debug", "config": {"payload": value}})

    reader = RouteReader()
    payloads = [read_route(holding(value), reader).routes[0].route.receiver.config.payload for value in (1, other, 1)]
    assert payloads == [1, other, 1]
    assert list(map(type, payloads)) == [int, type(other), int]


def test_what_is_wrong_stays_wrong_beside_what_is_remembered() -> None:
    reader = RouteReader()
    assert read_route(written(), reader).mistakes == ()
    (mistake,) = read_route(written(id="no/id", desc="x"), reader).mistakes
    assert (mistake.key, "use up to 255 letters" in mistake.reason) == ("id", True)
    assert read_route(written(userid=1), reader).mistakes != ()
    assert read_route(written(receiver={"plugin": "debug", "config": {"payload": float("nan")}}), reader).mistakes != ()


# -- warnings and mistakes


def test_unknown_keys_of_a_route_are_warnings_with_their_line() -> None:
    text = "routes:\n- id: r\n  orgId: myorg\n  receiver: {plugin: nop}\n  sender: {plugin: nop}\n  colour: red\n"
    reading = read_routes(Layers(Document(text, "r.yaml")))
    assert [read.key.id for read in reading.routes] == ["r"]
    assert reading.mistakes == ()
    first, second = sorted(map(str, reading.warnings), reverse=True)
    assert second.startswith("r.yaml:3: routes[0](r).orgId: there is no such key, the nearest is ")
    assert first.startswith("r.yaml:6: routes[0](r).colour: there is no such key")


def test_what_has_no_effect_is_a_warning_with_its_place() -> None:
    kafka = {"brokers": "h:1", "topic": "t", "dynamicMetricLabel": [{"label": "a", "path": "payload.a"}]}
    reading = read_route(
        written(
            debug=True,
            receiver={"plugin": "debug", "config": {"tracePayloadOnNack": True}},
            sender={"plugin": "kafka", "config": kafka},
        ),
        RouteReader(),
    )
    assert reading.mistakes == ()
    where = ["debug", "receiver.config.tracePayloadOnNack", "sender.config.dynamicMetricLabel"]
    assert [(one.key, one.reason) for one in reading.warnings] == [(key, "it has no effect") for key in where]
    idle = {"debug": False, "receiver": {"plugin": "debug", "config": {"tracePayloadOnNack": False}}}
    assert read_route(written(**idle), RouteReader()).warnings == ()


def test_a_delivery_mode_that_nobody_knows_is_a_warning_and_one_that_is_nearly_right_a_mistake() -> None:
    reading = read_route(written(deliveryMode="whoCares"), RouteReader())
    assert reading.mistakes == ()
    assert [str(one) for one in reading.warnings] == [
        "deliveryMode: there is no such mode as 'whoCares'; it is taken as at_least_once "
        "(known: at_least_once, fire_and_forget, effectively_once)"
    ]
    assert reading.routes[0].hash == read_route(written(), RouteReader()).routes[0].hash
    for mode in ("efectively_once", "exactly-once", "FIRE_AND_FORGET", 7):
        assert "deliveryMode: " in said(written(deliveryMode=mode))


@pytest.mark.parametrize("key", ["filterchain", "FilterChain", "filter-chain", "userid", "deliverymode"])
def test_a_key_that_differs_only_in_its_case_is_a_mistake(key: str) -> None:
    assert f"{key}: there is no such key, the nearest is" in said(written(**{key: []}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": "a/b"}, "id: id 'a/b': it cannot be a name, use up to 255 letters, digits and _ - ."),
        ({"id": "-a"}, "id: id '-a'"),
        ({"id": 7}, "id: a text is wanted, found 7"),
        ({"name": "simple/route"}, "name: name 'simple/route': it cannot be a name"),
        ({"tenant": {"orgId": "a.b", "appId": "c"}}, "tenant.orgId: name 'a.b': it cannot be a name"),
        ({"tenant": {"orgId": "", "appId": "c"}}, "tenant.orgId: name ''"),
        (
            {"deliveryMode": "at_most_once"},
            "deliveryMode: 'at_most_once' is not known, write 'at_least_once', 'fire_and_forget' or",
        ),
        ({"inactive": "maybe"}, "inactive: true or false is wanted, found 'maybe'"),
        ({"receiver": None}, "receiver: it is empty"),
        ({"receiver": {"plugin": "nop", "name": "a b"}}, "receiver.name: name 'a b'"),
        ({"receiver": {"plugin": "nop", "onError": "drop"}}, "receiver.onError: there is no such key"),
        ({"receiver": {"plugin": 5}}, "receiver.plugin: a text is wanted, found 5"),
        (
            {"receiver": {"plugin": "debug", "config": {"round": 1}}},
            "receiver.config.round: there is no such key, the nearest is 'rounds'",
        ),
        ({"receiver": {"plugin": "nop", "config": 5}}, "receiver.config: a section is wanted, found 5"),
        ({"filterChain": {}}, "filterChain: a list is wanted, found a map"),
        (
            {"filterChain": [{"plugin": "pass", "onError": "retry"}]},
            "filterChain[0].onError: 'retry' is not known, write 'drop', 'dead_letter' or 'fail'",
        ),
        ({"sender": {"plugin": "http"}}, "sender.config.url: it is missing"),
        ({"sender": {"plugin": "http", "config": {"url": "{"}}}, "sender.config.url: "),
        (
            {"sender": {"plugin": "kafka", "config": {"topic": "t", "senderPoolSize": 101}}},
            "senderPoolSize: it must be at least 1",
        ),
        ({"sender": {}}, "sender.plugin: it is missing (write plugin: and one of debug, files, http,"),
    ],
)
def test_a_mistake_says_where_and_what_is_right(changes: dict[str, Any], reason: str) -> None:
    assert reason in said(written(**changes))


@pytest.mark.parametrize("raw", [None, 7, "route", [], [written()]])
def test_what_is_no_map_is_no_route(raw: Any) -> None:
    assert "a section is wanted" in said(raw) or "it is empty" in said(raw)


@pytest.mark.parametrize("missing", ["receiver", "sender"])
def test_receiver_and_sender_are_needed(missing: str) -> None:
    raw = written()
    del raw[missing]
    assert f"{missing}: it is missing" in said(raw)


def test_an_author_is_needed_only_where_it_is_asked_for() -> None:
    assert one(written()).route.user_id == ""
    assert "userId: it is missing (write userId: who is responsible for this route)" in said(written(), user_required=True)
    assert one(written(userId="ada"), user_required=True).route.user_id == "ada"


def test_a_mistake_shows_no_secret() -> None:
    kafka = {"plugin": "kafka", "config": {"topic": "t", "password": ["hunter2"], "accessKey": 4711}}
    text = said(written(receiver=kafka))
    assert "receiver.config.password: a text is wanted" in text
    assert "receiver.config.accessKey: a text is wanted" in text
    assert "hunter2" not in text
    assert "4711" not in text


def test_a_route_shows_no_secret() -> None:
    kafka = {"plugin": "kafka", "config": {"topic": "t", "password": "hunter2"}}
    assert "hunter2" not in repr(one(written(receiver=kafka)).route)


# -- fragments


def test_a_fragment_gives_plugin_and_configuration_later() -> None:
    route = one(written(sender={"fragmentName": "out"}, filterChain=[{"plugin": "match", "fragmentName": "alarms"}])).route
    assert (route.sender.plugin, route.sender.config, route.sender.fragment_name) == ("", None, "out")
    assert (route.filter_chain[0].plugin, route.filter_chain[0].config) == ("match", None)


def test_a_filled_in_fragment_is_checked_like_any_plugin() -> None:
    sender = {"plugin": "http", "fragmentName": "out", "config": {"method": "FETCH"}}
    text = said(written(sender=sender))
    assert "sender.config.method: 'FETCH' is not known" in text
    assert "sender.config.url: it is missing" in text


# -- files


def test_a_file_may_hold_one_route_or_a_list() -> None:
    assert [route.id for route in parse_routes(written(), "x")] == ["r"]
    assert [route.id for route in parse_routes([written(id="a"), written(id="b")], "x")] == ["a", "b"]
    with pytest.raises(Invalid, match="more: there is no such key beside routes"):
        parse_routes({"routes": [], "more": 1}, "x")
    with pytest.raises(Invalid, match="there are no routes in it"):
        parse_routes({"colour": "red"}, "x")


def test_two_tenants_may_have_one_id() -> None:
    other = written(tenant={"orgId": "a", "appId": "b"})
    assert len(parse_routes({"routes": [written(), other]}, "x")) == 2
    with pytest.raises(Invalid, match="more than one route has the id r"):
        parse_routes({"routes": [other, other]}, "x")


def test_a_large_json_file_is_read_all_the_same(tmp_path: Path) -> None:
    file, long = tmp_path / "routes.json", "x" * 9_000
    file.write_bytes(dumps({"routes": [written(id=f"r{n}", desc=long) for n in range(500)]}))
    assert [route.id for route in load_routes(file)] == [f"r{n}" for n in range(500)]
    file.write_bytes(dumps({"routes": [written(id="not an id", desc=long)] * 500}))
    with pytest.raises(Invalid, match=r"routes\[499\]\(not an id\).id: id 'not an id'"):
        load_routes(file)
    file.write_bytes(b"{" * 5_000_000)
    with pytest.raises(Invalid, match="not JSON"):
        load_routes(file)


def test_aliases_cannot_make_a_short_file_endless(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    file = tmp_path / "bomb.yaml"
    file.write_text("\n".join([*lines, "routes: *a11"]))
    with pytest.raises(Invalid, match="it has more than"):
        load_routes(file)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (
            {"plugin": "match", "config": {"exactArrayMatching": True}},
            "config.exactArrayMatching: there is no such key, the nearest is",
        ),
        ({"plugin": "match", "config": {"comparisonTree": {"childNodes": [{"logick": 1}]}}}, "the nearest is 'logic'"),
        ({"plugin": "pass", "config": {"a": 1}}, "config.a: there is no such key, nothing can be set here"),
    ],
)
def test_unknown_keys_of_models_that_hold_themselves_or_nothing(use: dict[str, Any], reason: str) -> None:
    assert reason in said(written(filterChain=[use]))
