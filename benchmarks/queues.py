"""Rates of the queues' steps with entries of 1 KiB on one Postgres with fsync on; each step runs alone, the best run counts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from harness import Result, Size, growth, run, seconds
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.db.lease import acquire, connect_fenced
from trunkline.db.migrate import migrate
from trunkline.db.pool import open_pool
from trunkline.queues.client import QueueClient
from trunkline.queues.log import PostgresLog
from trunkline.queues.reader import read
from trunkline.queues.receive import PostgresSink
from trunkline.queues.registry import remember_site
from trunkline.queues.stamper import Stamper, random_mark
from trunkline.trunk.log import Chunk, Log

ENTRIES = 20_000
SINGLES = 1_000
BATCH = 100
CHUNK = 1_000
RUNS = 3
PAYLOAD = 1024
APP = QueueClient("app")


@dataclass
class Site:
    dsn: str
    app: psycopg.Connection
    stamper: Stamper
    log: PostgresLog
    sink: PostgresSink


def transmit_many(site: Site, entries: int) -> None:
    payloads = [os.urandom(PAYLOAD) for _ in range(BATCH)]
    for _ in range(entries // BATCH):
        APP.transmit_many(site.app, payloads, ["hub"])
        site.app.commit()


def transmit(site: Site, entries: int) -> None:
    payload = os.urandom(PAYLOAD)
    for _ in range(entries):
        APP.transmit(site.app, payload, ["hub"])
        site.app.commit()


def stamp(site: Site) -> None:
    while site.stamper.round().stamped:
        pass


def chunks(log: Log) -> Iterator[Chunk]:
    at = 0
    while (chunk := log.read(at, CHUNK, {"hub"})).upto.seq > at:
        yield chunk
        at = chunk.upto.seq


def append(site: Site, arrived: list[Chunk]) -> None:
    for chunk in arrived:
        site.sink.append("leaf", site.log.log_id, chunk.entries, chunk.upto, ["app"])


def consume(site: Site, entries: int) -> None:
    assert sum(1 for _ in read(site.app, "LRQ_Recv_app_leaf", 0, entries)) == entries
    site.app.commit()


def steps(site: Site, entries: int, singles: int) -> dict[str, float]:
    """Seconds of each step."""
    took = {"transmit_many": seconds(lambda: transmit_many(site, entries)), "stamp": seconds(lambda: stamp(site))}
    arrived: list[Chunk] = []
    took["read"] = seconds(lambda: arrived.extend(chunks(site.log)))
    assert sum(len(chunk.entries) for chunk in arrived) == entries
    took["append"] = seconds(lambda: append(site, arrived))
    took["consume"] = seconds(lambda: consume(site, entries))
    took["transmit"] = seconds(lambda: transmit(site, singles))
    took["stamp_singles"] = seconds(lambda: stamp(site))
    assert site.log.head().seq == entries + singles
    return took


def measure(server: EmbeddedPostgres, name: str, entries: int, singles: int) -> dict[str, float]:
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    dsn = server.dsn.replace("dbname=postgres", f"dbname={name}")
    migrate(dsn, "queues")
    with (
        closing(psycopg.connect(dsn)) as app,
        closing(connect_fenced(dsn)) as fenced,
        closing(open_pool(dsn, 2, "bench")) as pool,
    ):
        remember_site(app, "hub")
        app.commit()
        grant = acquire(app, "leader", 600)
        assert grant is not None
        stamper = Stamper(fenced, grant, random_mark)
        return steps(Site(dsn, app, stamper, PostgresLog(pool), PostgresSink(pool, grant)), entries, singles)


def best(runs: list[dict[str, float]], step: str) -> float:
    return min(run[step] for run in runs)


def measure_all(size: Size) -> list[Result]:
    entries, singles, turns = (ENTRIES, SINGLES, RUNS) if size is Size.FULL else (ENTRIES // 10, SINGLES // 10, 1)
    sizes = dict.fromkeys(("transmit_many", "stamp", "read", "append", "consume"), entries)
    sizes |= {"transmit": singles, "stamp_singles": singles}
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "postgres") as server:
        measure(server, "warm", entries // 10, singles // 10)
        once = [measure(server, f"once{n}", entries, singles) for n in range(turns)]
        twice = [measure(server, f"twice{n}", 2 * entries, 2 * singles) for n in range(turns)]
    rates = [Result(f"{step}_per_s", round(count / best(once, step)), "entries/s") for step, count in sizes.items()]
    return rates + [growth(step, best(once, step), best(twice, step)) for step in sizes]


if __name__ == "__main__":
    run("queues", measure_all)
