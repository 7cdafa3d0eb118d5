"""A route says the name of a fragment and gets its plugin, all of it, or hears what is wrong."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from trunkline.core.errors import Invalid
from trunkline.routes.fragments import fragment_names, inflate

SENDER = {"plugin": "debug", "name": "debugSender", "config": {"destination": "devnull", "maxHistory": 100}}
SPLIT = {"plugin": "split", "config": {"path": ".items"}}
BARE = {"plugin": "pass"}
FRAGMENTS: dict[str, dict[str, Any]] = {"debugSender": SENDER, "items": SPLIT, "bare": BARE, "nothing": {"config": {}}}
PLUGINS = {"receiver": ["debug", "http"], "filter": ["split", "pass"], "sender": ["debug", "queue"]}


def route(sender: Any, *chain: Any) -> dict[str, Any]:
    return {"id": "r1", "receiver": {"plugin": "http"}, "filterChain": list(chain), "sender": sender}


def refusal(body: dict[str, Any]) -> str:
    with pytest.raises(Invalid) as caught:
        inflate(body, FRAGMENTS, PLUGINS)
    return str(caught.value)


def test_s15_a_route_that_names_a_fragment_is_stored_with_what_the_fragment_holds() -> None:
    inflated = inflate(route({"fragmentName": "debugSender"}), FRAGMENTS, PLUGINS)
    assert inflated.body == route(SENDER)
    assert inflated.used == {"sender": "debugSender"}


def test_s15_a_fragment_that_is_not_there_is_refused_by_its_name() -> None:
    said = refusal(route({"fragmentName": "debugSendr"}))
    assert "sender: there is no fragment debugSendr, the nearest is debugSender" in said
    with pytest.raises(Invalid, match="there is no fragment debugSender"):
        inflate(route({"fragmentName": "debugSender"}), {})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (route({"plugin": "queue", "fragmentName": "debugSender"}), "sender: the fragment debugSender is a debug, not a queue"),
        (route({"fragmentName": "items"}), "sender: the fragment items is a filter (split), not a sender"),
        (
            route(SENDER, {"fragmentName": "debugSender"}),
            "filterChain[0]: the fragment debugSender is a receiver or sender (debug), not a filter",
        ),
        (route({"fragmentName": "nothing"}), "sender: the fragment nothing names no plugin"),
        (route({"fragmentName": 5}), "sender: fragmentName is not a text"),
    ],
)
def test_s15_a_fragment_of_another_kind_is_refused(body: dict[str, Any], said: str) -> None:
    assert said in refusal(body)


def test_s15_the_name_in_the_route_goes_before_the_fragments() -> None:
    sender = inflate(route({"fragmentName": "debugSender", "name": "mine"}), FRAGMENTS).body["sender"]
    assert sender == {**SENDER, "name": "mine"}


def test_nothing_else_of_the_route_is_mixed_into_the_configuration() -> None:
    sender = {"plugin": "debug", "fragmentName": "debugSender", "config": {"destination": "stdout", "more": 1}}
    assert inflate(route(sender), FRAGMENTS).body["sender"] == SENDER
    without = {"fragmentName": "bare", "config": {"left": "over"}}
    assert inflate(route(SENDER, without), FRAGMENTS).body["filterChain"] == [BARE]


def test_what_becomes_of_faults_is_said_by_the_place() -> None:
    inflated = inflate(route(SENDER, BARE, {"fragmentName": "items", "onError": "drop"}), FRAGMENTS)
    assert inflated.body["filterChain"] == [BARE, {**SPLIT, "onError": "drop"}]
    assert inflated.used == {"filterChain[1]": "items"}


def test_all_that_is_wrong_is_said_at_once() -> None:
    said = refusal(route({"fragmentName": "x"}, {"fragmentName": "y"}))
    assert "sender: there is no fragment x" in said
    assert "filterChain[0]: there is no fragment y" in said


def test_keys_may_be_written_as_in_python() -> None:
    body = {"filter_chain": [{"fragment_name": "items"}], "sender": SENDER}
    assert fragment_names(body) == {"items"}
    assert inflate(body, FRAGMENTS).body == {"filter_chain": [SPLIT], "sender": SENDER}


def test_the_route_and_the_fragments_stay_as_they_were() -> None:
    body = route({"fragmentName": "debugSender", "name": "mine"}, {"fragmentName": "items"})
    before = copy.deepcopy((body, FRAGMENTS))
    inflate(body, FRAGMENTS)
    assert (body, FRAGMENTS) == before
    assert fragment_names(body) == {"debugSender", "items"}


@pytest.mark.parametrize("body", [{}, {"filterChain": None}, {"receiver": "http", "filterChain": ["split"], "sender": 1}])
def test_what_is_no_route_is_left_to_whoever_checks_routes(body: dict[str, Any]) -> None:
    assert inflate(body, FRAGMENTS) == (body, {})
