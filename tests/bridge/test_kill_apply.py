"""kill -9 in the middle of waves: what is in the database in the end is what one bundle after the other would have made."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from bridge_apply import TYPES, delta, levels, make_tables, members
from bridge_hub import Hub, cluster, clusters, compliance, event, events, verdict

from trunkline.core.bundle import Bundle
from trunkline.core.jsoncodec import loads
from waiting import eventually

SITES = [f"s{n}" for n in range(6)]
_READ = {
    "clusters": "SELECT site, name, revision FROM status.cluster",
    "compliance": "SELECT site, cluster, state FROM status.compliance",
    "events": "SELECT site, id, '' FROM status.event",
    "levels": "SELECT site, name, level FROM level",
    "members": "SELECT site, name, '' FROM member",
}


@dataclass
class Model:
    """One bundle after the other, each applied at once. A broken one changes nothing."""

    state: dict[str, dict[str, dict[str, Any]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(dict)))

    def apply(self, bundle: Bundle) -> None:
        if bundle.data == b"[":
            return
        rows = self.state[bundle.type.replace("level-deltas", "levels")][bundle.source]
        document = loads(bundle.data)
        if bundle.type == "members":
            rows.update(dict.fromkeys([*document.get("create", []), *document.get("resync", [])], ""))
            kept = document.get("resync_metadata", list(rows))
            for name in [name for name in rows if name not in kept or name in document.get("delete", [])]:
                del rows[name]
            return
        if bundle.type in ("clusters", "compliance", "levels"):
            rows.clear()
        rows.update({item.get("name") or item.get("cluster") or item["id"]: _value(item) for item in document})

    def rows(self, type_: str) -> set[tuple[Any, ...]]:
        return {(site, name, value) for site, rows in self.state[type_].items() for name, value in rows.items()}


def _value(item: dict[str, Any]) -> Any:
    return next((item[name] for name in ("revision", "state", "level") if name in item), "")


class Fleet:
    """Sites that send at random; each is told by its own count of everything."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.generation = 0
        self.based: dict[str, int] = {}

    def bundles(self, count: int) -> list[Bundle]:
        return [self._bundle(self.random.choice(SITES)) for _ in range(count)]

    def last(self) -> list[Bundle]:
        """After these nothing waits for anything, and no broken bundle is the newest."""
        out = []
        for site in SITES:
            self.generation += 1
            g = self.generation
            out += [clusters(site, g, cluster("last", revision=g)), compliance(site, g, g, verdict("last", state=str(g)))]
            out += [levels(site, g, last=g % 1000), delta(site, g, g, more=g % 1000)]
        return out

    def _bundle(self, site: str) -> Bundle:
        self.generation += 1
        g, pick = self.generation, self.random.choice
        names = self.random.sample(["a", "b", "c", "d", "e"], 3)
        kind = pick(["clusters", "compliance", "events", "levels", "delta", "delta", "members", "resync", "broken"])
        if kind == "levels" or (kind == "delta" and site not in self.based):
            self.based[site] = g
            return levels(site, g, **dict.fromkeys(names, g % 1000))
        return {
            "clusters": lambda: clusters(site, g, *[cluster(name, revision=g) for name in names]),
            "compliance": lambda: compliance(site, g, None, *[verdict(name, state=str(g)) for name in names]),
            "events": lambda: events(site, g, event(g), event(g + 1)),
            "delta": lambda: delta(site, g, self.based[site], **{names[0]: g % 1000}),
            "members": lambda: members(site, g, create=names[:2], delete=names[2:]),
            "resync": lambda: members(site, g, resync=names, resync_metadata=names),
            "broken": lambda: clusters(site, g, raw=b"["),
        }[kind]()


@contextmanager
def process(hub: Hub) -> Iterator[subprocess.Popen[str]]:
    """It waits for the lease as long as the hub has it."""
    folder = Path(__file__).parent
    child = subprocess.Popen(
        [sys.executable, str(folder / "killed_workers.py"), hub.dsn], stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": f"{folder}:{folder.parent}", "PATH": ""},
    )  # fmt: skip
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def hand_over(hub: Hub, child: subprocess.Popen[str]) -> None:
    hub.conn.execute("UPDATE site.lease SET expires_at = '-infinity' WHERE name = 'bridge'")
    hub.conn.commit()
    assert child.stdout is not None
    assert child.stdout.readline() == "applying\n"


def left(hub: Hub) -> int:
    return int(hub.rows("SELECT count(*) FROM bridge.inbox")[0][0])


def kill_again_and_again(hub: Hub, times: int, seed: int) -> None:
    fleet, model = Fleet(seed), Model()
    for _ in range(times):
        with process(hub) as child:
            sent = fleet.bundles(60)
            hub.take_in(*sent)
            for bundle in sent:
                model.apply(bundle)
            point = fleet.random.randrange(max(1, left(hub)))
            hand_over(hub, child)
            eventually(lambda point=point: left(hub) <= point)
        hub.grant = hub.take_over()
    with process(hub) as child:
        sent = fleet.last()
        hub.take_in(*sent)
        for bundle in sent:
            model.apply(bundle)
        hand_over(hub, child)
        eventually(lambda: left(hub) == 0, why=lambda: hub.inbox())
    for type_, query in _READ.items():
        assert set(hub.rows(query)) == model.rows(type_), type_
    counted = "conflated + rejected + stale + applied + quarantined + discarded"
    assert hub.rows(f"SELECT site FROM bridge.counter WHERE received <> {counted}") == []
    assert hub.rows("SELECT site, type FROM bridge.resync") == []


@pytest.fixture
def hub(make_database: Callable[..., str]) -> Iterator[Hub]:
    with ExitStack() as stack:
        hub = Hub(make_database("queues", "bridge"), stack, TYPES)
        make_tables(hub)
        yield hub


def test_killed_at_10_points_the_end_is_that_of_the_model(hub: Hub) -> None:
    kill_again_and_again(hub, 10, seed=random.randrange(10_000))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_killed_at_200_points_the_end_is_that_of_the_model(hub: Hub) -> None:
    kill_again_and_again(hub, 200, seed=random.randrange(10_000))
