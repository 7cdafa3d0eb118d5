"""What agents tell of their hubs in a while, restarts among it; and the sequential model of what all that must end in."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from hub_agent import PREFIX, Message, cluster, cut, event, policy_events
from kafka_topics import Topics
from trunkline.bridge.fleettypes import GLOBAL_HUB
from trunkline.core.jsoncodec import loads
from trunkline.pipeline.kafka.offsets import read_offsets

CLUSTERS, EVENTS, HEARTBEAT = "managedcluster", "event.localreplicatedpolicy", "managedhub.heartbeat"
PAIRS, STATES, CHANGES = "policy.localcompliance", "policy.localcompletecompliance", "policy.deltacompliance"
BASES = {STATES: PAIRS, CHANGES: STATES}
LISTS = {
    "compliant": "compliantClusters", "non_compliant": "nonCompliantClusters", "unknown": "unknownComplianceClusters",
    "pending": "pendingComplianceClusters",
}  # fmt: skip
_BEGAN = datetime(2026, 1, 15, tzinfo=UTC)

Pairs = dict[tuple[str, str], str]
"""(policy, cluster) -> state"""


def _by_policy(pairs: Pairs) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (policy, name), state in pairs.items():
        found.setdefault(policy, {"policyId": policy}).setdefault(LISTS[state], []).append(name)
    return list(found.values())


class Agent:
    """Of one hub. With `sessions` it names its runs, and the first bundles of a run may be lost; without, a run begins with
    generation 0."""

    def __init__(self, hub: str, rng: random.Random, sessions: bool = False) -> None:
        self.hub, self._rng, self._sessions = hub, rng, sessions
        self._clusters = {f"c{n}": 0 for n in range(4)}
        self._pairs: Pairs = {}
        self._numbers, self._times = itertools.count(1), itertools.count()
        self.restart()

    def restart(self) -> list[Message]:
        self._versions: dict[str, tuple[int, int]] = {}
        self._run = next(self._numbers)
        self._first = self._rng.randint(0, 5) if self._sessions else 0
        return []

    def tell(self, messages: int) -> Iterator[Message]:
        """About as many, at random."""
        kinds: dict[Callable[[], list[Message]], int] = {
            self._change_clusters: 3, self._tell_pairs: 2, self._tell_states: 2, self._tell_changes: 5, self._tell_events: 3,
            self._live: 1, self._forge: 1, self._break: 1, self.restart: 1,
        }  # fmt: skip
        told = 0
        while told < messages:
            [kind] = self._rng.choices(list(kinds), list(kinds.values()))
            for message in kind():
                copies = 2 if "ce_extsize" not in message[0] and self._rng.random() < 0.05 else 1
                told += copies
                yield from [message] * copies

    def tell_all(self) -> list[Message]:
        """Afterwards nothing waits for anything."""
        everything = {"resync": [cluster(*each) for each in self._clusters.items()],
                      "resync_metadata": [{"id": f"id-{name}", "ns": "", "name": name} for name in self._clusters]}  # fmt: skip
        resync = self._send(CLUSTERS, everything)
        return [resync, *self._tell_pairs(), *self._tell_states(), *self._tell_changes(), *self._tell_events(), *self._live()]

    def _send(self, suffix: str, data: Any, **more: str) -> Message:
        generation, value = self._versions.get(suffix, (self._first - 1, 0))
        self._versions[suffix] = generation + 1, value + self._rng.randint(1, 2)
        if suffix in BASES:
            more["extdependencyversion"] = "{}.{}".format(*self._versions[BASES[suffix]])
        if self._sessions:
            more["sessionid"] = f"run-{self._run}"
        time = (_BEGAN + timedelta(milliseconds=10 * next(self._times))).isoformat()
        return event(self.hub, suffix, "{}.{}".format(*self._versions[suffix]), data, time=time, **more)

    def _change_clusters(self) -> list[Message]:
        name, number = f"c{self._rng.randrange(8)}", next(self._numbers)
        if name in self._clusters and self._rng.random() < 0.3:
            del self._clusters[name]
            return [self._send(CLUSTERS, {"delete": [{"id": f"id-{name}", "ns": "", "name": name}]})]
        kind = "update" if name in self._clusters else "create"
        self._clusters[name] = number
        return [self._send(CLUSTERS, {kind: [cluster(name, number)]})]

    def _tell_pairs(self) -> list[Message]:
        every = itertools.product(("p1", "p2", "p3"), self._clusters)
        self._pairs = {pair: self._rng.choice(list(LISTS)) for pair in every}
        whole = self._send(PAIRS, _by_policy(self._pairs))
        return cut(whole, len(whole[1]) // 2) if self._rng.random() < 0.2 else [whole]

    def _change_pairs(self) -> Pairs:
        some = self._rng.sample(sorted(self._pairs), min(len(self._pairs), 3))
        changed = {pair: self._rng.choice(list(LISTS)) for pair in some}
        self._pairs |= changed
        return changed

    def _tell_states(self) -> list[Message]:
        if PAIRS not in self._versions:
            return []
        self._change_pairs()
        others = {pair: state for pair, state in self._pairs.items() if state != "compliant"}
        return [self._send(STATES, _by_policy(others))]

    def _tell_changes(self) -> list[Message]:
        return [self._send(CHANGES, _by_policy(self._change_pairs()))] if STATES in self._versions else []

    def _tell_events(self) -> list[Message]:
        names = [f"{self.hub}-e{next(self._numbers)}" for _ in range(self._rng.randint(1, 3))]
        _, rows = policy_events(self.hub, 0, *names)
        return [self._send(EVENTS, rows)]

    def _live(self) -> list[Message]:
        return [self._send(HEARTBEAT, [])]

    def _forge(self) -> list[Message]:
        return [event("somebody-else", PAIRS, "0.1", [])]

    def _break(self) -> list[Message]:
        return [self._send(PAIRS, b"{no list")]


Ledger = dict[str, tuple[int, int, int]]
"""type -> (incarnation, generation, value)"""


@dataclass
class Model:
    """Of one hub: one message after the other, each wholly done before the next."""

    hub: str
    received: int = 0
    pairs: Pairs = field(default_factory=dict)
    clusters: dict[str, tuple[str, bool]] = field(default_factory=dict)
    events: set[str] = field(default_factory=set)
    ledger: Ledger = field(default_factory=dict)
    _runs: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    _part: bytes = b""

    def take(self, message: Message) -> None:
        headers, payload = message
        position, self.received = self.received, self.received + 1
        if headers["ce_source"] != self.hub:
            return
        suffix = headers["ce_type"].removeprefix(PREFIX)
        generation, value = map(int, headers["ce_extversion"].split("."))
        run = self._run(suffix, headers, generation, position)
        if "ce_extsize" in headers:
            payload = self._part = self._part + payload
            if len(payload) < int(headers["ce_extsize"]):
                return
            self._part = b""
        self._judge(suffix, (run, generation, value), headers.get("ce_extdependencyversion"), payload)

    def _run(self, suffix: str, headers: dict[str, str], generation: int, position: int) -> int:
        """A run is counted by the place where it begins. The bridge may see that later, when it was conflated away."""
        run, session, began_with = self._runs.get(suffix, (0, "", ""))
        named = headers.get("ce_sessionid", "")
        is_rest = headers.get("ce_extoffset", "") == headers.get("ce_extsize", "-")
        begins = named != session if named else generation == 0 and headers["ce_id"] != began_with and not is_rest
        if begins:
            self._runs[suffix] = max(position, run + 1), named, headers["ce_id"]
        return self._runs[suffix][0]

    def _judge(self, suffix: str, version: tuple[int, int, int], needs: str | None, payload: bytes) -> None:
        type_ = GLOBAL_HUB[suffix]
        before = self.ledger.get(type_, (0, -1, 0))
        stale = version[:2] < before[:2] or (version[:2] == before[:2] and suffix not in (CLUSTERS, EVENTS))
        base = self.ledger.get(GLOBAL_HUB[BASES[suffix]]) if suffix in BASES else None
        unmet = needs is not None and (base is None or base[2] != int(needs.split(".")[1]))
        if not stale and not unmet and payload != b"{no list":
            self.ledger[type_] = version
            self._apply(suffix, loads(payload))

    def _apply(self, suffix: str, document: Any) -> None:
        if suffix == CLUSTERS:
            self._apply_clusters(document)
        elif suffix == EVENTS:
            self.events |= {row["eventName"] for row in document}
        elif suffix in (PAIRS, STATES, CHANGES):
            told = {
                (row["policyId"], name): state
                for row in document
                for state, list_ in LISTS.items()
                for name in row.get(list_, [])
            }
            if suffix == PAIRS:
                self.pairs = told
            rest: Pairs = dict.fromkeys(self.pairs, "compliant") if suffix == STATES else self.pairs
            self.pairs = {pair: told.get(pair, rest[pair]) for pair in self.pairs}

    def _apply_clusters(self, document: dict[str, list[dict[str, Any]]]) -> None:
        for kind in ("resync", "create", "update"):
            for one in document.get(kind, []):
                self.clusters[one["metadata"]["name"]] = one["metadata"]["labels"]["revision"], True
        gone = {one["name"] for one in document.get("delete", [])}
        if "resync_metadata" in document:
            gone |= self.clusters.keys() - {one["name"] for one in document["resync_metadata"]}
        for name in gone & self.clusters.keys():
            self.clusters[name] = self.clusters[name][0], False

    def end(self) -> dict[str, Any]:
        return {
            "pairs": {(*pair, f"id-{pair[1]}"): state for pair, state in self.pairs.items()},
            "clusters": self.clusters,
            "events": self.events,
            "ledger": {type_: (generation, value) for type_, (_, generation, value) in self.ledger.items()},
            "received": self.received,
            "elsewhere": 0,
        }


_COUNTED = "conflated + rejected + stale + applied + quarantined + discarded + joined + expired"


def end_of(conn: psycopg.Connection[Any], hub: str) -> dict[str, Any]:
    """As `Model.end`. `elsewhere`: messages that were received and are not counted as anything else."""

    def rows(query: str) -> list[tuple[Any, ...]]:
        return conn.execute(query.encode(), (hub,)).fetchall()

    with conn.transaction():
        [(received, elsewhere)] = rows(f"SELECT received, received - ({_COUNTED}) FROM bridge.counter WHERE site = %s")
        found = rows("SELECT policy_id, cluster_name, cluster_id, state::text FROM fleet.compliance WHERE site = %s")
        clusters = rows("SELECT name, payload #>> '{metadata,labels,revision}', deleted_at IS NULL"
                        " FROM fleet.managed_cluster WHERE site = %s")  # fmt: skip
        return {
            "pairs": {tuple(pair): state for *pair, state in found},
            "clusters": {name: (revision, there) for name, revision, there in clusters},
            "events": {name for (name,) in rows("SELECT event_name FROM fleet.policy_event WHERE site = %s")},
            "ledger": {
                type_: tuple(version)
                for type_, *version in rows("SELECT type, generation, value FROM bridge.ledger WHERE site = %s")
            },
            "received": received,
            "elsewhere": elsewhere,
        }


_TAKEN_IN = "SELECT coalesce(sum(received), 0) FROM bridge.counter"
_WAITING = "SELECT (SELECT count(*) FROM bridge.inbox) + (SELECT count(*) FROM bridge.chunk)"


class Fleet:
    """Agents of several hubs on Kafka, and what the database must end in. Of every second hub the agent names its sessions."""

    def __init__(self, dsn: str, topics: Topics, hubs: int, rng: random.Random) -> None:
        self._dsn, self._topics = dsn, topics
        self.hubs = [f"h{n}" for n in range(hubs)]
        self._agents = [Agent(hub, rng, sessions=n % 2 == 1) for n, hub in enumerate(self.hubs)]
        self._models = [Model(hub) for hub in self.hubs]
        self._producer = topics.producer()
        topics.create(*self.hubs)

    @property
    def sent(self) -> int:
        return sum(model.received for model in self._models)

    def send(self, each: int) -> None:
        self._put(agent.tell(each) for agent in self._agents)

    def send_all(self) -> None:
        self._put(agent.tell_all() for agent in self._agents)

    def _put(self, stories: Iterable[Iterable[Message]]) -> None:
        for model, story in zip(self._models, stories, strict=True):
            for headers, payload in story:
                self._producer.produce(self._topics.name(model.hub), payload, partition=0, headers=headers)
                model.take((headers, payload))
        assert self._producer.flush(60) == 0

    def count(self, query: str) -> int:
        with psycopg.connect(self._dsn) as conn:
            row = conn.execute(query.encode()).fetchone()
            assert row is not None
            return int(row[0])

    def taken_in(self) -> int:
        return self.count(_TAKEN_IN)

    def is_done(self) -> bool:
        return self.taken_in() == self.sent and self.count(_WAITING) == 0

    def standing(self) -> object:
        with psycopg.connect(self._dsn) as conn:
            waiting = conn.execute("SELECT site, type, count(*) FROM bridge.inbox GROUP BY site, type").fetchall()
        return self.sent, self.taken_in(), waiting

    def require_end(self) -> None:
        """As the model's, hub by hub; and nothing is open or wanted."""
        with psycopg.connect(self._dsn) as conn:
            for model in self._models:
                assert end_of(conn, model.hub) == model.end()
            offsets = {topic: standing.next for topic, standing in read_offsets(conn, "bridge").items()}
        assert offsets == {self._topics.name(model.hub): {0: model.received} for model in self._models}
        assert self.count("SELECT count(*) FROM bridge.quarantine WHERE state = 'open' AND type IS NOT NULL") == 0
        assert self.count("SELECT count(*) FROM bridge.resync") == 0
