"""The node's store as its clients see it: asked from any thread, done on the node's event loop.

1. Whatever looks at many keys does so in portions, one per turn of the loop; what is made of them, and their order, is made
   outside. So no client stops the node for longer than a portion takes.
2. What a client writes leaves for the peers in the same turn; a key that is to be kept is written with the next tick.
3. Keys that belong to somebody (node:, link:, rows:, site:) are written by nodes alone.
4. There is a limit to the watches of a node, and closing one is always safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import merge
from itertools import chain, islice
from typing import Any, Protocol, TypeVar

from trunkline.core.errors import Invalid, Retryable
from trunkline.node.peers import Peers
from trunkline.node.shown import COUNTERS, shown_event, shown_peer, shown_value
from trunkline.node.sitecore import Effect, SiteCore
from trunkline.node.views import OnLoop
from trunkline.store.area import Area
from trunkline.store.digest import LEAVES, signature
from trunkline.store.filters import Filter, filter_of
from trunkline.store.messages import Send, portions
from trunkline.store.own import Own
from trunkline.store.peers import PeerState
from trunkline.store.values import INFINITE, Reason, Value, is_bound, refusal, sealed
from trunkline.store.watch import Watch

PORTION = 2_000  # some milliseconds of the event loop
WRITES = 250  # the same, where each key is a publication of its own
MOST_WATCHES = 100
LONGEST_TTL_MS = 2**53
KEEPS = ("no", "set", "persist")

Shown = dict[str, Any]
Written = tuple[list[Send], dict[str, Reason]]
Found = list[tuple[str, Value]]
_T = TypeVar("_T")


class Query(Protocol):
    """As `trunkline.store.filters.filter_of` reads it."""

    @property
    def prefixes(self) -> tuple[str, ...]: ...
    @property
    def patterns(self) -> tuple[str, ...]: ...
    @property
    def originators(self) -> tuple[str, ...]: ...
    @property
    def every(self) -> bool: ...


class Put(Protocol):
    @property
    def data(self) -> bytes: ...
    @property
    def ttl_ms(self) -> int | None:
        """None: for ever; of a key that is kept: the node's default."""

    @property
    def version(self) -> int | None:
        """None: one above what is stored."""

    @property
    def keep(self) -> str:
        """One of KEEPS."""


