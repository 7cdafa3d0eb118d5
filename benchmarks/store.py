"""The replicated store: merging, comparing, bringing a peer into step, flooding a change, and how long one step blocks.

A value is 360 bytes of key, originator and data; publications hold 1,000. Merging is `Table.take` of decoded publications:
every hash is computed and compared, expiry and digest are updated; a round writes all keys anew, then replaces all (the
metric is both together), then refreshes all. Pairs and graphs of areas exchange encoded messages in virtual time. A step is
what an event loop does at once: decode one message, take it, encode what follows; or one tick. It is measured in the thread's
own time, since others use this machine, too, and without what the collector of garbage does with the benchmark's own modules.
"""

from __future__ import annotations

import gc
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from random import Random
from statistics import median
from typing import TypeVar

from areas.graphs import Fleet, diameter, grid, random_of_degree_4, ring, star
from harness import Result, Size, growth, run, seconds
from trunkline.store.area import Area
from trunkline.store.filters import Filter
from trunkline.store.messages import CODEC, AskKeys, AskRoot, Publish, Same, Send
from trunkline.store.settings import Settings
from trunkline.store.table import Table
from trunkline.store.values import Header, Value, difference, refresh_of, sealed
from trunkline.store.watch import Watch

BYTES = 360
TTL_MS = 3_600_000
PORTION = 1_000
NOW = 1_000.0
FLEET = "fleet"
IDLE_SECONDS = 300

Values = dict[str, Value]
T = TypeVar("T")


def key_of(n: int) -> str:
    return f"app:site-{n % 50:02}:meter-{n:08}"


def made(count: int, version: int = 1, ttl_ms: int = TTL_MS) -> Iterator[tuple[str, Value]]:
    for n in range(count):
        key, originator = key_of(n), f"site-{n % 50:02}/node-1"
        data = (b"%08d" % (n * version)).ljust(BYTES - len(key) - len(originator), b".")
        yield key, sealed(key, version, originator, data, ttl_ms)


def portions(values: Iterable[tuple[str, Value]]) -> Iterator[Values]:
    source = iter(values)
    while portion := dict(islice(source, PORTION)):
        yield portion


def best(work: Callable[[], object], times: int) -> float:
    return min(seconds(work) for _ in range(times))


# -- merging


def take_all(table: Table, publications: list[Values]) -> float:
    """Seconds per value."""
    begun = time.perf_counter()
    for n, values in enumerate(publications):
        taken = table.take(values, NOW + n / 1000).taken
        assert len(taken) == len(values)
    return (time.perf_counter() - begun) / sum(map(len, publications))


def merging(count: int, rounds: int) -> list[Result]:
    new, replacing = list(portions(made(count))), list(portions(made(count, 2)))
    refreshing = [{key: refresh_of(value, TTL_MS) for key, value in values.items()} for values in replacing]
    times = []
    for _ in range(rounds):
        table = Table()
        times.append(tuple(take_all(table, publications) for publications in (new, replacing, refreshing)))
    fresh, replaced, refreshed = map(min, zip(*times, strict=True))
    twice = min(take_all(Table(), list(portions(made(2 * count)))) for _ in range(rounds))
    publications = [Publish(FLEET, values, ("a",)) for values in new]
    bodies = CODEC.encode_many(publications)
    decoding, encoding = (
        best(partial(CODEC.decode_many, bodies), rounds),
        best(partial(CODEC.encode_many, publications), rounds),
    )
    return [
        Result("merge_values_per_s", round(2 / (fresh + replaced)), "values/s", 300_000),
        Result("merge_new_per_s", round(1 / fresh), "values/s"),
        Result("merge_replaced_per_s", round(1 / replaced), "values/s"),
        Result("merge_refreshed_per_s", round(1 / refreshed), "values/s"),
        growth("merge", fresh, 2 * twice),
        Result("decode_values_per_s", round(count / decoding), "values/s"),
        Result("encode_values_per_s", round(count / encoding), "values/s"),
    ]


# -- comparing


def headers_of(values: Values, changed: int) -> bytes:
    """A message with the headers of a peer, at which every `changed`th value is newer."""
    newer = {key: n % changed == 0 for n, key in enumerate(values)}
    headers = {key: Header(v.version + newer[key], v.originator, v.hash ^ newer[key], 0) for key, v in values.items()}
    return CODEC.encode(AskKeys(FLEET, 1, (), headers))


