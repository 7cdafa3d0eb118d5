"""Equal hashes mean equal behaviour (K1 to K3): ids that share one share a live route."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trunkline.routes.canonical import content_hash, plain
from trunkline.routes.keys import Tenant
from trunkline.routes.model import RouteReader, read_route
from trunkline.routes.registry import OURS
from trunkline.routes.route import PluginUse, plugin_hash
from written_routes import EARS, written

READER = RouteReader()


def hash_of(raw: dict[str, Any]) -> str:
    reading = read_route(raw, READER)
    assert reading.mistakes == ()
    return reading.routes[0].hash


# -- the form

# The signs of the form itself, so that texts can try to look like it.
texts = st.text(alphabet="smlidntf0123:-", max_size=6)
numbers = st.integers(-3, 3) | st.sampled_from([0.5, -0.0, 1.0, 2.0, 2**53, float(2**53), 2**53 + 1, 10**30, 1e30])
values = st.recursive(
    texts | numbers | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    """JSON's equality, written plainly: numbers by value, booleans are no numbers."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


@given(values, values)
def test_k1_k2_hashes_are_equal_exactly_for_equal_values(a: Any, b: Any) -> None:
    assert (content_hash(a) == content_hash(b)) is same(a, b)


@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4))
def test_k2_no_text_can_forge_a_separator(a: list[str], b: list[str]) -> None:
    assert (content_hash(a) == content_hash(b)) is (a == b)
    assert content_hash(a) != content_hash("".join(a))


@given(values, st.randoms(use_true_random=False))
def test_k1_the_order_of_keys_does_not_matter(value: Any, random: Any) -> None:
    def shuffled(inner: Any) -> Any:
        if isinstance(inner, list):
            return list(map(shuffled, inner))
        if not isinstance(inner, dict):
            return inner
        keys = list(inner)
        random.shuffle(keys)
        return {key: shuffled(inner[key]) for key in keys}

    assert content_hash(shuffled(value)) == content_hash(value)


def test_a_hash_has_128_bits_and_stays_what_it_is() -> None:
    """Stored routes carry it: another form needs another person text, and a migration."""
    assert content_hash({"a": [1, 2.5, None, True, "ü"]}) == "ec4c971252df8bdd9fdc7dae35f4efad"


# -- routes

TENANTS = (("ab", "c"), ("a", "bc"), ("trunkline", "trunkline"))
DEFAULTS = {"userId": "", "name": "", "region": "", "inactive": False, "deliveryMode": "at_least_once", "filterChain": []}
uses = st.fixed_dictionaries(
    {"plugin": st.sampled_from(["pass", "block", "split"])},
    optional={"name": st.sampled_from(["", "a", "b"]), "onError": st.sampled_from(["drop", "fail", "dead_letter"])},
)
ends = st.fixed_dictionaries(
    {"plugin": st.sampled_from(["nop", "debug"])}, optional={"name": st.sampled_from(["", "a"]), "config": st.just({})}
)
routes = st.fixed_dictionaries(
    {"receiver": ends, "sender": ends},
    optional={
        "tenant": st.sampled_from(
            [{"orgId": o, "appId": a} for o, a in (("ab", "c"), ("a", "bc"), ("trunkline", "trunkline"))]
        ),
        "userId": st.sampled_from(["", "a", "ab"]),
        "name": st.sampled_from(["", "a", "ab"]),
        "region": st.sampled_from(["", "a", "b"]),
        "inactive": st.booleans(),
        "deliveryMode": st.sampled_from(["", "at_least_once", "exactly_once", "effectively_once", "fire_and_forget"]),
        "filterChain": st.lists(uses, max_size=3),
        "desc": texts,
        "id": st.sampled_from(["x", "y"]),
    },
)
_MEANT = {"": "at_least_once", "exactly_once": "effectively_once"}


