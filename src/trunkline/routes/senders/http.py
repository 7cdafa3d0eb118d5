from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import msgspec
from pydantic import Field, model_validator

from trunkline.core.errors import Invalid
from trunkline.core.scalars import Number, Whole
from trunkline.core.secret import Secret
from trunkline.routes.ends import Place, Sending
from trunkline.routes.event import Event
from trunkline.routes.fields import RouteModel, SecretTemplate, Template, TemplateTree, checked
from trunkline.routes.paths import compile_tree
from trunkline.routes.plugin import Around, Runs, SenderPlugin
from trunkline.routes.secrets import Text
from trunkline.routes.senders.prepared import json_of, text_of

MESSAGE_ID = "trunkline-id"
"""The header with the message's id: the same whenever it is sent again."""


def _some(url: Text) -> None:
    if not url.shown:
        raise Invalid("url", "it is empty", "write where to")


_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HttpAuth(RouteModel):
    """How a request proves who sends it."""

    type: Literal["", "basic", "bearer", "oauth2"] = Field(default="", description="none: not at all")
    username: str = Field(default="", description="for basic")
    password: Secret | None = Field(default=None, examples=["secret://api.password"], description="for basic")
    token: Secret | None = Field(default=None, examples=["secret://api.token"], description="for bearer")
    client_id: str = Field(default="", description="for oauth2, by client credentials")
    client_secret: Secret | None = Field(default=None, examples=["secret://api.client"], description="for oauth2")
    token_url: str = Field(default="", alias="tokenURL", description="for oauth2: where tokens are given")
    scopes: tuple[str, ...] = Field(default=(), description="for oauth2")

    @model_validator(mode="after")
    def _all_that_the_type_needs(self) -> Self:
        missing = [key for key, value in self._needed() if not value]
        if missing:
            raise ValueError(f"for {self.type} it needs {' and '.join(missing)}")
        return self

    def _needed(self) -> list[tuple[str, object]]:
        by_type: dict[str, list[tuple[str, object]]] = {
            "basic": [("username", self.username), ("password", self.password)],
            "bearer": [("token", self.token)],
            "oauth2": [("clientId", self.client_id), ("clientSecret", self.client_secret), ("tokenURL", self.token_url)],
        }
        return by_type.get(self.type, [])


class HttpSenderConfig(RouteModel):
    """A request for each event. An answer with a status from 200 to 299 means that it is sent; 408, 425, 429 and those from 500
    on are tried again. Several requests run at a time, so their order is not kept, and one may come twice: the header
    `trunkline-id` is then the same. Redirections are not followed."""

    url: Annotated[SecretTemplate, checked(_some)] = Field(
        examples=["https://api.example.com/alarms"],
        description="where to; of a webhook with a key in its address rather a reference such as secret://api.webhook",
    )
    url_path: Template = Field(default="", examples=["/{payload.id}"], description="what is added to the address")
    method: Literal["GET", "PUT", "POST", "DELETE", "PATCH"] = Field(default="GET", description="the request's method")
    body: TemplateTree = Field(default=None, description="what is sent, a text or a tree; none: the payload, with GET nothing")
    headers: dict[str, SecretTemplate] = Field(
        default_factory=dict,
        examples=[{"x-kind": "{payload.kind}"}],
        description="as they are; a value may be a reference such as secret://api.key",
    )
    auth: HttpAuth = HttpAuth()
    timeout_seconds: Number = Field(default=3.0, gt=0, le=300, description="how long an answer is waited for")
    attempts: Whole = Field(default=3, ge=1, le=100, description="how often an event is sent before it counts as failed")


class Request(msgspec.Struct, frozen=True):
    """What is a reference in the configuration is one here, too: so no kept message holds a secret (`Revealing`)."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None = None


def compile_request(config: HttpSenderConfig, around: Around) -> Callable[[Event], Request]:
    what = "request"
    for name in config.headers:
        if not _HEADER.fullmatch(name):
            raise Invalid(f"header {name!r}", "it cannot be a name", "use letters, digits and -")
    revealed_headers(config)
    address = _compile_address(what, config, around)
    written = {name: text.shown for name, text in config.headers.items()}
    headers = compile_tree(
        {name: text for name, text in written.items() if not is_reference(config.headers[name])}, around.constants
    )
    references = {name.lower(): text for name, text in written.items() if is_reference(config.headers[name])}
    body = None if config.body is None else compile_tree(config.body, around.constants)

    def send(event: Event) -> Request:
        named = {name.lower(): _line(f"{what}: header {name}", value) for name, value in headers(event).items()} | references
        text, kind = _body(what, config.method, event.payload if body is None else body(event), body is None)
        return Request(config.method, address(event), ({"content-type": kind} if kind else {}) | named, text)

    return send


def revealed_headers(config: HttpSenderConfig) -> dict[str, str]:
    """Those that are references which were followed, each with its secret."""
    found = {name: text for name, text in config.headers.items() if text.known and is_reference(text)}
    return {name: _line(f"header {name}", text.reveal()) for name, text in found.items()}


def is_reference(text: Text) -> bool:
    return not text.known or text.shown != text.reveal()


def _compile_address(what: str, config: HttpSenderConfig, around: Around) -> Callable[[Event], str]:
    of_event = [compile_tree(part, around.constants) for part in (config.url.shown, config.url_path)]
    if not is_reference(config.url):
        return lambda event: _address(what, "".join(text_of(f"{what}: address", part(event)) for part in of_event))
    shown, path = config.url.shown, of_event[1]
    secret = config.url.reveal() if config.url.known else "https://unknown"
    if not _is_address(secret):
        raise Invalid("url", f"what {shown} holds is not an http or https address", "correct the secret")

    def address(event: Event) -> str:
        more = text_of(f"{what}: address", path(event))
        if not _is_address(secret + more):
            raise Invalid(what, f"{more[:200]!r} does not fit behind {shown}", "send an event with values that fit into one")
        return shown + more

    return address


def _address(what: str, url: str) -> str:
    if not _is_address(url):
        raise Invalid(what, f"{url[:200]!r} is not an http or https address", "send an event with values that fit into one")
    return url


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
    except ValueError:
        return False


def _line(what: str, value: Any) -> str:
    text = text_of(what, value)
    if not text.isprintable() or not text.isascii():
        raise Invalid(what, "a header is one line of plain letters", "send an event with such a value")
    return text


def _body(what: str, method: str, content: Any, is_payload: bool) -> tuple[str | None, str]:
    """The text that is sent, and its kind."""
    if is_payload and method == "GET":
        return None, ""
    if isinstance(content, str) and not is_payload:
        return content, "text/plain; charset=utf-8"
    return json_of(what, content), "application/json"


async def _open(config: HttpSenderConfig, place: Place) -> Sending:
    from trunkline.routes.senders.http_revealing import Revealing
    from trunkline.routes.senders.http_sending import HttpSending

    return Revealing(config, await HttpSending.open(config, place))


HTTP = SenderPlugin("http", HttpSenderConfig, Runs.BOTH, compile_request, Request, _open, spread=True)
