"""The areas of one node in memory: the real store, asked by the threads of an API, without links."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any

import structlog

from memory_bridge import MemoryBridge
from memory_queues import MemoryQueues
from trunkline.api.app import create_app
from trunkline.api.server import serve
from trunkline.api.storeview import Put, Query, Reasons, Shown
from trunkline.core.clock import Clock, SystemClock
from trunkline.core.config import ApiConfig
from trunkline.core.ids import NodeId
from trunkline.node.shown import shown_event, shown_peer, shown_value
from trunkline.store.area import Area
from trunkline.store.filters import Filter, filter_of
from trunkline.store.peers import PeerState
from trunkline.store.store import Store
from trunkline.store.values import INFINITE, Reason, is_bound, sealed
from trunkline.store.watch import MOST_WAITING, Watch


def _filter(query: Query) -> Filter:
    return filter_of(query.patterns, query.originators, query.every, query.prefixes)


def _ttl(ttl_ms: int | None) -> int:
    return INFINITE if ttl_ms is None else ttl_ms


class MemoryWatch:
    def __init__(self, store: MemoryStore, area: Area, watch: Watch) -> None:
        self._store, self._area, self._watch = store, area, watch

    def read(self, most: int) -> list[dict[str, Any]]:
        if self._store.fails is not None:
            raise self._store.fails
        with self._store.lock:
            while True:
                events = self._area.read(self._watch, most, self._store.now())
                if events or self._watch.is_empty:
                    return [shown_event(event) for event in events]

    def close(self) -> None:
        with self._store.lock:
            self._area.unwatch(self._watch)


class MemoryStore:
    def __init__(self, node: str = "paris/node-1", clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._store = Store(NodeId.parse(node), Random(1).random, areas=("plant-1",))
        self.lock = threading.RLock()
        self.fails: Exception | None = None
        self.most_waiting = MOST_WAITING

    def now(self) -> float:
        return self._clock.monotonic()

    def tick(self) -> None:
        with self.lock:
            self._store.tick(self.now())

    def area(self, name: str) -> Area:
        return self._store.area(name)

    def write(self, key: str, data: bytes, version: int = 1, originator: str = "lyon/node-1", ttl_ms: int = INFINITE) -> None:
        """As another node brought it."""
        with self.lock:
            _, refused = self.area("fleet").put({key: sealed(key, version, originator, data, ttl_ms)}, self.now())
        assert not refused, refused

    def watches(self) -> int:
        with self.lock:
            return len(self.area("fleet").watches)

    # -- what the API asks

    def areas(self) -> dict[str, Shown]:
        with self.lock:
            return {name: self._summary(area) for name, area in self._store.areas.items()}

    def _summary(self, area: Area) -> Shown:
        values = [value for _, value in area.shown(self.now())]
        peers = area.peers.by_name.values()
        return {
            "keys": len(values), "bytes": sum(len(value.data or b"") for value in values), "peers": len(peers),
            "initialized": sum(peer.state is PeerState.INITIALIZED for peer in peers), "synced": area.synced,
            "own": len(area.own.keys), "watches": len(area.watches), "counters": dict(area.counters),
        }  # fmt: skip

    def get(self, area: str, key: str) -> Shown | None:
        with self.lock:
            value = self.area(area).get(key, self.now())
        return None if value is None else shown_value(value, True)

    def dump(self, area: str, query: Query, values: bool, after: str = "", most: int | None = None) -> dict[str, Shown]:
        with self.lock:
            wanted = _filter(query)
            found = sorted(self.area(area).shown(self.now()))
        matching = [(key, value) for key, value in found if key > after and wanted.matches(key, value)]
        return {key: shown_value(value, values) for key, value in matching[:most]}

    def own(self, area: str) -> dict[str, Shown]:
        with self.lock:
            return {
                key: {"keep": "persist" if own.persisted else "set", "version": own.version, "ttl_ms": own.ttl_ms,
                      "bytes": len(own.data)}
                for key, own in self.area(area).own.keys.items()
            }  # fmt: skip

    def put(self, area: str, puts: Mapping[str, Put]) -> Reasons:
        with self.lock:
            reasons = {key: self._put(self.area(area), key, put) for key, put in puts.items()}
        return {key: str(reason) for key, reason in reasons.items() if reason is not None}

    def _put(self, area: Area, key: str, put: Put) -> Reason | None:
        if is_bound(key):
            return Reason.NOT_THE_OWNER
        now = self.now()
        if put.keep != "no":
            keep = area.persist if put.keep == "persist" else area.keep_set
            keep(key, put.data, now, put.ttl_ms, put.version or 1)
            return None
        if put.version is None:
            return area.write(key, put.data, _ttl(put.ttl_ms), now)[1]
        return area.put({key: sealed(key, put.version, area.node, put.data, _ttl(put.ttl_ms))}, now)[1].get(key)

    def refresh(self, area: str, ttls: Mapping[str, int | None]) -> Reasons:
        with self.lock:
            found = {key: self.area(area).refresh(key, _ttl(ttl), self.now())[1] for key, ttl in ttls.items()}
        return {key: str(reason) for key, reason in found.items() if reason is not None}

    def clear(self, area: str, keys: Sequence[str]) -> Reasons:
        with self.lock:
            own = self.area(area).own
            return {key: str(Reason.NO_NEED_TO_UPDATE) for key in keys if not own.clear(key)}

    def erase(self, area: str, keys: Sequence[str]) -> Reasons:
        with self.lock:
            found = {key: self.area(area).erase(key, self.now())[1] for key in keys}
        return {key: str(reason) for key, reason in found.items() if reason is not None}

    def signature(self, area: str, query: Query) -> str:
        total = sum(int(one["hash"], 16) for one in self.dump(area, query, False).values())
        return f"{total % 2**64:016x}"

    def peers(self, area: str) -> dict[str, Shown]:
        with self.lock:
            found = self.area(area).peers.by_name.items()
            return {name: shown_peer(peer, self.now()) for name, peer in found}

    def add_peer(self, area: str, name: str, addresses: Sequence[str]) -> None:
        with self.lock:
            self.area(area).add_peer(name, self.now(), tuple(addresses))

    def delete_peer(self, area: str, name: str) -> bool:
        with self.lock:
            return self.area(area).delete_peer(name, self.now())

    def watch(self, area: str, query: Query, ttl: bool, wake: Callable[[], None]) -> MemoryWatch:
        with self.lock:
            watch = Watch(_filter(query), ttl, wake, most=self.most_waiting)
            self.area(area).watch(watch)
            return MemoryWatch(self, self.area(area), watch)


@contextmanager
def served(
    store: MemoryStore, listen: str = "127.0.0.1:0", views: Mapping[str, Any] | None = None, **api: Any
) -> Iterator[str]:
    """The store behind a real API, in a thread; its URL. `views`: what the node has beside the store."""
    none = {"status": dict, "topology": dict, "trunk": dict, "checks": list, "inject": lambda *_: []}
    view = SimpleNamespace(**{"queues": MemoryQueues(), "bridge": MemoryBridge(), **none, **(views or {}), "store": store})
    bound: queue.Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def run() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        await serve(create_app(view, ApiConfig(**api)), listen, lambda address: bound.put((address, loop, stop)), stop)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    with structlog.testing.capture_logs():  # standard output is for the command under test
        thread.start()
        address, loop, stop = bound.get(timeout=30)
        try:
            yield f"http://{address}"
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