class NodeStoreView:
    def __init__(
        self, core: SiteCore, peers: Peers, on_loop: OnLoop, now: Callable[[], float], do: Callable[[Iterable[Effect]], None]
    ) -> None:
        self._core, self._peers, self._on_loop, self._now, self._do = core, peers, on_loop, now, do

    # -- looking

    def areas(self) -> dict[str, Shown]:
        return self._on_loop(lambda: {name: summary(area) for name, area in self._core.store.areas.items()})

    def get(self, area: str, key: str) -> Shown | None:
        value = self._on_loop(lambda: self._area(area).get(key, self._now()))
        return None if value is None else shown_value(value, True)

    def dump(self, area: str, query: Query, values: bool, after: str = "", most: int | None = None) -> dict[str, Shown]:
        runs = self._found(area, query, after)
        ordered = _ordered(runs) if most is None else _first(runs, most)
        return {key: shown_value(value, values) for key, value in ordered}

    def signature(self, area: str, query: Query) -> str:
        number = 0
        for run in self._found(area, query):
            number = signature((value for _, value in run), number)
        return f"{number:016x}"

    def own(self, area: str) -> dict[str, Shown]:
        keys = self._on_loop(lambda: list(self._area(area).own.keys))
        runs = self._in_portions(keys, lambda portion: _own(self._area(area), portion))
        return dict(chain.from_iterable(runs))

    def peers(self, area: str) -> dict[str, Shown]:
        def look() -> dict[str, Shown]:
            now = self._now()
            return {name: shown_peer(peer, now) for name, peer in sorted(self._area(area).peers.by_name.items())}

        return self._on_loop(look)

    def _found(self, area: str, query: Query, after: str = "") -> Iterator[Found]:
        """What a reader sees, some leaves of the digest per turn: no turn has to list all keys."""
        wanted = _filter(query)
        at_once = self._on_loop(lambda: max(1, LEAVES * PORTION // max(PORTION, len(self._area(area).table))))
        for first in range(0, LEAVES, at_once):
            leaves = range(first, min(LEAVES, first + at_once))
            yield self._on_loop(partial(_matching, self._area(area), leaves, wanted, after, self._now()))

    def _in_portions(self, keys: Iterable[str], read: Callable[[list[str]], _T]) -> Iterator[_T]:
        names = iter(keys)
        while portion := list(islice(names, PORTION)):
            yield self._on_loop(partial(read, portion))

    def _area(self, name: str) -> Area:
        return self._core.store.area(name)

    # -- writing

    def put(self, area: str, puts: Mapping[str, Put]) -> dict[str, str]:
        for key, put in puts.items():
            _writable(key)
            if put.keep not in KEEPS:
                raise Invalid(f"keep {put.keep!r}", "there is no such way to keep a key", f"write one of {', '.join(KEEPS)}")
        sizes = ((key, Value(1, "", put.data, 0)) for key, put in puts.items())
        runs = [{key: puts[key] for key in portion} for portion in portions(sizes)]
        return self._written(area, runs, _put)

    def refresh(self, area: str, ttls: Mapping[str, int | None]) -> dict[str, str]:
        return self._written(area, _runs(ttls), lambda store, run, now: _each(store, run, now, _refresh))

    def clear(self, area: str, keys: Sequence[str]) -> dict[str, str]:
        return self._written(area, _runs(dict.fromkeys(keys)), lambda store, run, now: _each(store, run, now, _clear))

    def erase(self, area: str, keys: Sequence[str]) -> dict[str, str]:
        return self._written(area, _runs(dict.fromkeys(keys)), lambda store, run, now: _each(store, run, now, _erase))

    def _written(self, area: str, runs: Iterable[_T], write: Callable[[Area, _T, float], Written]) -> dict[str, str]:
        def once(run: _T) -> dict[str, Reason]:
            store, now = self._area(area), self._now()
            sends, refused = write(store, run, now)
            self._do(self._core.written(sends, now))
            return refused

        self._on_loop(lambda: self._area(area))
        found = [self._on_loop(partial(once, run)) for run in runs]
        return {key: reason.value for refused in found for key, reason in refused.items()}

    # -- peers

    def add_peer(self, area: str, name: str, addresses: Sequence[str]) -> None:
        self._on_loop(lambda: self._peers.add(area, name, addresses))

    def delete_peer(self, area: str, name: str) -> bool:
        return self._on_loop(lambda: self._peers.delete(area, name))

    # -- watching

    def watch(self, area: str, query: Query, ttl: bool, wake: Callable[[], None]) -> OpenWatch:
        watch = Watch(_filter(query), ttl, _safe(wake))

        def begin() -> Area:
            found = self._area(area)
            if sum(len(each.watches) for each in self._core.store.areas.values()) >= MOST_WATCHES:
                raise Retryable("watch", f"this node has {MOST_WATCHES} already", "close one, or ask another node")
            found.watch(watch)
            return found

        return OpenWatch(watch, self._on_loop(begin), self._on_loop, self._now)


class OpenWatch:
    def __init__(self, watch: Watch, area: Area, on_loop: OnLoop, now: Callable[[], float]) -> None:
        self._watch, self._area, self._on_loop, self._now = watch, area, on_loop, now
        self._open = True

    def read(self, most: int) -> list[dict[str, Any]]:
        return [shown_event(event) for event in self._on_loop(lambda: self._area.read(self._watch, most, self._now()))]

    def close(self) -> None:
        """Once, or more often; the node may be gone."""
        with suppress(Retryable, TimeoutError):
            self._on_loop(self._close)

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._area.unwatch(self._watch)


def _safe(wake: Callable[[], None]) -> Callable[[], None]:
    """A client whose own loop is gone must not harm the store."""

    def woken() -> None:
        with suppress(RuntimeError):
            wake()

    return woken


def _filter(query: Query) -> Filter:
    return filter_of(query.patterns, query.originators, query.every, query.prefixes)


def _matching(area: Area, leaves: Iterable[int], wanted: Filter, after: str, now: float) -> Found:
    keys = (key for key in area.table.digest.keys(leaves) if wanted.may_match(key) and (key > after or not after))
    found = ((key, area.table.shown(key, now)) for key in keys)
    return [(key, value) for key, value in found if value is not None and wanted.matches(key, value)]


def _first(runs: Iterable[Found], most: int) -> Found:
    first: Found = []
    for run in runs:
        first = sorted(first + run)[:most]
    return first


def _ordered(runs: Iterable[Found]) -> Iterator[tuple[str, Value]]:
    """Sorted in parts and given away one by one: to sort or to free a million at once would stop all other threads."""
    return merge(*[_given_away(sorted(run, reverse=True)) for run in runs])


def _given_away(run: Found) -> Iterator[tuple[str, Value]]:
    while run:
        yield run.pop()


def summary(area: Area) -> Shown:
    peers = area.peers.by_name.values()
    states = Counter(peer.state for peer in peers)
    return {
        "keys": len(area.table),
        "bytes": area.table.bytes,
        "own": len(area.own.keys),
        "peers": len(peers),
        **{state.value: states[state] for state in PeerState},
        "pending": sum(len(peer.pending) for peer in peers),
        "blocked": sum(peer.blocked for peer in peers),
        "synced": area.synced,
        "watches": len(area.watches),
        "counters": {name: area.counters[name] for name in COUNTERS} | dict(area.counters),
    }


def _own(area: Area, keys: Iterable[str]) -> list[tuple[str, Shown]]:
    found = ((key, area.own.keys.get(key)) for key in keys)
    return [(key, _shown_own(own)) for key, own in found if own is not None]


def _shown_own(own: Own) -> Shown:
    ttl_ms = None if own.ttl_ms == INFINITE else own.ttl_ms
    return {
        "keep": "persist" if own.persisted else "set",
        "version": own.version,
        "ttl_ms": ttl_ms,
        "bytes": len(own.data),
    }


# -- writing, on the loop


def _writable(key: str) -> str:
    try:
        key.encode()
    except UnicodeEncodeError:
        raise Invalid(f"key {key!a}", "it is not text that can be sent", "write keys in UTF-8") from None
    return key


def _runs(keys: Mapping[str, _T]) -> Iterator[dict[str, _T]]:
    items = iter([(_writable(key), value) for key, value in keys.items()])
    while run := dict(islice(items, WRITES)):
        yield run


def _ttl(ttl_ms: int | None) -> int:
    """0, which nothing may have, for one that is out of bounds."""
    if ttl_ms is None:
        return INFINITE
    return ttl_ms if 0 < ttl_ms <= LONGEST_TTL_MS else 0


def _put(area: Area, puts: Mapping[str, Put], now: float) -> Written:
    values: dict[str, Value] = {}
    refused: dict[str, Reason] = {}
    for key, put in puts.items():
        value = _value(area, key, put)
        reason = Reason.NOT_THE_OWNER if is_bound(key) else refusal(key, value)
        if reason is not None:
            refused[key] = _count(area, reason)
        elif put.keep == "no":
            values[key] = sealed(key, value.version, area.node, put.data, value.ttl_ms)
        else:
            keep = area.persist if put.keep == "persist" else area.keep_set
            keep(key, put.data, now, value.ttl_ms, put.version or 1)
    sends, rest = area.put(values, now)
    return sends, refused | rest


def _value(area: Area, key: str, put: Put) -> Value:
    default = area.settings.ttl_ms if put.keep != "no" and put.ttl_ms is None else None
    stored = area.table.entries.get(key)
    above = stored.value.version + 1 if stored is not None and put.keep == "no" else 1
    return Value(above if put.version is None else put.version, area.node, put.data, default or _ttl(put.ttl_ms))


def _count(area: Area, reason: Reason) -> Reason:
    area.counters[f"refused_{reason}"] += 1
    return reason


def _each(
    area: Area, run: Mapping[str, _T], now: float, write: Callable[[Area, str, _T, float], tuple[list[Send], Reason | None]]
) -> Written:
    sends: list[Send] = []
    refused: dict[str, Reason] = {}
    for key, wish in run.items():
        more, reason = ([], _count(area, Reason.NOT_THE_OWNER)) if is_bound(key) else write(area, key, wish, now)
        sends += more
        if reason is not None:
            refused[key] = reason
    return sends, refused


def _refresh(area: Area, key: str, ttl_ms: int | None, now: float) -> tuple[list[Send], Reason | None]:
    return area.refresh(key, _ttl(ttl_ms), now)


def _erase(area: Area, key: str, wish: None, now: float) -> tuple[list[Send], Reason | None]:
    return area.erase(key, now)


def _clear(area: Area, key: str, wish: None, now: float) -> tuple[list[Send], Reason | None]:
    kept = key in area.own.keys
    area.clear(key)
    return [], None if kept else Reason.NO_NEED_TO_UPDATE
