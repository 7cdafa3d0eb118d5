"""A plugin gets what its references mean to its tenant; nobody else gets to see it."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from typing import Any

import pytest
from pydantic import BaseModel, Field

from trunkline.core.errors import Invalid
from trunkline.core.secret import ConnectionString, Secret
from trunkline.routes.fields import RouteModel
from trunkline.routes.keys import Tenant
from trunkline.routes.redaction import filled, redacted, redacted_plugin
from trunkline.routes.registry import Kind, registry
from trunkline.routes.secrets import TenantSecrets, Text, scrubbed

HIDDEN = "hunter2"
MINE, OTHER = Tenant("myorg", "myapp"), Tenant("other", "myapp")
SECTIONS = {
    "myorg": {
        "myapp": {"kafka.password": Secret(HIDDEN), "db": Secret(f"dbname=x password={HIDDEN}"), "host": Secret("k1:9092")}
    },
    "other": {"myapp": {"theirs": Secret("xyzzy")}},
    "all": {"all": {"kafka.password": Secret("plugh"), "shared": Secret("swordfish")}},
}


class LoginConfig(RouteModel):
    user_name: str = ""
    password: Secret | None = None


class KafkaConfig(RouteModel):
    brokers: Text = Text.plain("localhost:9092")
    topic: str = "t"
    login: LoginConfig = LoginConfig()
    others: tuple[LoginConfig, ...] = ()
    client_settings: dict[str, Secret] = Field(default_factory=dict)
    database: ConnectionString | None = None
    per_site: dict[str, LoginConfig] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    pattern: Any = None


def config(**written: Any) -> KafkaConfig:
    return KafkaConfig.model_validate(written)


def resolved(tenant: Tenant = MINE, **written: Any) -> KafkaConfig:
    return TenantSecrets(tenant, SECTIONS).resolved(config(**written))


def refusal(tenant: Tenant = MINE, **written: Any) -> str:
    with pytest.raises(Invalid) as caught:
        resolved(tenant, **written)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert not any(text in shown for text in (HIDDEN, "xyzzy", "swordfish", "plugh"))
    return str(caught.value)


def revealed(secret: Secret | None) -> str:
    assert secret is not None
    return secret.reveal()


def test_a_reference_is_followed_wherever_a_field_takes_a_secret() -> None:
    built = resolved(
        brokers="secret://host",
        login={"password": "secret://kafka.password"},
        others=[{"password": "secret://kafka.password"}, {"password": "plain"}],
        clientSettings={"sasl.password": "secret://shared"},
        database="secret://db",
    )
    assert built.brokers.reveal() == "k1:9092"
    assert revealed(built.login.password) == HIDDEN
    assert [revealed(login.password) for login in built.others] == [HIDDEN, "plain"]
    assert built.client_settings["sasl.password"].reveal() == "swordfish"
    assert revealed(built.database) == f"dbname=x password={HIDDEN}"


def test_the_tenants_own_goes_before_that_of_all() -> None:
    assert revealed(resolved(MINE, login={"password": "secret://kafka.password"}).login.password) == HIDDEN
    assert revealed(resolved(OTHER, login={"password": "secret://kafka.password"}).login.password) == "plugh"


def test_a_configuration_without_references_is_used_as_it_is() -> None:
    written = config(login={"password": "plain"}, brokers="k1:9092")
    assert TenantSecrets(MINE, SECTIONS).resolved(written) is written


def test_the_configuration_that_is_stored_keeps_its_reference() -> None:
    written = config(login={"password": "secret://kafka.password"})
    TenantSecrets(MINE, SECTIONS).resolved(written)
    assert written.login.password is not None
    assert not written.login.password.known
    assert written.model_dump(mode="json")["login"]["password"] == "secret://kafka.password"


def test_a_secret_that_is_missing_is_named_by_its_key() -> None:
    said = refusal(login={"password": "secret://kafka.pasword"}, brokers="secret://gone")
    assert "login.password: there is no secret kafka.pasword for myorg/myapp, nor for all tenants" in said
    assert "brokers: there is no secret gone" in said
    assert "route_secrets.myorg.myapp" in said


def test_no_tenant_gets_anothers_secret() -> None:
    assert "there is no secret theirs for myorg/myapp" in refusal(MINE, brokers="secret://theirs")
    assert "is not a key" in refusal(MINE, brokers="secret://../other/myapp/theirs")
    assert "there is no secret other.myapp.theirs" in refusal(MINE, brokers="secret://other.myapp.theirs")


@pytest.mark.parametrize("reference", ["secret://env/HOME", "secret://file/etc/passwd", "secret://", "secret://a..b"])
def test_a_route_reaches_nothing_of_the_process(reference: str) -> None:
    assert f"brokers: {reference} is not a key" in refusal(brokers=reference)


def test_a_field_that_takes_no_secret_refuses_a_reference() -> None:
    assert "topic: this field takes no secret" in refusal(topic="secret://kafka.password")


def test_a_secret_that_does_not_fit_is_refused_without_being_shown() -> None:
    assert "database: what secret://kafka.password holds cannot be used" in refusal(database="secret://kafka.password")


def test_a_resolved_configuration_prints_the_reference() -> None:
    built = resolved(
        login={"password": "secret://kafka.password"}, clientSettings={"a": "secret://kafka.password", "b": HIDDEN}
    )
    printed = [repr(built), str(built), built.model_dump_json(), repr(built.model_dump()), f"{built.login}", repr(vars(built))]
    printed += [repr(copy.deepcopy(built)), repr(pickle.loads(pickle.dumps(built))), repr(TenantSecrets(MINE, SECTIONS))]
    assert not any(HIDDEN in text for text in printed)
    assert all("secret://kafka.password" in text for text in printed[:-1])


def test_what_a_library_says_is_scrubbed() -> None:
    built = resolved(brokers="secret://host", login={"password": "secret://kafka.password"})
    said = scrubbed(f"cannot connect to k1:9092 as me with {HIDDEN}!", built)
    assert said == "cannot connect to secret://host as me with secret://kafka.password!"
    nothing = built.model_copy(update={"brokers": Text.plain("")})
    assert scrubbed("it is as it was", nothing) == "it is as it was"


MODELS = {("sender", "kafka"): KafkaConfig}


def model_of(kind: str, plugin: str) -> type[RouteModel] | None:
    return MODELS.get((kind, plugin))


def sent(**written: Any) -> dict[str, Any]:
    return {"id": "r", "receiver": {"plugin": "http"}, "filterChain": [], "sender": {"plugin": "kafka", "config": written}}


def shown(**written: Any) -> dict[str, Any]:
    route = sent(**written)
    before = copy.deepcopy(route)
    out = redacted(route, model_of)
    assert route == before
    assert HIDDEN not in json.dumps(out)
    return dict(out["sender"]["config"])


@pytest.mark.parametrize(
    ("written", "out"),
    [
        ({"topic": "a", "brokers": "k1:9092"}, {"topic": "a", "brokers": "k1:9092"}),
        ({"login": {"userName": "me", "password": HIDDEN}}, {"login": {"userName": "me", "password": "***"}}),
        (
            {"login": {"user_name": "me", "password": "secret://a.b"}},
            {"login": {"user_name": "me", "password": "secret://a.b"}},
        ),
        ({"others": [{"password": HIDDEN}, {}]}, {"others": [{"password": "***"}, {}]}),
        ({"perSite": {"a": {"userName": "me", "password": HIDDEN}}}, {"perSite": {"a": {"userName": "me", "password": "***"}}}),
        ({"clientSettings": {"k": HIDDEN, "l": "secret://x"}}, {"clientSettings": {"k": "***", "l": "secret://x"}}),
        ({"client_settings": {"k": 12345, "l": True}}, {"client_settings": {"k": "***", "l": True}}),
        ({"database": f"dbname=x password={HIDDEN}"}, {"database": "dbname=x password=***"}),
        ({"login": {"pasword": HIDDEN}, "unheardOf": [HIDDEN]}, {"login": {"pasword": "***"}, "unheardOf": ["***"]}),
        ({"topic": f"redis://me:{HIDDEN}@h/0"}, {"topic": "redis://me:***@h/0"}),
        ({"topic": f"redis://:a/@{HIDDEN}@h/0"}, {"topic": "redis://:***@h/0"}),
        ({"brokers": f"http://me:{HIDDEN}@h:80/x"}, {"brokers": "http://me:***@h:80/x"}),
        ({"headers": {"Authorization": f"Bearer {HIDDEN}", "x": "y"}}, {"headers": {"Authorization": "***", "x": "y"}}),
        ({"headers": {"x-api-key": HIDDEN, "token": "{payload.t}"}}, {"headers": {"x-api-key": "***", "token": "{payload.t}"}}),
        ({"pattern": [{"deep": {"clientSecret": [HIDDEN]}}]}, {"pattern": [{"deep": {"clientSecret": ["***"]}}]}),
        ({"topic": f"https://h/x?to=a&api_key={HIDDEN}&b=c"}, {"topic": "https://h/x?to=a&api_key=***&b=c"}),
        ({"topic": "https://h/x?token={payload.t}"}, {"topic": "https://h/x?token={payload.t}"}),
        ({"topic": f"https://discord.com/api/webhooks/{HIDDEN}/x"}, {"topic": "https://discord.com/api/webhooks/***"}),
        ({"topic": f"https://hooks.slack.com/services/T/{HIDDEN}"}, {"topic": "https://hooks.slack.com/services/***"}),
        ({"topic": "http://h:8080/x?to=a@b"}, {"topic": "http://h:8080/x?to=a@b"}),
    ],
)
def test_a_route_is_shown_without_what_is_secret(written: dict[str, Any], out: dict[str, Any]) -> None:
    assert shown(**written) == out


def test_of_a_plugin_that_nobody_knows_no_value_is_shown() -> None:
    plugin = {
        "plugin": "sqs",
        "name": "n",
        "config": {"key": HIDDEN, "size": 5, "on": True, "ref": "secret://a.b", "l": [HIDDEN]},
    }
    hidden = {"key": "***", "size": "***", "on": True, "ref": "secret://a.b", "l": ["***"]}
    assert redacted_plugin("receiver", plugin, model_of) == {"plugin": "sqs", "name": "n", "config": hidden}
    route = {"receiver": plugin, "filterChain": [plugin], "filter_chain": [plugin], "sender": plugin, "desc": "d", "n": 1}
    out = redacted(route, model_of)
    assert HIDDEN not in json.dumps(out)
    assert (out["desc"], out["n"], out["filterChain"]) == ("d", 1, [{**plugin, "config": hidden}])


def of_registry(kind: str, plugin: str) -> type[BaseModel] | None:
    found = registry().find(Kind(kind), plugin)
    return found.config if found else None


@pytest.mark.parametrize(
    ("kind", "plugin", "config"),
    [
        (Kind.RECEIVER, "kafka", {"password": HIDDEN, "accessKey": HIDDEN}),
        (Kind.RECEIVER, "redis", {"password": HIDDEN, "endpoint": f"redis://:{HIDDEN}@h"}),
        (Kind.FILTER, "hash", {"key": HIDDEN}),
        (Kind.SENDER, "kafka", {"password": HIDDEN, "accessKey": HIDDEN}),
        (Kind.SENDER, "redis", {"password": HIDDEN}),
        (Kind.SENDER, "postgres", {"database": f"postgres://u:{HIDDEN}@h/d"}),
        (
            Kind.SENDER,
            "http",
            {"auth": {"password": HIDDEN, "token": HIDDEN, "clientSecret": HIDDEN}, "headers": {"Cookie": HIDDEN}},
        ),
    ],
)
def test_the_plugins_that_are_shipped_hide_what_is_secret(kind: Kind, plugin: str, config: dict[str, Any]) -> None:
    assert of_registry(kind, plugin) is not None
    out = redacted_plugin(kind, {"plugin": plugin, "config": config}, of_registry)
    assert HIDDEN not in json.dumps(out)
    assert out["config"].keys() == config.keys()


def test_what_was_shown_may_be_sent_back() -> None:
    before = sent(topic="a", login={"password": HIDDEN}, brokers=f"http://me:{HIDDEN}@h", others=[{"password": HIDDEN}])
    back = redacted(before, model_of)
    assert filled(back, before, model_of) == before
    back["sender"]["config"]["topic"] = "b"
    back["sender"]["config"]["login"]["password"] = "new"
    after = copy.deepcopy(before)
    after["sender"]["config"] |= {"topic": "b", "login": {"password": "new"}}
    assert filled(back, before, model_of) == after


def test_stars_never_become_a_secret() -> None:
    before = sent(login={"password": "secret://a.b"})
    starred = (
        {"login": {"password": "***"}},
        {"topic": "http://me:***@h"},
        {"others": [{"password": "***"}]},
        {"topic": "h?key=***"},
    )
    for route in (sent(**config) for config in starred):
        with pytest.raises(Invalid, match="stars stand there"):
            filled(route, before, model_of)
    with pytest.raises(Invalid, match=r"sender\.config\.login\.password: stars"):
        filled(sent(login={"password": "***"}), before, model_of)


@pytest.mark.parametrize(
    ("plugin", "config", "elsewhere"),
    [
        ("http", {"url": "https://a", "headers": {"x-api-key": HIDDEN}}, {"url": "https://evil"}),
        ("http", {"url": "https://a", "headers": {"x-api-key": HIDDEN}}, {"url_path": ".evil"}),
        ("http", {"url": "https://a", "auth": {"client_secret": HIDDEN}}, {"auth": {"token_url": "https://evil"}}),
        ("kafka", {"brokers": "a:1", "password": HIDDEN}, {"brokers": "evil:1"}),
        ("kafka", {"brokers": "a:1", "password": HIDDEN, "tlsEnable": True}, {"tlsEnable": False}),
        ("redis", {"endpoint": "a:1", "password": HIDDEN}, {"endpoint": "evil:1"}),
        ("queue", {"client": "c", "headers": {"token": HIDDEN}}, {"destinations": ["evil"]}),
    ],
)
def test_stars_mean_nothing_for_a_plugin_that_sends_elsewhere(
    plugin: str, config: dict[str, Any], elsewhere: dict[str, Any]
) -> None:
    before = {"sender": {"plugin": plugin, "config": config}}
    back = redacted(before, of_registry)
    assert HIDDEN not in json.dumps(back)
    assert filled(back, before, of_registry) == before
    for key, value in elsewhere.items():
        inner = back["sender"]["config"].get(key)
        back["sender"]["config"][key] = {**inner, **value} if isinstance(inner, dict) else value
    with pytest.raises(Invalid, match="stars stand there"):
        filled(back, before, of_registry)


def hashes(*chain: tuple[str, str]) -> dict[str, Any]:
    return {"filterChain": [{"plugin": "hash", "config": {"toPath": path, "key": key}} for path, key in chain]}


def test_stars_in_a_list_mean_what_they_meant_wherever_they_stand() -> None:
    before = hashes(("payload.a", "key-a"), ("payload.b", "key-b"))

    def sent_back(*chain: tuple[str, str]) -> dict[str, Any]:
        return filled(hashes(*chain), before, of_registry)

    a, b = ("payload.a", "***"), ("payload.b", "***")
    assert sent_back(a, b) == before
    assert sent_back(b, a) == hashes(("payload.b", "key-b"), ("payload.a", "key-a"))
    assert sent_back(b) == hashes(("payload.b", "key-b"))
    assert sent_back(("payload.n", "new"), a, b) == hashes(("payload.n", "new"), ("payload.a", "key-a"), ("payload.b", "key-b"))
    assert sent_back(a, ("payload.c", "***")) == hashes(("payload.a", "key-a"), ("payload.c", "key-b"))
    for moved in ((("payload.c", "***"), a), (("payload.c", "***"),), (("payload.b2", "***"), ("payload.a2", "***"))):
        with pytest.raises(Invalid, match=r"filterChain\[0\].*stars stand there"):
            sent_back(*moved)
    same = hashes(("payload.a", "key-a"), ("payload.a", "key-b"))
    assert filled(hashes(a, a), same, of_registry) == same
    with pytest.raises(Invalid, match="stars stand there"):
        filled(hashes(a), same, of_registry)


def test_stars_mean_nothing_for_another_plugin() -> None:
    before = sent(headers={"x-api-key": HIDDEN})
    other = sent(headers={"x-api-key": "***"})
    assert filled(other, before, model_of) == before
    other["sender"]["plugin"] = "queue"
    with pytest.raises(Invalid, match="stars stand there"):
        filled(other, before, model_of)
