"""A compiled route: what the demo's route makes of an alarm, and what a sender refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trunkline.core.bundle import Mode, Version, parse_bundle
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads
from trunkline.routes.compile import CompiledRoute, compile_route
from trunkline.routes.event import Event
from trunkline.routes.model import load_routes, parse_routes

ALARM = {"kind": "alarm", "id": "a-1", "subject": "pump 4", "severity": "high", "at": "2031-05-01T12:00:00Z"}


@pytest.fixture
def alarm_route() -> CompiledRoute:
    (route,) = load_routes(Path(__file__).parent / "alarm.yaml")
    return compile_route(route, {"site": "leaf-1"})


def compiled(config: dict[str, Any], *filters: Any, **constants: str) -> CompiledRoute:
    sender = {"plugin": "queue", "config": {"client": "status", "destinations": ["hub"], **config}}
    raw = {"id": "r", "receiver": {"plugin": "http"}, "filterChain": list(filters), "sender": sender}
    (route,) = parse_routes({"routes": [raw]}, "test")
    return compile_route(route, constants)


def test_an_alarm_becomes_a_bundle_for_the_hub(alarm_route: CompiledRoute) -> None:
    (out,) = alarm_route.run([Event(payload={**ALARM, "more": "not carried"})])
    assert (out.route_id, out.client, out.destinations) == ("alarm-to-hub", "status", ("hub",))
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
