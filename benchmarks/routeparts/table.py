"""A large table: many ids that share configurations, in Postgres with fsync on.

*Load* is one change of all routes by one instance, from the bytes of a JSON file until the last one is live: read, checked,
hashed, compiled, stored, published, read again and applied. *Start* is a fresh instance, from nothing (the interpreter and its
imports are there) until all is live. Memory is what the process has grown by, garbage collected. One *change* of a route in
that table ends when it is live at the instance that makes it.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness import Result, growth
from routeparts.instance import instance
from trunkline.core.collector import patient_collector
from trunkline.core.jsoncodec import dumps
from trunkline.core.layers import Layers, Loose
from trunkline.db.embedded import EmbeddedPostgres
from trunkline.db.migrate import migrate
from trunkline.routes.manager import RoutingTableManager
from trunkline.routes.model import RouteReader, open_routes, read_routes
from trunkline.routes.route import notes_of
from trunkline.routes.storage.base import Put

SHARE = 100
CHANGES = 200
WARM = 20

Numbers = dict[str, float]


def written(number: int, configurations: int) -> dict[str, Any]:
    customer = number % configurations
    return {
        "id": f"route-{number:06}",
        "tenant": {"orgId": "house", "appId": "bench"},
        "userId": "ada",
        "name": f"alarms-of-{customer}",
        "receiver": {"plugin": "debug", "name": "in"},
        "filterChain": [
            {"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": "alarm", "customer": customer}}},
            {"plugin": "transform", "config": {"transformation": {"id": "{.id}", "where": {"site": "{.at.site}"}}}},
        ],
        "sender": {"plugin": "debug", "name": "out"},
        "deliveryMode": "at_least_once",
        "desc": f"route {number}",
    }


def table(ids: int) -> Iterator[Result]:
    half, whole = _loaded(ids // 2), _loaded(ids)
    name = f"{ids // 1000}k"
    shared = f"{ids:,} ids with {ids // SHARE:,} configurations"
    yield Result(f"load_{name}_s", whole["load"], f"s, {shared}", goal=5.0, most=True)
    yield growth("load", half["load"], whole["load"])
    yield Result(f"load_{name}_mb", whole["load_mb"], f"MB more than before, {shared}", goal=300.0, most=True)
    yield Result(f"start_{name}_s", whole["start"], f"s, {shared}", goal=2.0, most=True)
    yield growth("start", half["start"], whole["start"])
    yield Result(f"start_{name}_mb", whole["start_mb"], "MB more than before, of an instance that only starts")
    yield Result(f"change_in_{name}_median_ms", whole["change"], f"ms for one route, of {CHANGES} changes")
    yield Result(f"change_in_{name}_p99_ms", whole["change_p99"], "ms")
    yield growth("change_in_table", half["change"], whole["change"])


def _loaded(ids: int) -> Numbers:
    with database() as dsn, tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(dumps({"routes": [written(n, ids // SHARE) for n in range(ids)]}))
        file.flush()
        return _in_child(_load, dsn, file.name) | _in_child(_start, dsn, ids) | _in_child(_change, dsn, ids)


@contextmanager
def database() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "postgres") as server:
        migrate(server.dsn, "routes")
        yield server.dsn


async def _load(dsn: str, file: str) -> Numbers:
    async with instance("loader", dsn) as at:
        before, begun = _megabytes(), time.perf_counter()
        await at.manager.change(_puts(open_routes(Path(file))))
        taken = time.perf_counter() - begun
        assert len(at.manager.live()) * SHARE == len(at.manager.table.ids)
        return {"load": round(taken, 2), "load_mb": round(_megabytes() - before, 1)}


def _puts(written: Loose | Layers) -> list[Put]:
    reading = read_routes(written, RouteReader())
    assert not reading.mistakes, reading.mistakes[0]
    return [Put(one.key, one.hash, one.configuration.body, notes_of(one.notes)) for one in reading.routes]


async def _start(dsn: str, ids: int) -> Numbers:
    before, begun = _megabytes(), time.perf_counter()
    async with instance("starter", dsn) as at:
        taken = time.perf_counter() - begun
        assert len(at.manager.table.ids) == ids
        return {"start": round(taken, 2), "start_mb": round(_megabytes() - before, 1)}


async def _change(dsn: str, ids: int) -> Numbers:
    async with instance("changer", dsn) as at:
        taken = [await _changed(at.manager, n, ids) for n in range(WARM + CHANGES)][WARM:]
        return {"change": round(statistics.median(taken), 2), "change_p99": round(statistics.quantiles(taken, n=100)[98], 2)}


async def _changed(manager: RoutingTableManager, number: int, ids: int) -> float:
    """In milliseconds."""
    raw = written(number, ids // SHARE) | {"name": f"changed-{number}"}
    begun = time.perf_counter()
    [put] = _puts(Loose(raw))
    done = await manager.change([put])
    taken = time.perf_counter() - begun
    assert done.here[put.key].live
    assert done.here[put.key].hash == put.hash
    return taken * 1000


def _megabytes() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _in_child(work: Callable[..., Coroutine[Any, Any, Numbers]], *args: object) -> Numbers:
    """In a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=_child, args=(theirs, work, *args))
    child.start()
    theirs.close()
    try:
        found: Numbers = ours.recv()
        return found
    finally:
        child.join()


def _child(link: Connection, work: Callable[..., Coroutine[Any, Any, Numbers]], *args: object) -> None:
    patient_collector()
    link.send(asyncio.run(work(*args)))
