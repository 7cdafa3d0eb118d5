"""Whom a command asks: the site's database, or a node's API where that is enough."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from trunkline.cli.kv.options import TokenOption as TokenOption
from trunkline.cli.kv.options import UrlOption as UrlOption

if TYPE_CHECKING:
    import psycopg

    from trunkline.api.queuesview import QueuesView
    from trunkline.core.config import ProcessConfig

VARIABLE = "DATABASE_URL"
OR_URL = "give --url of a node's API; or "
_WHERE = "Which site"
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="YAML file of a process of the site.", dir_okay=False, rich_help_panel=_WHERE),
]
DsnOption = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        metavar="DSN",
        rich_help_panel=_WHERE,
        help=f"The site's database, or where that is written: secret://env/NAME, secret://file/path. Else ${VARIABLE}.",
    ),
]


class Api:
    """A part of a node's API."""

    def __init__(self, part: str, url: str | None, token: str | None) -> None:
        self._part, self._url, self._token = part, url, token

    def _ask(self, method: str, path: str, body: Any = None, **params: Any) -> dict[str, Any]:
        from trunkline.cli.kv.client import Client

        given = {name: value for name, value in params.items() if value is not None}
        with Client(self._url, self._token) as client:
            return client.ask(method, f"/v1/{self._part}{path}", body, given)


def encoded(name: str) -> str:
    """As one step of a path. Dots are encoded, too: `..` would be taken for a step up."""
    return quote(name, safe="").replace(".", "%2E")


class OverApi(Api):
    """A node's API, asked for the same things."""

    def __init__(self, url: str | None, token: str | None) -> None:
        super().__init__("queues", url, token)

    def listing(self) -> dict[str, Any]:
        return self._ask("GET", "")

    def status(self) -> dict[str, Any]:
        return self._ask("GET", "/status")

    def numbers(self) -> dict[str, Any]:
        return self.listing() | self.status()

    def entries(self, name: str, after: int | None, most: int, shown: int) -> dict[str, Any]:
        return self._ask("GET", f"/{encoded(name)}/entries", after=after, limit=most, bytes=shown)

    def sync(self, site: str | None, client: str | None) -> dict[str, Any]:
        wanted = {"all": True} if site is None else {"site": site}
        return self._ask("POST", "/sync", wanted | ({} if client is None else {"client": client}))


def asked(config: Path | None, dsn: str | None, url: str | None, token: str | None) -> QueuesView:
    """What is named first wins: --config, --dsn, --url or its variable, the variable of the database."""
    from trunkline.core.config import QueuesConfig
    from trunkline.queues.operating import Operating

    if config is None and dsn is None and url:
        return OverApi(url, token)
    place, loaded = database("queues", config, dsn, or_else=OR_URL)
    return Operating(lambda: connected(place), loaded.queues if loaded else QueuesConfig())


@contextmanager
def transaction(config: Path | None, dsn: str | None) -> Iterator[psycopg.Connection[Any]]:
    """For what only the database can do; committed at the end."""
    from trunkline.queues.operating import told

    place, _ = database("queues", config, dsn, or_else="")
    with told(), connected(place) as conn:
        yield conn


def connected(dsn: str) -> psycopg.Connection[Any]:
    import psycopg

    return psycopg.connect(dsn, connect_timeout=5, application_name="trunkline-operator")


def database(part: str, config: Path | None, dsn: str | None, or_else: str) -> tuple[str, ProcessConfig | None]:
    """Its connection string, and the configuration where one was named."""
    from trunkline.core.config import load_config
    from trunkline.core.errors import Invalid

    if config is not None:
        loaded = load_config(config)
        return loaded.database.reveal(), loaded
    text = dsn or os.environ.get(VARIABLE)
    if not text:
        next_step = f"{or_else}give --config site.yaml or --dsn, or set {VARIABLE}"
        raise Invalid("site", f"it is not said which one's {part}", next_step)
    return _followed(text), None


def _followed(text: str) -> str:
    from trunkline.core.errors import Invalid
    from trunkline.core.reasons import Unfit
    from trunkline.core.references import References
    from trunkline.core.secret import SCHEME, ConnectionString

    try:
        found = References(Path.cwd(), os.environ).follow(text) if text.startswith(SCHEME) else text
    except Unfit as error:
        raise Invalid("database", error.reason, error.next_step) from None
    if why := ConnectionString.mistake(found):
        raise Invalid("database", why, "correct --dsn")
    return found
