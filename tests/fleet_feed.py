"""Messages as the trunk would leave them in receive queues, and the sequential model of what status they must end in."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from trunkline.core.bundle import Bundle, Dependency, Mode, Version
from trunkline.core.jsoncodec import dumps, loads

CLIENT = "status"
AT = "2026-01-01T00:00:00+00:00"
_ids = itertools.count(1)

Message = tuple[dict[str, str], bytes]
"""headers, payload"""


def queue_of(site: str) -> str:
    return f"LRQ_Recv_{CLIENT}_{site}"


def _message(site: str, type_: str, mode: Mode, generation: int, rows: Any, needs: int | None = None) -> Message:
    dependency = Dependency("clusters", Version(1, needs)) if needs is not None else None
    bundle = Bundle(id=f"b{next(_ids)}", source=site, type=type_, time=AT, mode=mode, version=Version(1, generation),
                    dependency=dependency, data=dumps(rows))  # fmt: skip
    return bundle.headers(), bundle.data


def clusters(site: str, generation: int, *names: str) -> Message:
    rows = [{"name": n, "health": "ok", "revision": generation, "changed_at": AT} for n in names]
    return _message(site, "clusters", Mode.COMPLETE, generation, rows)


def compliance(site: str, generation: int, needs: int | None, *names: str) -> Message:
    rows = [{"cluster": n, "policy": "p", "state": f"s{generation}", "changed_at": AT} for n in names]
    return _message(site, "compliance", Mode.COMPLETE, generation, rows, needs)


def events(site: str, generation: int, *ids: str) -> Message:
    rows = [{"id": i, "kind": "k", "subject": "s", "severity": "low", "at": AT} for i in ids]
    return _message(site, "events", Mode.APPEND, generation, rows)


def changes(site: str, generation: int, **kinds: Any) -> Message:
    """A hybrid bundle of managed clusters: what was created, updated, deleted."""
    return _message(site, "managed-clusters", Mode.HYBRID, generation, kinds)


def forged(site: str, victim: str, generation: int) -> Message:
    headers, data = clusters(victim, generation, "forged")
    return {**headers, "ce_id": f"forged-by-{site}"}, data


class Feed:
    """Writes entries with dense positions, together with the queue's head."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def put(self, site: str, *messages: Message) -> None:
        with psycopg.connect(self._dsn) as conn:
            conn.execute("INSERT INTO queues.queue (client, remote) VALUES (%s, %s) ON CONFLICT DO NOTHING", (CLIENT, site))
            row = conn.execute(
                "SELECT id, head FROM queues.queue WHERE client = %s AND remote = %s FOR UPDATE", (CLIENT, site)
            ).fetchone()
            assert row is not None
            queue, head = row
            with conn.cursor() as cursor, cursor.copy(
                "COPY queues.receive (slot, queue, position, type, seq, index, total, headers, payload) FROM STDIN"
            ) as copy:  # fmt: skip
                for position, (headers, payload) in enumerate(messages, head + 1):
                    copy.write_row((0, queue, position, 1, position, 0, position, Jsonb(headers), payload))
            conn.execute("UPDATE queues.queue SET head = %s WHERE id = %s", (head + len(messages), queue))


Status = dict[str, set[tuple[Any, ...]]]


def status_of(dsn: str) -> Status:
    with psycopg.connect(dsn) as conn:
        return {
            "cluster": set(conn.execute("SELECT site, name, revision FROM status.cluster").fetchall()),
            "compliance": set(conn.execute("SELECT site, cluster, state FROM status.compliance").fetchall()),
            "event": set(conn.execute("SELECT site, id FROM status.event").fetchall()),
        }


def waiting_in(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT count(*) FROM bridge.inbox").fetchone()
        assert row is not None
        return int(row[0])


@dataclass
class Model:
    """One message after the other, each wholly done before the next; no conflation, no threads, no database."""

    ledger: dict[tuple[str, str], Version] = field(default_factory=dict)
    rows: dict[tuple[str, str], set[tuple[Any, ...]]] = field(default_factory=dict)
    parked: list[tuple[str, Message]] = field(default_factory=list)

    def take(self, site: str, messages: Iterable[Message]) -> None:
        for message in messages:
            self.parked.append((site, message))
            while any(self._tried(s, m) for s, m in tuple(self.parked)):
                pass  # one that was applied may free another

    def _tried(self, site: str, message: Message) -> bool:
        headers, payload = message
        type_ = headers["ce_type"]
        version = Version(int(headers["ce_incarnation"]), int(headers["ce_generation"]))
        needs = Dependency.parse(headers["ce_dependency"]) if "ce_dependency" in headers else None
        if needs and self.ledger.get((site, needs.type), Version(0, 0)) < needs.version:
            return False
        self.parked.remove((site, message))
        if headers["ce_source"] == site:
            self._apply(site, type_, version, payload)
        return True

    def _apply(self, site: str, type_: str, version: Version, payload: bytes) -> None:
        rows = loads(payload)
        if type_ == "events":
            self.rows.setdefault((site, type_), set()).update((site, r["id"]) for r in rows)
        elif self.ledger.get((site, type_), Version(0, 0)) < version:
            columns = {"clusters": ("name", "revision"), "compliance": ("cluster", "state")}[type_]
            self.rows[site, type_] = {(site, *(r[c] for c in columns)) for r in rows}
            self.ledger[site, type_] = version

    def status(self) -> Status:
        def of(type_: str) -> set[tuple[Any, ...]]:
            return set().union(*(rows for (_, t), rows in self.rows.items() if t == type_))

        return {"cluster": of("clusters"), "compliance": of("compliance"), "event": of("events")}


def history(site: str, rng: random.Random, steps: int) -> Iterator[Message]:
    """What one site says in a while, forgeries and repetitions among it; at the end all that was waited for has come."""
    generation = 0
    for step in range(steps):
        generation += rng.randint(1, 2)
        names = [f"c{n}" for n in range(6) if rng.random() < 0.7]
        yield clusters(site, generation, *names)
        if rng.random() < 0.2:
            yield clusters(site, rng.randint(1, generation), "outdated")
        if rng.random() < 0.2:
            yield forged(site, f"not-{site}", 10**6)
        yield compliance(site, step + 1, generation if rng.random() < 0.7 else generation + 1, *names)
        yield events(site, step + 1, f"e{step}", f"e{step // 2}")
    yield clusters(site, generation + 5, "last")
    yield compliance(site, steps + 1, generation + 5, "last")
