"""Scenarios of the bridge that intake answers for: restarts, offsets, identity, chunks, and what cannot be right."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bridge_hub import GROUP, Hub

from trunkline.bridge.envelope import normalise
from trunkline.bridge.fleettypes import GLOBAL_HUB_PREFIX
from trunkline.bridge.inbox import Arrived, Batch, Rejected, take_in
from trunkline.bridge.plan import Plan, commit_plan, read_offsets
from trunkline.core.bundle import parse_bundle
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps

C, CC, EVENTS = "policy.localcompliance", "policy.localcompletecompliance", "event.localreplicatedpolicy"
MIB = 2**20


class Message:
    """As an agent of a managed hub sends it: every message has an id of its own."""

    _sent = 0

    def __init__(self, version: str, data: Any = (), *, kind: str = C, source: str = "h1", on: str = "", **more: str) -> None:
        Message._sent += 1
        self.queue = f"gh-status.{on or source}"
        self.sender = on or source
        self.payload = data if isinstance(data, bytes) else dumps(list(data))
        self.headers = {
            "ce_id": f"id-{Message._sent}", "ce_source": source, "ce_type": GLOBAL_HUB_PREFIX + kind,
            "ce_time": "2026-01-01T00:00:00Z", "ce_extversion": version,
        } | {f"ce_{name}": value for name, value in more.items()}  # fmt: skip

    def judged(self, hub: Hub, position: int) -> Arrived | Rejected:
        headers, payload = normalise(self.headers, self.payload, hub.types)
        try:
            return Arrived(hub.types.accept(parse_bundle(headers, payload, self.sender)), self.queue, position)
        except Invalid as error:
            return Rejected(self.sender, headers, payload, str(error), self.queue, position)


def take(hub: Hub, *messages: Message, at: int | None = None) -> None:
    """Takes them in, each at the next position of its queue; `at`: or, read once more, at this one."""
    start = read_offsets(hub.conn, GROUP)
    end = dict(start)
    judged = []
    for message in messages:
        following = end.get(message.queue, 1)
        judged.append(message.judged(hub, following if at is None else at))
        end[message.queue] = following + 1
    commit_plan(hub.conn, hub.grant, GROUP, start, end)
    batch = Batch(
        [one for one in judged if isinstance(one, Arrived)],
        [one for one in judged if isinstance(one, Rejected)],
        Counter(message.sender for message in messages),
    )
    hub.noticed = take_in(hub.conn, hub.grant, GROUP, Plan(start, end), hub.types, batch)


def policy(*compliant: str) -> list[dict[str, Any]]:
    return [{"policyId": "P1", "compliantClusters": list(compliant)}]


def clusters_of(hub: Hub) -> list[str]:
    return [name for (name,) in hub.rows("SELECT cluster_name FROM fleet.compliance WHERE policy_id = 'P1' ORDER BY 1")]


def applied(hub: Hub) -> tuple[int, int]:
    """Generation and value."""
    [version] = hub.rows("SELECT generation, value FROM bridge.ledger WHERE (site, type) = ('h1', 'clusters-per-policy')")
    return version[0], version[1]


def given_version_500_900(hub: Hub, **more: str) -> None:
    take(hub, *[Message(f"{n}.{n}") for n in range(1, 9)], Message("500.900", policy("old"), **more))
    hub.apply("h1", "clusters-per-policy")
    assert (applied(hub), clusters_of(hub)) == ((500, 900), ["old"])


def test_a_restart_with_generation_0_is_accepted_and_a_stray_of_the_old_run_does_not_overwrite_it(hub: Hub) -> None:
    given_version_500_900(hub)
    take(hub, Message("0.1", policy("new")))
    hub.apply("h1", "clusters-per-policy")
    assert (applied(hub), clusters_of(hub)) == ((0, 1), ["new"])
    take(hub, Message("501.901", policy("stray"), time="2026-01-01T01:00:00Z"), at=9)
    assert hub.inbox() == []
    assert hub.apply("h1", "clusters-per-policy") is None
    assert (applied(hub), clusters_of(hub)) == ((0, 1), ["new"])
    assert hub.counters("h1")["stale"] == 1
    take(hub, Message("1.2", policy("newer")))
    hub.apply("h1", "clusters-per-policy")
    assert clusters_of(hub) == ["newer"]


def test_a_silent_restart_is_known_by_its_session(hub: Hub) -> None:
    given_version_500_900(hub, sessionid="one")
    take(hub, Message("7.1", policy("same session"), sessionid="one"))
    hub.apply("h1", "clusters-per-policy")
    assert (applied(hub), clusters_of(hub)) == ((500, 900), ["old"])
    assert hub.counters("h1")["stale"] == 1
    take(hub, Message("7.1", policy("new session"), sessionid="two"))
    hub.apply("h1", "clusters-per-policy")
    assert (applied(hub), clusters_of(hub)) == ((7, 1), ["new session"])


def test_a_silent_restart_without_sessions_is_known_by_its_time(hub: Hub) -> None:
    given_version_500_900(hub)
    take(hub, Message("7.1", policy("not later")))
    hub.apply("h1", "clusters-per-policy")
    assert (applied(hub), clusters_of(hub)) == ((500, 900), ["old"])
    take(hub, Message("7.1", policy("later"), time="2026-01-01T00:00:01Z"))
    hub.apply("h1", "clusters-per-policy")
    assert (applied(hub), clusters_of(hub)) == ((7, 1), ["later"])


def places(hub: Hub) -> set[int]:
    """Positions of h1's queue whose messages are kept somewhere, not yet applied."""
    return {
        position
        for table in ("inbox", "quarantine", "chunk")
        for (position,) in hub.rows(f"SELECT position FROM bridge.{table} WHERE queue = 'gh-status.h1'")
    }