def meaning(raw: dict[str, Any]) -> Any:
    """What a route of the family does, with all its defaults written out by hand."""
    full = {"tenant": {"orgId": "trunkline", "appId": "trunkline"}, **DEFAULTS, **raw}
    full["deliveryMode"] = _MEANT.get(full["deliveryMode"], full["deliveryMode"])
    full["filterChain"] = [{"name": "", "onError": "dead_letter", **use} for use in full["filterChain"]]
    for end in ("receiver", "sender"):
        full[end] = {"name": "", "config": {}, **full[end]}
    return {key: value for key, value in full.items() if key not in ("desc", "id")}


@given(routes, routes)
def test_no_two_different_routes_of_a_family_collide_and_equal_ones_meet(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert (hash_of(a) == hash_of(b)) is (meaning(a) == meaning(b))


@given(routes)
def test_k3_defaults_written_or_left_out_hash_alike(raw: dict[str, Any]) -> None:
    assert hash_of(raw) == hash_of(meaning(raw))


def needs_nothing(plugin: Any) -> bool:
    try:
        return plugin.config() is not None
    except ValidationError:
        return False


@pytest.mark.parametrize(
    "plugin", list(filter(needs_nothing, OURS)), ids=lambda plugin: f"{type(plugin).__name__} {plugin.name}"
)
def test_k3_a_plugin_s_defaults_written_or_left_out_hash_alike(plugin: Any) -> None:
    bare = plugin.config.model_validate({})
    written_out = {key: value for key, value in plain(bare).items() if value is not None}
    assert content_hash(plugin.config.model_validate(written_out)) == content_hash(bare)


@pytest.mark.parametrize(
    "change",
    [
        {"userId": "ada"},
        {"name": "other"},
        {"region": ""},
        {"inactive": False},
        {"deliveryMode": "fire_and_forget"},
        {"tenant": {"orgId": "myorg", "appId": "other"}},
        {"filterChain": EARS["filterChain"][:2]},
        {"filterChain": EARS["filterChain"][::-1]},
        {"filterChain": [{**use, "onError": "drop"} for use in EARS["filterChain"]]},
        {"filterChain": [{**use, "name": "n"} for use in EARS["filterChain"]]},
        {"sender": {**EARS["sender"], "name": "other"}},
        {"sender": {**EARS["sender"], "config": {**EARS["sender"]["config"], "partition": 3}}},
        {"receiver": {**EARS["receiver"], "config": {**EARS["receiver"]["config"], "password": "secret://acct.other"}}},
        {"receiver": {**EARS["receiver"], "config": {**EARS["receiver"]["config"], "password": "hunter2"}}},
    ],
)
def test_all_that_changes_behaviour_changes_the_hash(change: dict[str, Any]) -> None:
    assert hash_of({**EARS, **change}) != hash_of(EARS)


@pytest.mark.parametrize("key", ["id", "desc", "origin", "routeType", "debug", "status", "created", "modified"])
def test_what_is_only_said_about_a_route_does_not(key: str) -> None:
    assert hash_of({k: v for k, v in EARS.items() if k != key}) == hash_of(EARS)


def test_two_literal_secrets_are_two_configurations() -> None:
    def kafka(password: str) -> dict[str, Any]:
        return written(receiver={"plugin": "kafka", "config": {"topic": "t", "password": password}})

    assert hash_of(kafka("one")) != hash_of(kafka("two"))


def test_where_a_filled_in_fragment_came_from_does_not_matter() -> None:
    assert hash_of(written(sender={"plugin": "nop", "fragmentName": "out", "config": {}})) == hash_of(written())


def test_plugins_are_told_apart_by_tenant_kind_type_name_and_configuration() -> None:
    use, tenant = PluginUse(plugin="nop", name="n", config={}), Tenant("a", "b")
    changes: tuple[dict[str, Any], ...] = ({"plugin": "debug"}, {"name": "m"}, {"config": {"a": 1}})
    others = [plugin_hash(tenant, "sender", use.model_copy(update=change)) for change in changes]
    others += [plugin_hash(Tenant("a", "c"), "sender", use), plugin_hash(tenant, "receiver", use)]
    assert len({plugin_hash(tenant, "sender", use), *others}) == 6
    assert plugin_hash(tenant, "sender", use.model_copy(update={"fragment_name": "f"})) == plugin_hash(tenant, "sender", use)
