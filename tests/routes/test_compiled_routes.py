"""A compiled route: what the demo's route makes of an alarm, and what a sender refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trunkline.core.bundle import Mode, Version, parse_bundle
from trunkline.core.document import Document
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads
from trunkline.core.layers import Layers
from trunkline.routes.chain import ErrorPolicy
from trunkline.routes.compile import CompiledRoute, compile_route, compile_written
from trunkline.routes.event import Event
from trunkline.routes.model import load_routes, parse_routes, read_routes
from trunkline.routes.plugin import Around
from written_routes import written

ALARM = {"kind": "alarm", "id": "a-1", "subject": "pump 4", "severity": "high", "at": "2031-05-01T12:00:00Z"}


@pytest.fixture
def alarm_route() -> CompiledRoute:
    (route,) = load_routes(Path(__file__).parent / "alarm.yaml")
    return compile_route(route, Around({"site": "leaf-1"}))


def compiled(config: dict[str, Any], *filters: Any, **constants: str) -> CompiledRoute:
    sender = {"plugin": "queue", "config": {"client": "status", "destinations": ["hub"], **config}}
    raw = {"id": "r", "receiver": {"plugin": "http"}, "filterChain": list(filters), "sender": sender}
    (route,) = parse_routes({"routes": [raw]}, "test")
    return compile_route(route, Around(constants))


def test_an_alarm_becomes_a_bundle_for_the_hub(alarm_route: CompiledRoute) -> None:
    (out,) = alarm_route.run([Event(payload={**ALARM, "more": "not carried"})])
    assert (out.client, out.destinations) == ("status", ("hub",))
    assert loads(out.payload) == [ALARM]
    bundle = parse_bundle(out.headers, out.payload, sender="leaf-1")
    assert (bundle.id, bundle.type, bundle.time) == ("a-1", "events", "2031-05-01T12:00:00Z")
    assert (bundle.mode, bundle.version) == (Mode.APPEND, Version(0, 0))
    assert out.headers["ce_specversion"] == "1.0"


def test_what_is_no_alarm_is_not_taken(alarm_route: CompiledRoute) -> None:
    assert alarm_route.run([Event(payload=p) for p in ({**ALARM, "kind": "note"}, {}, [], None, "alarm", 5)]) == []


def test_a_batch_keeps_its_order(alarm_route: CompiledRoute) -> None:
    out = alarm_route.run([Event(payload={**ALARM, "id": str(n)}) for n in range(20)])
    assert [o.headers["ce_id"] for o in out] == [str(n) for n in range(20)]


def test_the_sender_sees_the_event_as_it_entered() -> None:
    away = {"plugin": "transform", "config": {"transformation": {}, "metadata": {}}}
    config = {"destinations": ["{payload.to}"], "headers": {"id": "{payload.id}", "from": "{metadata.from}"}}
    (out,) = compiled(config, away).run([Event(payload={"id": 7, "to": "b"}, metadata={"from": "api"})])
    assert out.payload == b"{}"
    assert out.headers == {"id": "7", "from": "api"}
    assert out.destinations == ("b",)


def test_destinations_may_come_from_the_event_each_once() -> None:
    route = compiled({"destinations": ["hub", "{payload.to}", "{site}-backup"]}, site="a")
    (out,) = route.run([Event(payload={"to": ["b", "hub", "b"]})])
    assert out.destinations == ("hub", "b", "a-backup")


@pytest.mark.parametrize("to", [None, 5, "No Name", [], [None], {"b": 1}])
def test_an_event_without_a_site_to_go_to_is_refused(to: Any) -> None:
    with pytest.raises(Invalid):
        compiled({"destinations": ["{payload.to}"]}).run([Event(payload={"to": to})])


@pytest.mark.parametrize("payload", [{}, {"id": None}, {"id": "a\0b"}])
def test_an_event_without_a_headers_value_is_refused(payload: Any) -> None:
    with pytest.raises(Invalid, match="header ce_id"):
        compiled({"headers": {"ce_id": "{payload.id}"}}).run([Event(payload=payload)])


def test_constants_nobody_gave_are_refused_all_at_once() -> None:
    transform = {"plugin": "transform", "config": {"transformation": {"a": ["{sight}"]}}}
    with pytest.raises(Invalid) as refused:
        compiled({"headers": {"h": "x{nobody}"}}, transform, site="leaf")
    assert "filterChain[0].transformation.a[0]: path 'sight': there is no 'sight'" in refused.value.why
    assert "begin it with 'site'" in refused.value.why
    assert "sender.headers.h: path 'nobody'" in refused.value.why


def test_steps_are_called_by_their_place_plugin_and_name_and_have_their_policy() -> None:
    chain = [{"plugin": "pass"}, {"plugin": "match", "name": "m1", "onError": "fail"}, {"plugin": "block", "onError": "drop"}]
    (route,) = parse_routes(written(filterChain=chain), "x")
    steps = compile_route(route).chain.steps
    assert [step.name for step in steps] == ["filterChain[0] pass", "filterChain[1] match (m1)", "filterChain[2] block"]
    assert [step.on_error for step in steps] == [ErrorPolicy.DEAD_LETTER, ErrorPolicy.FAIL, ErrorPolicy.DROP]


def test_a_sender_without_a_form_of_its_own_gets_the_event() -> None:
    (route,) = parse_routes(written(), "x")
    batch = [Event(payload=1), Event(payload=2)]
    assert compile_route(route).run(batch) == batch


def test_a_fragment_that_nobody_filled_in_is_refused() -> None:
    (route,) = parse_routes(written(sender={"fragmentName": "out"}), "x")
    with pytest.raises(Invalid, match=r"sender.fragmentName: fragment out is not filled in"):
        compile_route(route)


def test_a_configuration_that_was_never_read_is_refused() -> None:
    (route,) = parse_routes(written(), "x")
    with pytest.raises(Invalid, match=r"receiver.config: it was not read for the receiver nop"):
        compile_route(route.model_copy(update={"receiver": route.receiver.model_copy(update={"config": {"a": 1}})}))


def test_what_is_found_while_compiling_says_its_line() -> None:
    text = """
