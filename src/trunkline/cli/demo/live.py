"""Routes that the hub's pipeline runs on Spark: added over its node's API, and edited there while events flow.

What they make is a row of `app.routed` for each event. That table has no key, so an event that came twice is there twice. Each
row carries the edition of the route that made it: 1, and 2 after the edit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
import psycopg

from trunkline.cli.demo.fleet import Site
from trunkline.cli.demo.orders import ORDERS
from trunkline.core.errors import Retryable

READINGS = "readings"
SCHEMA = """
CREATE SCHEMA IF NOT EXISTS app;
CREATE TABLE IF NOT EXISTS app.routed (nth bigint GENERATED ALWAYS AS IDENTITY, route text NOT NULL, site text NOT NULL,
    number bigint NOT NULL, edition int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
"""
_ROUTES = "v1/orgs/trunkline/applications/trunkline/routes"
_EFFECT = """
SELECT count(*) FILTER (WHERE edition = 1), count(*) FILTER (WHERE edition = 2),
       extract(epoch FROM min(at) FILTER (WHERE edition = 2) - %s)::float
  FROM app.routed WHERE route = %s
"""


@dataclass(frozen=True)
class Effect:
    """Of an edit. `seconds`: from the request to the first row of the new edition. `before`, `after`: rows of each edition."""

    route: str
    before: int
    after: int
    seconds: float


def readings() -> dict[str, Any]:
    """What other sites send to the hub's client `readings`."""
    return {"plugin": "queue", "config": {"client": READINGS}}


def orders(brokers: str) -> dict[str, Any]:
    return {"plugin": "kafka", "config": {"brokers": brokers, "topic": ORDERS, "startAt": "earliest"}}


class LiveRoutes:
    """`receivers`: of the routes, by their ids."""

    def __init__(self, hub: Site, dsn: str, receivers: Mapping[str, Mapping[str, Any]]) -> None:
        self._hub, self._dsn, self.receivers = hub, dsn, receivers
        self._edited_at: dict[str, datetime] = {}

    def add(self) -> None:
        for id in self.receivers:
            self._put(id, edition=1)

    def edit(self, id: str) -> None:
        """Nothing to do until it has made something, or when it is done."""
        if id in self._edited_at or not self._rows("SELECT FROM app.routed WHERE route = %s LIMIT 1", id):
            return
        edited_at = self._rows("SELECT clock_timestamp()")[0][0]
        self._put(id, edition=2)
        self._edited_at[id] = edited_at

    def effect(self, id: str) -> Effect | None:
        if id not in self._edited_at:
            return None
        [(before, after, seconds)] = self._rows(_EFFECT, self._edited_at[id], id)
        return Effect(id, before, after, seconds) if after else None

    def effects(self) -> list[Effect]:
        return [effect for id in self.receivers if (effect := self.effect(id)) is not None]

    def _put(self, id: str, edition: int) -> None:
        """Can be done again; raises Retryable."""
        try:
            api = json.loads((self._hub.folder / "node.json").read_text())["api"]
            body = _route(id, self.receivers[id], edition)
            httpx.put(f"http://{api}/{_ROUTES}/{id}", json=body, timeout=10, trust_env=False).raise_for_status()
        except (OSError, ValueError, httpx.HTTPError) as error:
            raise Retryable(f"route {id} of the hub", str(error), "it is tried again") from error

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            return conn.execute(query.encode(), values).fetchall()


class Edit:
    """Edits each route when the time has come and it runs, and says when that took effect."""

    def __init__(self, live: LiveRoutes, after_seconds: float, say: Callable[[str], None]) -> None:
        self._live, self._after_seconds, self._say = live, after_seconds, say
        self.waiting = set(live.receivers)

    def look(self, elapsed: float) -> None:
        if elapsed < self._after_seconds:
            return
        for id in sorted(self.waiting):
            with suppress(Retryable, psycopg.Error):
                self._live.edit(id)
                effect = self._live.effect(id)
                if effect is not None:
                    self.waiting.discard(id)
                    self._say(f"route {id} edited: {effect.seconds:.1f} s later its events carry edition 2")


def _route(id: str, receiver: Mapping[str, Any], edition: int) -> dict[str, Any]:
    kept = {"site": "{payload.site}", "number": "{payload.number}", "edition": edition}
    columns = {"route": id, **{name: f"{{payload.{name}}}" for name in kept}}
    return {
        "userId": "demo",
        "receiver": receiver,
        "filterChain": [
            {"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": id}}},
            {"plugin": "transform", "config": {"transformation": kept}},
        ],
        "sender": {"plugin": "postgres", "config": {"table": "app.routed", "columns": columns}},
        "deliveryMode": "effectively_once",
    }
