"""Queues, sessions and entries as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.trunk import size

Seen = dict[str, Any]
UNKNOWN = "–"
STALE_SECONDS = 30


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def print(self) -> None:
        shown.print_table(self.columns, self.rows)


@dataclass(frozen=True)
class Words:
    lines: list[str]

    def print(self) -> None:
        for line in self.lines:
            typer.echo(line)


Part = Table | Words
_GAP = Words([""])


# -- ls


def listing(found: Seen) -> Iterator[Part]:
    log = found["log"]
    span = f"entries {log['lowest'] + 1} to {log['head']}" if log["head"] > log["lowest"] else f"empty, after {log['head']}"
    yield Words([f"{log['name']}: {span}, {size(log['bytes'])} on disk"])
    if found["sending"]:
        yield Table(("destination", "client", "acknowledged", "note"), [_sending(row) for row in found["sending"]])
    yield _GAP
    if found["receiving"]:
        columns = ("queue", "head", "waiting", "bytes", "session", "consumers")
        yield Table(columns, [_receiving(row) for row in found["receiving"]])
    else:
        yield Words(["no receive queue: nothing has arrived here yet"])
    if lines := [*_idle(found), *_requests(found), *_dead_letters(found)]:
        yield Words(["", *lines])


def _sending(row: Seen) -> tuple[str, ...]:
    note = ("too far behind: " if row["over_cap"] else "trimmed past it: ") + "a snapshot is needed"
    return (row["destination"], row["client"], str(row["acknowledged"]), note if row["needs_snapshot"] else "")


def _receiving(row: Seen) -> tuple[str, ...]:
    consumers = ", ".join(_consumer(one) for one in row["consumers"]) or "nobody reads it"
    waiting = f"{row['waiting']} (full)" if row["full"] else str(row["waiting"])
    return (row["name"], str(row["head"]), waiting, size(row["waiting_bytes"]), row["session"], consumers)


def _consumer(one: Seen) -> str:
    note = "detached" if one["detached"] else f"{one['behind']} behind" if one["behind"] else ""
    note += f", tried {one['tries']} times" if one["tries"] and not one["detached"] else ""
    return f"{shown.harmless(one['name'])} ({note})" if note else shown.harmless(one["name"])


def _idle(found: Seen) -> list[str]:
    return [
        f"the consumer {shown.harmless(one['name'])} of {one['client']} was idle for too long and is detached; "
        f"nothing waits for it"
        for one in found["consumers"]
        if one["detached"]
    ]


def _requests(found: Seen) -> list[str]:
    return [
        f"snapshot of {one['client']} for {', '.join(one['destinations'])}: {one['state']}, {one['records']} records, "
        f"{size(one['bytes'])}, asked {shown.ttl(round(one['age_seconds'] * 1000))} ago ({shown.harmless(one['reason'])})"
        for one in found["requests"]
    ]


def _dead_letters(found: Seen) -> list[str]:
    return [
        f"{one['letters']} dead letters of the consumer {shown.harmless(one['consumer'])} of {one['client']}: "
        f"trunkline queues replay {one['client']} {shown.harmless(one['consumer'])} --list"
        for one in found["dead_letters"]
    ]


# -- status


def sessions(found: Sequence[Seen]) -> Iterator[Part]:
    if not found:
        yield Words(["no session: nothing was sent and nothing has come, or no node leads this site yet"])
        return
    columns = ("role", "site", "client", "state", "base", "sent", "acknowledged", "applied", "behind", "oldest")
    yield Table(columns, [_session(one) for one in found])
    if lines := [*_stalls(found), *_stale(found)]:
        yield Words(["", *lines])


def _session(one: Seen) -> tuple[str, ...]:
    numbers = (_number(one[what]) for what in ("base", "sent", "acknowledged", "applied", "remaining"))
    oldest = UNKNOWN if one["unacknowledged_seconds"] is None else shown.ttl(round(one["unacknowledged_seconds"] * 1000))
    return (one["role"], one["remote"], one["client"], _state(one), *numbers, oldest)


def _state(one: Seen) -> str:
    """What it does; where the two ends do not speak, why."""
    if one["role"] == "source" and one["connection"] != "REPLICATING":
        return _plain(one["connection"])
    forced = " (forced)" if one["forced"] and one["type"] == "SNAPSHOT" else ""
    return _plain(one["state"]) + forced


def _plain(state: str) -> str:
    return shown.harmless(state).lower().replace("_", " ")


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _stalls(found: Sequence[Seen]) -> list[str]:
    ways = {"source": "to", "sink": "from"}
    return [
        f"{one['client']} {ways[one['role']]} {one['remote']} stands still: {shown.harmless(one['stall'])}"
        for one in found
        if one["stall"]
    ]


def _stale(found: Sequence[Seen]) -> list[str]:
    newest = min(one["age_seconds"] for one in found)
    old = f"this was written {shown.ttl(round(newest * 1000))} ago: no node leads this site now"
    return [old] if newest > STALE_SECONDS else []


# -- peek


def entries(found: Seen) -> Iterator[Part]:
    if not found["entries"]:
        yield Words([f"nothing in {found['name']} after {found['after']}"])
        return
    of_log = any(one["destinations"] is not None for one in found["entries"])
    columns = ("position", "kind", "client" if of_log else "seq", "for" if of_log else "message", "bytes", "headers", "payload")
    yield Table(columns, [_entry(one, of_log) for one in found["entries"]])


def _entry(one: Seen, of_log: bool) -> tuple[str, ...]:
    place = (one["client"], ",".join(one["destinations"] or ())) if of_log else (str(one["seq"]), one["message_id"])
    headers = ",".join(f"{name}={value}" for name, value in sorted(one["headers"].items()))
    text = one["text"] if one["text"] is not None else f"(base64) {one['base64']}"
    return (
        str(one["position"]), one["kind"], place[0], shown.shortened(place[1], 40), str(one["bytes"]),
        shown.shortened(headers, 40), shown.shortened(text + ("…" if one["cut"] else "")),
    )  # fmt: skip


# -- replay


def letters(found: Sequence[Seen]) -> Iterator[Part]:
    columns = ("id", "message", "from", "tries", "refused", "reason")
    yield Table(columns, [_letter(one) for one in found]) if found else Words(["no dead letters"])


def _letter(one: Seen) -> tuple[str, ...]:
    ago = f"{shown.ttl(round(one['age_seconds'] * 1000))} ago"
    return (str(one["id"]), one["message_id"], one["remote"], str(one["tries"]), ago, shown.shortened(one["reason"]))


# -- grant


def grants(found: Sequence[Seen]) -> Iterator[Part]:
    rows = [(one["client"], shown.harmless(one["role"]), one["since"]) for one in found]
    yield Table(("client", "role", "since"), rows) if rows else Words(["only owners of the queues may send"])
