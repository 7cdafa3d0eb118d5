"""A hub's database in which the bridge has something of everything: what waits, what was set aside, who is silent."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.types.json import Jsonb

_SITE = """
INSERT INTO bridge.site (site, transport, first_seen, last_seen, state, state_since)
VALUES (%s, 'queues', now() - interval '1 day', now() - %s * interval '1 second', %s, now() - interval '1 minute')
"""
_LEDGER = """
INSERT INTO bridge.ledger (site, type, incarnation, generation, value, applied_at, event_time)
VALUES (%s, %s, %s, %s, %s, now() - %s * interval '1 second', now() - %s * interval '1 second')
"""
_INBOX = """
INSERT INTO bridge.inbox (site, type, key, incarnation, generation, dependency_type, dependency_incarnation,
                          dependency_generation, headers, data, queue, position, mode, arrived_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, '{}', %s, 'q', 1, %s, now() - %s * interval '1 second')
"""
_ASIDE = """
INSERT INTO bridge.quarantine (site, type, key, incarnation, generation, value, headers, payload, reason, queue, position, mode,
                               state, quarantined_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, 'LRQ_Recv_status_paris', 9, %s, %s, now() - %s * interval '1 second') RETURNING id
"""


class FilledBridge:
    """Short words to say what the hub has; each call commits."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def do(self, statement: str, *args: Any) -> list[Any]:
        with psycopg.connect(self.dsn) as conn:
            done = conn.execute(statement.encode(), args)
            return done.fetchall() if done.description else []

    def site(self, name: str, state: str = "active", unheard: float = 1.0) -> None:
        self.do(_SITE, name, unheard, state)

    def applied(self, site: str, type_: str, version: tuple[int, int], value: int | None = None, ago: float = 120.0) -> None:
        self.do(_LEDGER, site, type_, *version, version[1] if value is None else value, ago, ago + 60)

    def waits(
        self, site: str, type_: str, version: tuple[int, int], needs: tuple[str, int, int] | None = None,
        mode: str = "complete", key: str = "", ago: float = 3.0, data: bytes = b"[]",
    ) -> None:  # fmt: skip
        self.do(_INBOX, site, type_, key, *version, *(needs or (None, None, None)), data, mode, ago)

    def aside(
        self, site: str, type_: str | None, version: tuple[int, int] | None, reason: str, mode: str | None = "complete",
        payload: bytes = b"{}", state: str = "open", ago: float = 259_200.0,
    ) -> int:  # fmt: skip
        numbers = version or (None, None)
        headers = {"ce_id": f"{site}-1", "ce_source": site, "ce_type": type_ or "", "ce_time": ""}
        key = "" if mode == "complete" else f"{site}-1"
        args = (site, type_, key, *numbers, numbers[1], Jsonb(headers), payload, reason, mode, state, ago)
        [(id,)] = self.do(_ASIDE, *args)
        return int(id)

    def wanted(self, site: str, type_: str, holds: str | None, reason: str, asks: int = 0) -> None:
        ago = "now() - interval '20 seconds'" if asks else "NULL"
        statement = "INSERT INTO bridge.resync (site, type, holds, reason, asks, wanted_at, asked_at) VALUES"
        self.do(f"{statement} (%s, %s, %s, %s, %s, now() - interval '80 seconds', {ago})", site, type_, holds, reason, asks)


def fill(dsn: str) -> FilledBridge:
    """paris is well but for what waits for its base and what was set aside; lyon is silent; berlin is as it should be."""
    hub = FilledBridge(dsn)
    for name in ("paris", "berlin"):
        hub.site(name)
        hub.applied(name, "clusters", (12, 5))
        hub.do(
            "INSERT INTO bridge.counter (site, received, applied, rows_received, rows_written) VALUES (%s, 9, 8, 90, 7)", name
        )
        hub.do("INSERT INTO status.cluster VALUES (%s, 'c1', 'ok', 1, now(), now())", name)
    hub.site("lyon", "silent", unheard=7200)
    hub.waits("paris", "compliance", (12, 3), ("clusters", 12, 6), ago=4)
    hub.wanted("paris", "clusters", None, "compliance waits for a base that never came", asks=2)
    hub.aside("paris", "clusters", (12, 4), "data of clusters: it is not a list of rows")
    hub.do("INSERT INTO status.transport VALUES ('bridge', 'LRQ_Recv_status_paris', '{\"next\": 10}')")
    return hub