def test_the_stored_offset_never_passes_a_bundle_that_is_nowhere(hub: Hub) -> None:
    """1 to 3 applied; 4 to 7 pending, each in its place: the offset may stand at 8. What is not taken in is not passed."""
    take(hub, *[Message(f"0.{n}", [], kind=EVENTS) for n in range(1, 4)])
    hub.apply("h1", "policy-events")
    assert (places(hub), read_offsets(hub.conn, GROUP)) == (set(), {"gh-status.h1": 4})
    pending = [
        Message("1.4", [], kind=EVENTS),
        Message("1.1", policy("c1")),
        Message("1.2", b"half", extsize="8", extoffset="4"),
        Message("nonsense"),
    ]
    start = read_offsets(hub.conn, GROUP)
    commit_plan(hub.conn, hub.grant, GROUP, start, {"gh-status.h1": 8})
    assert read_offsets(hub.conn, GROUP) == {"gh-status.h1": 4}
    take(hub, *pending)
    assert (places(hub), read_offsets(hub.conn, GROUP)) == ({4, 5, 6, 7}, {"gh-status.h1": 8})


def test_s33_a_source_that_is_not_its_queues_is_dropped_counted_and_changes_no_row(hub: Hub) -> None:
    take(hub, Message("1.1", policy("c1")), Message("1.1", policy("c2"), source="h2"))
    hub.apply("h1", "clusters-per-policy")
    hub.apply("h2", "clusters-per-policy")
    tables = ("fleet.compliance", "bridge.ledger", "bridge.inbox", "bridge.run", "bridge.site", "bridge.resync")
    before = [hub.rows(f"SELECT t::text FROM {table} AS t ORDER BY 1") for table in tables]
    take(hub, Message("2.2", policy("forged"), source="h2", on="h1"))
    assert hub.noticed == []
    assert [hub.rows(f"SELECT t::text FROM {table} AS t ORDER BY 1") for table in tables] == before
    assert [hub.counters(site)["rejected"] for site in ("h1", "h2")] == [1, 0]
    [(site, reason)] = hub.rows("SELECT site, reason FROM bridge.quarantine")
    assert site == "h1"
    assert "its source 'h2' is not its sender 'h1'" in reason
    assert read_offsets(hub.conn, GROUP)["gh-status.h1"] == 3


def chunks(data: bytes, source: str) -> list[Message]:
    """At 10 MiB, as agents cut."""
    ends = [*range(10 * MIB, len(data), 10 * MIB), len(data)]
    return [
        Message("3.4", data[start:end], source=source, extsize=str(len(data)), extoffset=str(end))
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def test_interleaved_and_doubled_chunks_are_assembled_once_and_a_lone_one_waits(hub: Hub) -> None:
    large = dumps([{"policyId": "P1", "compliantClusters": ["c1"], "padding": "x" * (12 * MIB)}])
    [first, second], [other, other_second] = chunks(large, "h1"), chunks(large, "h2")
    assert len({first.headers["ce_id"], second.headers["ce_id"]}) == 2
    take(hub, first, other)
    take(hub, first, second)
    assert hub.rows("SELECT site, type, data FROM bridge.inbox") == [("h1", "clusters-per-policy", large)]
    assert [(w.site, w.type) for w in hub.noticed] == [("h1", "clusters-per-policy")]
    assert hub.rows("SELECT site, size, end_byte, queue, position FROM bridge.chunk") == [
        ("h2", len(large), 10 * MIB, "gh-status.h2", 1)
    ]
    assert read_offsets(hub.conn, GROUP) == {"gh-status.h1": 4, "gh-status.h2": 2}
    [counted] = hub.rows("SELECT received, joined, conflated FROM bridge.counter WHERE site = 'h1'")
    assert counted == (3, 1, 1)  # two parts are one bundle; one came twice
    hub.apply("h1", "clusters-per-policy")
    assert clusters_of(hub) == ["c1"]
    take(hub, other_second)
    assert hub.rows("SELECT site, data = %s FROM bridge.inbox", large) == [("h2", True)]
    assert hub.rows("SELECT 1 FROM bridge.chunk") == []


def test_a_dependent_without_its_dependency_goes_to_quarantine_and_the_stream_goes_on(hub: Hub) -> None:
    take(hub, Message("1.1", policy("c1")), Message("1.1", kind=CC), Message("2.2", policy("c2")))
    [(site, payload, reason, queue, position)] = hub.rows(
        "SELECT site, payload, reason, queue, position FROM bridge.quarantine"
    )
    assert (site, payload, queue, position) == ("h1", b"[]", "gh-status.h1", 2)
    assert "it names no version of clusters-per-policy" in reason
    assert [w.version.generation for w in hub.noticed] == [2]
    take(hub, Message("2.2", kind=CC, extdependencyversion="2.2"))
    assert hub.inbox() == [("h1", "clusters-per-policy", 2), ("h1", "complete-compliance", 2)]
    assert read_offsets(hub.conn, GROUP) == {"gh-status.h1": 5}