def comparing(count: int, rounds: int) -> list[Result]:
    def once(n: int, changed: int) -> tuple[float, float]:
        """Milliseconds to compare, and to decode before."""
        mine = dict(made(n))
        body = headers_of(mine, changed)
        asked = CODEC.decode(body)
        assert isinstance(asked, AskKeys)
        give, want = difference(mine, asked.headers)
        assert (len(give), len(want)) == (0, -(-n // changed))
        return best(lambda: difference(mine, asked.headers), rounds) * 1000, best(lambda: CODEC.decode(body), rounds) * 1000

    took, decoding = once(count, 100)
    return [
        Result("diff_100k_ms", round(took, 1), "ms, 1 % differ", 60, most=True),
        Result("diff_100k_all_differ_ms", round(once(count, 1)[0], 1), "ms"),
        Result("diff_100k_decode_ms", round(decoding, 1), "ms"),
        growth("diff", took, once(2 * count, 100)[0]),
    ]


# -- pairs


@dataclass
class Steps:
    longest: dict[str, float] = field(default_factory=dict)
    """Milliseconds, by what was done."""

    def of(self, name: str, work: Callable[[], T]) -> T:
        begun = time.thread_time()
        done = work()
        self.longest[name] = max(self.longest.get(name, 0.0), (time.thread_time() - begun) * 1000)
        return done


def encoded(work: Callable[[], Iterable[Send]]) -> list[bytes]:
    return [CODEC.encode(send.message) for send in work()]


@dataclass
class Pair:
    """Two areas over a link that takes no time; every step is measured."""

    one: Area
    other: Area
    steps: Steps = field(default_factory=Steps)
    moved: int = 0
    """Bytes."""
    now: float = NOW + 10

    def join(self) -> None:
        waiting: deque[tuple[Area, Area, bytes]] = deque()
        for area, peer in ((self.one, self.other), (self.other, self.one)):
            bodies = self.steps.of("link", partial(encoded, partial(area.link_up, peer.node, self.now)))
            waiting.extend((area, peer, body) for body in bodies)
        while waiting:
            sender, receiver, body = waiting.popleft()
            self.moved += len(body)
            bodies = self.steps.of("message", partial(encoded, partial(self._receive, receiver, sender.node, body)))
            waiting.extend((receiver, sender, answer) for answer in bodies)

    def _receive(self, receiver: Area, sender: str, body: bytes) -> list[Send]:
        return receiver.receive(sender, CODEC.decode(body), self.now)


def area_of(name: str, values: Iterable[tuple[str, Value]] = (), settings: Settings | None = None) -> Area:
    area = Area(name, FLEET, Random(name).random, settings)
    for portion in portions(values):
        area.table.take(portion, NOW)
    return area


def same(one: Area, other: Area) -> bool:
    return len(one.table) == len(other.table) and one.table.digest.root() == other.table.digest.root()


def resync(values: Values) -> tuple[Pair, float]:
    """One key differs."""
    one, other = area_of("a", values.items()), area_of("b", values.items())
    one.write(key_of(7), b"x" * 320, TTL_MS, NOW)
    pair = Pair(one, other)
    gc.collect()
    took = seconds(pair.join)
    assert same(one, other)
    return pair, took


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def pairs(count: int, suffix: str) -> tuple[list[Result], float]:
    """Also the seconds of the resync."""
    values = dict(made(count))
    resynced, took = resync(values)
    full = resynced.one
    resynced.one.link_down("b", NOW)
    steps = dict(resynced.steps.longest)
    ratio = resynced.moved / (count * BYTES)
    del resynced, values
    gc.collect()
    before = resident()
    joining = Pair(full, area_of("c"))
    joined = seconds(joining.join)
    assert same(joining.one, joining.other)
    per_key = (resident() - before) / count
    steps |= {f"join {step}": longest for step, longest in joining.steps.longest.items()}
    steps |= others(joining.other, joining.now)
    name, longest = max(steps.items(), key=lambda found: found[1])
    return [
        Result(f"resync_bytes_ratio{suffix}", round(ratio, 6), "of the key set", 0.002, most=True),
        Result(f"resync_ms{suffix}", round(took * 1000, 1), "ms"),
        Result(f"loop_block_ms{suffix}", round(longest, 1), f"ms, {name}", 50, most=True),
        Result(f"join_values_per_s{suffix}", round(count / joined), "values/s"),
        Result(f"join_bytes_ratio{suffix}", round(joining.moved / (count * BYTES), 2), "of the key set"),
        Result(f"memory_per_key{suffix}", round(per_key), "bytes"),
    ], took


def others(area: Area, now: float) -> dict[str, float]:
    """The longest of the steps that no message causes, in a full area that is linked with one peer."""
    steps = Steps()
    watch = Watch(Filter())
    steps.of("watch", lambda: area.watch(watch))
    steps.of("portion of a watch", lambda: area.read(watch, PORTION, now))
    steps.of("portion of a dump", lambda: list(islice(area.shown(now), PORTION)))
    area.unwatch(watch)
    (peer,) = area.peers.by_name
    area.not_sent(peer, Publish(FLEET, {}, (area.node,)), now)
    keys = list(islice(area.table.entries, 9_000))
    for portion in portions((key, refresh_of(area.table.entries[key].value, TTL_MS)) for key in keys):
        steps.of("merge", partial(area.put, portion, now))
    steps.of("drain", partial(encoded, partial(area.has_room, peer, now)))
    for key in keys[:5_000]:
        area.persist(key, b"mine", now)
    for tick in range(20):
        steps.of("tick", partial(encoded, partial(area.tick, now + tick / 10)))
    end = now + TTL_MS / 1000 + 1
    while len(area.table) > 5_000:
        end += 0.1
        steps.of("expire", partial(encoded, partial(area.tick, end)))
    return steps.longest


# -- one change


def flood_cost(area: Area, keys: int, version: int, turns: int) -> float:
    """Seconds for a publication of one key: decode, merge, and encode what goes on to four peers."""
    random = Random(version)
    times = []
    for _ in range(turns):
        key = key_of(random.randrange(keys))
        body = CODEC.encode(Publish(FLEET, {key: sealed(key, version, "site-00/node-1", b"y" * 320, TTL_MS)}, ("p0",)))
        begun = time.perf_counter()
        sends = area.receive("p0", CODEC.decode(body), NOW)
        for send in sends:
            CODEC.encode(send.message)
        times.append(time.perf_counter() - begun)
        assert len(sends) == 4
        version += 1
    return median(times)


def with_peers(area: Area) -> Area:
    for n in range(5):
        for send in area.link_up(f"p{n}", NOW):
            assert isinstance(send.message, AskRoot)
            area.receive(f"p{n}", Same(FLEET, send.message.id), NOW)
    return area


def flooding(count: int, turns: int, suffix: str) -> list[Result]:
    few, many = with_peers(area_of("a", made(10))), with_peers(area_of("a", made(count)))
    flood_cost(few, 10, 2, turns // 10)
    rounds = [(flood_cost(few, 10, 10**6 * n, turns), flood_cost(many, count, 10**6 * n, turns)) for n in range(1, 6)]
    small, large = map(min, zip(*rounds, strict=True))
    return [
        Result(f"flood_cost_ratio_{suffix}_vs_10", round(large / small, 2), "ratio", 1.5, most=True),
        Result("flood_one_key_us", round(small * 1e6, 1), "us"),
    ]


# -- graphs


def graphs() -> list[Result]:
    results = []
    for shape in (ring, star, grid, random_of_degree_4):
        for count in (10, 100, 1_000):
            links = shape(count, Random(count))
            delays, copies = Fleet(links).spread()
            results += [
                Result(f"{shape.__name__}_{count}_delays", round(delays, 3), "link delays"),
                Result(f"{shape.__name__}_{count}_messages", round(copies, 2), "messages per node"),
            ]
    over = delays / diameter(links, count)  # of the last: a thousand of degree 4
    return [
        Result("graph_1000_time_over_diameter", round(over, 3), "ratio", 1.1, most=True),
        Result("graph_1000_copies_per_node", round(copies, 3), "copies", 3.05, most=True),
        *results,
    ]


def idle(count: int) -> Result:
    fleet = Fleet(random_of_degree_4(count, Random(1)))
    for name, area in fleet.areas.items():
        for key in ("a", "b", "c"):
            area.persist(f"app:{name}:{key}", b"w" * 320, fleet.now)
    fleet.live(200)
    fleet.counts_bytes = True
    fleet.live(IDLE_SECONDS)
    return Result(
        "idle_bytes_per_s", round(fleet.bytes / count / IDLE_SECONDS), f"bytes/s per node, of {count} with 3 keys each"
    )


def measure(size: Size) -> list[Result]:
    whole = size is Size.FULL
    gc.collect()
    gc.freeze()
    merged, rounds, many = (200_000, 5, 1_000_000) if whole else (50_000, 2, 200_000)
    name = "1m" if whole else "200k"
    at_100k, took = pairs(100_000, "")
    _, twice = resync(dict(made(200_000)))
    return [
        *merging(merged, rounds),
        *comparing(100_000, rounds),
        *at_100k,
        growth("resync", took, twice),
        *(pairs(many, f"_{name}")[0] if whole else ()),
        *flooding(many, 2_000, name),
        *graphs(),
        idle(100 if whole else 30),
    ]


if __name__ == "__main__":
    run("store", measure)
