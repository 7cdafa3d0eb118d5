"""What people see while the demo runs: one line per site, from the nodes' API and the hub's database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
from rich.table import Table

from trunkline.cli.demo.fleet import HUB, Site

_HUB_VIEW = """
SELECT s.site, coalesce(r.received, 0), coalesce(c.conflated, 0), coalesce(c.applied, 0), coalesce(o.routed, 0),
       extract(epoch FROM clock_timestamp() - n.newest)::float
  FROM unnest(%s::text[]) AS s(site)
  LEFT JOIN (SELECT remote, sum(head)::bigint AS received FROM queues.queue GROUP BY remote) r ON r.remote = s.site
  LEFT JOIN bridge.counter c ON c.site = s.site
  LEFT JOIN (SELECT site, count(*) AS routed FROM app.routed GROUP BY site) o ON o.site = s.site
  LEFT JOIN (SELECT site, max(changed_at) AS newest FROM status.cluster GROUP BY site) n ON n.site = s.site
"""


@dataclass(frozen=True)
class Line:
    site: str
    sent: int | None = None
    relayed: int | None = None
    received: int = 0
    conflated: int = 0
    applied: int = 0
    routed: int = 0
    age: float | None = None
    path: str = "…"


class Watcher:
    def __init__(self, sites: Sequence[Site], hub_dsn: str) -> None:
        self._sites, self._hub_dsn = sites, hub_dsn
        self._http = httpx.Client(timeout=1)
        self._hub: psycopg.Connection[Any] | None = None

    def lines(self) -> list[Line]:
        at_hub = self._at_hub()
        totals = tuple(sum(row[n] for row in at_hub.values()) for n in range(4))
        return [self._line(s, (*totals, None) if s.name == HUB else at_hub.get(s.name)) for s in self._sites]

    def applied(self) -> int:
        """Bundles applied at the hub so far."""
        return sum(applied for _, _, applied, *_ in self._at_hub().values())

    def _line(self, site: Site, at_hub: tuple[Any, ...] | None) -> Line:
        status, topology = self.ask(site, "status"), self.ask(site, "topology")
        received, conflated, applied, routed, age = at_hub or (0, 0, 0, 0, None)
        sent, relayed = (status["head"], status["relayed"]) if status else (None, None)
        return Line(site.name, sent, relayed, received, conflated, applied, routed, age, _path(site, topology))

    def ask(self, site: Site, view: str) -> dict[str, Any] | None:
        try:
            api = json.loads((site.folder / "node.json").read_text())["api"]
            answer: dict[str, Any] = self._http.get(f"http://{api}/v1/{view}").raise_for_status().json()
        except (OSError, ValueError, KeyError, httpx.HTTPError):
            return None
        return answer

    def _at_hub(self) -> dict[str, tuple[Any, ...]]:
        try:
            if self._hub is None or self._hub.closed:
                self._hub = psycopg.connect(self._hub_dsn, autocommit=True)
            rows = self._hub.execute(_HUB_VIEW, ([s.name for s in self._sites],)).fetchall()
        except psycopg.Error:
            return {}  # the pipeline has not made its tables yet
        return {row[0]: row[1:] for row in rows}

    def close(self) -> None:
        self._http.close()
        if self._hub is not None:
            self._hub.close()


@contextmanager
def watching(sites: Sequence[Site], hub_dsn: str) -> Iterator[Watcher]:
    watcher = Watcher(sites, hub_dsn)
    try:
        yield watcher
    finally:
        watcher.close()


def _path(site: Site, topology: dict[str, Any] | None) -> str:
    if topology is None:
        return "down"
    if site.name == HUB:
        return "–"
    row = next((r for r in topology["rows"] if r["source"] == HUB), None)
    return " → ".join((site.name, *row["path"])) if row else "searching"


def table(lines: Sequence[Line], title: str) -> Table:
    out = Table(title=title, title_justify="left", expand=False)
    out.add_column("site")
    for column in ("sent", "relayed", "received", "conflated", "applied", "routed", "age of newest"):
        out.add_column(column, justify="right")
    out.add_column("path to the hub")
    for line in lines:
        numbers = (line.sent, line.relayed, line.received, line.conflated, line.applied, line.routed)
        age = "–" if line.age is None else f"{max(line.age, 0):.1f} s"
        out.add_row(line.site, *("–" if n is None else str(n) for n in numbers), age, line.path)
    return out
