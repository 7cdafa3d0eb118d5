"""A hub's database with the bridge's lease in hand, and short words to say what arrives there."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import psycopg

from trunkline.bridge.apply import apply_wave
from trunkline.bridge.inbox import Arrived, Batch, Rejected, take_in
from trunkline.bridge.plan import Plan, commit_plan, read_offsets
from trunkline.bridge.shipped import SHIPPED
from trunkline.bridge.types import Types
from trunkline.bridge.units import Waiting
from trunkline.core.bundle import UNTOLD, Bundle, Chunk, Dependency, Mode, Version
from trunkline.core.jsoncodec import dumps
from trunkline.db.lease import Grant, acquire

GROUP = "bridge"
AT = "2026-01-01T00:00:00+00:00"
_ids = itertools.count(1)


def cluster(name: str, health: str = "ok", revision: int = 1) -> dict[str, Any]:
    return {"name": name, "health": health, "revision": revision, "changed_at": AT}


def verdict(name: str, policy: str = "p", state: str = "compliant") -> dict[str, Any]:
    return {"cluster": name, "policy": policy, "state": state, "changed_at": AT}


def event(number: int) -> dict[str, Any]:
    return {"id": f"e{number}", "kind": "login", "subject": "door", "severity": "low", "at": AT}


def auto(
    site: str,
    type_: str,
    mode: Mode,
    generation: int,
    value: int,
    rows: Any,
    *,
    needs: Dependency | None = None,
    session: str = "",
    id_: str = "",
    time: str = AT,
    chunk: Chunk | None = None,
) -> Bundle:
    """Of a sender that keeps no incarnation."""
    return Bundle(
        id=id_ or f"b{next(_ids)}", source=site, type=type_, time=time, mode=mode, version=Version(UNTOLD, generation),
        value=value, dependency=needs, session=session, chunk=chunk, data=rows if isinstance(rows, bytes) else dumps(rows),
    )  # fmt: skip


def _bundle(site: str, type_: str, mode: Mode, version: Version, rows: Any, needs: Dependency | None = None) -> Bundle:
    data = rows if isinstance(rows, bytes) else dumps(rows)
    return Bundle(id=f"b{next(_ids)}", source=site, type=type_, time=AT, mode=mode, version=version,
                  dependency=needs, data=data)  # fmt: skip


def clusters(site: str, generation: int, *rows: dict[str, Any], raw: bytes | None = None) -> Bundle:
    return _bundle(site, "clusters", Mode.COMPLETE, Version(1, generation), raw if raw is not None else list(rows))


def compliance(site: str, generation: int, needs: int | None, *rows: dict[str, Any]) -> Bundle:
    dependency = Dependency("clusters", Version(1, needs)) if needs is not None else None
    return _bundle(site, "compliance", Mode.COMPLETE, Version(1, generation), list(rows), dependency)


def events(site: str, generation: int, *rows: dict[str, Any]) -> Bundle:
    return _bundle(site, "events", Mode.APPEND, Version(1, generation), list(rows))


class Hub:
    """One database; every connection it hands out is closed with it."""

    def __init__(self, dsn: str, stack: ExitStack, types: Types = SHIPPED) -> None:
        self.dsn = dsn
        self.types = types
        self.noticed: list[Waiting] = []
        self._stack = stack
        self.conn = self.connect()
        won = acquire(self.conn, "bridge", 60.0)
        assert won is not None
        self.grant: Grant = won

    def connect(self) -> psycopg.Connection[Any]:
        return self._stack.enter_context(psycopg.connect(self.dsn))

    def take_over(self) -> Grant:
        """The lease becomes another's, as after a lapse."""
        self.conn.execute("UPDATE site.lease SET expires_at = '-infinity' WHERE name = 'bridge'")
        self.conn.commit()
        won = acquire(self.conn, "bridge", 60.0)
        assert won is not None
        return won

    def plan(self, bundles: Sequence[Bundle], rejected: Sequence[Rejected] = ()) -> tuple[Plan, list[Arrived]]:
        """Commits a plan that covers these messages, each at the next position of its site's queue."""
        start = read_offsets(self.conn, GROUP)
        end = dict(start)
        arrived = []
        for bundle in bundles:
            queue = f"LRQ_Recv_status_{bundle.source}"
            arrived.append(Arrived(bundle, queue, end.get(queue, 1)))
            end[queue] = end.get(queue, 1) + 1
        for message in rejected:
            end[message.queue] = end.get(message.queue, 1) + 1
        commit_plan(self.conn, self.grant, GROUP, start, end)
        return Plan(start, end), arrived

    def take_in(self, *bundles: Bundle, rejected: Sequence[Rejected] = ()) -> Plan:
        plan, arrived = self.plan(bundles, rejected)
        self.write(plan, arrived, rejected)
        return plan

    def write(self, plan: Plan, arrived: Sequence[Arrived], rejected: Sequence[Rejected] = ()) -> None:
        """What intake tells the units is kept in `noticed`."""
        counts = Counter([a.bundle.source for a in arrived] + [r.site for r in rejected])
        self.noticed = take_in(self.conn, self.grant, GROUP, plan, self.types, Batch(arrived, rejected, counts))

    def apply(self, site: str, type_: str) -> Version | None:
        """What was applied of all that waits of this site and type: the newest of it."""
        outcomes = apply_wave(self.conn, self.grant, self.types, type_, [site])
        return outcomes[0].applied if outcomes else None

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        found = self.conn.execute(query, values).fetchall()
        self.conn.rollback()
        return found

    def inbox(self) -> list[tuple[Any, ...]]:
        return self.rows("SELECT site, type, generation FROM bridge.inbox ORDER BY site, type, key")

    def health(self, site: str = "a") -> dict[str, str]:
        return dict(self.rows("SELECT name, health FROM status.cluster WHERE site = %s", site))

    def counters(self, site: str) -> dict[str, int]:
        names = ("received", "conflated", "rejected", "stale", "applied", "quarantined")
        [row] = self.rows(f"SELECT {', '.join(names)} FROM bridge.counter WHERE site = %s", site)
        return dict(zip(names, row, strict=True))