routes:
- id: r
  receiver: {plugin: nop}
  filterChain:
  - plugin: pass
  - plugin: transform
    config: {transformation: "{sight}"}
  sender:
    plugin: http
    config: {url: "http://{host}/"}
"""
    written_text = Layers(Document(text, "r.yaml"))
    (one,) = read_routes(written_text).routes
    route, mistakes = compile_written(one, written_text, Around({"site": "a"}))
    assert route is None
    first, second = map(str, mistakes)
    assert first.startswith("r.yaml:8: routes[0](r).filterChain[1].transformation: path 'sight': there is no 'sight'")
    assert second.startswith("r.yaml:11: routes[0](r).sender.url: path 'host': there is no 'host'")
    right, none = compile_written(one, written_text, Around({"sight": "a", "host": "b"}))
    assert right is not None
    assert none == []


def test_where_nobody_keeps_dead_letters_what_a_filter_cannot_process_is_refused() -> None:
    def splitting(policy: dict[str, str]) -> CompiledRoute:
        return compiled({}, {"plugin": "split", "config": {"path": ".items"}, **policy})

    good, bad = Event({"items": [1, 2]}), Event({"items": 7})
    assert [loads(out.payload) for out in splitting({}).run([good])] == [1, 2]
    for policy in ({}, {"onError": "dead_letter"}, {"onError": "fail"}):
        with pytest.raises(Invalid, match=r"route r: filterChain\[0\] split: .*items"):
            splitting(policy).run([good, bad])
    assert [loads(out.payload) for out in splitting({"onError": "drop"}).run([good, bad])] == [1, 2]
